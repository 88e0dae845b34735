//go:build !race

package algo_test

import (
	"math"
	"testing"
	"time"

	"github.com/weirhq/weir/algo"
)

func TestWindowParameters(t *testing.T) {
	for _, c := range []struct {
		name    string
		limit   int64
		window  time.Duration
		refused string
	}{
		{"smallest", 1, 1, ""},
		{"largest", algo.MaxPermits, algo.MaxPeriod, ""},
		{"no limit", 0, time.Second, "limit"},
		{"negative limit", math.MinInt64, time.Second, "limit"},
		{"too large a limit", algo.MaxPermits + 1, time.Second, "limit"},
		{"no window", 1, 0, "window"},
		{"negative window", 1, -time.Second, "window"},
		{"too long a window", 1, algo.MaxPeriod + 1, "window"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fixed, fixedErr := algo.NewFixedWindow(c.limit, c.window, 5)
			sliding, slidingErr := algo.NewSlidingWindow(c.limit, c.window, 1, 5)
			counter, counterErr := algo.NewSlidingCounter(c.limit, c.window, 5)

			if c.refused == "" {
				for _, err := range []error{fixedErr, slidingErr, counterErr} {
					if err != nil {
						t.Error(err)
					}
				}

				if fixed.Limit() != c.limit || sliding.Limit() != c.limit || counter.Limit() != c.limit {
					t.Errorf("limits %d, %d and %d, want %d", fixed.Limit(), sliding.Limit(), counter.Limit(), c.limit)
				}

				if fixed.Length(0) != c.window || sliding.Window() != c.window || counter.Window() != c.window {
					t.Errorf("windows %d, %d and %d, want %d", fixed.Length(0), sliding.Window(), counter.Window(), c.window)
				}

				return
			}

			refuses(t, "NewFixedWindow", c.refused, fixedErr)
			refuses(t, "NewSlidingWindow", c.refused, slidingErr)
			refuses(t, "NewSlidingCounter", c.refused, counterErr)
		})
	}
}

// TestWindowsNeverUsed wants the zero state of every algorithm with windows to be fresh at all times.
func TestWindowsNeverUsed(t *testing.T) {
	for _, origin := range []int64{0, 1, -1, 1 << 62, -1 << 62} {
		neverUsed(t, must(algo.NewFixedWindow(3, time.Minute, origin)))
		neverUsed(t, must(algo.NewSlidingWindow(3, time.Minute, 7, origin)))
		neverUsed(t, must(algo.NewSlidingCounter(3, time.Minute, origin)))
	}

	for unit := algo.CalendarMinute; unit <= algo.CalendarYear; unit++ {
		neverUsed(t, must(algo.NewCalendarWindow(3, algo.Calendar{Unit: unit, Zone: zone("America/New_York")})))
	}
}

func neverUsed[S any](t *testing.T, a algo.Algorithm[S]) {
	t.Helper()

	var s S

	for _, now := range []int64{-1 << 62, -1, 0, 1, 1 << 62} {
		if !a.Fresh(s, now) {
			t.Errorf("%T: the zero state is not fresh at %d", a, now)
		}

		if r := a.Peek(s, now, 3); !r.Allowed || r.Remaining != 3 || r.ResetAfter != 0 {
			t.Errorf("%T: the zero state at %d: %+v, want 3 permits", a, now, r)
		}
	}

	if at := a.FreshAt(s); at != math.MinInt64 {
		t.Errorf("%T: FreshAt of the zero state is %d, want math.MinInt64", a, at)
	}
}

// TestFixedWindowPhase wants windows to begin at the origin and at every multiple of their length from there, however
// the calls come.
func TestFixedWindowPhase(t *testing.T) {
	w := must(algo.NewFixedWindow(1, 100, 1_030))

	var s algo.WindowState

	for _, c := range []struct {
		now     int64
		allowed bool
		retry   time.Duration
	}{
		{-971, true, 0},
		{-970, true, 0},
		{-969, false, 99},
		{-71, true, 0},
		{-70, true, 0},
		{29, false, 1},
		{30, true, 0},
		{129, false, 1},
		{1_029, true, 0},
		{1_030, true, 0},
		{1_030, false, 100},
		{1_129, false, 1},
		{1_333, true, 0},
		{1_334, false, 96},
	} {
		var r algo.Result
		if s, r = w.Take(s, c.now, 1); r.Allowed != c.allowed || r.RetryAfter != c.retry {
			t.Errorf("at %d: %+v, want %t and a wait of %d", c.now, r, c.allowed, c.retry)
		}
	}
}

// TestFixedWindowCarriesDebt wants a debt to be borne by the windows that follow.
func TestFixedWindowCarriesDebt(t *testing.T) {
	w := must(algo.NewFixedWindow(10, 100, 0))
	s, charged := w.Charge(algo.WindowState{}, 0, 50, 25)

	if charged != 35 {
		t.Fatalf("charged %d of 50, want the limit of 10 and the debt of 25", charged)
	}

	for now, want := range map[int64]int64{0: 0, 99: 0, 100: 0, 299: 0, 300: 5, 399: 5, 400: 10} {
		if got := w.Peek(s, now, 1).Remaining; got != want {
			t.Errorf("%d permits at %d, want %d", got, now, want)
		}
	}

	if r := w.Peek(s, 0, 6); r.RetryAfter != 400 || r.ResetAfter != 400 {
		t.Errorf("%+v, want a wait of 400", r)
	}

	// No debt outlasts MaxFill.
	w = must(algo.NewFixedWindow(1, time.Hour, 0))
	s, charged = w.Charge(algo.WindowState{}, 1<<62, math.MaxInt64, math.MaxInt64)

	if want := int64(1 + algo.MaxFill/time.Hour); charged != want {
		t.Errorf("charged %d, want %d", charged, want)
	}

	if r := w.Peek(s, 1<<62, 1); r.RetryAfter <= algo.MaxFill || r.RetryAfter > algo.MaxFill+time.Hour {
		t.Errorf("%+v, want a wait between %v and an hour more", r, algo.MaxFill)
	}
}

func FuzzFixedWindowHistory(f *testing.F) {
	fuzzHistories(f, fixedWindowHistory)
}
