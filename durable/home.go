package durable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

var _ store.Home = (*Node)(nil)

// caller carries a call out: an [Owner], or a [Node] that asks one.
type caller interface {
	call(ctx context.Context, c *Call) Result
}

// do is Do of a [store.Home].
func do(
	ctx context.Context, to caller, ask store.Ask, charges []store.Charge, decisions []weir.Decision,
) (store.Hold, error) {
	c := &Call{Verb: VerbDo, Ask: ask, Charges: charges}
	if err := c.check(decisions); err != nil {
		return store.Hold{}, err
	}
	waits := ask.Wait > 0 && slices.ContainsFunc(charges, func(c store.Charge) bool { return c.Queue > 0 })
	if !waits {
		c.Ask.Wait = 0
	}
	var r Result
	if ctx.Err() != nil {
		r = notBegun(ctx, c)
	} else {
		r = to.call(ctx, c)
	}
	switch {
	case r.Err != nil:
		return store.Hold{}, storeError(r.Err)
	case ctx.Err() != nil && (r.Reason == weir.ReasonCanceled || r.Reason == weir.ReasonDeadline):
		if ask.Wait == 0 {
			return store.Hold{}, notDone(ctx)
		}
		r = tooLate(ctx, to, c)
	case c.takes() && !waits && (r.Reason == weir.ReasonClosed || r.Reason == weir.ReasonDeadline):
		return store.Hold{}, errOwnerGone
	}
	copy(decisions, r.Decisions)
	copy(ask.States, r.States)
	return held(r.Hold, r.Lent, charges), nil
}

// held is a hold with its charges, which keeps nothing of the caller's.
func held(h store.Hold, lent int64, charges []store.Charge) store.Hold {
	if h.ID == "" && lent == 0 {
		return store.Hold{}
	}
	h.Charges = slices.Clone(charges)
	for i := range h.Charges {
		c := &h.Charges[i]
		c.Policy, c.Key = strings.Clone(c.Policy), strings.Clone(c.Key)
		if lent > 0 {
			c.N = lent
		}
	}
	return h
}

// storeError is an error that reports whether the store is unavailable.
func storeError(err error) error {
	if _, misuse := errors.AsType[*weir.OptionError](err); misuse {
		return err
	}
	for _, known := range []error{
		store.ErrNotReserved, store.ErrUnavailable, store.ErrClosed, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, known) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// peekTime is how long the owner may take to return what is left to a request whose time was up.
const peekTime = 100 * time.Millisecond

// notDone is the error of a call that was not begun, or that has taken nothing, as its context has ended.
func notDone(ctx context.Context) error {
	return fmt.Errorf("weir: the owner of the limits has done nothing: %w", ctx.Err())
}

// tooLate is the result of a request that would wait for permits, but whose context has ended. If its deadline has passed, it has
// when to come back.
func tooLate(ctx context.Context, to caller, c *Call) Result {
	none := notBegun(ctx, c)
	if none.Reason != weir.ReasonDeadline {
		return none
	}
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), peekTime)
	defer cancel()
	r := to.call(short, &Call{Verb: VerbDo, Ask: store.Ask{Mode: store.ModePeek}, Charges: c.Charges})
	if r.Err != nil {
		return none
	}
	for i := range r.Decisions {
		d := &r.Decisions[i]
		if d.Reason == weir.ReasonNone || d.Reason == weir.ReasonLimited {
			d.Reason = weir.ReasonDeadline
		}
		d.Allowed, d.RetryAfter = false, max(d.RetryAfter, 1) // permits that are there now came a moment too late
	}
	return r
}

// settle is Settle of a [store.Home].
func settle(ctx context.Context, to caller, h store.Hold, actual []int64) error {
	mustContext(ctx)
	if err := store.CheckSettle(h, actual); err != nil || h.ID == "" && len(h.Charges) == 0 {
		return err //nolint:wrapcheck // it names what is wrong
	}
	c := &Call{Verb: VerbSettle, Hold: h, Charges: h.Charges, Actual: actual}
	if ctx.Err() != nil {
		return notDone(ctx)
	}
	if r := to.call(ctx, c); r.Err != nil {
		return storeError(r.Err)
	}
	return nil
}

