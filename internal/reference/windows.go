package reference

import (
	"math/big"
	"time"

	"github.com/weirhq/weir/algo"
)

// grid cuts time into windows, or segments of a window: number i begins at the first nanosecond that is not before
// origin + i x length / parts.
type grid struct{ origin, length, parts *big.Int }

func newGrid(length time.Duration, parts int, origin int64) grid {
	return grid{whole(origin), whole(int64(length)), whole(int64(parts))}
}

// number is that of the window in which now lies.
func (g grid) number(now *big.Int) *big.Int {
	return down(times(minus(now, g.origin), g.parts), g.length)
}

func (g grid) start(number *big.Int) *big.Int {
	return plus(g.origin, up(times(number, g.length), g.parts))
}

// FixedWindow is the reference of [algo.Window].
type FixedWindow struct {
	grid

	limit  int64
	window *big.Int // the one that used belongs to
	used   *big.Int
}

var _ Limiter = (*FixedWindow)(nil)

// NewFixedWindow returns a window of which nothing is used.
func NewFixedWindow(limit int64, window time.Duration, origin int64) *FixedWindow {
	return &FixedWindow{newGrid(window, 1, origin), limit, nil, whole(0)}
}

// after is what is used when that many windows have passed: each bears limit of it.
func (w *FixedWindow) after(windows *big.Int) *big.Int {
	return larger(whole(0), minus(w.used, times(windows, whole(w.limit))))
}

func (w *FixedWindow) at(now int64) FixedWindow {
	x := *w
	x.window = w.number(whole(now))

	if w.window != nil && less(w.window, x.window) {
		x.used = w.after(minus(x.window, w.window))
	}

	return x
}

// until is how long it takes until no more than most is used.
func (w *FixedWindow) until(now, most int64) time.Duration {
	ok := func(windows *big.Int) bool { return !less(whole(most), w.after(windows)) }
	windows := first(w.used, ok)

	if windows.Sign() == 0 {
		return 0
	}

	return duration(minus(w.start(plus(w.window, windows)), whole(now)))
}

func (w *FixedWindow) decide(now, n int64) algo.Result {
	r := algo.Result{
		Remaining:  larger(whole(0), minus(whole(w.limit), w.used)).Int64(),
		ResetAfter: w.until(now, 0),
	}

	if n < 0 || n > w.limit {
		r.RetryAfter = algo.Never
	} else {
		r.RetryAfter = w.until(now, w.limit-max(n, 1))
		r.Allowed = r.RetryAfter == 0
	}

	return r
}

// Take implements [Limiter].
func (w *FixedWindow) Take(now, n int64) (algo.Result, Mark) {
	x := w.at(now)
	r := x.decide(now, n)

	if r.RetryAfter == algo.Never {
		return r, Mark{}
	}

	*w = x
	if !r.Allowed || n == 0 {
		return r, Mark{}
	}

	w.used = plus(w.used, whole(n))
	after := w.decide(now, 0)
	r.Remaining, r.ResetAfter = after.Remaining, after.ResetAfter

	return r, Mark{at: w.window}
}

// Peek implements [Limiter].
func (w *FixedWindow) Peek(now, n int64) algo.Result {
	x := w.at(now)

	return x.decide(now, n)
}

// Refund implements [Limiter].
func (w *FixedWindow) Refund(now, n int64) {
	*w = w.at(now)
	w.used = larger(whole(0), minus(w.used, whole(max(n, 0))))
}

// Cancel implements [Limiter].
func (w *FixedWindow) Cancel(now, n int64, m Mark) {
	if *w = w.at(now); m.at.Cmp(w.window) == 0 {
		w.Refund(now, n)
	}
}

// Charge implements [Limiter].
func (w *FixedWindow) Charge(now, n, maxDebt int64) int64 {
	*w = w.at(now)
	bearable := down(times(whole(w.limit), whole(int64(algo.MaxFill))), w.length)
	n = chargeable(n, w.limit, smaller(whole(maxDebt), bearable).Int64(), w.used)
	w.used = plus(w.used, whole(n))

	return n
}

// Fresh implements [Limiter].
func (w *FixedWindow) Fresh(now int64) bool {
	x := w.at(now)

	return x.used.Sign() == 0
}

// chargeable is how many of n permits may be charged when used are taken of limit and maxDebt may be owed.
func chargeable(n, limit, maxDebt int64, used *big.Int) int64 {
	room := minus(whole(limit+min(max(maxDebt, 0), algo.MaxPermits)), used)

	return larger(whole(0), smaller(whole(n), room)).Int64()
}

