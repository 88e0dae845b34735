package weir

import (
	"errors"
	"strings"
	"time"

	"github.com/weirhq/weir/algo"
)

// Day returns the days of a time zone, from midnight, for [CalendarWindow]. A nil zone is UTC. An [algo.Calendar] says more:
// where other units begin, or at another time of day.
func Day(zone *time.Location) algo.Calendar { return algo.Calendar{Unit: algo.CalendarDay, Zone: zone} }

// Week returns the weeks of a time zone, from Monday at midnight, for [CalendarWindow]. See [Day].
func Week(zone *time.Location) algo.Calendar {
	return algo.Calendar{Unit: algo.CalendarWeek, Zone: zone}
}

// Month returns the months of a time zone, from the first at midnight, for [CalendarWindow]. See [Day].
func Month(zone *time.Location) algo.Calendar {
	return algo.Calendar{Unit: algo.CalendarMonth, Zone: zone}
}

// Year returns the years of a time zone, from January 1 at midnight, for [CalendarWindow]. See [Day].
func Year(zone *time.Location) algo.Calendar {
	return algo.Calendar{Unit: algo.CalendarYear, Zone: zone}
}

// newCalendarWindow makes the windows of a limit, whose name is of in errors.
func newCalendarWindow(of string, permits int64, c algo.Calendar, unixed bool) (wallWindow, error) {
	w, err := algo.NewCalendarWindow(permits, c)
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
