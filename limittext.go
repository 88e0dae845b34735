package weir

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/zones"
)

// String is the limit in words, which [ParseLimit] reads: "10/s, burst 20", "fixed-window 100/min",
// "sliding-window 100/min in 10 segments", "sliding-counter 100/min", "1000 per month from day 15, Europe/Vienna", "4 at once".
func (l Limit) String() string {
	c := l.in()
	switch c.algorithm {
	case AlgorithmTokenBucket:
		return fmt.Sprintf("%v, burst %d", c.rate, c.permits)
	case AlgorithmSlidingWindow:
		return fmt.Sprintf("%v %v in %d segments", c.algorithm, c.rate, c.segments)
	case AlgorithmConcurrency:
		return strconv.FormatInt(c.permits, 10) + atOnce
	case AlgorithmFixedWindow, AlgorithmSlidingCounter:
		return fmt.Sprintf("%v %v", c.algorithm, c.rate)
	case AlgorithmCalendarWindow:
		return strconv.FormatInt(c.permits, 10) + perWindow + c.calendar.String()
	default:
		return c.algorithm.String()
	}
}

const (
	atOnce    = " at once"
	perWindow = " per "
)

var errLimitSyntax = errors.New(`must be a limit such as "10/s, burst 20", "fixed-window 100/min", ` +
	`"sliding-window 100/min in 10 segments", "sliding-counter 100/min", "1000 per month, UTC" or "4 at once"`)

// ParseLimit reads what [Limit.String] writes. The burst of a token bucket, the segments of a sliding window and the zone of a
// calendar may be left out: they are the permits of the rate, 10 and UTC then. See [ParseRate] for rates. The error names what is
// wrong, and what is accepted.
func ParseLimit(s string) (Limit, error) {
	l, err := parseLimit(strings.TrimSpace(s))
	if err == nil {
		err = l.Check()
	}
	if err != nil {
		return Limit{}, fmt.Errorf("weir: limit %.80q: %w", s, err)
	}
	return l, nil
}

func parseLimit(s string) (Limit, error) {
	if n, ok := strings.CutSuffix(s, atOnce); ok {
		permits, err := parsePermitsOf(n)
		return AtOnce(permits), err
	}
	if n, calendar, ok := strings.Cut(s, perWindow); ok {
		permits, err := parsePermitsOf(n)
		if err != nil {
			return Limit{}, err
		}
		c, err := parseCalendar(calendar)
		return CalendarWindow(permits, c), err
	}
	name, rest, named := strings.Cut(s, " ")
	if !named || strings.ContainsAny(name, "/0123456789") {
		return parseBucket(s)
	}
	switch name {
	case AlgorithmTokenBucket.String():
		return parseBucket(rest)
	case AlgorithmFixedWindow.String():
		rate, err := ParseRate(rest)
		return FixedWindow(rate), err
	case AlgorithmSlidingCounter.String():
		rate, err := ParseRate(rest)
		return SlidingCounter(rate), err
	case AlgorithmSlidingWindow.String():
		text, in, cut := strings.Cut(rest, " in ")
		rate, err := ParseRate(text)
		if err != nil || !cut {
			return SlidingWindow(rate, 0), err
		}
		number, ok := strings.CutSuffix(in, " segments")
		if !ok {
			return Limit{}, errLimitSyntax
		}
		segments, err := parseWithin("Segments", strings.TrimSpace(number), 1, algo.MaxSegments)
		return SlidingWindow(rate, segments), err
	}
	return Limit{}, errLimitSyntax
}

func parseBucket(s string) (Limit, error) {
	text, burst, cut := strings.Cut(s, ",")
	if strings.Contains(text, " burst ") {
		return Limit{}, errLimitSyntax
	}
	rate, err := ParseRate(strings.TrimSpace(text))
	if err != nil || !cut {
		return TokenBucket(rate, 0), err
	}
	number, ok := strings.CutPrefix(strings.TrimSpace(burst), "burst ")
	if !ok {
		return Limit{}, errLimitSyntax
	}
	permits, err := parseNumber("Burst", number)
	if err == nil && permits == 0 {
		err = &OptionError{"Limit.Burst", "0", "from 1 to 10^15"}
	}
	return TokenBucket(rate, permits), err
}

// parsePermitsOf reads the permits of a limit that begins with them. What is no number at all is no limit.
func parsePermitsOf(s string) (int64, error) {
	if strings.Trim(s, "+-.0123456789_ ") != "" {
		return 0, errLimitSyntax
	}
	return parseNumber("Permits", s)
}

// parseNumber reads a number of permits, of a field of a limit.
func parseNumber(field, s string) (int64, error) {
	s = strings.TrimSpace(s)
	n, scale, err := parsePermits(s)
	if err != nil || scale != 1 {
		return 0, &OptionError{"Limit." + field, fmt.Sprintf("%.40q", s), "a whole number from 1 to 10^15"}
	}
	return n, nil
}

