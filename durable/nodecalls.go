package durable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

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

// errNotOwner says that whoever was asked does not own the limits, and did nothing: whoever does can be asked instead.
var errNotOwner = fmt.Errorf("%w: the process that was asked does not own the limits", store.ErrUnavailable)

// errOwnerGone says that an owner has gone before it had answered.
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
	}
}

// callOnce asks once whoever is the owner; those who turn out not to be are not counted.
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
			r = peer.Call(ctx, c)
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

// unsure is for what can be asked again if the owner has gone before it had answered: it is done once even if that is asked
// twice.
type unsure struct {
	gone error // that of an owner that may have done it
	err  error
}

// settled reports whether an error is an answer.
func (u *unsure) settled(err error) bool {
	if errors.Is(err, errOwnerGone) {
		u.gone = err
		return false
	}
	u.err = err
	return !errors.Is(err, errNotOwner)
}

// result is the last word; missing says that there was nobody to ask in the end.
func (u *unsure) result(missing error) error {
	switch {
	case u.gone != nil && (missing != nil || errors.Is(u.err, ErrNotReserved)): // maybe because it was done
		return u.gone
	case missing != nil:
		return missing
	}
	return u.err
}

// ask asks whoever is the owner until it is one that has done something, for whom it waits at most so long.
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

// retryNotOwner is how long to wait for news of the owner before somebody who was not it is asked again.
const retryNotOwner = 20 * time.Millisecond

// withdrawTime is how long to wait for what has become of a request that was withdrawn.
const withdrawTime = time.Second

// find is whom to ask, for whom it waits at most so long, and what is closed when that changes.
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