// adjust is [Owner.Adjust].
func adjust(ctx context.Context, to caller, l weir.Limit, a Adjustment) (Adjustment, error) {
	mustContext(ctx)
	r := to.call(ctx, &Call{
		Verb: VerbAdjust, Charges: []store.Charge{{Policy: a.Policy, Key: a.Key, Limit: l}}, Adjustment: &a,
	})
	if r.Err != nil {
		return a, r.Err
	}
	return r.Adjustments[0], nil
}

// listAdjustments is [Owner.Adjustments].
func listAdjustments(ctx context.Context, to caller, policy, key string, most int) ([]Adjustment, error) {
	mustContext(ctx)
	r := to.call(ctx, &Call{Verb: VerbAdjustments, Charges: []store.Charge{{Policy: policy, Key: key}}, Most: most})
	return r.Adjustments, r.Err
}

// Do implements [store.Home]: the owner decides, at whichever node it is. A request that waits is withdrawn if its context ends,
// and one whose owner ends its term is refused with ReasonClosed, unless NodeOptions.Requeue is set.
func (n *Node) Do(
	ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision,
) (store.Hold, error) {
	mustContext(ctx)
	if o := n.Owner(); o != nil && o.quick(ctx, &ask, charges, decisions) {
		return store.Hold{}, nil
	}
	return do(ctx, n, ask, charges, decisions)
}

// Settle implements [store.Home].
func (n *Node) Settle(ctx context.Context, h store.Hold, actual []int64) error {
	return settle(ctx, n, h, actual)
}

// Adjust is [Owner.Adjust], at whichever node the owner is.
func (n *Node) Adjust(ctx context.Context, l weir.Limit, a Adjustment) (Adjustment, error) {
	return adjust(ctx, n, l, a)
}

// Adjustments is [Owner.Adjustments], at whichever node the owner is.
func (n *Node) Adjustments(ctx context.Context, policy, key string, most int) ([]Adjustment, error) {
	return listAdjustments(ctx, n, policy, key, most)
}

// errNotOwner says that the process that was asked does not own the limits, and did nothing: the owner can be asked instead.
var errNotOwner = fmt.Errorf("%w: the process that was asked does not own the limits", store.ErrUnavailable)

// errOwnerGone says that an owner has gone before it returned a result.
var errOwnerGone = fmt.Errorf("%w: the owner of the limits has gone", store.ErrUnavailable)

// call has the owner carry a call out, at whichever node it is. The Wait of the call becomes what is left of it.
func (n *Node) call(ctx context.Context, c *Call) Result {
	waits, deadline := c.Ask.Wait > 0, time.Now().Add(c.Ask.Wait)
	for {
		r := n.callOnce(ctx, c, waits, deadline)
		gone := r.Reason == weir.ReasonClosed || errors.Is(r.Err, errOwnerGone)
		if again := n.options.Requeue && c.takes() && waits && gone; !again {
			return r
		}
		_, _, changed, _ := n.route()
		news(ctx, changed) // an owner that says so again and again is not asked all the time
	}
}

// errSilent says that an owner, which can be reached, has not said what has become of a request.
var errSilent = fmt.Errorf("%w: the owner of the limits does not respond: it is not known whether it was done",
	store.ErrUnavailable)

// silentWrites is for how many writes a request waits at most: one key is read, another is written, and there is one to spare.
const silentWrites = 3

// callPeer has the owner in another process carry a call out. One that may have been, but of which that says nothing, fails.
func (n *Node) callPeer(ctx context.Context, peer Peer, c *Call) Result {
	patient, cancel := context.WithTimeout(ctx, c.Ask.Wait+silentWrites*n.options.Owner.WriteTimeout)
	defer cancel()
	r := peer.Call(patient, c)
	if patient.Err() == nil || ctx.Err() != nil {
		return r
	}
	if r.Reason == weir.ReasonDeadline || errors.Is(r.Err, context.DeadlineExceeded) {
		return failed(errSilent)
	}
	return r
}

