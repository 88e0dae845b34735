package weir_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
)

func inZone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func on(t *testing.T, z *time.Location, text string) int64 {
	t.Helper()
	at, err := time.ParseInLocation("2006-01-02 15:04", text, z)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixNano()
}

// calendarKeys are keys, and a limiter, with the same windows on the same clock.
func calendarKeys(t *testing.T, start, limit int64, c algo.Calendar) (
	*weir.Keyed[string], *weir.Limiter, *manualclock.Clock,
) {
	t.Helper()
	clock := manualclock.New(start)
	k, err := weir.NewKeyed[string](weir.CalendarWindow(limit, c), weir.KeyedOptions{
		Clock: clock, MaxKeys: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	w, err := weir.New(weir.CalendarWindow(limit, c), weir.Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return k, w, clock
}

// TestAMonthIsAMonth takes a quota on a billing day, in a month in which the clocks are changed.
func TestAMonthIsAMonth(t *testing.T) {
	vienna := inZone(t, "Europe/Vienna")
	c := algo.Calendar{Unit: algo.CalendarMonth, Zone: vienna, Day: 15}
	k, w, clock := calendarKeys(t, on(t, vienna, "2026-03-20 12:00"), 100, c)
	for _, step := range []struct {
		at      string
		n       int64
		allowed bool
		retry   time.Duration
	}{
		{"2026-03-20 12:00", 60, true, 0},
		{"2026-03-20 12:00", 60, false, 26*24*time.Hour - 12*time.Hour - time.Hour},
		{"2026-04-14 23:59", 60, false, time.Minute},
		{"2026-04-14 23:59", 40, true, 0},
		{"2026-04-15 00:00", 100, true, 0},
		{"2026-05-14 00:00", 1, false, 24 * time.Hour},
	} {
		clock.Set(on(t, vienna, step.at))
		keyed, plain := k.Take("a", step.n), w.TryAcquire(step.n).Decision()
		if keyed != plain || keyed.Allowed != step.allowed || keyed.RetryAfter != step.retry {
			t.Errorf("%+v: %+v, and %+v of the limiter", step, keyed, plain)
		}
	}
	if k.Allow("b") {
		t.Error("the only place is taken")
	}
	clock.Set(on(t, vienna, "2026-05-15 00:00"))
	if !k.Allow("b") {
		t.Error("a key is not forgotten when its window ends")
	}
}

// TestCalendarWindowsInABubble goes by the time of a bubble, which begins at the turn of a year in UTC.
func TestCalendarWindowsInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kathmandu := inZone(t, "Asia/Kathmandu")
		k, err := weir.NewKeyed[int](weir.CalendarWindow(2, algo.Calendar{Unit: algo.CalendarDay, Zone: kathmandu}), weir.KeyedOptions{
			QueueLimit: 5,
		})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		k.TryAcquire(1, 2)
		if d := k.Peek(1, 1); d.RetryAfter != 18*time.Hour+15*time.Minute || d.ResetAfter != d.RetryAfter {
			t.Errorf("%+v", d)
		}
		l, err := k.Reserve(t.Context(), 1, 2)
		if waited := time.Since(start); err != nil || !l.Allowed() || waited != 18*time.Hour+15*time.Minute {
			t.Errorf("%+v after %v, %v", l.Decision(), waited, err)
		}
		l.Cancel()
		if d := k.Peek(1, 2); !d.Allowed {
			t.Errorf("canceled: %+v", d)
		}
		k.TryReserve(1, 1).Commit(4)
		if d := k.Peek(1, 1); d.RetryAfter != 48*time.Hour {
			t.Errorf("in debt: %+v", d)
		}
		k.Refund(1, 3)
		if d := k.Peek(1, 1); !d.Allowed || d.Remaining != 1 {
			t.Errorf("refunded: %+v", d)
		}
		k.Reset(1)
		if d := k.Peek(1, 2); !d.Allowed {
			t.Errorf("reset: %+v", d)
		}
	})
}

