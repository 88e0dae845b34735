package weir

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/algo"
)

// CalendarUnit is how long the windows of a [Calendar] are. The zero CalendarUnit is none.
type CalendarUnit uint8

// The units, from the shortest.
const (
	CalendarMinute  = CalendarUnit(algo.CalendarMinute)
	CalendarHour    = CalendarUnit(algo.CalendarHour)
	CalendarDay     = CalendarUnit(algo.CalendarDay)
	CalendarWeek    = CalendarUnit(algo.CalendarWeek)
	CalendarMonth   = CalendarUnit(algo.CalendarMonth)
	CalendarQuarter = CalendarUnit(algo.CalendarQuarter)
	CalendarYear    = CalendarUnit(algo.CalendarYear)
)

// String is the name of the unit in lower case, such as "month".
func (u CalendarUnit) String() string { return algo.CalendarUnit(u).String() }

// MarshalText is String.
func (u CalendarUnit) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// UnmarshalText is the inverse of MarshalText, for units that exist.
func (u *CalendarUnit) UnmarshalText(text []byte) error {
	for c := CalendarMinute; c <= CalendarYear; c++ {
		if c.String() == string(text) {
			*u = c
			return nil
		}
	}
	return fmt.Errorf("weir: unknown calendar unit %.40q: must be minute, hour, day, week, month, quarter or year", text)
}

// Calendar says where the windows of a [CalendarWindow] begin: at edges of minutes, hours, days, weeks, months, quarters or years
// in a time zone. Calendars can be compared with ==; two that differ in the pointer to the same zone differ, so load a zone
// once.
//
// A window that should begin at a time of day which the clocks skip begins when they have skipped it; where the clocks go
// back over it, so that it exists twice, it begins at the first. So a day has 23, 24 or 25 hours. Minutes and hours are
// those that the clock shows: an hour that exists twice is two windows.
type Calendar struct {
	// Unit is how long a window is. Required.
	Unit CalendarUnit
	// Zone is the time zone. Default: nil, UTC.
	Zone *time.Location
	// Month is the one in which years and quarters begin: every third month from it begins a quarter. Default: January.
	// With shorter units it must be 0.
	Month time.Month
	// Day is the day of the month on which months, quarters and years begin: from 1 to 31. In a month that is shorter they
	// begin on its last day, so with 31 a window begins on January 31, February 28 or 29, March 31 and April 30. Default: 1.
	// With shorter units it must be 0.
	Day int
	// Weekday is the day on which weeks begin, as ISO 8601 counts: from 1 for Monday to 7 for Sunday. Default: 1. With other
	// units it must be 0.
	Weekday int
	// Hour, from 0 to 23, and Minute, from 0 to 59, are the time of day at which windows of a day or more begin. An hour
	// begins at Minute, and has no Hour; a minute has neither. Default: 0, midnight.
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
	return text + ", " + c.zone().String()
}

func (c Calendar) zone() *time.Location {
	if c.Zone == nil {
		return time.UTC
	}
	return c.Zone
}

// newCalendarWindow makes the windows of a limit, whose name is of in errors.
func newCalendarWindow(of string, permits int64, c Calendar, unixed bool) (wallWindow, error) {
	w, err := algo.NewCalendarWindow(permits, algo.Calendar{
		Unit: algo.CalendarUnit(c.Unit), Zone: c.Zone, Month: c.Month, Day: c.Day, Weekday: c.Weekday,
		Hour: c.Hour, Minute: c.Minute,
	})
	if wrong, ok := errors.AsType[*algo.ParameterError](err); ok {
		option := "Permits"
		if field, named := strings.CutPrefix(wrong.Parameter, "calendar."); named {
			option = "Calendar." + field
		}
		return wallWindow{}, &OptionError{of + "." + option, wrong.Value, wrong.Accepted}
	}
	if unixed {
		return wallWindow{CalendarWindow: w}, err
	}
	return wallWindow{w, new(wallClock)}, err
}