// callOnce asks the owner once; processes that turn out not to be the owner are not counted.
func (n *Node) callOnce(ctx context.Context, c *Call, waits bool, deadline time.Time) (r Result) {
	most := n.options.OwnerWait
	if c.takes() {
		most = min(most, max(time.Until(deadline), time.Second))
	}
	var u unsure
	err := n.ask(ctx, most, func(owner *Owner, peer Peer) bool {
		if waits {
			if c.Ask.Wait = time.Until(deadline); c.Ask.Wait <= 0 {
				r = refusedAll(c, weir.ReasonDeadline)
				return true
			}
		}
		if owner != nil {
			r = owner.call(ctx, c)
		} else {
			r = n.callPeer(ctx, peer, c)
		}
		if r.Reason == weir.ReasonCanceled && ctx.Err() == nil { // it is the owner that goes
			r = refusedAll(c, weir.ReasonClosed)
		}
		switch {
		case c.takes():
			return !errors.Is(r.Err, errNotOwner) && (r.Reason != weir.ReasonClosed || waits)
		case c.repeatable():
			return u.settled(r.Err)
		default:
			return !errors.Is(r.Err, errNotOwner)
		}
	})
	switch {
	case u.gone != nil:
		if err = u.result(err); err != nil {
			return failed(err)
		}
		return r
	case err == nil:
		return r
	case ctx.Err() != nil && c.takes():
		return notBegun(ctx, c)
	case ctx.Err() != nil:
		return failed(fmt.Errorf("weir: the owner of the limits was not asked: %w", ctx.Err()))
	}
	return failed(err)
}

// repeatable reports whether a call is done once even if it is made twice.
func (c *Call) repeatable() bool {
	switch c.Verb {
	case VerbDo:
		return c.Ask.Mode == store.ModePeek
	case VerbSettle:
		return !c.lent()
	default:
		return c.Verb == VerbAdjustments
	}
}

// unsure is for what can be asked again if the owner has gone before it returned a result: it is done once even if that is asked
// twice.
type unsure struct {
	gone error // that of an owner that may have done it
	err  error
}

// settled reports whether an error is a result.
func (u *unsure) settled(err error) bool {
	if errors.Is(err, errOwnerGone) {
		u.gone = err
		return false
	}
	u.err = err
	return !errors.Is(err, errNotOwner)
}

// result is the last word; missing says that there was no owner to ask in the end.
func (u *unsure) result(missing error) error {
	switch {
	case u.gone != nil && (missing != nil || errors.Is(u.err, ErrNotReserved)): // maybe because it was done
		return u.gone
	case missing != nil:
		return missing
	}
	return u.err
}

// ask asks one owner after the other until one has done something. It waits for an owner at most so long.
func (n *Node) ask(ctx context.Context, most time.Duration, f func(owner *Owner, peer Peer) (done bool)) error {
	begin := time.Now()
	for {
		owner, peer, changed, err := n.find(ctx, most-time.Since(begin))
		if err != nil {
			return err
		}
		if f(owner, peer) {
			return nil
		}
		news(ctx, changed)
	}
}

// news waits a moment for news of the owner.
func news(ctx context.Context, changed <-chan struct{}) {
	short, cancel := context.WithTimeout(ctx, retryNotOwner)
	defer cancel()
	select {
	case <-changed:
	case <-short.Done():
	}
}

// retryNotOwner is how long to wait for news of the owner before a process that was not the owner is asked again.
const retryNotOwner = 20 * time.Millisecond

// withdrawTime is how long to wait for what has become of a request that was withdrawn.
const withdrawTime = time.Second

// find is where to ask, for which it waits at most so long, and what is closed when that changes.
//
//nolint:ireturn // there are several kinds of peers
func (n *Node) find(ctx context.Context, most time.Duration) (*Owner, Peer, <-chan struct{}, error) {
	if most <= 0 {
		return nil, nil, nil, ErrNoOwner
	}
	owner, peer, changed, closed := n.route()
	if owner == nil && peer == nil && !closed {
		timer := time.NewTimer(most)
		defer timer.Stop()
		for owner == nil && peer == nil && !closed {
			select {
			case <-changed:
			case <-ctx.Done():
				return nil, nil, nil, fmt.Errorf("weir: no owner was found: %w", ctx.Err())
			case <-timer.C:
				return nil, nil, nil, ErrNoOwner
			}
			owner, peer, changed, closed = n.route()
		}
	}
	if closed {
		return nil, nil, nil, ErrNodeClosed
	}
	return owner, peer, changed, nil
}
