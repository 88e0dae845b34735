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

// window is the algorithm of a calendar window, whose name is of in errors.
func (l Limit) window(of string) (algo.Window, error) {
	w, err := algo.NewCalendarWindow(l.permits, l.calendar)
	if wrong, ok := errors.AsType[*algo.ParameterError](err); ok {
		option := "Permits"
		if field, named := strings.CutPrefix(wrong.Parameter, "calendar."); named {
			option = "Calendar." + field
		}
		return w, &OptionError{of + "." + option, wrong.Value, wrong.Accepted}
	}
	return w, err
}

// byWall is the law of a calendar window that has been checked, at times of the process clock.
func (l Limit) byWall(law algo.Law) *wallLaw {
	w, _ := l.window("")
	return &wallLaw{law, w, new(wallClock)}
}

// lengthFrom is how long all windows of a calendar from a time on are, 0 if they differ or it cannot be used.
func (l Limit) lengthFrom(now int64) time.Duration {
	w, err := l.window("")
	if err != nil {
		return 0
	}
	return w.Length(now)
}
