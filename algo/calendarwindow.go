package algo

import (
	"math"
	"sync/atomic"
	"time"
)

// CalendarWindow allows up to Limit permits in each window of a [Calendar]: in each month of a time zone, for example, however
// long that month is. Its time is nanoseconds since 1970-01-01 UTC. Make it by NewCalendarWindow; copies are cheap and safe.
//
// Like a [FixedWindow] it allows up to 2 x Limit permits around the border of two windows. Debt made by Charge is carried: a
// window begins with what earlier ones overdrew.
//
// A clock that is set back does not bring an earlier window back: used permits stay used until the later window ends. Only a
// clock that is set back by more than one whole window moves the state to the window that it shows, with what was used. So a
// clock that goes back and forth over an edge adds no permits, and one that was years ahead for a moment does not refuse requests
// for years.
type CalendarWindow struct {
	limit    int64
	calendar *calendar
}

// calendar finds the windows of a Calendar.
type calendar struct {
	Calendar

	edges   edges
	nominal int64
	shift   uint
	cells   [8]atomic.Pointer[cell]
}

// cell is the windows that a stretch of time begins in, and the next: no more than two in most stretches, as they are shorter
// than windows.
type cell struct{ number, begin, middle, end int64 }

// cellShifts say how long the stretches are: 2 to this power, in nanoseconds, which is at least half of a window.
var cellShifts = [calendarUnits]uint{0, 35, 41, 46, 49, 51, 52, 54}

// CalendarWindowState is the use of one window. The zero value is fresh.
type CalendarWindowState struct {
	Start int64 // when it begins
	Used  int64 // permits taken in it and owed from before
	// Excess is how many more permits were taken in it, under a limit that Carry has lowered. They are not owed, but may count
	// again if the limit is raised before the window ends.
	Excess int64
}

// NewCalendarWindow returns windows of a calendar, whose fields it checks. limit is from 1 to [MaxPermits].
func NewCalendarWindow(limit int64, c Calendar) (CalendarWindow, error) {
	if err := checkPermits("limit", limit); err != nil {
		return CalendarWindow{}, err
	}
	if err := c.check(); err != nil {
		return CalendarWindow{}, err
	}
	return CalendarWindow{limit, &calendar{
		Calendar: c, edges: c.edges(), nominal: c.Unit.nominal(), shift: cellShifts[c.Unit],
	}}, nil
}

// Limit implements [Algorithm].
func (w CalendarWindow) Limit() int64 { return w.limit }

// Calendar is what the windows were made of.
func (w CalendarWindow) Calendar() Calendar { return w.calendar.Calendar }

// Window is when the window in which now lies begins, and when the next one does. Both stay within the range of an int64, from
// the year 1677 to 2262.
func (w CalendarWindow) Window(now int64) (begin, end int64) { return w.calendar.window(now) }

// Length is how long all windows from now on are, and 0 if they differ. Months and longer units differ; so does all but minutes
// in a zone whose clock is changed.
func (w CalendarWindow) Length(now int64) time.Duration {
	c := w.calendar
	if c.Unit > CalendarWeek || c.Unit > CalendarMinute && !c.edges.steady(floorDiv(now, int64(time.Second))) {
		return 0
	}
	return time.Duration(c.nominal)
}

// SameWindows reports whether the windows of w and x begin at the same times, so that a Mark of one is good for the other. Zones
// of the same name count as the same.
func (w CalendarWindow) SameWindows(x CalendarWindow) bool {
	if w.calendar == x.calendar {
		return true
	}
	a, b := w.calendar.edges, x.calendar.edges
	if a.zone.String() != b.zone.String() {
		return false
	}
	a.zone, b.zone = nil, nil
	return a == b
}

// Take implements [Algorithm].
func (w CalendarWindow) Take(s CalendarWindowState, now, n int64) (CalendarWindowState, Result) {
	x := w.at(s, now)
	r := Result{Remaining: max(0, w.limit-x.Used), ResetAfter: w.resetAfter(x, now)}
	if n < 0 || n > w.limit {
		r.RetryAfter = Never
		return s, r
	}
	if over := x.Used + max(n, 1) - w.limit; over > 0 {
		r.RetryAfter = time.Duration(elapsed(now, w.calendar.after(x.Start, (over+w.limit-1)/w.limit)))
		return x, r
	}
	r.Allowed = true
	if n > 0 {
		x.Used += n
		r.Remaining -= n
		r.ResetAfter = w.resetAfter(x, now)
		r.Mark = Mark{At: x.Start}
	}
	return x, r
}

// Peek implements [Algorithm].
func (w CalendarWindow) Peek(s CalendarWindowState, now, n int64) Result {
	_, r := w.Take(s, now, n)
	if r.Allowed && n > 0 {
		_, r = w.Take(s, now, 0)
	}
	return r
}

// Refund implements [Algorithm].
func (w CalendarWindow) Refund(s CalendarWindowState, now, n int64) CalendarWindowState {
	return w.at(s, now).back(n)
}

// back gives back n permits.
func (s CalendarWindowState) back(n int64) CalendarWindowState {
	excess := min(max(n, 0), s.Excess)
	s.Excess -= excess
	s.Used -= min(max(n-excess, 0), s.Used)
	return s
}