// TestCalendarLimitsOfKeys gives keys limits of their own and overrides one: what was taken in the window stays taken.
func TestCalendarLimitsOfKeys(t *testing.T) {
	limit := func(burst int64, unit algo.CalendarUnit) weir.Limit {
		return weir.CalendarWindow(burst, algo.Calendar{Unit: unit})
	}
	limits := map[string]weir.Limit{"small": limit(5, algo.CalendarDay), "months": limit(50, algo.CalendarMonth)}
	clock := manualclock.New(on(t, time.UTC, "2026-03-20 12:00"))
	k, err := weir.NewKeyedFunc(weir.CalendarWindow(10, algo.Calendar{Unit: algo.CalendarDay}), weir.KeyedOptions{
		Clock: clock,
	}, func(key string) weir.Limit { return limits[key] })
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]weir.Decision{
		"other":  {Limit: 10, RetryAfter: 12 * time.Hour},
		"small":  {Limit: 5, RetryAfter: 12 * time.Hour},
		"months": {Limit: 50, RetryAfter: 11*24*time.Hour + 12*time.Hour},
	} {
		if d := k.Take(key, want.Limit); !d.Allowed || d.Limit != want.Limit {
			t.Errorf("%s: %+v", key, d)
		}
		if d := k.Take(key, 1); d.Allowed || d.RetryAfter != want.RetryAfter {
			t.Errorf("%s: %+v, want %+v", key, d, want)
		}
	}
	if err := keyset.Of(k).Override("small", limit(8, algo.CalendarMonth), time.Hour); err != nil {
		t.Fatal(err)
	}
	if d := k.Take("small", 3); !d.Allowed || d.Remaining != 0 || d.ResetAfter != 11*24*time.Hour+12*time.Hour {
		t.Errorf("overridden: %+v", d)
	}
	keyset.Of(k).Restore("small")
	if d := k.Take("small", 1); d.Allowed || d.RetryAfter != 12*time.Hour {
		t.Errorf("restored: %+v", d)
	}
	if err := keyset.Of(k).Override("small", weir.TokenBucket(weir.PerSecond(1), 0), time.Hour); err == nil {
		t.Error("another algorithm is no error")
	}
}

// TestCalendarCancelAcrossLimits goes from days to months and back, and cancels what was taken in the meantime.
func TestCalendarCancelAcrossLimits(t *testing.T) {
	k, _, clock := calendarKeys(t, on(t, time.UTC, "2026-03-20 12:00"), 10, algo.Calendar{Unit: algo.CalendarMonth})
	l := k.TryReserve("a", 10)
	days := weir.CalendarWindow(10, algo.Calendar{Unit: algo.CalendarDay})
	if err := keyset.Of(k).Override("a", days, 48*time.Hour); err != nil {
		t.Fatal(err)
	}
	clock.Advance(24 * time.Hour)
	if d := k.Take("a", 10); !d.Allowed {
		t.Errorf("%+v", d)
	}
	keyset.Of(k).Restore("a")
	l.Cancel()
	if d := k.Take("a", 1); d.Allowed {
		t.Errorf("minted: %+v", d)
	}
}

func TestCalendarText(t *testing.T) {
	vienna := inZone(t, "Europe/Vienna")
	for want, c := range map[string]algo.Calendar{
		"minute, UTC":                         {Unit: algo.CalendarMinute},
		"hour from minute 30, Asia/Kathmandu": {Unit: algo.CalendarHour, Minute: 30, Zone: inZone(t, "Asia/Kathmandu")},
		"day from 02:30, Europe/Vienna":       {Unit: algo.CalendarDay, Hour: 2, Minute: 30, Zone: vienna},
		"week from Sunday 08:00, UTC":         {Unit: algo.CalendarWeek, Weekday: 7, Hour: 8},
		"week, UTC":                           {Unit: algo.CalendarWeek, Weekday: 1},
		"month from day 15, Europe/Vienna":    {Unit: algo.CalendarMonth, Day: 15, Zone: vienna},
		"quarter from February 1, UTC":        {Unit: algo.CalendarQuarter, Month: time.February},
		"year from January 6 01:00, UTC":      {Unit: algo.CalendarYear, Day: 6, Hour: 1},
		"year, Europe/Vienna":                 {Unit: algo.CalendarYear, Zone: vienna},
	} {
		l := weir.CalendarWindow(1000000, c)
		if got := c.String(); got != want || l.String() != "1000000 per "+want || l.Check() != nil {
			t.Errorf("%s, %v, %v; want %s", got, l, l.Check(), want)
		}
		if parsed, err := weir.ParseLimit(l.String()); err != nil || parsed.String() != l.String() {
			t.Errorf("%v is read as %v, %v", l, parsed, err)
		}
	}
	var u algo.CalendarUnit
	for _, name := range []string{"minute", "hour", "day", "week", "month", "quarter", "year"} {
		if err := u.UnmarshalText([]byte(name)); err != nil {
			t.Error(err)
		}
		if text, err := u.MarshalText(); err != nil || string(text) != name {
			t.Errorf("%s, %v, want %s", text, err, name)
		}
	}
	if err := u.UnmarshalText([]byte("decade")); err == nil || u != algo.CalendarYear {
		t.Errorf("%v, %v", u, err)
	}
}

