package algo

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// phase is where the windows of an algorithm begin: window i covers the times from origin + i x length on.
type phase struct{ origin, length int64 }

// index is the window that now lies in.
func (p phase) index(now int64) int64 {
	d := now - p.origin
	i := d / p.length
	if d%p.length < 0 {
		i--
	}
	return i
}

// start is when window i begins, held at the ends of the range.
func (p phase) start(i int64) int64 {
	hi, lo := bits.Mul64(magnitude(i), uint64(p.length))
	if hi != 0 || lo > math.MaxInt64 {
		if i < 0 {
			return math.MinInt64
		}
		return math.MaxInt64
	}
	if i < 0 {
		return p.origin - int64(lo)
	}
	return after(p.origin, int64(lo))
}

func magnitude(i int64) uint64 {
	if i < 0 {
		return -uint64(i)
	}
	return uint64(i)
}

func newPhase(window time.Duration, origin int64) phase {
	p := phase{length: int64(window)}
	if p.origin = origin % p.length; p.origin < 0 {
		p.origin += p.length
	}
	return p
}

// FixedWindow allows up to Limit permits in each window of time. Windows follow one another without a gap from a fixed origin, so
// they never drift with the traffic.
//
// It is the cheapest and coarsest algorithm: across the border of two windows it allows up to 2 x Limit permits within any time
// span. Debt made by Charge is carried: a window begins with what earlier ones overdrew.
type FixedWindow struct {
	limit  int64
	window phase
}

// FixedWindowState is the use of one window. The zero value is fresh.
type FixedWindowState struct {
	Window int64 // its number; window 0 is the one that begins first at or after time 0
	Used   int64 // permits taken in it and owed from before
	// Excess is how many more permits were taken in it, under a limit that Carry has lowered. They are not owed, but may count
	// again if the limit is raised before the window ends.
	Excess int64
}

// NewFixedWindow returns windows of the given length, one of which begins at origin: limit from 1 to [MaxPermits],
// window from 1 ns to [MaxPeriod].
func NewFixedWindow(limit int64, window time.Duration, origin int64) (FixedWindow, error) {
	if err := checkPermits("limit", limit); err != nil {
		return FixedWindow{}, err
	}
	if err := checkPeriod("window", window); err != nil {
		return FixedWindow{}, err
	}
	return FixedWindow{limit: limit, window: newPhase(window, origin)}, nil
}

// Limit implements [Algorithm].
func (w FixedWindow) Limit() int64 { return w.limit }

// Take implements [Algorithm].
func (w FixedWindow) Take(s FixedWindowState, now, n int64) (FixedWindowState, Result) {
	x := w.at(s, now)
	r := Result{Remaining: max(0, w.limit-x.Used), ResetAfter: w.resetAfter(x, now)}
	if n < 0 || n > w.limit {
		r.RetryAfter = Never
		return s, r
	}
	if over := x.Used + max(n, 1) - w.limit; over > 0 {
		windows := (over + w.limit - 1) / w.limit
		r.RetryAfter = time.Duration(elapsed(now, w.window.start(x.Window+windows)))
		return x, r
	}
	r.Allowed = true
	if n > 0 {
		x.Used += n
		r.Remaining -= n
		r.ResetAfter = w.resetAfter(x, now)
		r.Mark = Mark{At: x.Window}
	}
	return x, r
}

// Peek implements [Algorithm].
func (w FixedWindow) Peek(s FixedWindowState, now, n int64) Result {
	_, r := w.Take(s, now, n)
	if r.Allowed && n > 0 {
		_, r = w.Take(s, now, 0)
	}
	return r
}

// Refund implements [Algorithm].
func (w FixedWindow) Refund(s FixedWindowState, now, n int64) FixedWindowState {
	return w.at(s, now).back(n)
}

// back gives back n permits.
func (s FixedWindowState) back(n int64) FixedWindowState {
	excess := min(max(n, 0), s.Excess)
	s.Excess -= excess
	s.Used -= min(max(n-excess, 0), s.Used)
	return s
}

// Cancel implements [Algorithm]. Permits of a window that has ended are not given back to a later one.
func (w FixedWindow) Cancel(s FixedWindowState, now, n int64, m Mark) FixedWindowState {
	x := w.at(s, now)
	if m.At == x.Window {
		x = x.back(n)
	}
	return x
}

// Charge implements [Algorithm]. What is owed is never more than [MaxFill] can bear, whatever maxDebt is.
func (w FixedWindow) Charge(s FixedWindowState, now, n, maxDebt int64) (FixedWindowState, int64) {
	x := w.at(s, now)
	maxDebt = min(maxDebt, mulDiv(w.limit, int64(MaxFill), w.window.length))
	n = room(n, w.limit, maxDebt, x.Used)
	x.Used += n
	return x, n
}

// Fresh implements [Algorithm].
func (w FixedWindow) Fresh(s FixedWindowState, now int64) bool { return w.at(s, now).Used == 0 }

// FreshAt implements [Algorithm].
func (w FixedWindow) FreshAt(s FixedWindowState) int64 {
	if s == (FixedWindowState{}) {
		return math.MinInt64
	}
	return w.window.start(s.Window + (s.Used+w.limit-1)/w.limit)
}

func (w FixedWindow) resetAfter(x FixedWindowState, now int64) time.Duration {
	if x.Used == 0 {
		return 0
	}
	return time.Duration(elapsed(now, w.FreshAt(x)))
}

func (w FixedWindow) at(s FixedWindowState, now int64) FixedWindowState {
	i := w.window.index(now)
	if passed := elapsed(s.Window, i); passed > 0 {
		if passed > s.Used/w.limit {
			s.Used = 0
		} else {
			s.Used = max(0, s.Used-passed*w.limit)
		}
		s.Excess = 0
	}
	s.Window = i
	return s
}

// room is how many of n permits may be charged when used of limit are taken and maxDebt may be owed.
func room(n, limit, maxDebt, used int64) int64 {
	maxDebt = min(max(maxDebt, 0), MaxPermits)
	return max(0, min(n, limit+maxDebt-used))
}

func segmentsError(v int) error {
	return &ParameterError{"segments", fmt.Sprint(v), fmt.Sprintf("from 1 to %d", MaxSegments)}
}
