package weir_test

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/limits"
)

// permitsIn is how many permits rate has in d, rounded down.
func permitsIn(rate weir.Rate, d time.Duration) int64 {
	n := new(big.Int).Mul(big.NewInt(rate.Permits), big.NewInt(int64(d)))
	return n.Div(n, big.NewInt(int64(rate.Period))).Int64()
}

func mustBucket(t *testing.T, limit weir.Limit, o weir.Options) *weir.Limiter {
	t.Helper()
	b, err := weir.New(limit, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// anyClock runs f with the process clock and with a Clock, in which a bucket takes other ways.
func anyClock(t *testing.T, f func(t *testing.T, clock weir.Clock)) {
	t.Helper()
	t.Run("process clock", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, nil) }) })
	t.Run("a clock", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { f(t, bubbleClock{}) }) })
}

func TestBucketRegainsPermitsOneByOne(t *testing.T) {
	anyClock(t, func(t *testing.T, clock weir.Clock) {
		b := mustBucket(t, weir.TokenBucket(weir.PerSecond(3), 3), weir.Options{Clock: clock})
		start := time.Now()
		b.TryAcquire(3)
		// A third of a second is no whole number of nanoseconds: it is rounded up for each, but the rests are not lost.
		for _, want := range []time.Duration{333333334, 666666667, 1e9, 1333333334, 1666666667, 2e9} {
			d := b.TryAcquire(1).Decision()
			if d.Allowed || time.Since(start)+d.RetryAfter != want {
				t.Fatalf("after %v: %+v, want the next permit at %v", time.Since(start), d, want)
			}
			time.Sleep(d.RetryAfter)
			if !b.Allow() {
				t.Fatalf("no permit at %v", want)
			}
		}
	})
}

// TestPollingLosesNothing asks far more often than permits come, at times that fit badly. Whatever comes is granted: exactly
// burst + rate x t, rounded down.
func TestPollingLosesNothing(t *testing.T) {
	for _, c := range []struct {
		rate weir.Rate
		poll time.Duration // about
	}{
		{weir.PerSecond(999999937), 1},
		{weir.PerSecond(1e9), 2},
		{weir.Per(7, 3*time.Millisecond), 50 * time.Microsecond},
		{weir.PerSecond(12345), 9 * time.Microsecond},
		{weir.PerMinute(8), 600 * time.Millisecond},
		{weir.PerDay(1), 3 * time.Hour},
		{weir.Per(1, 3660*day), 300 * day},
	} {
		t.Run(c.rate.String(), func(t *testing.T) {
			anyClock(t, func(t *testing.T, clock weir.Clock) {
				const burst = 5
				b := mustBucket(t, weir.TokenBucket(c.rate, burst), weir.Options{Clock: clock})
				rng := rand.New(rand.NewPCG(1, 2))
				start := time.Now()
				var granted int64
				for range 20_000 {
					if time.Since(start) > 100*365*day {
						break
					}
					for b.Allow() {
						granted++
					}
					elapsed := time.Since(start)
					if want := burst + permitsIn(c.rate, elapsed); granted != want {
						t.Fatalf("after %v %d permits were granted, want %d", elapsed, granted, want)
					}
					time.Sleep(time.Duration(rng.Int64N(2*int64(c.poll) + 1)))
				}
			})
		})
	}
}

// TestBucketNeverAdmitsMoreThanBurstAndRate looks at all intervals of a random history.
func TestBucketNeverAdmitsMoreThanBurstAndRate(t *testing.T) {
	for _, rate := range []weir.Rate{weir.PerSecond(999999937), weir.Per(7, 3*time.Millisecond), weir.PerDay(1)} {
		t.Run(rate.String(), func(t *testing.T) {
			anyClock(t, func(t *testing.T, clock weir.Clock) {
				const burst = 9
				b := mustBucket(t, weir.TokenBucket(rate, burst), weir.Options{Clock: clock})
				rng := rand.New(rand.NewPCG(3, 4))
				start := time.Now()
				var grants []charge
				for range 1500 {
					if l := b.TryAcquire(1 + rng.Int64N(burst)); l.Allowed() {
						grants = append(grants, charge{time.Since(start), l.Permits()})
					}
					time.Sleep(time.Duration(rng.Int64N(4*int64(limits.Interval(rate)) + 1)))
				}
				for i, from := range grants {
					sum := int64(0)
					for _, to := range grants[i:] {
						sum += to.n
						if most := burst + permitsIn(rate, to.at-from.at); sum > most {
							t.Fatalf("from %v to %v %d permits were granted, more than %d", from.at, to.at, sum, most)
						}
					}
				}
			})
		})
	}
}

