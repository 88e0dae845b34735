package algo

import (
	"math"
	"sync/atomic"
	"time"
)

// calendar finds the windows of a Calendar.
type calendar struct {
	Calendar

	edges edges
	shift uint
	cells [8]atomic.Pointer[cell]
}

// cell is the windows that a stretch of time begins in, and the next: no more than two in most stretches, as they are shorter
// than windows.
type cell struct{ number, begin, middle, end int64 }

// cellShifts say how long the stretches are: 2 to this power, in nanoseconds, which is at least half of a window.
var cellShifts = [calendarUnits]uint{0, 35, 41, 46, 49, 51, 52, 54}

func newCalendar(c Calendar) *calendar {
	return &calendar{Calendar: c, edges: c.edges(), shift: cellShifts[c.Unit]}
}

// steady reports whether all windows from now on are equally long.
func (c *calendar) steady(now int64) bool {
	return c.Unit == CalendarMinute || c.Unit <= CalendarWeek && c.edges.steady(floorDiv(now, int64(time.Second)))
}

// same reports whether the windows of two calendars begin at the same times; nil is none.
func (c *calendar) same(d *calendar) bool {
	if c == d {
		return true
	}
	if c == nil || d == nil {
		return false
	}
	a, b := c.edges, d.edges
	if a.zone.String() != b.zone.String() {
		return false
	}
	a.zone, b.zone = nil, nil
	return a == b
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
	if k > math.MaxInt64/c.Unit.nominal() { // more than 292 years
		return math.MaxInt64
	}
	return nanoseconds(c.edges.after(floorDiv(begin, int64(time.Second)), k))
}

// passed is how many windows have begun after begin, up to and including that which begins at now.
func (c *calendar) passed(begin, now int64) int64 {
	return c.edges.passed(floorDiv(begin, int64(time.Second)), floorDiv(now, int64(time.Second)))
}
