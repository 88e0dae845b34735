package durable

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir"
)

// TryAcquire asks for permits without waiting for them, whatever the Wait of the request is: see [Node.Acquire].
func (n *Node) TryAcquire(ctx context.Context, r Request) Answer {
	r.Wait = 0
	return n.Acquire(ctx, r)
}

// Adjust is [Owner.Adjust], at whichever node the owner is.
func (n *Node) Adjust(ctx context.Context, l weir.Limit, a Adjustment) (Adjustment, error) {
	c := oneCall(CallAdjust, a.Policy, a.Key, l)
	c.Adjustment = a
	r := n.Call(ctx, c)
	if r.Err != nil {
		return a, r.Err
	}
	return r.Adjustments[0], nil
}

// Adjustments is [Owner.Adjustments], at whichever node the owner is.
func (n *Node) Adjustments(ctx context.Context, policy, key string, most int) ([]Adjustment, error) {
	c := oneCall(CallAdjustments, policy, key, weir.Limit{})
	c.Number = int64(most)
	r := n.Call(ctx, c)
	return r.Adjustments, r.Err
}

// Inspect is [Owner.Inspect], at whichever node the owner is.
func (n *Node) Inspect(ctx context.Context, policy, key string, l weir.Limit) (weir.Decision, error) {
	r := n.Call(ctx, oneCall(CallInspect, policy, key, l))
	return r.State.Decision, r.Err
}

// Call is [Owner.Call], at whichever node the owner is.
func (n *Node) Call(ctx context.Context, c *Call) Result {
	mustContext(ctx)
	deadline := time.Now().Add(c.Wait)
	for {
		r := n.call(ctx, c)
		gone := r.Outcome == Stopping || errors.Is(r.Err, errOwnerGone)
		if again := n.options.Requeue && c.Kind == CallTake && c.Wait > 0 && gone; !again {
			return r
		}
		next := *c
		if next.Wait = time.Until(deadline); next.Wait <= 0 {
			return refusedAll(c, Expired)
		}
		c = &next
	}
}

// call asks once whoever is the owner; those who turn out not to be are not counted.
func (n *Node) call(ctx context.Context, c *Call) (r Result) {
	begin, most := time.Now(), n.options.OwnerWait
	if c.Kind == CallTake {
		most = min(most, max(c.Wait, time.Second))
	}
	var u unsure
	err := n.ask(ctx, most, func(owner *Owner, peer Peer) bool {
		asked := c
		if since := time.Since(begin); c.Wait > 0 && since > 0 {
			less := *c
			if less.Wait -= since; less.Wait <= 0 {
				r = refusedAll(c, Expired)
				return true
			}
			asked = &less
		}
		if owner != nil {
			r = owner.Call(ctx, asked)
		} else {
			r = peer.Call(ctx, asked)
		}
		if r.Outcome == Canceled && ctx.Err() == nil { // it is the owner that goes
			r = refusedAll(c, Stopping)
		}
		switch c.Kind {
		case CallTake:
			return !errors.Is(r.Err, errNotOwner) && (r.Outcome != Stopping || c.Wait > 0)
		case CallCommit, CallCancel, CallPeek, CallInspect, CallAdjustments: // which can be called again
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
	case ctx.Err() != nil && c.Kind == CallTake:
		return notBegun(ctx, c)
	case ctx.Err() != nil:
		return failed(fmt.Errorf("weir: the owner of the limits was not asked: %w", ctx.Err()))
	}
	return failed(err)
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

// acquireOne is Acquire, but asks the next owner at once where one that stops would not let a request wait.
func (n *Node) acquireOne(ctx context.Context, r Request) Answer {
	for begin := time.Now(); ; {
		a := n.Acquire(ctx, r)
		if a.Outcome != Stopping || r.Wait > 0 || time.Since(begin) > n.options.OwnerWait {
			return a
		}
	}
}
