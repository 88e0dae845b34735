package config

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // a zone must mean the same where the system has no database

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/config/yamlread"
)

//go:embed zones.txt
var zoneList string

// zoneNames are names of the IANA database, to tell the nearest one.
var zoneNames = sync.OnceValue(func() []string { return strings.Fields(zoneList) })

// zones are those that were loaded: calendars are compared by the pointers, so a zone is loaded once.
var zones sync.Map

// loadZone returns a zone by its name. UTC is nil.
func loadZone(name string) (*time.Location, bool) {
	if name == "UTC" {
		return nil, true
	}
	if name == "" || name == "Local" || len(name) > 64 {
		return nil, false
	}
	if known, ok := zones.Load(name); ok {
		zone, ok := known.(*time.Location)
		return zone, ok
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, false
	}
	known, _ := zones.LoadOrStore(name, zone)
	zone, ok := known.(*time.Location)
	return zone, ok
}

var (
	unitHints = map[string]string{
		"hourly": keyHour, "daily": keyDay, "weekly": "week", "monthly": keyMonth, "quarterly": "quarter", "yearly": "year",
		"annually": "year",
		"1min":     keyMinute, "60s": keyMinute, "1h": keyHour, "60m": keyHour, "1d": keyDay, "24h": keyDay, "1w": "week",
		"7d": "week", "1mo": keyMonth, "1M": keyMonth, "30d": keyMonth,
		"1m": `did you mean "month" or "minute"?`,
	}
	monthNames = []string{
		"january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december",
	}
	weekdayNames = []string{"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}
)

func unitNames() []string {
	var names []string
	for unit := algo.CalendarMinute; unit <= algo.CalendarYear; unit++ {
		names = append(names, unit.String())
	}
	return names
}

// calendarKeys are the keys that say where in a unit windows begin, with the units that have them.
var calendarKeys = []struct {
	key         string
	low, high   int64
	names       []string // from low
	what        string
	first, last algo.CalendarUnit
	set         func(c *algo.Calendar, n int)
}{
	{
		keyMonth, 1, 12, monthNames, "a month", algo.CalendarQuarter, algo.CalendarYear,
		func(c *algo.Calendar, n int) { c.Month = time.Month(n) },
	},
	{
		keyDay, 1, 31, nil, "a day of the month", algo.CalendarMonth, algo.CalendarYear,
		func(c *algo.Calendar, n int) { c.Day = n },
	},
	{
		keyWeekday, 1, 7, weekdayNames, "a day of the week", algo.CalendarWeek, algo.CalendarWeek,
		func(c *algo.Calendar, n int) { c.Weekday = n },
	},
	{
		keyHour, 0, 23, nil, "an hour", algo.CalendarDay, algo.CalendarYear,
		func(c *algo.Calendar, n int) { c.Hour = n },
	},
	{
		keyMinute, 0, 59, nil, "a minute", algo.CalendarHour, algo.CalendarYear,
		func(c *algo.Calendar, n int) { c.Minute = n },
	},
}

// calendar reads where windows begin.
func (d *decoder) calendar(o *yamlread.Object) (c algo.Calendar) {
	if every, given := o.Get(keyEvery); given {
		if word, known := d.Choice(every, unitNames(), unitHints); known {
			_ = c.Unit.UnmarshalText([]byte(word))
		}
	}
	if zone, given := o.Get("zone"); given {
		c.Zone, _ = d.zone(zone)
	}
	for _, k := range calendarKeys {
		field, given := o.Get(k.key)
		if !given {
			continue
		}
		n, _ := d.calendarNumber(field, k.low, k.high, k.names, k.what)
		if c.Unit != 0 && (c.Unit < k.first || c.Unit > k.last) {
			if _, env := d.Shown[o.Path+".every"]; env {
				d.Wrong(field, "the unit of the calendar has no "+k.key, "remove it")
			} else {
				d.Wrong(field, "every: "+c.Unit.String()+" has no "+k.key, "remove it, or write every: "+k.first.String())
			}
			continue
		}
		k.set(&c, int(n))
	}
	return c
}

// zone reads the name of a time zone.
func (d *decoder) zone(v yamlread.Value) (*time.Location, bool) {
	const must, fix = "the name of a time zone in the IANA database", "write Europe/Vienna or UTC, for instance"
	s, ok := d.Text(v, must, fix)
	if !ok {
		return nil, false
	}
	zone, known := loadZone(s.Text)
	if known {
		return zone, true
	}
	propose := fix
	if !s.FromEnv {
		propose = yamlread.Meant(s.Text, zoneNames(), fix)
		for _, name := range zoneNames() {
			if _, city, _ := strings.Cut(name, "/"); strings.EqualFold(city, s.Text) {
				propose = "did you mean " + strconv.Quote(name) + "?"
			}
		}
	}
	d.Wrong(v, "there is no such time zone: must be "+must, propose)
	return nil, false
}

// calendarNumber reads a number, or one of the names for them.
func (d *decoder) calendarNumber(v yamlread.Value, low, high int64, names []string, what string) (int64, bool) {
	if names == nil {
		return d.Number(v, low, high, what)
	}
	s, ok := d.Scalar(v, what, "write "+names[0])
	if !ok {
		return 0, false
	}
	if i := slices.Index(names, s.Text); i >= 0 {
		return low + int64(i), true
	}
	if n, valid := yamlread.Integer(s.Text); valid && (s.FromEnv || s.Node.ShortTag() == yamlread.TagInt) && n >= low &&
		n <= high {
		return n, true
	}
	fix := "write " + names[0]
	if !s.FromEnv {
		fix = yamlread.Meant(s.Text, names, fix)
		for _, name := range names {
			if len(s.Text) >= 3 && strings.HasPrefix(name, strings.ToLower(s.Text)) {
				fix = "did you mean " + strconv.Quote(name) + "?"
			}
		}
	}
	d.Wrong(v, "must be "+what+": from "+strconv.FormatInt(low, 10)+" to "+strconv.FormatInt(high, 10)+", or "+
		yamlread.OneOf(names), fix)
	return 0, false
}
