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

// Store is the limits of a cluster as a [store.Queued]. Several limits of a request are one step of the owner: their permits are
// taken from all or none of them. The request is allowed when that is durable for all. A crash in between loses what was durable
// already.
type Store struct {
	node   *Node
	closed atomic.Bool
}

var _ store.Queued = (*Store)(nil)

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

// Take implements [store.Store].
func (s *Store) Take(ctx context.Context, charges []store.Charge, decisions []weir.Decision) error {
	_, err := s.acquire(ctx, charges, decisions, store.Waiting{})
	return err
}

// Reserve implements [store.Store].
func (s *Store) Reserve(
	ctx context.Context, charges []store.Charge, decisions []weir.Decision, expiry time.Duration,
) (store.Reservation, error) {
	if err := store.CheckExpiry(expiry); err != nil {
		return store.Reservation{}, err //nolint:wrapcheck // it names what is wrong
	}
	return s.acquire(ctx, charges, decisions, store.Waiting{Expiry: expiry})
}

// Acquire implements [store.Queued]. A context that has ended is told by the decisions, too.
func (s *Store) Acquire(
	ctx context.Context, charges []store.Charge, decisions []weir.Decision, w store.Waiting,
) (store.Reservation, error) {
	r, err := s.acquire(ctx, charges, decisions, w)
	if why := ctx.Err(); why != nil && errors.Is(err, why) && !s.closed.Load() {
		s.tooLate(ctx, charges, decisions)
		err = nil
	}
	if err == nil {
		err = store.Refusal(ctx, charges, decisions)
	}
	return r, err //nolint:wrapcheck // it is a *weir.RefusedError, or wrapped already
}

// peekTime is how long the owner may take to tell what is left to somebody whose time was up.
const peekTime = 100 * time.Millisecond

// tooLate serves a request whose context has ended: one whose deadline has passed is told when to come back.
func (s *Store) tooLate(ctx context.Context, charges []store.Charge, decisions []weir.Decision) {
	none := notBegun(ctx, &Call{Charges: charges})
	if none.Outcome == Expired {
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), peekTime)
		defer cancel()
		if s.Peek(short, charges, decisions) == nil {
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
	ctx context.Context, charges []store.Charge, decisions []weir.Decision, w store.Waiting,
) (store.Reservation, error) {
	if err := store.CheckDecisions(charges, decisions); err != nil {
		return store.Reservation{}, err //nolint:wrapcheck // it names what is wrong
	}
	if len(charges) == 1 {
		return s.acquireOne(ctx, &charges[0], &decisions[0], w)
	}
	r, err := s.call(ctx, &Call{Kind: CallTake, Charges: charges, Wait: w.Most, Expiry: w.Expiry})
	if err != nil {
		return store.Reservation{}, err
	}
	if err := gone(ctx, r.Outcome, w.Most); err != nil {
		return store.Reservation{}, err
	}
	copy(decisions, r.Decisions)
	return reservation(r.ID, r.Expires, charges), nil
}

