//go:build !race

package algo_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/lockstep"
	"github.com/weirhq/weir/internal/reference"
)

func calendarHistory(src lockstep.Source, more func() bool) (int, error) {
	limit, c := drawLimit(src), drawCalendar(src, zones)

	w, err := algo.NewCalendarWindow(limit, c)
	if err != nil {
		return unlucky, err
	}

	p := &lockstep.Pair[algo.WindowState]{Algorithm: w, Reference: reference.NewCalendarWindow(limit, c)}
	now, forward := change(src, c.Zone)*1e9, src(2) == 0
	begin, end := w.Window(now)
	scale := lockstep.Scale{Limit: limit, Tick: (end - begin) / 2, Long: end - begin}

	for steps := 0; ; steps++ {
		if !more() {
			return steps, nil
		}

		call := lockstep.Next(src, scale, p, now, forward)
		call.Now = min(max(call.Now, earliest*1e9), latest*1e9)

		if call.MaxDebt > 6*limit { // the reference counts windows one by one
			call.MaxDebt %= 6 * limit
		}

		if err := p.Do(call); err != nil {
			return steps, fmt.Errorf("step %d of %+v in %v: %w", steps, c, c.Zone, err)
		}

		now = call.Now
	}
}

func FuzzCalendarWindowHistory(f *testing.F) {
	fuzzHistories(f, calendarHistory)
}

// TestCalendarWindowCountsGrants keeps every grant with its time, and wants the next request to be granted if those in
// the window of its time leave room, near changes of the clock in many zones.
func TestCalendarWindowCountsGrants(t *testing.T) {
	src := lockstep.Source(random(t).Uint64N)

	for range effort(t, 400) {
		type grant struct{ sec, n int64 }

		var (
			c      = drawCalendar(src, zones)
			limit  = 1 + int64(src(20))
			w      = must(algo.NewCalendarWindow(limit, c))
			dates  = reference.NewDates(c)
			sec    = change(src, c.Zone)
			s      algo.WindowState
			r      algo.Result
			grants []grant
		)

		begin, end := dates.Window(sec)
		step := uint64(end-begin) / 5

		for range 60 {
			sec += int64(src(step + 2))
			n := 1 + int64(src(uint64(limit)))
			begin, end = dates.Window(sec)
			used := int64(0)

			for _, g := range grants {
				if g.sec >= begin && g.sec < end {
					used += g.n
				}
			}

			s, r = w.Take(s, sec*1e9, n)
			if r.Allowed != (used+n <= limit) {
				t.Fatalf("%+v, %v: %d of %d at %v: %+v, but %d are used", c, c.Zone, n, limit, time.Unix(sec, 0).In(c.Zone), r, used)
			}

			if r.Allowed {
				grants = append(grants, grant{sec, n})
				used += n
			} else if want := time.Duration(end-sec) * time.Second; r.RetryAfter != want {
				t.Fatalf("%+v, %v: a wait of %v, want %v", c, c.Zone, r.RetryAfter, want)
			}

			if want := limit - used; r.Remaining != want {
				t.Fatalf("%+v: %d remain, want %d", c, r.Remaining, want)
			}
		}
	}
}

func at(z *time.Location, text string) int64 {
	return must(time.ParseInLocation("2006-01-02 15:04", text, z)).UnixNano()
}

// TestCalendarWindowBackward sets the clock back over an edge, where nothing comes back, and by years, where nothing is blocked
// for years.
func TestCalendarWindowBackward(t *testing.T) {
	z := zone("Europe/Vienna")
	w := must(algo.NewCalendarWindow(10, algo.Calendar{Unit: algo.CalendarDay, Zone: z}))
	s, _ := w.Take(algo.WindowState{}, at(z, "2026-03-28 23:59"), 10)
	s, r := w.Take(s, at(z, "2026-03-29 00:00"), 6)

	if !r.Allowed {
		t.Fatalf("%+v on a new day", r)
	}

	for range 5 {
		s, r = w.Take(s, at(z, "2026-03-28 23:30"), 6)
		if r.Allowed || r.Remaining != 4 || r.RetryAfter != 23*time.Hour+30*time.Minute {
			t.Errorf("the clock is set back: %+v", r)
		}

		if s, r = w.Take(s, at(z, "2026-03-29 00:01"), 5); r.Allowed || r.RetryAfter != 23*time.Hour-time.Minute {
			t.Errorf("the clock is right again: %+v", r)
		}
	}

	if s, r = w.Take(s, at(z, "2026-03-28 23:40"), 4); !r.Allowed || r.Remaining != 0 {
		t.Errorf("what is left is not frozen: %+v", r)
	}

	s, r = w.Take(s, at(z, "2020-01-01 12:00"), 1)
	if r.Allowed || r.RetryAfter != 12*time.Hour {
		t.Errorf("by years: %+v", r)
	}

	if _, r = w.Take(s, at(z, "2020-01-02 00:00"), 10); !r.Allowed {
		t.Errorf("the day after: %+v", r)
	}
}

