//go:build !race

package algo_test

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/lockstep"
)

const tenYears = 3653 * day

// due is permits x t / period rounded down.
func due(permits int64, t, period time.Duration) int64 {
	v := new(big.Int).Mul(big.NewInt(permits), big.NewInt(int64(t)))

	return v.Div(v, big.NewInt(int64(period))).Int64()
}

// TestTenYearsExact takes all that there is for ten years, and wants it to be what the rate says, to the last permit.
func TestTenYearsExact(t *testing.T) {
	t.Run("TokenBucket", func(t *testing.T) {
		for _, c := range []struct {
			permits int64
			period  time.Duration
			burst   int64
		}{
			{1, day, 2},
			{8, time.Minute, 500},
			{7, 3 * time.Millisecond, 100_000_000},
			{1_234_567, 30 * day, 10_000},
			{100, time.Hour, 100},
			{999_999_937, time.Second, 1_000_000_000_000},
			{1_000_000_000, time.Second, algo.MaxPermits},
		} {
			t.Run(fmt.Sprintf("%d per %v", c.permits, c.period), func(t *testing.T) {
				tenYearsOfBucket(t, must(algo.NewTokenBucket(c.permits, c.period, c.burst)), c.permits, c.period)
			})
		}
	})

	t.Run("FixedWindow", func(t *testing.T) {
		// The first window, whose beginning has passed, and all that begin in ten years.
		tenYearsOfWindow(t, must(algo.NewFixedWindow(7, time.Hour, int64(time.Minute))), 7*(1+3653*24))
	})

	t.Run("CalendarWindow", func(t *testing.T) {
		days := algo.Calendar{Unit: algo.CalendarDay, Zone: zone("Europe/Vienna"), Hour: 1} // when 1970 begins in UTC
		tenYearsOfWindow(t, must(algo.NewCalendarWindow(7, days)), 7*3653)
	})

	t.Run("SlidingWindow", func(t *testing.T) {
		tenYearsOfWindow(t, must(algo.NewSlidingWindow(7, time.Hour, 10, int64(time.Minute))), 7*(1+3653*24))
	})

	t.Run("SlidingCounter", func(t *testing.T) {
		// Seven in the first window, six in each of the following, in the last of which one minute is missing.
		got := takeAll(must(algo.NewSlidingCounter(7, time.Hour, int64(time.Minute))), int64(tenYears))
		if most := int64(7 + 6*3653*24); got > most || got < most-6 {
			t.Errorf("%d permits in ten years, want %d to %d", got, most-6, most)
		}
	})
}

// tenYearsOfBucket takes the burst, and then whatever there is, at random times but before the bucket is full.
func tenYearsOfBucket(t *testing.T, b algo.TokenBucket, permits int64, period time.Duration) {
	t.Helper()

	var (
		src   = lockstep.Source(random(t).Uint64N)
		s     algo.TokenBucketState
		r     algo.Result
		total int64
		fill  = fillTime(b)
		gap   = max(int64(tenYears)/int64(effort(t, 200_000)), 1)
	)

	gap = min(gap, int64(fill)/2)

	for now := int64(0); ; {
		n := b.Peek(s, now, 1).Remaining
		if s, r = b.Take(s, now, n); n > 0 && !r.Allowed {
			t.Fatalf("%d are left at %d, but %+v", n, now, r)
		}

		total += n

		if now == int64(tenYears) {
			break
		}

		now = min(now+1+int64(src(uint64(gap))), int64(tenYears))
	}

	if want := b.Burst() + due(permits, tenYears, period); total != want {
		t.Errorf("%d permits in ten years, want %d: %d too many", total, want, total-want)
	}
}

// takeAll takes one permit after the other until the end.
func takeAll[S any](a algo.Algorithm[S], end int64) (total int64) {
	var s S

	for now := int64(0); now <= end; {
		var r algo.Result
		if s, r = a.Take(s, now, 1); r.Allowed {
			total++
		} else {
			now += int64(r.RetryAfter)
		}
	}

	return total
}

func tenYearsOfWindow[S any](t *testing.T, a algo.Algorithm[S], want int64) {
	t.Helper()

	if got := takeAll(a, int64(tenYears)-1); got != want {
		t.Errorf("%d permits in ten years, want %d", got, want)
	}
}

// TestTenYearsOneByOne polls a bucket for ten years as often as it asks for.
func TestTenYearsOneByOne(t *testing.T) {
	permits, period := int64(7), time.Hour
	b := must(algo.NewTokenBucket(permits, period, 2))

	if got, want := takeAll(b, int64(tenYears)), 2+due(permits, tenYears, period); got != want {
		t.Errorf("%d permits in ten years, want %d", got, want)
	}
}
