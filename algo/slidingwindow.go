package algo

import (
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

// SlidingWindowState is the use of the segments of one window. The zero value is fresh.
type SlidingWindowState struct {
	Segment int64              // the number of the newest segment; segment 0 begins a window, the first at or after time 0
	Total   int64              // permits taken in all segments
	Used    [MaxSegments]int64 // permits taken in each, the newest first
}

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

// Take implements [Algorithm].
func (w SlidingWindow) Take(s SlidingWindowState, now, n int64) (SlidingWindowState, Result) {
	r := w.TakeIn(&s, now, n)
	return s, r
}

// Grant is TakeIn for callers that need only Allowed. It requires 1 <= n <= limit.
func (w *SlidingWindow) Grant(s *SlidingWindowState, now, n int64) bool {
	w.advance(s, now)
	if n > w.limit-s.Total {
		return false
	}
	s.Used[0] += n
	s.Total += n
	return true
}

// TakeIn is Take on a state in place, which at its size is cheaper.
func (w *SlidingWindow) TakeIn(s *SlidingWindowState, now, n int64) Result {
	if n < 0 || n > w.limit {
		x := *s
		w.advance(&x, now)
		return Result{Remaining: max(0, w.limit-x.Total), RetryAfter: Never, ResetAfter: w.resetAfter(&x, now)}
	}
	w.advance(s, now)
	if over := s.Total + max(n, 1) - w.limit; over > 0 {
		return Result{
			Remaining:  max(0, w.limit-s.Total),
			RetryAfter: w.freed(s, now, over),
			ResetAfter: w.resetAfter(s, now),
		}
	}
	r := Result{Allowed: true}
	if n > 0 {
		s.Used[0] += n
		s.Total += n
		r.Mark = Mark{at: s.Segment}
	}
	r.Remaining = w.limit - s.Total
	r.ResetAfter = w.resetAfter(s, now)
	return r
}

// freed is how long it takes until over permits have left the window.
func (w *SlidingWindow) freed(s *SlidingWindowState, now, over int64) time.Duration {
	for j := w.segments - 1; j >= 0; j-- {
		if over -= s.Used[j]; over <= 0 {
			return time.Duration(elapsed(now, w.start(s.Segment-j+w.segments)))
		}
	}
	return Never // not reached: over never exceeds what is in the window
}

// Peek implements [Algorithm].
func (w SlidingWindow) Peek(s SlidingWindowState, now, n int64) Result {
	r := w.TakeIn(&s, now, n)
	if r.Allowed && n > 0 {
		s.Used[0] -= n
		s.Total -= n
		r = w.TakeIn(&s, now, 0)
	}
	return r
}

// Refund implements [Algorithm]. The permits given back are those that would come back last.
func (w SlidingWindow) Refund(s SlidingWindowState, now, n int64) SlidingWindowState {
	w.advance(&s, now)
	for j := range w.segments {
		back := min(max(n, 0), s.Used[j])
		s.Used[j] -= back
		s.Total -= back
		n -= back
	}
	return s
}

// Cancel implements [Algorithm]. It gives the permits back in the segment in which they were taken, and not at all once that has
// left the window.
func (w SlidingWindow) Cancel(s SlidingWindowState, now, n int64, m Mark) SlidingWindowState {
	w.advance(&s, now)
	if j := s.Segment - m.at; j >= 0 && j < w.segments {
		back := min(max(n, 0), s.Used[j])
		s.Used[j] -= back
		s.Total -= back
	}
	return s
}

// Charge implements [Algorithm].
func (w SlidingWindow) Charge(s SlidingWindowState, now, n, maxDebt int64) (SlidingWindowState, int64) {
	w.advance(&s, now)
	n = room(n, w.limit, maxDebt, s.Total)
	s.Used[0] += n
	s.Total += n
	return s, n
}

// Fresh implements [Algorithm].
func (w SlidingWindow) Fresh(s SlidingWindowState, now int64) bool {
	w.advance(&s, now)
	return s.Total == 0
}

// FreshAt implements [Algorithm].
func (w SlidingWindow) FreshAt(s SlidingWindowState) int64 {
	if s.Segment == 0 && s.Total == 0 {
		return math.MinInt64
	}
	return w.freshAt(&s)
}

func (w *SlidingWindow) freshAt(s *SlidingWindowState) int64 {
	for j := range w.segments {
		if s.Used[j] > 0 {
			return w.start(s.Segment - j + w.segments)
		}
	}
	return w.start(s.Segment)
}

func (w *SlidingWindow) resetAfter(s *SlidingWindowState, now int64) time.Duration {
	return time.Duration(elapsed(now, w.freshAt(s)))
}

// advance moves every segment that has passed since the last call, however many they are.
func (w *SlidingWindow) advance(s *SlidingWindowState, now int64) {
	if w.step > 0 {
		if d := now - w.origin - s.Segment*w.step; d >= 0 && d < w.step {
			return
		}
	}
	i := w.index(now)
	if i == s.Segment {
		return
	}
	if k := elapsed(s.Segment, i); k > 0 && s.Total > 0 {
		if k > w.segments {
			k = w.segments
		}
		for _, gone := range s.Used[w.segments-k : w.segments] {
			s.Total -= gone
		}
		copy(s.Used[k:w.segments], s.Used[:w.segments-k])
		clear(s.Used[:k])
	}
	s.Segment = i
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
