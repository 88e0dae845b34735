package algo

import (
	"math"
	"time"
)

// Window allows up to Limit permits in each window of time. Its windows follow one another without a gap, so they never drift
// with the traffic. Those of [NewFixedWindow] are equally long; those of [NewCalendarWindow] are the days, months or other units
// of a [Calendar], whose time is nanoseconds since 1970-01-01 UTC. Copies are cheap and safe.
//
// It is the cheapest and coarsest algorithm: across the border of two windows it allows up to 2 x Limit permits within any time
// span. Debt made by Charge is carried: a window begins with what earlier ones overdrew.
//
// A clock that is set back does not bring an earlier window of a calendar back: used permits stay used until the later window
// ends. Only a clock that is set back by more than one whole window moves the state to the window that it shows, with what was
// used. So a clock that goes back and forth over an edge adds no permits, and one that was years ahead for a moment does not
// refuse requests for years.
type Window struct {
	limit    int64
	even     *phase // of a calendar: the nominal length
	calendar *calendar
}

// WindowState is the use of one window. The zero value is fresh.
type WindowState struct {
	// Window is the number of the window, where window 0 is the one that begins first at or after time 0. Of a calendar it is
	// when the window begins.
	Window int64
	Used   int64 // permits taken in it and owed from before
	// Excess is how many more permits were taken in it, under a limit that Carry has lowered. They are not owed, but may count
	// again if the limit is raised before the window ends.
	Excess int64
}

// NewFixedWindow returns windows of the given length, one of which begins at origin: limit from 1 to [MaxPermits],
// window from 1 ns to [MaxPeriod].
func NewFixedWindow(limit int64, window time.Duration, origin int64) (Window, error) {
	if err := checkPermits("limit", limit); err != nil {
		return Window{}, err
	}
	if err := checkPeriod("window", window); err != nil {
		return Window{}, err
	}
	return Window{limit, new(newPhase(window, origin)), nil}, nil
}

// NewCalendarWindow returns windows of a calendar, whose fields it checks. limit is from 1 to [MaxPermits].
func NewCalendarWindow(limit int64, c Calendar) (Window, error) {
	if err := checkPermits("limit", limit); err != nil {
		return Window{}, err
	}
	if err := c.check(); err != nil {
		return Window{}, err
	}
	return Window{limit, &phase{length: c.Unit.nominal()}, newCalendar(c)}, nil
}

// Limit implements [Algorithm].
func (w Window) Limit() int64 { return w.limit }

// Calendar is what the windows were made of. It is the zero Calendar if they are equally long.
func (w Window) Calendar() Calendar {
	if w.calendar == nil {
		return Calendar{}
	}
	return w.calendar.Calendar
}

// Window is when the window in which now lies begins, and when the next one does. Both stay within the range of an int64, from
// the year 1677 to 2262.
func (w Window) Window(now int64) (begin, end int64) {
	if w.calendar != nil {
		return w.calendar.window(now)
	}
	i := w.even.index(now)
	return w.even.start(i), w.even.start(i + 1)
}

// Length is how long all windows from now on are, and 0 if they differ. Months and longer units of a calendar differ; so does
// all but minutes in a zone whose clock is changed.
func (w Window) Length(now int64) time.Duration {
	if w.calendar != nil && !w.calendar.steady(now) {
		return 0
	}
	return time.Duration(w.even.length)
}

// SameWindows reports whether the windows of w and x begin at the same times, so that a Mark of one is good for the other. Zones
// of the same name count as the same.
func (w Window) SameWindows(x Window) bool {
	return *w.even == *x.even && w.calendar.same(x.calendar)
}

// Take implements [Algorithm].
func (w Window) Take(s WindowState, now, n int64) (WindowState, Result) {
	r := w.takeIn(&s, now, n)
	return s, r
}

// takeIn is Take on a state in place, which is cheaper.
func (w *Window) takeIn(s *WindowState, now, n int64) (r Result) {
	x := w.at(*s, now)
	if n < 0 || n > w.limit {
		r.RetryAfter = Never
		r.Remaining, r.ResetAfter = w.left(x, now)
		return r
	}
	if over := x.Used + max(n, 1) - w.limit; over > 0 {
		r.RetryAfter = time.Duration(elapsed(now, w.borne(x.Window, over)))
	} else {
		r.Allowed = true
		if n > 0 {
			x.Used += n
			r.Mark = Mark{At: x.Window}
		}
	}
	*s = x
	r.Remaining, r.ResetAfter = w.left(x, now)
	return r
}

// left is how many permits remain in the state x, and in how long all do.
func (w Window) left(x WindowState, now int64) (remaining int64, resetAfter time.Duration) {
	if x.Used == 0 {
		return w.limit, 0
	}
	return max(0, w.limit-x.Used), time.Duration(elapsed(now, w.borne(x.Window, x.Used)))
}

