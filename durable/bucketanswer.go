package durable

import (
	"math"
	"math/bits"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/store"
)

// answers are those whose waiters have been decided. They are told once the lock has been let go.
type answers []*waiter

func (a *answers) add(w *waiter) {
	w.stage = stageAnswered
	w.counts.count(w.decision[0].Reason)
	*a = append(*a, w)
}

func (a answers) give() {
	for _, w := range a {
		w.done(w)
	}
}

func (b *bucket) decision(c *store.Charge, result algo.Result) weir.Decision {
	return weir.Decision{
		Allowed: result.Allowed, Limit: b.state.Most(), Remaining: result.Remaining, RetryAfter: result.RetryAfter,
		ResetAfter: result.ResetAfter, Policy: c.Policy,
	}
}

// refuse answers a waiter that gets nothing.
func (b *bucket) refuse(w *waiter, why weir.Reason, result algo.Result, after *answers) {
	if w.refuse(why); why != weir.ReasonUnavailable {
		w.decision[0] = b.refusal(&w.charge, why, result)
	}
	if d := &w.decision[0]; comesBack(why) && w.hold > 0 && result.Allowed && b.queue.Len() == 0 && b.state.Full() {
		d.Reason, d.RetryAfter = weir.ReasonTableFull, b.state.UntilExpiry()
	}
	after.add(w)
}

// refusal is the decision about a charge that gets nothing.
func (b *bucket) refusal(c *store.Charge, why weir.Reason, result algo.Result) weir.Decision {
	d := weir.Decision{
		Reason: why, Remaining: result.Remaining, RetryAfter: result.RetryAfter, ResetAfter: result.ResetAfter, Policy: c.Policy,
	}
	if b.state != nil {
		d.Limit = b.state.Most()
	}
	switch {
	case why == weir.ReasonNever:
		d.RetryAfter = weir.Never
	case comesBack(why) && b.state != nil && b.queue.Len() > 0:
		d.RetryAfter = b.untilTurn(c.N)
	}
	return d
}

// comesBack reports whether the limit would allow a request later that it refuses now.
func comesBack(why weir.Reason) bool {
	return why == weir.ReasonLimited || why == weir.ReasonQueueFull || why == weir.ReasonDeadline
}

// untilTurn is how long it takes, if nobody goes away, until n permits are there beside those that are waited for; at least so
// long where only the next window is known.
func (b *bucket) untilTurn(n int64) time.Duration {
	all, most := b.queue.Permits()+max(n, 1), b.state.Most()
	if all <= most {
		return b.state.Peek(all).RetryAfter
	}
	wait, rest := b.state.Peek(most).RetryAfter, uint64(all-most)
	limit := b.state.Limit()
	permits, period := uint64(limit.Rate().Permits), uint64(limit.Rate().Period)
	switch limit.Algorithm() {
	case weir.AlgorithmConcurrency, weir.AlgorithmCalendarWindow:
		return wait
	case weir.AlgorithmTokenBucket:
	default: // they come by windows
		rest = (rest + permits - 1) / permits * permits
	}
	hi, lo := bits.Mul64(rest, period)
	if hi >= permits {
		return math.MaxInt64 - 1 // which is not weir.Never
	}
	more, part := bits.Div64(hi, lo, permits)
	if part > 0 {
		more++
	}
	if more > math.MaxInt64-1-uint64(wait) {
		return math.MaxInt64 - 1
	}
	return wait + time.Duration(more)
}
