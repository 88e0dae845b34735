package verify_test

import (
	"flag"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/lockstep"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/internal/reference"
)

// TestHistoriesShrink runs every algorithm beside its reference in small numbers, so that a difference is reported as
// the shortest history that shows it. The long histories, in numbers of all sizes, are those of package algo.
func TestHistoriesShrink(t *testing.T) {
	histories(t, "3000")

	limits := rapid.Int64Range(1, 20)
	periods := rapid.Int64Range(1, 60)
	origins := rapid.Int64Range(-100, 100)

	t.Run("TokenBucket", rapid.MakeCheck(func(t *rapid.T) {
		burst, period := limits.Draw(t, "burst"), periods.Draw(t, "period")
		permits := rapid.Int64Range(1, period).Draw(t, "permits")

		machine(t, burst, &lockstep.Pair[algo.TokenBucketState]{
			Algorithm: new(must(algo.NewTokenBucket(permits, time.Duration(period), burst))),
			Reference: reference.NewTokenBucket(permits, time.Duration(period), burst),
		})
	}))
	t.Run("FixedWindow", rapid.MakeCheck(func(t *rapid.T) {
		limit, window, origin := limits.Draw(t, "limit"), time.Duration(periods.Draw(t, "window")), origins.Draw(t, "origin")

		machine(t, limit, &lockstep.Pair[algo.WindowState]{
			Algorithm: new(must(algo.NewFixedWindow(limit, window, origin))),
			Reference: reference.NewFixedWindow(limit, window, origin),
		})
	}))
	t.Run("SlidingWindow", rapid.MakeCheck(func(t *rapid.T) {
		limit, window, origin := limits.Draw(t, "limit"), time.Duration(periods.Draw(t, "window")), origins.Draw(t, "origin")
		segments := rapid.IntRange(1, int(window)).Draw(t, "segments")

		machine(t, limit, &lockstep.Pair[algo.SlidingWindowState]{
			Algorithm: new(must(algo.NewSlidingWindow(limit, window, segments, origin))),
			Reference: reference.NewSlidingWindow(limit, window, segments, origin),
		})
	}))
	t.Run("SlidingCounter", rapid.MakeCheck(func(t *rapid.T) {
		limit, window, origin := limits.Draw(t, "limit"), time.Duration(periods.Draw(t, "window")), origins.Draw(t, "origin")

		machine(t, limit, &lockstep.Pair[algo.SlidingCounterState]{
			Algorithm: new(must(algo.NewSlidingCounter(limit, window, origin))),
			Reference: reference.NewSlidingCounter(limit, window, origin),
		})
	}))
	t.Run("CalendarWindow", rapid.MakeCheck(func(t *rapid.T) {
		c := algo.Calendar{Unit: algo.CalendarMinute + algo.CalendarUnit(rapid.IntRange(0, 6).Draw(t, "unit"))}
		limit := limits.Draw(t, "limit")
		begin, end := must(algo.NewCalendarWindow(1, c)).Window(0)

		machineOf(t, limit, (end-begin)/10, &lockstep.Pair[algo.WindowState]{
			Algorithm: must(algo.NewCalendarWindow(limit, c)),
			Reference: reference.NewCalendarWindow(limit, c),
		})
	}))
	t.Run("Concurrency", rapid.MakeCheck(func(t *rapid.T) {
		limit := limits.Draw(t, "limit")

		machine(t, limit, &lockstep.Pair[algo.ConcurrencyState]{
			Algorithm: new(must(algo.NewConcurrency(limit))),
			Reference: reference.NewConcurrency(limit),
		})
	}))
}

// histories is how many histories rapid makes of each algorithm, unless the command line says it.
func histories(t *testing.T, count string) {
	t.Helper()

	checks := flag.Lookup("rapid.checks")
	if before := checks.Value.String(); before == checks.DefValue && !race.Enabled {
		if err := checks.Value.Set(count); err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() {
			if err := checks.Value.Set(before); err != nil {
				t.Error(err)
			}
		})
	}
}

// machine makes calls in any order at times that go forward and backward.
func machine[S comparable](t *rapid.T, limit int64, p *lockstep.Pair[S]) {
	machineOf(t, limit, 1, p)
}

// machineOf is machine with longer steps.
func machineOf[S comparable](t *rapid.T, limit, step int64, p *lockstep.Pair[S]) {
	now := rapid.Int64Range(-1000, 1000).Draw(t, "start") * step
	permits := rapid.Int64Range(-1, limit+1)
	debts := rapid.Int64Range(0, 2*limit)

	do := func(c lockstep.Call) {
		c.Now = now
		if err := p.Do(c); err != nil {
			t.Fatal(err)
		}
	}

	t.Repeat(map[string]func(*rapid.T){
		"forward":  func(t *rapid.T) { now += rapid.Int64Range(1, 150).Draw(t, "ns") * step },
		"backward": func(t *rapid.T) { now -= rapid.Int64Range(1, 150).Draw(t, "ns") * step },
		"take":     func(t *rapid.T) { do(lockstep.Call{Kind: lockstep.Take, N: permits.Draw(t, "n")}) },
		"take one": func(*rapid.T) { do(lockstep.Call{Kind: lockstep.Take, N: 1}) },
		"peek":     func(t *rapid.T) { do(lockstep.Call{Kind: lockstep.Peek, N: permits.Draw(t, "n")}) },
		"refund":   func(t *rapid.T) { do(lockstep.Call{Kind: lockstep.Refund, N: permits.Draw(t, "n")}) },
		"charge": func(t *rapid.T) {
			do(lockstep.Call{Kind: lockstep.Charge, N: permits.Draw(t, "n"), MaxDebt: debts.Draw(t, "max debt")})
		},
		"cancel": func(t *rapid.T) {
			if p.Marks() == 0 {
				return
			}

			mark := rapid.IntRange(0, p.Marks()-1).Draw(t, "mark")
			n := rapid.Int64Range(0, p.Marked(mark)).Draw(t, "n")
			do(lockstep.Call{Kind: lockstep.Cancel, N: n, Mark: mark})
		},
	})
}
