package durable

import (
	"math"
	"math/bits"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// answers are given once the lock has been let go.
type answers []pending

type pending struct {
	give   func(Answer)
	answer Answer
}

func (a *answers) add(w *waiter, answer Answer) {
	w.stage = stageAnswered
	w.counts.count(answer.Outcome)
	*a = append(*a, pending{w.answer, answer})
}

func (a answers) give() {
	for i := range a {
		a[i].give(a[i].answer)
	}
}

func (b *bucket) decision(r *Request, result algo.Result) weir.Decision {
	return weir.Decision{
		Allowed: result.Allowed, Limit: b.state.Most(), Remaining: result.Remaining, RetryAfter: result.RetryAfter,
		ResetAfter: result.ResetAfter, Policy: r.Policy,
	}
}

// refusal is the answer to a request that gets nothing.
func (b *bucket) refusal(r *Request, why Outcome, result algo.Result) Answer {
	d := weir.Decision{
		Reason: reasons[why], Remaining: result.Remaining, RetryAfter: result.RetryAfter, ResetAfter: result.ResetAfter,
		Policy: r.Policy,
	}
	if b.state != nil {
		d.Limit = b.state.Most()
	}
	switch {
	case why == Never:
		d.RetryAfter = weir.Never
	case b.state != nil && (why == Refused || why == QueueFull || why == Expired):
		if b.queue.Len() > 0 {
			d.RetryAfter = b.untilTurn(r.N)
		} else if result.Allowed && r.Reserve > 0 && b.state.Full() {
			d.Reason, d.RetryAfter = weir.ReasonTableFull, b.state.UntilExpiry()
		}
	}
	return Answer{Outcome: why, Decision: d}
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

func unavailable(w *waiter, err error) Answer {
	return Answer{
		Outcome: Unavailable, Err: err, Decision: weir.Decision{Reason: weir.ReasonUnavailable, Policy: w.request.Policy},
	}
}