// MarshalText is String for a limit that can be used. A zone of a calendar that others do not find by its name is an
// [*OptionError].
func (l Limit) MarshalText() ([]byte, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	if z := l.Calendar().Zone; !zones.IsNamed(z) {
		return nil, &OptionError{
			"Limit.Calendar.Zone", fmt.Sprintf("%.40q", z.String()),
			"UTC or a zone with a name under which time.LoadLocation finds it, as others read it",
		}
	}
	return []byte(l.String()), nil
}

// UnmarshalText is [ParseLimit].
func (l *Limit) UnmarshalText(text []byte) error {
	parsed, err := ParseLimit(string(text))
	if err != nil {
		return err
	}
	*l = parsed
	return nil
}

var errCalendarSyntax = errors.New(`must be a calendar such as "day", "month, Europe/Vienna", "month from day 15", ` +
	`"week from Sunday 08:00, UTC", "year from April 6" or "hour from minute 30"; a rate is written "10/s"`)

// parseCalendar reads what [algo.Calendar.String] writes.
func parseCalendar(s string) (c algo.Calendar, err error) {
	text, zone, zoned := strings.Cut(s, ",")
	if zoned {
		if c.Zone, err = loadZone(strings.TrimSpace(zone)); err != nil {
			return c, err
		}
	}
	unit, from, starts := strings.Cut(strings.TrimSpace(text), " from ")
	if c.Unit.UnmarshalText([]byte(unit)) != nil {
		return c, errCalendarSyntax
	}
	words := strings.Fields(from)
	if !starts {
		return c, nil
	}
	if c.Unit == algo.CalendarHour {
		if len(words) != 2 || words[0] != "minute" {
			return c, errCalendarSyntax
		}
		c.Minute, err = parseWithin("Calendar.Minute", words[1], 0, 59)
		return c, err
	}
	err = parseBeginning(&c, words)
	leaveOutDefaults(&c)
	return c, err
}

// leaveOutDefaults leaves out what is the default, so that two texts of the same windows are equal calendars.
func leaveOutDefaults(c *algo.Calendar) {
	if c.Month == time.January {
		c.Month = 0
	}
	if c.Day == 1 {
		c.Day = 0
	}
	if c.Weekday == 1 {
		c.Weekday = 0
	}
}

// parseBeginning reads where windows of a day or more begin: a day, a time of day, or both.
func parseBeginning(c *algo.Calendar, words []string) (err error) {
	of := len(words)
	switch {
	case of == 0:
		return errCalendarSyntax
	case weekdayOf(words[0]) != 0:
		c.Weekday, words = weekdayOf(words[0]), words[1:]
	case of > 1:
		if words[0] != "day" {
			if c.Month = monthOf(words[0]); c.Month == 0 {
				return errCalendarSyntax
			}
		}
		if c.Day, err = parseWithin("Calendar.Day", words[1], 1, 31); err != nil {
			return err
		}
		words = words[2:]
	}
	if len(words) == 0 {
		return nil
	}
	hour, minute, ok := strings.Cut(words[0], ":")
	if !ok || len(words) > 1 {
		return errCalendarSyntax
	}
	if c.Hour, err = parseWithin("Calendar.Hour", hour, 0, 23); err != nil {
		return err
	}
	c.Minute, err = parseWithin("Calendar.Minute", minute, 0, 59)
	return err
}

// parseWithin reads a number of a field of a limit that has a small range.
func parseWithin(field, s string, least, most int) (int, error) {
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil || int(n) < least || int(n) > most {
		accepted := fmt.Sprintf("a whole number from %d to %d", least, most)
		return 0, &OptionError{"Limit." + field, fmt.Sprintf("%.40q", s), accepted}
	}
	return int(n), nil
}

func monthOf(s string) time.Month {
	for m := time.January; m <= time.December; m++ {
		if m.String() == s {
			return m
		}
	}
	return 0
}

// weekdayOf returns the day as ISO 8601 counts, 0 if s is none.
func weekdayOf(s string) int {
	for d := 1; d <= 7; d++ {
		if time.Weekday(d%7).String() == s {
			return d
		}
	}
	return 0
}

// zones are those that were loaded by name, so that equal texts are equal limits. There are some 600 names.
var loadedZones sync.Map

func loadZone(name string) (*time.Location, error) {
	if z, ok := loadedZones.Load(name); ok {
		return z.(*time.Location), nil //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	switch name {
	case "UTC":
		return nil, nil //nolint:nilnil // which algo.Calendar takes for UTC
	case "", "Local":
		return nil, errCalendarSyntax
	}
	z, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("no time zone of that name: %w", err)
	}
	stored, _ := loadedZones.LoadOrStore(name, z)
	return stored.(*time.Location), nil //nolint:errcheck,forcetypeassert // as above
}
