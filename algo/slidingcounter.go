package algo

import (
	"math"
	"math/bits"
	"time"
)

// SlidingCounter approximates a sliding window with two counters, as web proxies do. One counts the current fixed window. The
// other counts the one before, weighted by how much of it the sliding window still overlaps.
//
// It needs two words for any limit. Where the traffic of the previous window was uneven, it allows too little in a window, or up
// to 2 x Limit - 1: for the exact count use [SlidingWindow]. A caller that keeps asking is allowed Limit in the first window and
// Limit - 1 in each of the next. With a Limit of 1 that is one permit in every second window.
type SlidingCounter struct {
	limit  int64
	window phase
}

// SlidingCounterState is the use of the current window and of the one before. The zero value is fresh.
type SlidingCounterState struct {
	Window    int64 // the number of the current window; window 0 is the one that begins first at or after time 0
	Cur, Prev int64 // permits taken in it and in its predecessor
}

// NewSlidingCounter returns a window of the given length. limit is from 1 to [MaxPermits], window from 1 ns to [MaxPeriod]. One
// of its fixed windows begins at origin.
func NewSlidingCounter(limit int64, window time.Duration, origin int64) (SlidingCounter, error) {
	w, err := NewFixedWindow(limit, window, origin)
	if err != nil {
		return SlidingCounter{}, err
	}
	return SlidingCounter{limit, *w.even}, nil
}

// Limit implements [Algorithm].
func (w SlidingCounter) Limit() int64 { return w.limit }

// Window is how long the sliding window is.
func (w SlidingCounter) Window() time.Duration { return time.Duration(w.window.length) }

// Take implements [Algorithm].
func (w SlidingCounter) Take(s SlidingCounterState, now, n int64) (SlidingCounterState, Result) {
	x := w.at(s, now)
	used := x.Cur + w.weighted(x, now)
	r := Result{Remaining: max(0, w.limit-used), ResetAfter: w.resetAfter(x, now)}
	if n < 0 || n > w.limit {
		r.RetryAfter = Never
		return s, r
	}
	if used+max(n, 1) > w.limit {
		r.RetryAfter = w.retryAfter(x, now, max(n, 1))
		return x, r
	}
	r.Allowed = true
	if n > 0 {
		x.Cur += n
		r.Remaining -= n
		r.ResetAfter = w.resetAfter(x, now)
		r.Mark = Mark{At: x.Window}
	}
	return x, r
}

// Grant is Take on a state in place, for callers that need only Allowed. It requires 1 <= n <= limit.
func (w *SlidingCounter) Grant(s *SlidingCounterState, now, n int64) bool {
	passed := now - w.window.origin - s.Window*w.window.length
	if passed < 0 || passed >= w.window.length {
		*s = w.at(*s, now)
		passed = now - w.window.start(s.Window)
	}
	used := s.Cur + n
	if s.Prev > 0 {
		used += mulDivUp(s.Prev, w.window.length-passed, w.window.length)
	}
	if used > w.limit {
		return false
	}
	s.Cur += n
	return true
}

// weighted is Prev x (window - passed) / window, rounded up.
func (w SlidingCounter) weighted(x SlidingCounterState, now int64) int64 {
	if x.Prev == 0 {
		return 0
	}
	passed := now - w.window.start(x.Window)
	return mulDivUp(x.Prev, w.window.length-passed, w.window.length)
}

func (w SlidingCounter) retryAfter(x SlidingCounterState, now, n int64) time.Duration {
	start := w.window.start(x.Window)
	if spare := w.limit - x.Cur - n; spare >= 0 {
		// Prev x (window - passed) <= spare x window
		return time.Duration(elapsed(now, after(start, w.window.length-mulDiv(spare, w.window.length, x.Prev))))
	}
	// In the next window Cur is the previous one's.
	start = after(start, w.window.length)
	return time.Duration(elapsed(now, after(start, max(0, w.window.length-mulDiv(w.limit-n, w.window.length, x.Cur)))))
}

// Peek implements [Algorithm].
func (w SlidingCounter) Peek(s SlidingCounterState, now, n int64) Result {
	_, r := w.Take(s, now, n)
	if r.Allowed && n > 0 {
		_, r = w.Take(s, now, 0)
	}
	return r
}

// Refund implements [Algorithm]. It gives back those permits first that would weigh for the longest time.
func (w SlidingCounter) Refund(s SlidingCounterState, now, n int64) SlidingCounterState {
	x := w.at(s, now)
	back := min(max(n, 0), x.Cur)
	x.Cur -= back
	x.Prev -= min(max(n-back, 0), x.Prev)
	return x
}

// Cancel implements [Algorithm]. The permits are given back in the window in which they were taken, and not at all once
// it weighs no more.
func (w SlidingCounter) Cancel(s SlidingCounterState, now, n int64, m Mark) SlidingCounterState {
	x := w.at(s, now)
	switch m.At {
	case x.Window:
		x.Cur -= min(max(n, 0), x.Cur)
	case x.Window - 1:
		x.Prev -= min(max(n, 0), x.Prev)
	}
	return x
}

// Charge implements [Algorithm].
func (w SlidingCounter) Charge(s SlidingCounterState, now, n, maxDebt int64) (SlidingCounterState, int64) {
	x := w.at(s, now)
	n = room(n, w.limit, maxDebt, x.Cur+w.weighted(x, now))
	x.Cur += n
	return x, n
}

// Fresh implements [Algorithm].
func (w SlidingCounter) Fresh(s SlidingCounterState, now int64) bool {
	x := w.at(s, now)
	return x.Cur == 0 && x.Prev == 0
}

// FreshAt implements [Algorithm].
func (w SlidingCounter) FreshAt(s SlidingCounterState) int64 {
	switch {
	case s == SlidingCounterState{}:
		return math.MinInt64
	case s.Cur > 0:
		return w.window.start(s.Window + 2)
	case s.Prev > 0:
		return w.window.start(s.Window + 1)
	default:
		return w.window.start(s.Window)
	}
}

func (w SlidingCounter) resetAfter(x SlidingCounterState, now int64) time.Duration {
	return time.Duration(elapsed(now, w.FreshAt(x)))
}

func (w SlidingCounter) at(s SlidingCounterState, now int64) SlidingCounterState {
	i := w.window.index(now)
	switch elapsed(s.Window, i) {
	case 0:
	case 1:
		s.Prev, s.Cur = s.Cur, 0
	default:
		s.Prev, s.Cur = 0, 0
	}
	s.Window = i
	return s
}

// mulDiv is a x b / c rounded down, for a, b >= 0 and c > 0, at most math.MaxInt64.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	quo, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(quo, math.MaxInt64))
}

// mulDivUp is mulDiv rounded up.
func mulDivUp(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	quo, rem := bits.Div64(hi, lo, uint64(c))
	if rem > 0 {
		quo++
	}
	return int64(min(quo, math.MaxInt64))
}
