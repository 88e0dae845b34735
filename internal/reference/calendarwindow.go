package reference

import (
	"time"

	"github.com/weirhq/weir/algo"
)

// Dates finds the windows of a calendar minute by minute and day by day, by what the clock of the zone shows. It is meant for
// zones and times in which the clock is changed by whole minutes, at whole minutes.
type Dates struct {
	calendar algo.Calendar
	shown    map[int64]int64
}

// NewDates returns the windows of a calendar.
func NewDates(c algo.Calendar) *Dates {
	if c.Zone == nil {
		c.Zone = time.UTC
	}

	c.Month, c.Day, c.Weekday = max(c.Month, 1), max(c.Day, 1), max(c.Weekday, 1)

	return &Dates{c, make(map[int64]int64)}
}

const (
	minute = 60
	day    = 24 * 60 * minute
)

// local is what the clock shows at sec, as the seconds at which it would show that in UTC.
func (d *Dates) local(sec int64) int64 {
	_, offset := time.Unix(sec, 0).In(d.calendar.Zone).Zone()

	return sec + int64(offset)
}

// show is the first time at which the clock shows civil or something later.
func (d *Dates) show(civil int64) int64 {
	at, ok := d.shown[civil]
	if !ok {
		for at = civil - 16*60*minute; d.local(at) < civil; {
			at += minute
		}

		d.shown[civil] = at
	}

	return at
}

// begins reports whether a window begins on a date.
func (d *Dates) begins(date time.Time) bool {
	c := d.calendar
	last := date.AddDate(0, 0, 1-date.Day()).AddDate(0, 1, -1).Day()
	onDay := date.Day() == min(c.Day, last)

	switch c.Unit {
	case algo.CalendarWeek:
		return (int(date.Weekday())+6)%7+1 == c.Weekday
	case algo.CalendarMonth:
		return onDay
	case algo.CalendarQuarter:
		return onDay && (int(date.Month())-int(c.Month)+12)%3 == 0
	case algo.CalendarYear:
		return onDay && date.Month() == c.Month
	default:
		return true
	}
}

// edge reports whether a minute or an hour begins at sec, a whole minute.
func (d *Dates) edge(sec int64) bool {
	length := int64(minute)
	if d.calendar.Unit == algo.CalendarHour {
		length = 60 * minute
	}

	shows := d.local(sec)
	for civil := min(d.local(sec-minute)+minute, shows); civil <= shows; civil += minute {
		if (civil-int64(d.calendar.Minute)*minute)%length == 0 {
			return true
		}
	}

	return false
}

// Window is the window that sec lies in.
func (d *Dates) Window(sec int64) (begin, end int64) {
	if d.calendar.Unit <= algo.CalendarHour {
		begin = down(whole(sec), whole(minute)).Int64() * minute
		for end = begin + minute; !d.edge(end); {
			end += minute
		}

		for !d.edge(begin) {
			begin -= minute
		}

		return begin, end
	}

	clock := int64(d.calendar.Hour)*60*minute + int64(d.calendar.Minute)*minute
	date := time.Unix(d.local(sec), 0).UTC().Truncate(day*time.Second).AddDate(0, 0, 3)

	for begin = sec + 1; begin > sec; {
		if date = date.AddDate(0, 0, -1); d.begins(date) {
			begin = d.show(date.Unix() + clock)
		}
	}

	for end = begin; end <= sec; {
		if date = date.AddDate(0, 0, 1); d.begins(date) {
			end = d.show(date.Unix() + clock)
		}
	}

	return begin, end
}

// CalendarWindow is the reference of [algo.Window].
type CalendarWindow struct {
	dates *Dates
	limit int64
	begin int64 // of the window that used belongs to
	used  int64
}

var _ Limiter = (*CalendarWindow)(nil)

// NewCalendarWindow returns a window of which nothing is used.
func NewCalendarWindow(limit int64, c algo.Calendar) *CalendarWindow {
	return &CalendarWindow{NewDates(c), limit, 0, 0}
}

func seconds(now int64) int64 { return down(whole(now), whole(int64(time.Second))).Int64() }

func (w *CalendarWindow) at(now int64) CalendarWindow {
	x := *w
	begin, end := w.dates.Window(seconds(now))

	if x.used == 0 || end < x.begin { // nothing to keep, or the clock is set back by more than a window
		x.begin = begin
	}

	for x.begin < begin && x.used > 0 {
		_, x.begin = w.dates.Window(x.begin)
		x.used = max(0, x.used-x.limit)
	}

	x.begin = max(x.begin, begin)

	return x
}

// until is how long it takes until no more than most is used.
func (w *CalendarWindow) until(now, most int64) time.Duration {
	if w.used <= most {
		return 0
	}

	end := w.begin
	for used := w.used; used > most; used -= w.limit {
		_, end = w.dates.Window(end)
	}

	return time.Duration(end*int64(time.Second) - now)
}

func (w *CalendarWindow) decide(now, n int64) algo.Result {
	r := algo.Result{Remaining: max(0, w.limit-w.used), ResetAfter: w.until(now, 0)}

	if n < 0 || n > w.limit {
		r.RetryAfter = algo.Never
	} else {
		r.RetryAfter = w.until(now, w.limit-max(n, 1))
		r.Allowed = r.RetryAfter == 0
	}

	return r
}

// Take implements [Limiter].
func (w *CalendarWindow) Take(now, n int64) (algo.Result, Mark) {
	x := w.at(now)
	r := x.decide(now, n)

	if r.RetryAfter == algo.Never {
		return r, Mark{}
	}

	*w = x
	if !r.Allowed || n == 0 {
		return r, Mark{}
	}

	w.used += n
	after := w.decide(now, 0)
	r.Remaining, r.ResetAfter = after.Remaining, after.ResetAfter

	return r, Mark{at: whole(w.begin)}
}

// Peek implements [Limiter].
func (w *CalendarWindow) Peek(now, n int64) algo.Result {
	x := w.at(now)

	return x.decide(now, n)
}

// Refund implements [Limiter].
func (w *CalendarWindow) Refund(now, n int64) {
	*w = w.at(now)
	w.used -= min(max(n, 0), w.used)
}

// Cancel implements [Limiter].
func (w *CalendarWindow) Cancel(now, n int64, m Mark) {
	if *w = w.at(now); m.at.Int64() == w.begin {
		w.Refund(now, n)
	}
}

// Charge implements [Limiter]. It does not know how much debt can be borne at most.
func (w *CalendarWindow) Charge(now, n, maxDebt int64) int64 {
	*w = w.at(now)
	n = chargeable(n, w.limit, maxDebt, whole(w.used))
	w.used += n

	return n
}

// Fresh implements [Limiter].
func (w *CalendarWindow) Fresh(now int64) bool {
	x := w.at(now)

	return x.used == 0
}
