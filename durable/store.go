package durable

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// Store is the limits of a cluster as a [store.Home]. Several limits of a request are one step of the owner: their permits are
// taken from all or none of them. The request is allowed when that is durable for all. A crash in between loses what was durable
// already.
type Store struct {
	node   *Node
	closed atomic.Bool
}

var _ store.Home = (*Store)(nil)

// NewStore returns the limits of the cluster of a node as a store. Closing it does not close the node. A nil n panics.
func NewStore(n *Node) *Store {
	if n == nil {
		panic("weir: durable: NewStore: nil node")
	}
	return &Store{node: n}
}

// begin returns why a call cannot be made. What is wrong with it comes first, then its context.
func (s *Store) begin(ctx context.Context, misuse error) error {
	mustContext(ctx)
	switch {
	case misuse != nil:
		return misuse
	case ctx.Err() != nil:
		return fmt.Errorf("weir: the owner of the limits was not asked: %w", ctx.Err())
	case s.closed.Load():
		return store.ErrClosed
	}
	return nil
}

// call makes a call, and returns its error as one of a store.
func (s *Store) call(ctx context.Context, c *Call) (Result, error) {
	if err := s.begin(ctx, c.check()); err != nil {
		return Result{}, err
	}
	r := s.node.Call(ctx, c)
	if r.Err != nil {
		return r, storeError(r.Err)
	}
	return r, nil
}

// storeError is an error that reports whether the store is unavailable.
func storeError(err error) error {
	_, misuse := errors.AsType[*weir.OptionError](err)
	if misuse || errors.Is(err, store.ErrNotReserved) || errors.Is(err, store.ErrUnavailable) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// Do implements [store.Home]. A request that may wait is told by its decisions that its context has ended.
func (s *Store) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if err := s.begin(ctx, store.CheckQueued(ask, charges, decisions)); err != nil {
		return s.mayTell(ctx, ask.Wait > 0, charges, decisions, store.Hold{}, err)
	}
	c := Call{Charges: charges}
	switch ask.Mode {
	case store.ModeTake:
		h, err := s.acquire(ctx, charges, decisions, ask)
		return s.mayTell(ctx, ask.Wait > 0, charges, decisions, h, err)
	case store.ModePeek:
		c.Kind = CallPeek
		if ask.States != nil {
			return store.Hold{}, s.inspect(ctx, charges, decisions, ask.States)
		}
	case store.ModeDebit:
		c.Kind = CallDebit
	case store.ModeRefund:
		c.Kind = CallRefund
	case store.ModeLend:
		return s.lend(ctx, charges[0], &decisions[0], ask.Least)
	default:
		return store.Hold{}, s.reset(ctx, charges)
	}
	r, err := s.call(ctx, &c)
	copy(decisions, r.Decisions)
	return store.Hold{}, err
}

// mayTell is the result of a call, where one whose context has ended may be told so by its decisions.
func (s *Store) mayTell(
	ctx context.Context, may bool, charges []store.Charge, decisions []weir.Decision, h store.Hold, err error,
) (store.Hold, error) {
	if why := ctx.Err(); may && why != nil && errors.Is(err, why) && !s.closed.Load() {
		s.tooLate(ctx, charges, decisions)
		err = nil
	}
	return h, err
}

// peekTime is how long the owner may take to tell what is left to somebody whose time was up.
const peekTime = 100 * time.Millisecond

// tooLate serves a request whose context has ended: one whose deadline has passed is told when to come back.
func (s *Store) tooLate(ctx context.Context, charges []store.Charge, decisions []weir.Decision) {
	none := notBegun(ctx, &Call{Charges: charges})
	if none.Outcome == Expired {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), peekTime)
		defer cancel()
		if store.Peek(short, s, charges, decisions) == nil {
			for i := range decisions {
				d := &decisions[i]
				if d.Reason == weir.ReasonNone || d.Reason == weir.ReasonLimited {
					d.Reason = weir.ReasonDeadline
				}
				d.Allowed, d.RetryAfter = false, max(d.RetryAfter, 1) // permits that are there now came a moment too late
			}
			return
		}
	}
	copy(decisions, none.Decisions)
}

// acquire takes or reserves permits. A context that ends before is an error.
func (s *Store) acquire(
	ctx context.Context, charges []store.Charge, decisions []weir.Decision, w store.Ask,
) (store.Hold, error) {
	if len(charges) == 1 {
		return s.acquireOne(ctx, &charges[0], &decisions[0], w)
	}
	r, err := s.call(ctx, &Call{Kind: CallTake, Charges: charges, Wait: w.Wait, Expiry: w.Hold})
	if err != nil {
		return store.Hold{}, err
	}
	if err := gone(ctx, r.Outcome, w.Wait); err != nil {
		return store.Hold{}, err
	}
	copy(decisions, r.Decisions)
	return reservation(r.ID, r.Expires, charges), nil
}