// Cancel implements [Algorithm]. Permits of a window that has ended are not given back to a later one.
func (w CalendarWindow) Cancel(s CalendarWindowState, now, n int64, m Mark) CalendarWindowState {
	x := w.at(s, now)
	if m.At == x.Start {
		x = x.back(n)
	}
	return x
}

// Charge implements [Algorithm]. The debt is never more than [MaxFill] can repay, whatever maxDebt is. A month counts as 31 days
// there, a quarter as 92 and a year as 366.
func (w CalendarWindow) Charge(s CalendarWindowState, now, n, maxDebt int64) (CalendarWindowState, int64) {
	x := w.at(s, now)
	maxDebt = min(maxDebt, mulDiv(w.limit, int64(MaxFill), w.calendar.nominal))
	n = room(n, w.limit, maxDebt, x.Used)
	x.Used += n
	return x, n
}

// Fresh implements [Algorithm].
func (w CalendarWindow) Fresh(s CalendarWindowState, now int64) bool { return w.at(s, now).Used == 0 }

// FreshAt implements [Algorithm].
func (w CalendarWindow) FreshAt(s CalendarWindowState) int64 {
	if s.Used == 0 {
		return math.MinInt64
	}
	return w.calendar.after(s.Start, (s.Used+w.limit-1)/w.limit)
}

// Carry converts a state of the windows old into one of w. Permits taken in the current window stay taken, in the window of w
// that is current at time now. A debt stays owed, and no more remains than the new limit. A Mark from before is good for w if
// both have the same calendar.
func (w CalendarWindow) Carry(old CalendarWindow, s CalendarWindowState, now int64) CalendarWindowState {
	x := old.at(s, now)
	debt := max(0, x.Used-old.limit)
	taken := x.Used - debt + x.Excess
	used := min(taken, w.limit)
	start := x.Start
	if !w.SameWindows(old) {
		start, _ = w.calendar.window(max(now, x.Start)) // which may be later than now: see CalendarWindow
	}
	return CalendarWindowState{Start: start, Used: used + debt, Excess: taken - used}
}

// CancelAcross is Cancel for a Mark of the windows old, whose state Carry has made one of w since. It does nothing if that
// Mark is not good for w.
func (w CalendarWindow) CancelAcross(old CalendarWindow, s CalendarWindowState, now, n int64, m Mark) CalendarWindowState {
	if !w.SameWindows(old) {
		return s
	}
	return w.Cancel(s, now, n, m)
}

func (w CalendarWindow) resetAfter(x CalendarWindowState, now int64) time.Duration {
	if x.Used == 0 {
		return 0
	}
	return time.Duration(elapsed(now, w.FreshAt(x)))
}

func (w CalendarWindow) at(s CalendarWindowState, now int64) CalendarWindowState {
	begin, end := w.calendar.window(now)
	switch {
	case begin == s.Start:
	case s.Used == 0, end < s.Start:
		s.Start = begin
	case begin > s.Start:
		if s.Used <= w.limit {
			s.Used = 0
		} else {
			s.Used = w.unpaid(s, begin)
		}
		s.Start, s.Excess = begin, 0
	}
	return s
}

// unpaid is what is left of debt in the window that begins at begin: each window bears limit of it.
func (w CalendarWindow) unpaid(s CalendarWindowState, begin int64) int64 {
	passed := w.calendar.passed(s.Start, begin)
	if passed > s.Used/w.limit {
		return 0
	}
	return max(0, s.Used-passed*w.limit)
}

// window is the window that now lies in.
func (c *calendar) window(now int64) (begin, end int64) {
	number := now >> c.shift
	place := &c.cells[number&int64(len(c.cells)-1)]
	e := place.Load()
	if e == nil || e.number != number {
		e = &cell{number: number}
		e.begin, e.middle = c.compute(number << c.shift)
		_, e.end = c.compute(e.middle)
		place.Store(e)
	}
	switch {
	case now < e.middle:
		return e.begin, e.middle
	case now < e.end:
		return e.middle, e.end
	}
	return c.compute(now)
}

// compute is window without what is remembered.
func (c *calendar) compute(now int64) (begin, end int64) {
	b, e := c.edges.window(floorDiv(now, int64(time.Second)))
	return nanoseconds(b), nanoseconds(e)
}

// nanoseconds are seconds, held at the ends of the range.
func nanoseconds(sec int64) int64 {
	switch {
	case sec > math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	case sec < math.MinInt64/int64(time.Second):
		return math.MinInt64
	}
	return sec * int64(time.Second)
}

// after is where the window begins that comes k > 0 windows after that which begins at begin.
func (c *calendar) after(begin, k int64) int64 {
	if k == 1 {
		if b, end := c.window(begin); b == begin {
			return end
		}
	}
	if k > math.MaxInt64/c.nominal { // more than 292 years
		return math.MaxInt64
	}
	return nanoseconds(c.edges.after(floorDiv(begin, int64(time.Second)), k))
}

// passed is how many windows have begun after begin, up to and including that which begins at now.
func (c *calendar) passed(begin, now int64) int64 {
	return c.edges.passed(floorDiv(begin, int64(time.Second)), floorDiv(now, int64(time.Second)))
}
