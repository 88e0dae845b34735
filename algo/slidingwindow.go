package algo

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// SlidingWindow allows up to Limit permits in any window of time, counted exactly in segments. Debt made by Charge weighs until
// it leaves the window, like any other permit.
//
// The window is cut into S segments at fixed times. A permit comes back when the segment in which it was taken leaves the window.
// That is never earlier than window x (S-1) / S after it was taken, and never later than one window. So any span of window x
// (S-1) / S allows at most Limit permits, and any whole window at most 2 x Limit. More segments make it finer; one segment makes
// it a fixed window. A caller that keeps asking always gets Limit in a window.
type SlidingWindow struct {
	limit    int64
	origin   int64
	window   int64
	segments int64
	step     int64 // the length of a segment, if all have the same
}

// SlidingWindowState is the use of the segments of one window: the number of the newest segment, the permits taken in all of
// them, and those taken in each, the newest first. Segment 0 begins a window, the first at or after time 0. The zero
// value is fresh.
type SlidingWindowState [2 + MaxSegments]uint64

// Segment is the number of the newest segment.
func (s *SlidingWindowState) Segment() int64 { return int64(s[0]) }

// NewSlidingWindow returns a window of the given length, cut into segments, one of which begins at origin. limit is from 1 to
// [MaxPermits], window from 1 ns to [MaxPeriod], segments from 1 to [MaxSegments]. If segments does not divide window, their
// lengths differ by a nanosecond.
func NewSlidingWindow(limit int64, window time.Duration, segments int, origin int64) (SlidingWindow, error) {
	if err := checkPermits("limit", limit); err != nil {
		return SlidingWindow{}, err
	}
	if err := checkPeriod("window", window); err != nil {
		return SlidingWindow{}, err
	}
	if segments < 1 || segments > MaxSegments || int64(segments) > int64(window) {
		return SlidingWindow{}, segmentsError(segments)
	}
	p := newPhase(window, origin)
	w := SlidingWindow{limit: limit, origin: p.origin, window: p.length, segments: int64(segments)}
	if w.window%w.segments == 0 {
		w.step = w.window / w.segments
	}
	return w, nil
}

// Limit implements [Algorithm].
func (w SlidingWindow) Limit() int64 { return w.limit }

// Window is how long the sliding window is.
func (w SlidingWindow) Window() time.Duration { return time.Duration(w.window) }

// segments are a state as far as it is used, wherever it lies.
type segments []uint64

func (w *SlidingWindow) in(s *SlidingWindowState) segments { return s[:2+w.segments] }

func (x segments) number() int64  { return int64(x[0]) }
func (x segments) total() int64   { return int64(x[1]) }
func (x segments) used() []uint64 { return x[2:] }

// Take implements [Algorithm].
func (w SlidingWindow) Take(s SlidingWindowState, now, n int64) (SlidingWindowState, Result) {
	r := w.take(w.in(&s), now, n)
	return s, r
}

// take is Take in place.
func (w *SlidingWindow) take(x segments, now, n int64) Result {
	if n < 0 || n > w.limit {
		return w.never(x, now)
	}
	w.advance(x, now)
	if over := x.total() + max(n, 1) - w.limit; over > 0 {
		return Result{
			Remaining:  max(0, w.limit-x.total()),
			RetryAfter: w.freed(x, now, over),
			ResetAfter: w.resetAfter(x, now),
		}
	}
	r := Result{Allowed: true}
	if n > 0 {
		x.add(n)
		r.Mark = Mark{At: x.number()}
	}
	r.Remaining = w.limit - x.total()
	r.ResetAfter = w.resetAfter(x, now)
	return r
}

// never is the result for more permits than there ever are.
func (w *SlidingWindow) never(x segments, now int64) Result {
	var s SlidingWindowState
	x = s[:copy(s[:], x)]
	w.advance(x, now)
	return Result{Remaining: max(0, w.limit-x.total()), RetryAfter: Never, ResetAfter: w.resetAfter(x, now)}
}

// grant is take for callers that need only Allowed. It requires 1 <= n <= limit.
func (w *SlidingWindow) grant(x segments, now, n int64) bool {
	w.advance(x, now)
	if n > w.limit-x.total() {
		return false
	}
	x.add(n)
	return true
}

func (x segments) add(n int64) {
	x[1] += uint64(n)
	x[2] += uint64(n)
}

// back gives back n permits of the segment j, or as many as there are, and returns how many.
func (x segments) back(j, n int64) int64 {
	n = min(max(n, 0), int64(x[2+j]))
	x[1] -= uint64(n)
	x[2+j] -= uint64(n)
	return n
}