// acquireOne is acquire of one charge, which has a short way to the owner.
func (s *Store) acquireOne(ctx context.Context, c *store.Charge, d *weir.Decision, w store.Ask) (store.Hold, error) {
	r := Request{Policy: c.Policy, Key: c.Key, Limit: c.Limit, N: c.N, QueueLimit: c.Queue, Reserve: w.Hold, Wait: w.Wait}
	if c.Queue == 0 {
		r.Wait = 0
	}
	if owner := s.node.Owner(); owner != nil && ctx.Err() == nil && !s.closed.Load() {
		if a, ok := owner.quick(&r); ok {
			*d = a.Decision
			return store.Hold{}, nil
		}
	}
	call := Call{Kind: CallTake, Charges: []store.Charge{*c}, Wait: w.Wait, Expiry: w.Hold}
	if err := s.begin(ctx, call.check()); err != nil {
		return store.Hold{}, err
	}
	a := s.node.acquireOne(ctx, r)
	if a.Err != nil {
		return store.Hold{}, storeError(a.Err)
	}
	if err := gone(ctx, a.Outcome, r.Wait); err != nil {
		return store.Hold{}, err
	}
	*d = a.Decision
	return reservation(a.Reservation.ID, a.Reservation.Expires, call.Charges), nil
}

// gone is the error of a call that did not wait for permits, if its caller has gone or if the owner has.
func gone(ctx context.Context, why Outcome, wait time.Duration) error {
	switch {
	case (why == Canceled || why == Expired) && ctx.Err() != nil:
		return fmt.Errorf("weir: nothing was taken: %w", ctx.Err())
	case wait == 0 && (why == Stopping || why == Expired):
		return errOwnerGone
	}
	return nil
}

// reservation keeps nothing of the caller's.
func reservation(id string, expires int64, charges []store.Charge) store.Hold {
	if id == "" {
		return store.Hold{}
	}
	r := store.Hold{ID: id, Charges: make([]store.Charge, len(charges)), Expires: expires}
	for i, c := range charges {
		c.Policy, c.Key = strings.Clone(c.Policy), strings.Clone(c.Key)
		r.Charges[i] = c
	}
	return r
}

// inspect asks for one charge at a time what is kept for it.
func (s *Store) inspect(ctx context.Context, charges []store.Charge, decisions []weir.Decision, states []store.State) error {
	for i := range charges {
		r, err := s.call(ctx, &Call{Kind: CallInspect, Charges: charges[i : i+1]})
		if err != nil {
			return err
		}
		states[i], decisions[i] = r.State, r.State.Decision
	}
	return nil
}

// lend takes what there is of the permits of a charge, and least at least.
func (s *Store) lend(ctx context.Context, c store.Charge, d *weir.Decision, least int64) (store.Hold, error) {
	r, err := s.call(ctx, &Call{Kind: CallLend, Charges: []store.Charge{c}, Number: least})
	if err != nil {
		return store.Hold{}, err
	}
	if *d = r.Decisions[0]; r.Lent == 0 {
		return store.Hold{}, nil
	}
	c.N, c.Policy, c.Key = r.Lent, strings.Clone(c.Policy), strings.Clone(c.Key)
	return store.Hold{Charges: []store.Charge{c}, Taken: r.Taken}, nil
}

// reset forgets keys.
func (s *Store) reset(ctx context.Context, charges []store.Charge) error {
	for i := range charges {
		if _, err := s.call(ctx, oneCall(CallReset, charges[i].Policy, charges[i].Key, weir.Limit{})); err != nil {
			return err
		}
	}
	return nil
}

// Settle implements [store.Home].
func (s *Store) Settle(ctx context.Context, h store.Hold, actual []int64) error {
	if err := store.CheckSettle(h, actual); err != nil {
		return err //nolint:wrapcheck // it names what is wrong
	}
	c := Call{Kind: CallCommit, Charges: h.Charges, ID: h.ID, Expires: h.Expires, Actual: actual}
	switch {
	case h.ID == "" && len(h.Charges) == 1:
		c = Call{Kind: CallReturn, Charges: h.Charges, Number: h.Charges[0].N, Taken: h.Taken}
		if actual != nil {
			c.Number -= actual[0]
		}
	case actual == nil:
		c.Kind = CallCancel
	}
	_, err := s.call(ctx, &c)
	return err
}

// Close implements [store.Home]. The node goes on.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}
