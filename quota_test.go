package weir_test

import (
	"math"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

func TestQuota(t *testing.T) {
	bucket := func(rate weir.Rate, burst int64) *weir.Limiter {
		b, err := weir.New(weir.TokenBucket(rate, burst), weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	sliding := func(limit weir.Limit, o weir.Options) *weir.Limiter {
		w, err := weir.New(limit, o)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	fixed, err := weir.New(weir.FixedWindow(weir.Per(7, 90*time.Minute)), weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	slots, err := weir.NewConcurrency(4, weir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	keyed, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerMinute(8), 5), weir.KeyedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	used := bucket(weir.PerSecond(10), 20)
	used.TryAcquire(15)

	for _, c := range []struct {
		name    string
		limiter interface{ Limit() weir.Limit }
		permits int64
		window  time.Duration
	}{
		{"token bucket", bucket(weir.PerSecond(10), 20), 20, 2 * time.Second},
		{"token bucket in use", used, 20, 2 * time.Second},
		{"token bucket, rounded up", bucket(weir.Per(3, time.Second), 1), 1, 333333334},
		{"token bucket, slowest", bucket(weir.Per(1, 3660*24*time.Hour), 4), 4, 14640 * 24 * time.Hour},
		{"fixed window", fixed, 7, 90 * time.Minute},
		{"sliding window", sliding(weir.SlidingWindow(weir.PerHour(9), 0), weir.Options{}), 9, time.Hour},
		{
			"approximate sliding window",
			sliding(weir.SlidingCounter(weir.PerHour(9)), weir.Options{}), 9, time.Hour,
		},
		{"concurrency", slots, 4, 0},
		{"keyed", keyed, 5, 37500 * time.Millisecond},
	} {
		if permits, window := c.limiter.Limit().Quota(); permits != c.permits || window != c.window {
			t.Errorf("%s: Quota() = %d, %v; want %d, %v", c.name, permits, window, c.permits, c.window)
		}
	}
}

// TestLimitQuota: a limit tells its quota as the limiter that is made of it does.
func TestLimitQuota(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Vienna")
	if err != nil {
		t.Fatal(err)
	}
	calendar := func(c algo.Calendar) weir.Limit {
		return weir.CalendarWindow(7, c)
	}
	for _, c := range []struct {
		limit   weir.Limit
		permits int64
		window  time.Duration
	}{
		{weir.TokenBucket(weir.PerSecond(10), 0), 10, time.Second},
		{weir.TokenBucket(weir.PerSecond(10), 20), 20, 2 * time.Second},
		{weir.TokenBucket(weir.PerSecond(3), 1), 1, 333_333_334},
		{weir.TokenBucket(weir.Rate{Permits: 1, Period: 3660 * 24 * time.Hour}, 5), 5, 18300 * 24 * time.Hour},
		{weir.FixedWindow(weir.PerMinute(5)), 5, time.Minute},
		{weir.SlidingWindow(weir.PerMinute(5), 0), 5, time.Minute},
		{weir.SlidingCounter(weir.PerMinute(5)), 5, time.Minute},
		{weir.AtOnce(5), 5, 0},
		{calendar(algo.Calendar{Unit: algo.CalendarDay}), 7, 24 * time.Hour},
		{calendar(algo.Calendar{Unit: algo.CalendarWeek, Hour: 8}), 7, 7 * 24 * time.Hour},
		{calendar(algo.Calendar{Unit: algo.CalendarDay, Zone: zone}), 7, 0},
		{calendar(algo.Calendar{Unit: algo.CalendarMinute, Zone: zone}), 7, time.Minute},
		{calendar(algo.Calendar{Unit: algo.CalendarMonth}), 7, 0},
	} {
		if permits, window := c.limit.Quota(); permits != c.permits || window != c.window {
			t.Errorf("%v: %d in %v, want %d in %v", c.limit, permits, window, c.permits, c.window)
		}
		k, err := anyKeyed(c.limit, weir.KeyedOptions{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if permits, window := k.Limit().Quota(); permits != c.permits || window != c.window {
			t.Errorf("the limiter of %v: %d in %v", c.limit, permits, window)
		}
	}
	// Limits that cannot be used.
	for _, l := range []weir.Limit{
		{},
		weir.TokenBucket(weir.Rate{Permits: -1, Period: 1}, 0),
		weir.TokenBucket(weir.Rate{Permits: 1, Period: math.MaxInt64}, math.MaxInt64),
		calendar(algo.Calendar{}),
		calendar(algo.Calendar{Unit: 99}),
	} {
		if _, window := l.Quota(); window != 0 {
			t.Errorf("%+v: %v", l, window)
		}
	}
}
