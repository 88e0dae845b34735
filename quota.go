package weir

import (
	"math/bits"
	"slices"
	"time"
)

// Quota is what the limiter promises over a longer time: Burst permits, and the time in which an empty bucket regains
// them, rounded up to a nanosecond. Over one such window up to twice the burst is admitted, of which one half was saved
// before.
func (b *TokenBucket) Quota() (permits int64, window time.Duration) {
	return b.bucket.algorithm.Burst(), b.bucket.algorithm.FillTime()
}

// Quota is Limit permits, and the length of a window.
func (w *FixedWindow) Quota() (permits int64, window time.Duration) {
	return w.limit.Load(), w.window.algorithm.Window()
}

// Quota is Limit permits, and the length of the window.
func (w *SlidingWindow) Quota() (permits int64, window time.Duration) {
	if w.approx.algorithm.Limit() > 0 {
		return w.limit.Load(), w.approx.algorithm.Window()
	}
	return w.limit.Load(), w.exact.algorithm.Window()
}

// Quota is Limit permits at a time, and a window of 0: permits come back when they are released, not with time.
func (c *Concurrency) Quota() (permits int64, window time.Duration) { return c.limit.Load(), 0 }

// Quota is what each key has that has no limit of its own: as many permits as its limit, and the window in which they come
// back: of a token bucket the time in which an empty one regains them, rounded up to a nanosecond; 0 for
// AlgorithmConcurrency.
func (k *Keyed[K]) Quota() (permits int64, window time.Duration) {
	if k.base.limit.Algorithm == AlgorithmSlidingCounter {
		return k.base.permits, k.base.limit.Rate.Period
	}
	return k.base.permits, k.base.refill
}

// Quota is what the limit promises over a longer time: as many permits as are allowed at once, and the window in which they come
// back: of a token bucket the time in which an empty one regains them, rounded up to a nanosecond. The window is 0 with
// AlgorithmConcurrency, and with AlgorithmCalendarWindow where windows from now on differ in length, as months do, and days in a
// zone whose clocks are changed. It is 0 as well for a limit that cannot be used: see [Limit.Check].
func (l Limit) Quota() (permits int64, window time.Duration) {
	switch l.Algorithm {
	case AlgorithmTokenBucket:
		return l.permits(), l.Rate.fill(l.permits())
	case AlgorithmConcurrency:
		return l.Burst, 0
	case AlgorithmCalendarWindow:
		return l.Burst, l.Calendar.length()
	default:
		return l.permits(), l.Rate.Period
	}
}

// fill is how long permits take to come back, rounded up, 0 if that cannot be told.
func (r Rate) fill(permits int64) time.Duration {
	if r.Permits <= 0 || r.Period <= 0 || permits <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(permits), uint64(r.Period))
	if hi >= uint64(r.Permits) {
		return 0
	}
	d, rest := bits.Div64(hi, lo, uint64(r.Permits))
	if rest > 0 {
		d++
	}
	if d >= uint64(Never) {
		return 0
	}
	return time.Duration(d)
}

// length is how long all windows from now on are, 0 if they differ.
func (c Calendar) length() time.Duration {
	if c.Unit > CalendarWeek {
		return 0
	}
	w, err := newCalendarWindow("", "", 1, c, true)
	if err != nil {
		return 0
	}
	return w.Length(time.Now().UnixNano())
}

// Limiters are the limiters of the chain, in its order. The slice is a copy.
func (c *Chain) Limiters() []Limiter { return slices.Clone(c.limits) }
