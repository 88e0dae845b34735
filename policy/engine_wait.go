package policy

import (
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir"
)

func (e *Engine) wait(ctx context.Context, r *Request, v *Verdict, reserve bool) error {
	s := e.live.Load()
	e.sample(ctx, s, r)
	e.counts.requests.Add()
	one := [1]*Request{r}
	if !e.prepare(s, one[:], v) || e.refusedAhead(s, v) {
		return nil
	}
	w := &v.work
	if len(v.Parts) == 0 {
		e.conclude(ctx, s, v)
		return nil
	}
	longest, queue, owner := w.longest()
	shared := len(w.sharing.asked) > 0
	if !queue && ctx.Err() == nil {
		if !shared {
			v.take(reserve)
		} else if err := e.takeShared(ctx, v, reserve); err != nil {
			e.canceled(v)
			return err
		}
		e.conclude(ctx, s, v)
		return nil
	}
	w.owed = w.owed || reserve
	began := time.Now()
	err := e.waitLocal(ctx, longest, v, shared || reserve)
	switch {
	case err == nil && shared:
		most := never
		if owner {
			most = max(longest-time.Since(began), 0)
		}
		if err = e.takeStored(ctx, v, reserve, most); err != nil {
			e.canceled(v)
			return err
		}
	case err == nil:
		v.fill()
	case ctx.Err() == nil && e.closed.Load():
		v.giveUp(weir.ReasonClosed, weir.Never)
	case ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded):
		v.tooLate()
	default:
		v.giveUp(weir.ReasonCanceled, 0)
		e.canceled(v)
		return err
	}
	e.conclude(ctx, s, v)
	return nil
}

// longest is how long a request waits at most, whether there is a queue at all, and whether there is one of the owner of the
// cluster.
func (w *work) longest() (longest time.Duration, queue, owner bool) {
	longest = mostWait
	for i := range w.items {
		if it := &w.items[i]; it.first >= 0 && it.policy.queue {
			longest, queue, owner = min(longest, it.policy.maxWait), true, owner || it.policy.durable
		}
	}
	return longest, queue, owner
}

// waitLocal waits for the limits of this process.
func (e *Engine) waitLocal(ctx context.Context, longest time.Duration, v *Verdict, reserve bool) (err error) {
	w := &v.work
	if len(w.charges) == 0 {
		return ctx.Err()
	}
	bounded, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	defer context.AfterFunc(e.ending, cancel)() //nolint:contextcheck // it is not that of the request
	if reserve {
		w.leases, v.Binding, err = weir.ReserveAll(bounded, w.leases, w.charges...)
	} else {
		w.leases, v.Binding, err = weir.AcquireAll(bounded, w.leases, w.charges...)
	}
	if err != nil && len(w.sharing.asked) > 0 {
		v.Binding = v.partOfLocal(v.Binding)
	}
	return err
}

// giveUp refuses for a reason that has nothing to do with the permits.
func (v *Verdict) giveUp(why weir.Reason, retryAfter time.Duration) {
	v.peekParts()
	v.Allowed = false
	d := &v.Parts[v.Binding].Decision
	d.Allowed, d.Reason, d.RetryAfter = false, why, retryAfter
}

// tooLate is the answer when the time was up before the permits came.
func (v *Verdict) tooLate() {
	waited := v.Binding
	v.peekParts()
	if v.Binding >= 0 && v.Parts[v.Binding].Decision.Allowed {
		v.Binding = max(waited, 0) // permits came a moment too late
		v.Parts[v.Binding].Decision.RetryAfter = 1
	}
	v.Allowed = false
	d := &v.Parts[v.Binding].Decision
	d.Allowed = false
	if d.Reason == weir.ReasonNone || d.Reason == weir.ReasonLimited {
		d.Reason = weir.ReasonDeadline
	}
}