// Peek implements [Algorithm].
func (w Window) Peek(s WindowState, now, n int64) Result {
	_, r := w.Take(s, now, n)
	if r.Allowed && n > 0 {
		_, r = w.Take(s, now, 0)
	}
	return r
}

// Refund implements [Algorithm].
func (w Window) Refund(s WindowState, now, n int64) WindowState { return w.at(s, now).back(n) }

// back gives back n permits.
func (s WindowState) back(n int64) WindowState {
	excess := min(max(n, 0), s.Excess)
	s.Excess -= excess
	s.Used -= min(max(n-excess, 0), s.Used)
	return s
}

// Cancel implements [Algorithm]. Permits of a window that has ended are not given back to a later one.
func (w Window) Cancel(s WindowState, now, n int64, m Mark) WindowState {
	x := w.at(s, now)
	if m.At == x.Window {
		x = x.back(n)
	}
	return x
}

// Charge implements [Algorithm]. The debt is never more than [MaxFill] can repay, whatever maxDebt is. A month counts as 31 days
// there, a quarter as 92 and a year as 366.
func (w Window) Charge(s WindowState, now, n, maxDebt int64) (WindowState, int64) {
	x := w.at(s, now)
	maxDebt = min(maxDebt, mulDiv(w.limit, int64(MaxFill), w.even.length))
	n = room(n, w.limit, maxDebt, x.Used)
	x.Used += n
	return x, n
}

// Fresh implements [Algorithm].
func (w Window) Fresh(s WindowState, now int64) bool { return w.at(s, now).Used == 0 }

// FreshAt implements [Algorithm].
func (w Window) FreshAt(s WindowState) int64 {
	if s.Used == 0 {
		return math.MinInt64
	}
	return w.borne(s.Window, s.Used)
}

// borne is when the window begins to which nothing is left of n > 0 permits that are used in a window: each window bears limit of
// them.
func (w Window) borne(window, n int64) int64 {
	windows := (n + w.limit - 1) / w.limit
	if w.calendar != nil {
		return w.calendar.after(window, windows)
	}
	return w.even.start(window + windows)
}

// at is the state at time now.
func (w Window) at(s WindowState, now int64) WindowState {
	if w.calendar != nil {
		return w.calendarAt(s, now)
	}
	if d := now - w.even.origin - s.Window*w.even.length; d < 0 || d >= w.even.length {
		i := w.even.index(now)
		s = w.move(s, i, elapsed(s.Window, i))
	}
	return s
}

func (w Window) calendarAt(s WindowState, now int64) WindowState {
	begin, end := w.calendar.window(now)
	switch {
	case begin == s.Window:
		return s
	case s.Used == 0, end < s.Window:
		return w.move(s, begin, 0)
	case begin < s.Window: // the clock was set back
		return s
	case s.Used <= w.limit: // however many windows have passed
		return w.move(s, begin, 1)
	}
	return w.move(s, begin, w.calendar.passed(s.Window, begin))
}

// move moves a state to another window. Each that has passed bears limit of what was used.
func (w Window) move(s WindowState, window, passed int64) WindowState {
	if passed > 0 {
		if passed > s.Used/w.limit {
			s.Used = 0
		} else {
			s.Used = max(0, s.Used-passed*w.limit)
		}
		s.Excess = 0
	}
	s.Window = window
	return s
}

// Carry converts a state of the windows old into one of w. Permits taken in the current window stay taken, in the window of w
// that is current at time now. A debt stays owed, and no more remains than the new limit. A Mark from before is good for w if
// both have the same windows.
func (w Window) Carry(old Window, s WindowState, now int64) WindowState {
	x := old.at(s, now)
	debt := max(0, x.Used-old.limit)
	taken := x.Used - debt + x.Excess
	used := min(taken, w.limit)
	c := WindowState{Window: x.Window, Used: used + debt, Excess: taken - used}
	switch {
	case w.SameWindows(old):
	case w.calendar == nil:
		c.Window = w.even.index(now)
	default:
		c.Window, _ = w.calendar.window(max(now, x.Window)) // which may be later than now: see Window
	}
	return c
}

// CancelAcross is Cancel for a Mark of the windows old, whose state Carry has made one of w since. It does nothing if that
// Mark is not good for w.
func (w Window) CancelAcross(old Window, s WindowState, now, n int64, m Mark) WindowState {
	if !w.SameWindows(old) {
		return s
	}
	return w.Cancel(s, now, n, m)
}

// room is how many of n permits may be charged when used of limit are taken and maxDebt may be owed.
func room(n, limit, maxDebt, used int64) int64 {
	maxDebt = min(max(maxDebt, 0), MaxPermits)
	return max(0, min(n, limit+maxDebt-used))
}
