//go:build !race

package algo_test

import (
	"math"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/lockstep"
	"github.com/weirhq/weir/internal/reference"
)

func zone(name string) *time.Location { return must(time.LoadLocation(name)) }

// zones change their clocks by an hour, by half of one, by a quarter of one once, twice a year around a lunar month, at
// midnight, and not at all.
var zones = []string{
	"UTC", "Europe/Vienna", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca",
	"America/Sao_Paulo", "America/Havana", "Asia/Kolkata",
}

func drawCalendar(src lockstep.Source, names []string) algo.Calendar {
	c := algo.Calendar{
		Unit: algo.CalendarMinute + algo.CalendarUnit(src(7)), Zone: zone(pick(src, names...)),
		Hour: pick(src, 0, 0, 1, 2, 3, int(src(24))), Minute: pick(src, 0, 0, 30, int(src(60))),
		Day: pick(src, 0, 1, 15, 28, 29, 30, 31, int(src(32))), Weekday: int(src(8)), Month: time.Month(src(13)),
	}

	return forUnit(c)
}

// forUnit is c without the fields that its unit does not have.
func forUnit(c algo.Calendar) algo.Calendar {
	if c.Unit < algo.CalendarQuarter {
		c.Month = 0
	}

	if c.Unit < algo.CalendarMonth {
		c.Day = 0
	}

	if c.Unit != algo.CalendarWeek {
		c.Weekday = 0
	}

	if c.Unit < algo.CalendarDay {
		c.Hour = 0
	}

	if c.Unit < algo.CalendarHour {
		c.Minute = 0
	}

	return c
}