// freed is how long it takes until over permits have left the window.
func (w *SlidingWindow) freed(x segments, now, over int64) time.Duration {
	for j := w.segments - 1; j >= 0; j-- {
		if over -= int64(x[2+j]); over <= 0 {
			return time.Duration(elapsed(now, w.start(x.number()-j+w.segments)))
		}
	}
	return Never // not reached: over never exceeds what is in the window
}

// Peek implements [Algorithm].
func (w SlidingWindow) Peek(s SlidingWindowState, now, n int64) Result {
	x := w.in(&s)
	r := w.take(x, now, n)
	if r.Allowed && n > 0 {
		x.back(0, n)
		r = w.take(x, now, 0)
	}
	return r
}

// Refund implements [Algorithm]. The permits given back are those that would come back last.
func (w SlidingWindow) Refund(s SlidingWindowState, now, n int64) SlidingWindowState {
	x := w.in(&s)
	w.advance(x, now)
	for j := range w.segments {
		n -= x.back(j, n)
	}
	return s
}

// Cancel implements [Algorithm]. It gives the permits back in the segment in which they were taken, and not at all once that has
// left the window.
func (w SlidingWindow) Cancel(s SlidingWindowState, now, n int64, m Mark) SlidingWindowState {
	x := w.in(&s)
	w.advance(x, now)
	if j := x.number() - m.At; j >= 0 && j < w.segments {
		x.back(j, n)
	}
	return s
}

// Charge implements [Algorithm].
func (w SlidingWindow) Charge(s SlidingWindowState, now, n, maxDebt int64) (SlidingWindowState, int64) {
	x := w.in(&s)
	w.advance(x, now)
	n = room(n, w.limit, maxDebt, x.total())
	x.add(n)
	return s, n
}

// Fresh implements [Algorithm].
func (w SlidingWindow) Fresh(s SlidingWindowState, now int64) bool {
	x := w.in(&s)
	w.advance(x, now)
	return x.total() == 0
}

// FreshAt implements [Algorithm].
func (w SlidingWindow) FreshAt(s SlidingWindowState) int64 { return w.freshAt(w.in(&s)) }

func (w *SlidingWindow) freshAt(x segments) int64 {
	if x.number() == 0 && x.total() == 0 {
		return math.MinInt64
	}
	return w.leftAt(x)
}

// leftAt is when all permits have left the window.
func (w *SlidingWindow) leftAt(x segments) int64 {
	for j, used := range x.used() {
		if used > 0 {
			return w.start(x.number() - int64(j) + w.segments)
		}
	}
	return w.start(x.number())
}

func (w *SlidingWindow) resetAfter(x segments, now int64) time.Duration {
	return time.Duration(elapsed(now, w.leftAt(x)))
}

// advance moves every segment that has passed since the last call, however many they are.
func (w *SlidingWindow) advance(x segments, now int64) {
	if w.step > 0 {
		if d := now - w.origin - x.number()*w.step; d >= 0 && d < w.step {
			return
		}
	}
	i := w.index(now)
	if i == x.number() {
		return
	}
	if k := min(elapsed(x.number(), i), w.segments); k > 0 && x.total() > 0 {
		used := x.used()
		for _, gone := range used[w.segments-k:] {
			x[1] -= gone
		}
		copy(used[k:], used[:w.segments-k])
		clear(used[:k])
	}
	x[0] = uint64(i)
}

// index is the segment that now lies in: floor((now - origin) x segments / window).
func (w *SlidingWindow) index(now int64) int64 {
	d := now - w.origin
	hi, lo := bits.Mul64(magnitude(d), uint64(w.segments))
	quo, rem := bits.Div64(hi, lo, uint64(w.window)) // hi is less than window, as segments is no more
	if d >= 0 {
		return int64(quo)
	}
	if rem > 0 {
		quo++
	}
	return -int64(quo)
}

// start is the first time in segment i: ceil(i x window / segments) + origin, held at the ends of the range.
func (w *SlidingWindow) start(i int64) int64 {
	hi, lo := bits.Mul64(magnitude(i), uint64(w.window))
	if hi >= uint64(w.segments) {
		if i < 0 {
			return math.MinInt64
		}
		return math.MaxInt64
	}
	quo, rem := bits.Div64(hi, lo, uint64(w.segments))
	if i < 0 {
		return w.origin - int64(min(quo, math.MaxInt64))
	}
	if rem > 0 {
		quo++
	}
	return after(w.origin, int64(min(quo, math.MaxInt64)))
}

func segmentsError(v int) error {
	return &ParameterError{"segments", fmt.Sprint(v), fmt.Sprintf("from 1 to %d", MaxSegments)}
}