// acquireOne is acquire of one charge, which has a short way to the owner.
func (s *Store) acquireOne(ctx context.Context, c *store.Charge, d *weir.Decision, w store.Waiting) (store.Reservation, error) {
	r := Request{Policy: c.Policy, Key: c.Key, Limit: c.Limit, N: c.N, QueueLimit: c.Queue, Reserve: w.Expiry, Wait: w.Most}
	if c.Queue == 0 {
		r.Wait = 0
	}
	if owner := s.node.Owner(); owner != nil && ctx.Err() == nil && !s.closed.Load() {
		if a, ok := owner.quick(&r); ok {
			*d = a.Decision
			return store.Reservation{}, nil
		}
	}
	call := Call{Kind: CallTake, Charges: []store.Charge{*c}, Wait: w.Most, Expiry: w.Expiry}
	if err := s.begin(ctx, call.check()); err != nil {
		return store.Reservation{}, err
	}
	a := s.node.acquireOne(ctx, r)
	if a.Err != nil {
		return store.Reservation{}, storeError(a.Err)
	}
	if err := gone(ctx, a.Outcome, r.Wait); err != nil {
		return store.Reservation{}, err
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
func reservation(id string, expires int64, charges []store.Charge) store.Reservation {
	if id == "" {
		return store.Reservation{}
	}
	r := store.Reservation{ID: id, Charges: make([]store.Charge, len(charges)), Expires: expires}
	for i, c := range charges {
		c.Policy, c.Key = strings.Clone(c.Policy), strings.Clone(c.Key)
		r.Charges[i] = c
	}
	return r
}

// Peek implements [store.Store].
func (s *Store) Peek(ctx context.Context, charges []store.Charge, decisions []weir.Decision) error {
	if err := store.CheckDecisions(charges, decisions); err != nil {
		return err //nolint:wrapcheck // it names what is wrong
	}
	r, err := s.call(ctx, &Call{Kind: CallPeek, Charges: charges})
	copy(decisions, r.Decisions)
	return err
}

// Refund implements [store.Store].
func (s *Store) Refund(ctx context.Context, charges []store.Charge) error {
	_, err := s.call(ctx, &Call{Kind: CallRefund, Charges: charges})
	return err
}

// Commit implements [store.Store].
func (s *Store) Commit(ctx context.Context, r store.Reservation, actual []int64) error {
	_, err := s.call(ctx, &Call{Kind: CallCommit, Charges: r.Charges, ID: r.ID, Expires: r.Expires, Actual: actual})
	return err
}

// Cancel implements [store.Store].
func (s *Store) Cancel(ctx context.Context, r store.Reservation) error {
	_, err := s.call(ctx, &Call{Kind: CallCancel, Charges: r.Charges, ID: r.ID, Expires: r.Expires})
	return err
}

// Debit implements [store.Store].
func (s *Store) Debit(ctx context.Context, charges []store.Charge, decisions []weir.Decision) error {
	if err := store.CheckDecisions(charges, decisions); err != nil {
		return err //nolint:wrapcheck // it names what is wrong
	}
	r, err := s.call(ctx, &Call{Kind: CallDebit, Charges: charges})
	copy(decisions, r.Decisions)
	return err
}

// Lend implements [store.Store].
func (s *Store) Lend(ctx context.Context, c store.Charge, least int64) (store.Loan, weir.Decision, error) {
	r, err := s.call(ctx, &Call{Kind: CallLend, Charges: []store.Charge{c}, Number: least})
	if err != nil {
		return store.Loan{}, weir.Decision{}, err
	}
	if r.Lent == 0 {
		return store.Loan{}, r.Decisions[0], nil
	}
	c.N, c.Policy, c.Key = r.Lent, strings.Clone(c.Policy), strings.Clone(c.Key)
	return store.Loan{Charge: c, Taken: r.Taken}, r.Decisions[0], nil
}

// Return implements [store.Store].
func (s *Store) Return(ctx context.Context, l store.Loan, unspent int64) error {
	if l.Charge.N == 0 {
		return nil
	}
	_, err := s.call(ctx, &Call{Kind: CallReturn, Charges: []store.Charge{l.Charge}, Number: unspent, Taken: l.Taken})
	return err
}

// Reset implements [store.Store].
func (s *Store) Reset(ctx context.Context, policy, key string) error {
	_, err := s.call(ctx, oneCall(CallReset, policy, key, weir.Limit{}))
	return err
}

// Inspect implements [store.Store].
func (s *Store) Inspect(ctx context.Context, c store.Charge) (store.State, error) {
	c.N = 0
	r, err := s.call(ctx, &Call{Kind: CallInspect, Charges: []store.Charge{c}})
	return r.State, err
}

// Close implements [store.Store]. The node goes on.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}