var (
	earliest = time.Date(1973, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	latest   = time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
)

// change is a time near a change of the clock, or anywhere.
func change(src lockstep.Source, z *time.Location) int64 {
	at := earliest + int64(src(uint64(latest-earliest)))
	if _, end := time.Unix(at, 0).In(z).ZoneBounds(); src(4) > 0 && !end.IsZero() && end.Unix() < latest {
		at = end.Unix() + int64(src(50*3600)) - 25*3600
	}

	return at
}

// TestCalendarWindowsEqualReference looks up windows near changes of the clock, with a search through what the clock
// shows beside it.
func TestCalendarWindowsEqualReference(t *testing.T) {
	src := lockstep.Source(random(t).Uint64N)

	for range effort(t, 4000) {
		c := drawCalendar(src, append([]string{"Pacific/Apia"}, zones...))
		w, dates := must(algo.NewCalendarWindow(1, c)), reference.NewDates(c)
		at := change(src, c.Zone)

		for range 3 {
			begin, end := w.Window(at*1e9 + int64(src(1e9)))
			wantBegin, wantEnd := dates.Window(at)

			if begin != wantBegin*1e9 || end != wantEnd*1e9 {
				t.Fatalf("%+v, %v, at %v: from %v to %v, want from %v to %v", c, c.Zone, time.Unix(at, 0).In(c.Zone),
					time.Unix(0, begin).In(c.Zone), time.Unix(0, end).In(c.Zone),
					time.Unix(wantBegin, 0).In(c.Zone), time.Unix(wantEnd, 0).In(c.Zone))
			}

			at = pick(src, wantBegin, wantEnd, wantEnd-1, wantBegin-1)
		}
	}
}

// TestCalendarEdges is what users expect, by the clock on the wall.
func TestCalendarEdges(t *testing.T) {
	const layout = "2006-01-02 15:04 -0700"

	for _, c := range []struct {
		name     string
		calendar algo.Calendar
		zone     string
		edges    []string
	}{
		{"a day of 23 hours", algo.Calendar{Unit: algo.CalendarDay}, "Europe/Vienna", []string{
			"2026-03-28 00:00 +0100", "2026-03-29 00:00 +0100", "2026-03-30 00:00 +0200", "2026-03-31 00:00 +0200",
		}},
		{"a day of 25 hours", algo.Calendar{Unit: algo.CalendarDay}, "America/New_York", []string{
			"2026-10-31 00:00 -0400", "2026-11-01 00:00 -0400", "2026-11-02 00:00 -0500",
		}},
		{"a time of day that is skipped", algo.Calendar{Unit: algo.CalendarDay, Hour: 2, Minute: 30}, "Europe/Vienna", []string{
			"2026-03-28 02:30 +0100", "2026-03-29 03:00 +0200", "2026-03-30 02:30 +0200",
		}},
		{"a time of day that exists twice", algo.Calendar{Unit: algo.CalendarDay, Hour: 2, Minute: 30}, "Europe/Vienna", []string{
			"2026-10-24 02:30 +0200", "2026-10-25 02:30 +0200", "2026-10-26 02:30 +0100",
		}},
		{"hours that exist twice", algo.Calendar{Unit: algo.CalendarHour}, "Europe/Vienna", []string{
			"2026-10-25 01:00 +0200", "2026-10-25 02:00 +0200", "2026-10-25 02:00 +0100", "2026-10-25 03:00 +0100",
		}},
		{"half an hour is skipped", algo.Calendar{Unit: algo.CalendarHour}, "Australia/Lord_Howe", []string{
			"2026-10-04 01:00 +1030", "2026-10-04 02:30 +1100", "2026-10-04 03:00 +1100",
		}},
		{"half an hour exists twice", algo.Calendar{Unit: algo.CalendarHour}, "Australia/Lord_Howe", []string{
			"2026-04-05 00:00 +1100", "2026-04-05 01:00 +1100", "2026-04-05 02:00 +1030", "2026-04-05 03:00 +1030",
		}},
		{"hours at half past", algo.Calendar{Unit: algo.CalendarHour, Minute: 30}, "Asia/Kathmandu", []string{
			"2026-10-04 01:30 +0545", "2026-10-04 02:30 +0545",
		}},
		{"a day that does not exist", algo.Calendar{Unit: algo.CalendarDay}, "Pacific/Apia", []string{
			"2011-12-28 00:00 -1000", "2011-12-29 00:00 -1000", "2011-12-31 00:00 +1400", "2012-01-01 00:00 +1400",
		}},
		{"midnight is skipped", algo.Calendar{Unit: algo.CalendarDay}, "America/Sao_Paulo", []string{
			"2018-11-03 00:00 -0300", "2018-11-04 01:00 -0200", "2018-11-05 00:00 -0200",
		}},
		{"weeks", algo.Calendar{Unit: algo.CalendarWeek}, "Europe/Vienna", []string{
			"2026-03-23 00:00 +0100", "2026-03-30 00:00 +0200", "2026-04-06 00:00 +0200",
		}},
		{"weeks from Sunday", algo.Calendar{Unit: algo.CalendarWeek, Weekday: 7, Hour: 8}, "Europe/Vienna", []string{
			"2026-03-22 08:00 +0100", "2026-03-29 08:00 +0200",
		}},
		{"months", algo.Calendar{Unit: algo.CalendarMonth}, "Africa/Casablanca", []string{
			"2026-02-01 00:00 +0100", "2026-03-01 00:00 +0000", "2026-04-01 00:00 +0100",
		}},
		{"months from the 15th", algo.Calendar{Unit: algo.CalendarMonth, Day: 15}, "Europe/Vienna", []string{
			"2026-03-15 00:00 +0100", "2026-04-15 00:00 +0200",
		}},
		{"months from the 31st", algo.Calendar{Unit: algo.CalendarMonth, Day: 31}, "UTC", []string{
			"2027-12-31 00:00 +0000", "2028-01-31 00:00 +0000", "2028-02-29 00:00 +0000", "2028-03-31 00:00 +0000",
			"2028-04-30 00:00 +0000", "2028-05-31 00:00 +0000",
		}},
		{"months from the 30th", algo.Calendar{Unit: algo.CalendarMonth, Day: 30}, "UTC", []string{
			"2026-01-30 00:00 +0000", "2026-02-28 00:00 +0000", "2026-03-30 00:00 +0000",
		}},
		{"months from the 29th", algo.Calendar{Unit: algo.CalendarMonth, Day: 29}, "UTC", []string{
			"2026-01-29 00:00 +0000", "2026-02-28 00:00 +0000", "2026-03-29 00:00 +0000",
		}},
		{"quarters", algo.Calendar{Unit: algo.CalendarQuarter}, "UTC", []string{
			"2026-01-01 00:00 +0000", "2026-04-01 00:00 +0000", "2026-07-01 00:00 +0000", "2026-10-01 00:00 +0000",
		}},
		{"quarters from the end of November", algo.Calendar{Unit: algo.CalendarQuarter, Month: time.November, Day: 31}, "UTC", []string{
			"2027-11-30 00:00 +0000", "2028-02-29 00:00 +0000", "2028-05-31 00:00 +0000",
		}},
		{"fiscal years", algo.Calendar{Unit: algo.CalendarYear, Month: time.April, Day: 6}, "Europe/London", []string{
			"2026-04-06 00:00 +0100", "2027-04-06 00:00 +0100",
		}},
		{"years from February 29", algo.Calendar{Unit: algo.CalendarYear, Month: time.February, Day: 29}, "UTC", []string{
			"2027-02-28 00:00 +0000", "2028-02-29 00:00 +0000", "2029-02-28 00:00 +0000",
		}},
		{"minutes", algo.Calendar{Unit: algo.CalendarMinute}, "Europe/Vienna", []string{
			"2026-10-25 02:59 +0200", "2026-10-25 02:00 +0100", "2026-10-25 02:01 +0100",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.calendar.Zone = zone(c.zone)
			w := must(algo.NewCalendarWindow(1, c.calendar))

			for i, edge := range c.edges[1:] {
				from, to := must(time.Parse(layout, c.edges[i])).UnixNano(), must(time.Parse(layout, edge)).UnixNano()
				for _, now := range []int64{from, from + 1, (from + to) / 2, to - 1} {
					if begin, end := w.Window(now); begin != from || end != to {
						t.Errorf("from %v to %v, want from %s to %s", time.Unix(0, begin).In(c.calendar.Zone),
							time.Unix(0, end).In(c.calendar.Zone), c.edges[i], edge)
					}
				}
			}
		})
	}
}

// windowOfCalendar checks that the windows around now follow one another.
func windowOfCalendar(t *testing.T, w algo.Window, now int64) {
	t.Helper()

	begin, end := w.Window(now)
	if begin > now || end <= now {
		t.Fatalf("%+v: at %d the window is from %d to %d", w.Calendar(), now, begin, end)
	}

	if b, e := w.Window(begin); b != begin || e != end {
		t.Fatalf("%+v: at its begin the window from %d to %d is from %d to %d", w.Calendar(), begin, end, b, e)
	}

	if b, e := w.Window(end); b != end || e <= end {
		t.Fatalf("%+v: the window up to %d is followed by one from %d to %d", w.Calendar(), end, b, e)
	}

	if b, e := w.Window(begin - 1); e != begin || b >= begin {
		t.Fatalf("%+v: the window from %d is preceded by one from %d to %d", w.Calendar(), begin, b, e)
	}
}

func FuzzCalendarEdges(f *testing.F) {
	f.Add(int64(1_774_746_000), uint8(3), uint8(1), uint8(31), uint8(1), uint8(2), uint8(30))
	f.Add(int64(2_240_524_800), uint8(5), uint8(1), uint8(31), uint8(1), uint8(0), uint8(0)) // December 31, 2040
	f.Add(int64(-5_000_000_000), uint8(2), uint8(3), uint8(1), uint8(1), uint8(0), uint8(7))
	f.Fuzz(func(t *testing.T, sec int64, unit, place, day, other, hour, minute uint8) {
		names := append([]string{"Pacific/Apia", "Asia/Manila", "Africa/Monrovia", "Europe/Dublin", "America/Juneau"}, zones...)
		c := forUnit(algo.Calendar{
			Unit: algo.CalendarMinute + algo.CalendarUnit(unit%7), Zone: zone(names[int(place)%len(names)]),
			Day: int(day % 32), Month: time.Month(other % 13), Weekday: int(other % 8), Hour: int(hour % 24), Minute: int(minute % 60),
		})
		w := must(algo.NewCalendarWindow(1, c))
		now := (sec % (1 << 62 / int64(time.Second))) * int64(time.Second)

		windowOfCalendar(t, w, now)

		// What is counted must be what is found by going from one to the next.
		begin, _ := w.Window(now)
		s, charged := w.Charge(algo.WindowState{}, now, 6, 5)
		at := begin

		for range charged {
			_, at = w.Window(at)
		}

		if got := w.FreshAt(s); got != at && c.Zone.String() != "Pacific/Apia" && c.Zone.String() != "Asia/Manila" {
			t.Fatalf("%+v: %d windows after %d is %d, want %d", c, charged, begin, got, at)
		}

		if got := w.FreshAt(s); w.Fresh(s, got-1) || !w.Fresh(s, got) {
			t.Fatalf("%+v: %d is not the first time at which a debt of 5 is paid", c, got)
		}
	})
}

// TestCalendarEdgesEverywhere does what FuzzCalendarEdges does at random times of all zones there.
func TestCalendarEdgesEverywhere(t *testing.T) {
	src := lockstep.Source(random(t).Uint64N)

	for range effort(t, 30_000) {
		c := drawCalendar(src, zones)
		windowOfCalendar(t, must(algo.NewCalendarWindow(1, c)), int64(src(1<<63))-1<<62)
		windowOfCalendar(t, must(algo.NewCalendarWindow(1, c)), change(src, c.Zone)*1e9)
	}
}

func TestCalendarParameters(t *testing.T) {
	valid := algo.Calendar{Unit: algo.CalendarYear, Month: time.December, Day: 31, Hour: 23, Minute: 59}
	if w, err := algo.NewCalendarWindow(algo.MaxPermits, valid); err != nil || w.Limit() != algo.MaxPermits || w.Calendar() != valid {
		t.Errorf("%+v, %v", w, err)
	}

	for _, c := range []struct {
		limit    int64
		calendar algo.Calendar
		refused  string
	}{
		{0, valid, "limit"},
		{algo.MaxPermits + 1, valid, "limit"},
		{1, algo.Calendar{}, "calendar.Unit"},
		{1, algo.Calendar{Unit: 8}, "calendar.Unit"},
		{1, algo.Calendar{Unit: algo.CalendarYear, Month: 13}, "calendar.Month"},
		{1, algo.Calendar{Unit: algo.CalendarMonth, Month: 1}, "calendar.Month"},
		{1, algo.Calendar{Unit: algo.CalendarMonth, Day: 32}, "calendar.Day"},
		{1, algo.Calendar{Unit: algo.CalendarMonth, Day: -1}, "calendar.Day"},
		{1, algo.Calendar{Unit: algo.CalendarWeek, Day: 1}, "calendar.Day"},
		{1, algo.Calendar{Unit: algo.CalendarWeek, Weekday: 8}, "calendar.Weekday"},
		{1, algo.Calendar{Unit: algo.CalendarDay, Weekday: 1}, "calendar.Weekday"},
		{1, algo.Calendar{Unit: algo.CalendarDay, Hour: 24}, "calendar.Hour"},
		{1, algo.Calendar{Unit: algo.CalendarHour, Hour: 1}, "calendar.Hour"},
		{1, algo.Calendar{Unit: algo.CalendarHour, Minute: 60}, "calendar.Minute"},
		{1, algo.Calendar{Unit: algo.CalendarMinute, Minute: 1}, "calendar.Minute"},
	} {
		_, err := algo.NewCalendarWindow(c.limit, c.calendar)
		refuses(t, "NewCalendarWindow", c.refused, err)
	}
}

func TestCalendarLength(t *testing.T) {
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC).UnixNano()

	for _, c := range []struct {
		unit algo.CalendarUnit
		zone string
		want time.Duration
	}{
		{algo.CalendarMinute, "Europe/Vienna", time.Minute},
		{algo.CalendarHour, "Australia/Lord_Howe", 0},
		{algo.CalendarDay, "Europe/Vienna", 0},
		{algo.CalendarDay, "UTC", day},
		{algo.CalendarDay, "Asia/Kathmandu", day},
		{algo.CalendarWeek, "UTC", 7 * day},
		{algo.CalendarMonth, "UTC", 0},
		{algo.CalendarYear, "UTC", 0},
	} {
		w := must(algo.NewCalendarWindow(1, algo.Calendar{Unit: c.unit, Zone: zone(c.zone)}))
		if got := w.Length(now); got != c.want {
			t.Errorf("%v in %s: %v, want %v", c.unit, c.zone, got, c.want)
		}
	}

	if w := must(algo.NewCalendarWindow(1, algo.Calendar{Unit: algo.CalendarDay, Zone: zone("Asia/Kathmandu")})); w.Length(0) != 0 {
		t.Error("the clock of Kathmandu was changed after 1970")
	}

	if name := algo.CalendarUnit(9).String(); name != "CalendarUnit(9)" {
		t.Error(name)
	}

	if begin, end := must(algo.NewCalendarWindow(1, algo.Calendar{Unit: algo.CalendarYear})).Window(math.MaxInt64); end != math.MaxInt64 || begin >= end {
		t.Errorf("the last window is from %d to %d", begin, end)
	}
}
