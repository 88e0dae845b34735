package reference

import (
	"math/big"
	"time"

	"github.com/weirhq/weir/algo"
)

// SlidingCounter is the reference of [algo.SlidingCounter].
type SlidingCounter struct {
	grid

	limit       int64
	window      *big.Int
	cur, before int64
}

var _ Limiter = (*SlidingCounter)(nil)

// NewSlidingCounter returns a window of which nothing is used.
func NewSlidingCounter(limit int64, window time.Duration, origin int64) *SlidingCounter {
	return &SlidingCounter{grid: newGrid(window, 1, origin), limit: limit}
}

func (w *SlidingCounter) at(now *big.Int) SlidingCounter {
	x := *w
	x.window = w.number(now)

	if w.window != nil && less(w.window, x.window) {
		x.cur, x.before = 0, 0
		if plus(w.window, whole(1)).Cmp(x.window) == 0 {
			x.before = w.cur
		}
	}

	return x
}

// used is cur + before x (length - passed) / length, in parts of which a permit has length.
func (w *SlidingCounter) used(now *big.Int) *big.Int {
	passed := minus(now, w.start(w.window))

	return plus(times(whole(w.cur), w.length), times(whole(w.before), minus(w.length, passed)))
}

// fits reports whether at time now no more than most is used.
func (w *SlidingCounter) fits(now *big.Int, most int64) bool {
	x := w.at(now)

	return !less(times(whole(most), w.length), x.used(now))
}

// until is how long it takes until no more than most is used.
func (w *SlidingCounter) until(now, most int64) time.Duration {
	return duration(first(times(whole(2), w.length), func(d *big.Int) bool {
		return w.fits(plus(whole(now), d), most)
	}))
}

func (w *SlidingCounter) remaining(now int64) int64 {
	left := minus(times(whole(w.limit), w.length), w.used(whole(now)))

	return larger(whole(0), down(left, w.length)).Int64()
}

// resetAfter is how long it takes until neither counter counts anything. It is not when they weigh nothing: what is in
// the current window weighs fully until it ends, whatever its length.
func (w *SlidingCounter) resetAfter(now int64) time.Duration {
	switch {
	case w.cur > 0:
		return duration(minus(w.start(plus(w.window, whole(2))), whole(now)))
	case w.before > 0:
		return duration(minus(w.start(plus(w.window, whole(1))), whole(now)))
	default:
		return 0
	}
}

func (w *SlidingCounter) decide(now, n int64) algo.Result {
	r := algo.Result{Remaining: w.remaining(now), ResetAfter: w.resetAfter(now)}

	switch {
	case n < 0 || n > w.limit:
		r.RetryAfter = algo.Never
	case w.fits(whole(now), w.limit-max(n, 1)):
		r.Allowed = true
	default:
		r.RetryAfter = w.until(now, w.limit-max(n, 1))
	}

	return r
}

// Take implements [Limiter].
func (w *SlidingCounter) Take(now, n int64) (algo.Result, Mark) {
	x := w.at(whole(now))
	r := x.decide(now, n)

	if r.RetryAfter == algo.Never {
		return r, Mark{}
	}

	*w = x
	if !r.Allowed || n == 0 {
		return r, Mark{}
	}

	w.cur += n
	r.Remaining, r.ResetAfter = w.remaining(now), w.resetAfter(now)

	return r, Mark{at: w.window}
}

// Peek implements [Limiter].
func (w *SlidingCounter) Peek(now, n int64) algo.Result {
	x := w.at(whole(now))

	return x.decide(now, n)
}

// Refund implements [Limiter].
func (w *SlidingCounter) Refund(now, n int64) {
	*w = w.at(whole(now))
	for _, of := range []*int64{&w.cur, &w.before} {
		back := min(max(n, 0), *of)
		*of -= back
		n -= back
	}
}

// Cancel implements [Limiter].
func (w *SlidingCounter) Cancel(now, n int64, m Mark) {
	*w = w.at(whole(now))

	var of *int64

	switch {
	case m.at.Cmp(w.window) == 0:
		of = &w.cur
	case plus(m.at, whole(1)).Cmp(w.window) == 0:
		of = &w.before
	default:
		return
	}

	*of -= min(max(n, 0), *of)
}

// Charge implements [Limiter].
func (w *SlidingCounter) Charge(now, n, maxDebt int64) int64 {
	*w = w.at(whole(now))
	n = chargeable(n, w.limit, maxDebt, up(w.used(whole(now)), w.length))
	w.cur += n

	return n
}

// Fresh implements [Limiter].
func (w *SlidingCounter) Fresh(now int64) bool {
	x := w.at(whole(now))

	return x.cur == 0 && x.before == 0
}