// SlidingWindow is the reference of [algo.SlidingWindow].
type SlidingWindow struct {
	grid

	limit    int64
	segments int64
	segment  *big.Int
	taken    []taken // oldest first
}

// taken is what was taken in one segment.
type taken struct {
	age     int64 // in segments
	permits int64
}

var _ Limiter = (*SlidingWindow)(nil)

// NewSlidingWindow returns a window of which nothing is used.
func NewSlidingWindow(limit int64, window time.Duration, segments int, origin int64) *SlidingWindow {
	return &SlidingWindow{newGrid(window, segments, origin), limit, int64(segments), nil, nil}
}

// at is the window at time now, sharing nothing with w.
func (w *SlidingWindow) at(now int64) SlidingWindow {
	x := *w
	x.segment = w.number(whole(now))
	x.taken = nil
	passed := whole(0)

	if w.segment != nil {
		passed = larger(passed, minus(x.segment, w.segment))
	}

	for _, t := range w.taken {
		if age := plus(whole(t.age), passed); t.permits > 0 && less(age, whole(w.segments)) {
			x.taken = append(x.taken, taken{age.Int64(), t.permits})
		}
	}

	return x
}

// used is what is still in the window when that many more segments have passed.
func (w *SlidingWindow) used(segments int64) int64 {
	sum := int64(0)

	for _, t := range w.taken {
		if t.age+segments < w.segments {
			sum += t.permits
		}
	}

	return sum
}

// until is how long it takes until no more than most is used.
func (w *SlidingWindow) until(now, most int64) time.Duration {
	segments := int64(0)
	for w.used(segments) > most {
		segments++
	}

	if segments == 0 {
		return 0
	}

	return duration(minus(w.start(plus(w.segment, whole(segments))), whole(now)))
}

func (w *SlidingWindow) decide(now, n int64) algo.Result {
	r := algo.Result{Remaining: max(0, w.limit-w.used(0)), ResetAfter: w.until(now, 0)}

	if n < 0 || n > w.limit {
		r.RetryAfter = algo.Never
	} else {
		r.RetryAfter = w.until(now, w.limit-max(n, 1))
		r.Allowed = r.RetryAfter == 0
	}

	return r
}

// Take implements [Limiter].
func (w *SlidingWindow) Take(now, n int64) (algo.Result, Mark) {
	x := w.at(now)
	r := x.decide(now, n)

	if r.RetryAfter == algo.Never {
		return r, Mark{}
	}

	*w = x
	if !r.Allowed || n == 0 {
		return r, Mark{}
	}

	w.taken = append(w.taken, taken{0, n})
	after := w.decide(now, 0)
	r.Remaining, r.ResetAfter = after.Remaining, after.ResetAfter

	return r, Mark{at: w.segment}
}

// Peek implements [Limiter].
func (w *SlidingWindow) Peek(now, n int64) algo.Result {
	x := w.at(now)

	return x.decide(now, n)
}

// giveBack gives back up to n permits, those that were taken last first, and only those that are of the given age, or
// of any age if it is negative.
func (w *SlidingWindow) giveBack(n, age int64) {
	for i := len(w.taken) - 1; i >= 0; i-- {
		if t := &w.taken[i]; age < 0 || t.age == age {
			back := min(max(n, 0), t.permits)
			t.permits -= back
			n -= back
		}
	}
}

// Refund implements [Limiter].
func (w *SlidingWindow) Refund(now, n int64) {
	*w = w.at(now)
	w.giveBack(n, -1)
}

// Cancel implements [Limiter].
func (w *SlidingWindow) Cancel(now, n int64, m Mark) {
	*w = w.at(now)

	if age := minus(w.segment, m.at); age.Sign() >= 0 && age.IsInt64() {
		w.giveBack(n, age.Int64())
	}
}

// Charge implements [Limiter].
func (w *SlidingWindow) Charge(now, n, maxDebt int64) int64 {
	*w = w.at(now)
	n = chargeable(n, w.limit, maxDebt, whole(w.used(0)))
	w.taken = append(w.taken, taken{0, n})

	return n
}

// Fresh implements [Limiter].
func (w *SlidingWindow) Fresh(now int64) bool {
	x := w.at(now)

	return x.used(0) == 0
}
