package algo

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// CalendarUnit is how long the windows of a [Calendar] are.
type CalendarUnit uint8

// The units, from the shortest. The zero CalendarUnit is not one of them.
const (
	CalendarMinute CalendarUnit = 1 + iota
	CalendarHour
	CalendarDay
	CalendarWeek
	CalendarMonth
	CalendarQuarter
	CalendarYear

	calendarUnits
)

var calendarUnitNames = [calendarUnits]string{"", "minute", "hour", "day", "week", "month", "quarter", "year"}

// String is the name of the unit in lower case, such as "month".
func (u CalendarUnit) String() string {
	if u == 0 || u >= calendarUnits {
		return fmt.Sprintf("CalendarUnit(%d)", uint8(u))
	}
	return calendarUnitNames[u]
}

// MarshalText returns String.
func (u CalendarUnit) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText is the inverse of MarshalText. It returns an error for a unit that does not exist.
func (u *CalendarUnit) UnmarshalText(text []byte) error {
	for c := CalendarMinute; c < calendarUnits; c++ {
		if c.String() == string(text) {
			*u = c
			return nil
		}
	}
	return fmt.Errorf("weir: unknown calendar unit %.40q: must be minute, hour, day, week, month, quarter or year", text)
}

// nominal is how long the longest window of the unit is, if the clock is never changed. Only bounds rest on it.
func (u CalendarUnit) nominal() int64 {
	const days = 24 * int64(time.Hour)
	return [calendarUnits]int64{
		0, int64(time.Minute), int64(time.Hour), days, 7 * days, 31 * days, 92 * days, 366 * days,
	}[u]
}

// Calendar is where windows begin: at edges of minutes, hours, days, weeks, months, quarters or years in a time zone.
//
// Where the clocks skip the time at which a window should begin, it begins as soon as they have skipped it. Where the clocks go
// back, so that the time exists twice, the window begins at the first. Minutes and hours are those that the clock shows: an hour
// that exists twice is two windows. A day that is skipped whole, as when the date line is moved, has no window.
//
// Calendars can be compared with ==. Two that differ in the pointer to the same zone differ, so load a zone once.
type Calendar struct {
	// Unit is how long a window is. Required.
	Unit CalendarUnit
	// Zone is the time zone. Default: nil, UTC.
	Zone *time.Location
	// Month is where years and quarters begin: every third month from it begins a quarter. Default: January. With shorter units
	// it must be 0.
	Month time.Month
	// Day is the day of the month on which months, quarters and years begin: from 1 to 31. A month that is shorter begins on its
	// last day: with 31, on January 31, February 28 or 29, March 31 and April 30. Default: 1. With shorter units it must be 0.
	Day int
	// Weekday is the day on which weeks begin, as ISO 8601 counts: from 1 for Monday to 7 for Sunday. Default: 1. With other
	// units it must be 0.
	Weekday int
	// Hour, from 0 to 23, and Minute, from 0 to 59, are the time of day at which windows of a day or more begin. An hour begins
	// at Minute, and has no Hour; a minute has neither. Default: 0, midnight.
	Hour, Minute int
}

// String is the calendar in words: "day, UTC", "month from day 15, Europe/Vienna", "week from Sunday 08:00, UTC".
func (c Calendar) String() string {
	var from []string
	switch {
	case c.Unit >= CalendarQuarter && (c.Month > 1 || c.Day > 1):
		from = append(from, fmt.Sprintf("%v %d", max(c.Month, time.January), max(c.Day, 1)))
	case c.Day > 1:
		from = append(from, fmt.Sprintf("day %d", c.Day))
	case c.Weekday > 1:
		from = append(from, time.Weekday(c.Weekday%7).String())
	}
	switch {
	case c.Unit == CalendarHour && c.Minute != 0:
		from = append(from, fmt.Sprintf("minute %d", c.Minute))
	case c.Hour != 0 || c.Minute != 0:
		from = append(from, fmt.Sprintf("%02d:%02d", c.Hour, c.Minute))
	}
	text := c.Unit.String()
	if len(from) > 0 {
		text += " from " + strings.Join(from, " ")
	}
	zone := c.Zone
	if zone == nil {
		zone = time.UTC
	}
	return text + ", " + zone.String()
}