func TestCalendarOptionsThatCannotBeUsed(t *testing.T) {
	month := algo.Calendar{Unit: algo.CalendarMonth}
	for want, l := range map[string]weir.Limit{
		"weir: Limit.Permits is 0: must be from 1 to 10^15":                                                     weir.CalendarWindow(0, month),
		"weir: Limit.Calendar.Unit is CalendarUnit(0): must be minute, hour, day, week, month, quarter or year": weir.CalendarWindow(1, algo.Calendar{}),
		"weir: Limit.Calendar.Day is 32: must be from 1 to 31":                                                  weir.CalendarWindow(1, algo.Calendar{Unit: algo.CalendarMonth, Day: 32}),
		"weir: Limit.Calendar.Weekday is 3: must be 0 with the unit month":                                      weir.CalendarWindow(1, algo.Calendar{Unit: algo.CalendarMonth, Weekday: 3}),
	} {
		if err := l.Check(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if _, err := weir.NewKeyed[int](l, weir.KeyedOptions{}); err == nil || err.Error() != want {
			t.Errorf("NewKeyed: %v, want %s", err, want)
		}
		if _, err := weir.New(l, weir.Options{}); err == nil || err.Error() != want {
			t.Errorf("New: %v, want %s", err, want)
		}
	}
	for option, o := range map[string]weir.Options{
		"Options.QueueLimit": {QueueLimit: -1},
		"Options.MaxDebt":    {MaxDebt: -2},
	} {
		var wrong *weir.OptionError
		if _, err := weir.New(weir.CalendarWindow(1, month), o); !errors.As(err, &wrong) || wrong.Option != option {
			t.Errorf("%v, want one about %s", err, option)
		}
	}
}

func TestCalendarQuota(t *testing.T) {
	for _, c := range []struct {
		calendar algo.Calendar
		want     time.Duration
	}{
		{algo.Calendar{Unit: algo.CalendarMonth}, 0},
		{algo.Calendar{Unit: algo.CalendarDay}, 24 * time.Hour},
		{algo.Calendar{Unit: algo.CalendarDay, Zone: inZone(t, "Europe/Vienna")}, 0},
		{algo.Calendar{Unit: algo.CalendarMinute, Zone: inZone(t, "Europe/Vienna")}, time.Minute},
	} {
		k, w, _ := calendarKeys(t, on(t, time.UTC, "2026-03-20 12:00"), 7, c.calendar)
		if n, window := w.Limit().Quota(); n != 7 || window != c.want {
			t.Errorf("%v: %d, %v", c.calendar, n, window)
		}
		if n, window := k.Limit().Quota(); n != 7 || window != c.want {
			t.Errorf("%v: %d, %v of keys", c.calendar, n, window)
		}
		if one, all := w.Limit().Calendar(), k.Limit().Calendar(); one != c.calendar || all != c.calendar {
			t.Errorf("%v, %v", one, all)
		}
	}
	k, err := weir.NewKeyed[int](weir.TokenBucket(weir.PerSecond(1), 0), weir.KeyedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if k.Limit().Calendar() != (algo.Calendar{}) {
		t.Error("a token bucket has no calendar")
	}
}

func TestCalendarWindowDoesNotAllocate(t *testing.T) {
	c := algo.Calendar{Unit: algo.CalendarMonth, Zone: inZone(t, "Europe/Vienna")}
	k, err := weir.NewKeyed[string](weir.CalendarWindow(1e6, c), weir.KeyedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := weir.New(weir.CalendarWindow(1e6, c), weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(){
		"Allow": func() { w.Allow() }, "TryAcquire": func() { w.TryAcquire(1) },
		"Allow of a key": func() { k.Allow("a") }, "Take of a key": func() { k.Take("a", 1) },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkCalendarWindow(b *testing.B) {
	w, err := weir.New(weir.CalendarWindow(1e15, algo.Calendar{Unit: algo.CalendarMonth}), weir.Options{})
	if err != nil {
		b.Fatal(err)
	}
	k, err := weir.NewKeyed[string](weir.CalendarWindow(1e15, algo.Calendar{Unit: algo.CalendarMonth}), weir.KeyedOptions{})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("limiter", func(b *testing.B) {
		for b.Loop() {
			w.Allow()
		}
	})
	b.Run("key", func(b *testing.B) {
		for b.Loop() {
			k.Allow("a")
		}
	})
}

// TestZonesWithoutNameAreNotWritten: the text of a limit is read as the same limit, or there is none.
func TestZonesWithoutNameAreNotWritten(t *testing.T) {
	for _, zone := range []*time.Location{
		time.FixedZone("UTC", 3600), time.FixedZone("X", 3600), time.FixedZone("", 60), time.Local, //nolint:gosmopolitan // on purpose
	} {
		l := weir.CalendarWindow(5, algo.Calendar{Unit: algo.CalendarDay, Zone: zone})
		text, err := l.MarshalText()
		if wrong, ok := errors.AsType[*weir.OptionError](err); !ok || wrong.Option != "Limit.Calendar.Zone" {
			t.Errorf("%v: %s, %v", zone, text, err)
		}
	}
	for _, zone := range []string{"UTC", "Europe/Vienna", "America/St_Johns"} {
		l := weir.CalendarWindow(5, algo.Calendar{Unit: algo.CalendarDay, Zone: must(time.LoadLocation(zone))})
		if text, err := l.MarshalText(); err != nil || must(weir.ParseLimit(string(text))).String() != l.String() {
			t.Errorf("%s: %s, %v", zone, text, err)
		}
	}
}