func TestBucketIsExactOverTenYears(t *testing.T) {
	for _, rate := range []weir.Rate{weir.PerSecond(999999937), weir.PerSecond(1e9), weir.Per(7, 3*time.Millisecond), weir.PerDay(1)} {
		t.Run(rate.String(), func(t *testing.T) {
			anyClock(t, func(t *testing.T, clock weir.Clock) {
				burst := min(int64(1e15), permitsIn(rate, 400*day))
				b := mustBucket(t, weir.TokenBucket(rate, burst), weir.Options{Clock: clock})
				rng := rand.New(rand.NewPCG(5, 6))
				start := time.Now()
				granted := int64(0)
				for time.Since(start) < 3653*day {
					n := b.Peek(0).Remaining
					if n > 0 && b.TryAcquire(n).Allowed() {
						granted += n
					}
					if want := burst + permitsIn(rate, time.Since(start)); granted != want {
						t.Fatalf("after %v %d permits were granted, want %d", time.Since(start), granted, want)
					}
					// Never so long that the bucket would be full.
					most := min(int64(20*day), int64(b.Peek(0).ResetAfter)/2)
					time.Sleep(time.Duration(1 + rng.Int64N(most)))
				}
			})
		})
	}
}

func TestBucketAtTheEndsOfItsRange(t *testing.T) {
	anyClock(t, func(t *testing.T, clock weir.Clock) {
		fast := mustBucket(t, weir.TokenBucket(weir.PerSecond(1e9), 1e15), weir.Options{Clock: clock})
		slow := mustBucket(t, weir.TokenBucket(weir.Per(1, 3660*day), 5), weir.Options{Clock: clock})
		fast.TryAcquire(1e15)
		slow.TryAcquire(5)
		if d := fast.Peek(1e15); d.RetryAfter != 1e15 || d.ResetAfter != 1e15 {
			t.Errorf("%+v", d)
		}
		if d := slow.Peek(5); d.RetryAfter != 18300*day || d.ResetAfter != 18300*day {
			t.Errorf("%+v", d)
		}
		time.Sleep(1)
		if fast.Stats().Remaining != 1 || slow.Stats().Remaining != 0 {
			t.Errorf("after 1 ns %d and %d are available", fast.Stats().Remaining, slow.Stats().Remaining)
		}
		time.Sleep(3660*day - 2)
		slow.TryAcquire(1)
		if fast.Stats().Remaining != 1e15 || slow.Stats().Remaining != 0 {
			t.Errorf("just before 3660 days %d and %d are available", fast.Stats().Remaining, slow.Stats().Remaining)
		}
		time.Sleep(1)
		if slow.Stats().Remaining != 1 {
			t.Errorf("after 3660 days %d are available", slow.Stats().Remaining)
		}
	})
}

// TestWaitersGetEveryPermit has one caller after the other wait. A bucket that holds two permits loses nothing by that; one
// that holds a single permit loses the rest of the nanosecond in which each comes, as it is full for so long.
func TestWaitersGetEveryPermit(t *testing.T) {
	anyClock(t, func(t *testing.T, clock weir.Clock) {
		rate := weir.Per(7, 3*time.Millisecond)
		for burst, want := range map[int64]func(i int64) time.Duration{
			1: func(i int64) time.Duration { return time.Duration(i) * limits.Interval(rate) },
			2: func(i int64) time.Duration { return (time.Duration(i-1)*rate.Period + 6) / 7 },
		} {
			b := mustBucket(t, weir.TokenBucket(rate, burst), weir.Options{QueueLimit: 1, Clock: clock})
			start := time.Now()
			for i := range int64(7000) {
				if l, err := b.Acquire(t.Context(), 1); err != nil || !l.Allowed() {
					t.Fatalf("%+v, %v", l.Decision(), err)
				}
				if got := time.Since(start); got != max(want(i), 0) {
					t.Fatalf("burst %d: permit %d came at %v, want %v", burst, i, got, want(i))
				}
			}
		}
	})
}

func TestPolicyAndLimitOfABucket(t *testing.T) {
	for _, burst := range []int64{1, 3, 1e15} {
		b := mustBucket(t, weir.TokenBucket(weir.PerSecond(1e9), burst), weir.Options{Name: "uploads"})
		for _, l := range []weir.Lease{b.TryAcquire(1), b.TryAcquire(burst + 1), b.TryReserve(1), b.TryAcquire(0)} {
			if d := l.Decision(); d.Policy != "uploads" || d.Limit != burst {
				t.Errorf("%+v", d)
			}
		}
	}
}