// check returns an error that names the field.
func (c Calendar) check() error {
	between := func(name string, v, low, high int, units bool) error {
		switch {
		case !units && v != 0:
			return &ParameterError{"calendar." + name, fmt.Sprint(v), "0 with the unit " + c.Unit.String()}
		case units && (v < low || v > high) && v != 0:
			return &ParameterError{"calendar." + name, fmt.Sprint(v), fmt.Sprintf("from %d to %d", low, high)}
		}
		return nil
	}
	if c.Unit == 0 || c.Unit >= calendarUnits {
		return &ParameterError{"calendar.Unit", c.Unit.String(), "minute, hour, day, week, month, quarter or year"}
	}
	for _, err := range []error{
		between("Month", int(c.Month), 1, 12, c.Unit >= CalendarQuarter),
		between("Day", c.Day, 1, 31, c.Unit >= CalendarMonth),
		between("Weekday", c.Weekday, 1, 7, c.Unit == CalendarWeek),
		between("Hour", c.Hour, 0, 23, c.Unit >= CalendarDay),
		between("Minute", c.Minute, 0, 59, c.Unit >= CalendarHour),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// edges are a checked calendar in seconds since 1970. Windows of a day or more have numbers; those of minutes and hours
// are counted between the changes of the clock.
type edges struct {
	zone   *time.Location
	clock  int64 // the time of day at which windows begin, or the second of the hour
	length int64 // of minutes, hours, days and weeks
	phase  int64 // of weeks and days: the day 1970-01-01 + phase begins one; of longer units, the month
	months int64 // of months and longer units: how many
	day    int   // of months and longer units
	short  bool  // minutes and hours
}

func (c Calendar) edges() edges {
	e := edges{zone: c.Zone, clock: int64(c.Hour)*3600 + int64(c.Minute)*60, day: max(c.Day, 1)}
	if e.zone == nil {
		e.zone = time.UTC
	}
	month := int64(max(c.Month, time.January) - time.January)
	switch c.Unit {
	case CalendarMinute:
		e.length, e.short = 60, true
	case CalendarHour:
		e.length, e.short = 3600, true
	case CalendarDay:
		e.length = daySeconds
	case CalendarWeek:
		e.length = 7 * daySeconds
		e.phase = int64(max(c.Weekday, 1)) - 4 // 1970-01-01 was a Thursday
	case CalendarMonth:
		e.months = 1
	case CalendarQuarter:
		e.months, e.phase = 3, month%3
	default:
		e.months, e.phase = 12, month
	}
	return e
}

const daySeconds = 24 * 60 * 60

// floorDiv is a / b rounded down, for b > 0.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// window is the window that sec lies in.
func (e *edges) window(sec int64) (begin, end int64) {
	if e.short {
		return e.last(sec), e.next(sec)
	}
	i := e.number(sec)
	return e.instant(e.civil(i)), e.instant(e.civil(i + 1))
}

// after is where the window begins that comes k > 0 windows after that which begins at begin.
func (e *edges) after(begin, k int64) int64 {
	if e.short {
		return e.skip(begin, k)
	}
	return e.instant(e.civil(e.number(begin) + k))
}

// passed is how many windows have begun after begin, up to and including now.
func (e *edges) passed(begin, now int64) int64 {
	if e.short {
		return e.count(begin, now)
	}
	return e.number(now) - e.number(begin)
}

// civil is the date and time of day at which window i should begin, in the seconds that it would be in UTC.
func (e *edges) civil(i int64) int64 {
	if e.months == 0 {
		return i*e.length + e.phase*daySeconds + e.clock
	}
	m := i*e.months + e.phase
	year := floorDiv(m, 12)
	month := time.Month(m-12*year) + time.January
	day := min(e.day, time.Date(int(year), month+1, 0, 0, 0, 0, 0, time.UTC).Day())
	return time.Date(int(year), month, day, 0, 0, 0, 0, time.UTC).Unix() + e.clock
}

// number is that of the window that sec lies in.
func (e *edges) number(sec int64) int64 {
	local := sec + e.era(sec).offset
	var i int64
	if e.months == 0 {
		i = floorDiv(local-e.phase*daySeconds-e.clock, e.length)
	} else {
		year, month, _ := time.Unix(local, 0).UTC().Date()
		i = floorDiv(int64(year)*12+int64(month-time.January)-e.phase, e.months)
		if e.civil(i) > local {
			i--
		}
	}
	for e.instant(e.civil(i+1)) <= sec { // the clock has shown that time before it went back, or never shows it
		i++
	}
	return i
}

// era is a time in which the clock of a zone is not changed. There may be several in succession with the same offset.
type era struct{ start, end, offset int64 }

// There is no change of a clock before the first of these, or after the second.
const (
	noStart = math.MinInt64 / 4
	noEnd   = math.MaxInt64 / 4
)

func (e *edges) era(sec int64) era {
	if e.zone == time.UTC {
		return era{noStart, noEnd, 0}
	}
	t := time.Unix(sec, 0).In(e.zone)
	_, offset := t.Zone()
	s := era{noStart, noEnd, int64(offset)}
	start, end := t.ZoneBounds()
	if !start.IsZero() {
		s.start = start.Unix()
	}
	if !end.IsZero() {
		s.end = end.Unix()
	}
	if s.end <= sec { // package time may end leap years that lie beyond its tables a day too early
		s.end = (floorDiv(sec, daySeconds) + 1) * daySeconds
	}
	s.start = min(s.start, sec)
	return s
}

// following is the era that begins when s ends.
func (e *edges) following(s era) era {
	next := e.era(s.end)
	next.start = s.end
	return next
}

// steady reports whether the clock is never changed from sec on.
func (e *edges) steady(sec int64) bool {
	const most = 8 // eras that may follow with the same offset
	s := e.era(sec)
	for offset, i := s.offset, 0; i < most && s.offset == offset; i++ {
		if s.end == noEnd {
			return true
		}
		s = e.following(s)
	}
	return false
}

// maxOffset is more than the time of any zone differs from UTC.
const maxOffset = 26 * 60 * 60

// instant is when the clock first shows the civil time, or a later one if it skips that.
func (e *edges) instant(civil int64) int64 {
	for s := e.era(civil - maxOffset); ; s = e.following(s) {
		if at := max(civil-s.offset, s.start); at < s.end {
			return at
		}
	}
}

// since is how long before sec the last minute or hour began, in a era.
func (e *edges) since(s era, sec int64) int64 {
	local := sec + s.offset - e.clock
	return local - floorDiv(local, e.length)*e.length
}

// skipped reports whether the change of the clock at which s begins skips the beginning of a minute or hour, which then is there.
func (e *edges) skipped(s era) bool {
	if s.start == noStart || e.since(s, s.start) == 0 {
		return false
	}
	before := e.era(s.start-1).offset - e.clock
	return floorDiv(s.start+s.offset-1-e.clock, e.length) > floorDiv(s.start+before-1, e.length)
}

// last is the last edge up to sec.
func (e *edges) last(sec int64) int64 {
	for {
		s := e.era(sec)
		if at := sec - e.since(s, sec); at >= s.start {
			return at
		}
		if e.skipped(s) {
			return s.start
		}
		sec = s.start - 1
	}
}

// next is the first edge after sec.
func (e *edges) next(sec int64) int64 { return e.skip(sec, 1) }

// skip is the k-th edge after sec.
func (e *edges) skip(sec, k int64) int64 {
	s := e.era(sec)
	for {
		last := sec - e.since(s, sec)
		if at := last + k*e.length; at < s.end {
			return at
		}
		k -= (s.end - 1 - last) / e.length
		sec = s.end - 1 // the last second of s, seen from the next
		s = e.following(s)
		if e.skipped(s) {
			if k--; k == 0 {
				return s.start
			}
		}
	}
}

// count is how many edges there are after begin, up to and including now.
func (e *edges) count(begin, now int64) (n int64) {
	for s := e.era(begin); begin < now; s = e.following(s) {
		upTo := min(now, s.end-1)
		n += (upTo + e.since(s, begin) - begin) / e.length
		if begin = upTo; upTo == now {
			break
		}
		if e.skipped(e.following(s)) {
			n++
		}
	}
	return n
}