func TestCalendarWindowCarry(t *testing.T) {
	z := zone("Europe/Vienna")
	days := must(algo.NewCalendarWindow(10, algo.Calendar{Unit: algo.CalendarDay, Zone: z}))
	fewer := must(algo.NewCalendarWindow(4, algo.Calendar{Unit: algo.CalendarDay, Zone: z}))
	months := must(algo.NewCalendarWindow(100, algo.Calendar{Unit: algo.CalendarMonth, Zone: z}))
	now := at(z, "2026-03-28 12:00")

	s, _ := days.Take(algo.WindowState{}, now, 7)
	s = fewer.Carry(days, s, now)

	if got := fewer.Peek(s, now, 1); got.Remaining != 0 || got.ResetAfter != 12*time.Hour {
		t.Errorf("lowered: %+v", got)
	}

	if got := days.Peek(days.Carry(fewer, s, now), now, 1); got.Remaining != 3 {
		t.Errorf("raised again: %+v", got)
	}

	if got := days.Peek(days.Carry(fewer, s, at(z, "2026-03-29 00:00")), at(z, "2026-03-29 00:00"), 1); got.Remaining != 10 {
		t.Errorf("raised a day later: %+v", got)
	}

	if got := months.Peek(months.Carry(fewer, s, now), now, 1); got.Remaining != 93 || got.ResetAfter != 4*day-13*time.Hour {
		t.Errorf("carried to months: %+v", got)
	}

	if days.SameWindows(months) || !days.SameWindows(fewer) {
		t.Error("days are the same as days, and months are not")
	}
}

// TestCalendarWindowDebt wants debt to be borne by the windows that follow, and not to outlast MaxFill.
func TestCalendarWindowDebt(t *testing.T) {
	w := must(algo.NewCalendarWindow(10, algo.Calendar{Unit: algo.CalendarMonth}))
	now := at(time.UTC, "2026-01-15 00:00")

	s, charged := w.Charge(algo.WindowState{}, now, 50, 25)
	if charged != 35 {
		t.Fatalf("charged %d of 50, want the limit of 10 and the debt of 25", charged)
	}

	for text, want := range map[string]int64{"2026-02-01 00:00": 0, "2026-03-31 23:59": 0, "2026-04-01 00:00": 5, "2026-05-01 00:00": 10} {
		if got := w.Peek(s, at(time.UTC, text), 1).Remaining; got != want {
			t.Errorf("%d permits at %s, want %d", got, text, want)
		}
	}

	for unit := algo.CalendarMinute; unit <= algo.CalendarYear; unit++ {
		w := must(algo.NewCalendarWindow(1, algo.Calendar{Unit: unit, Zone: zone("Europe/Vienna")}))
		owing, _ := w.Charge(algo.WindowState{}, now, math.MaxInt64, math.MaxInt64)

		if r := w.Peek(owing, now, 1); r.RetryAfter < algo.MaxFill/10*9 || r.RetryAfter > algo.MaxFill+400*day {
			t.Errorf("%v: %+v, want a wait of about %v", unit, r, algo.MaxFill)
		}
	}

	// A debt of a large limit may be more than a small one ever bears.
	large := must(algo.NewCalendarWindow(algo.MaxPermits, algo.Calendar{Unit: algo.CalendarYear}))
	small := must(algo.NewCalendarWindow(1, algo.Calendar{Unit: algo.CalendarYear}))
	s, _ = large.Charge(algo.WindowState{}, now, math.MaxInt64, algo.MaxPermits)

	if at := small.FreshAt(small.Carry(large, s, now)); at != math.MaxInt64 {
		t.Errorf("fresh at %d", at)
	}
}

func TestCalendarWindowDoesNotAllocate(t *testing.T) {
	w := must(algo.NewCalendarWindow(1e6, algo.Calendar{Unit: algo.CalendarMonth, Zone: zone("Europe/Vienna")}))
	now := at(time.UTC, "2026-03-28 12:00")

	var s algo.WindowState
	if n := testing.AllocsPerRun(1000, func() {
		now++
		s, _ = w.Take(s, now, 1)
		w.Peek(s, now, 1)
		w.FreshAt(s)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
