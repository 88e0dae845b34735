package store_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/store"
)

// TestStepsOfTheClockOfAProcess sets the clock by an hour that a store was given in place of that of the process, while its permits are
// used up, or it is open: they come back as if it had not been, and none is granted twice.
func TestStepsOfTheClockOfAProcess(t *testing.T) {
	limit := weir.TokenBucket(weir.PerSecond(10), 10)
	for name, over := range map[string]func(t *testing.T, inner store.Home, clock weir.Clock) store.Home{
		"breaker": func(t *testing.T, inner store.Home, clock weir.Clock) store.Home {
			t.Helper()
			return newBreaker(t, inner, store.BreakerOptions{Failures: 1, Clock: clock})
		},
		"leased": func(t *testing.T, inner store.Home, clock weir.Clock) store.Home {
			t.Helper()
			s, err := store.NewLeased(inner, store.LeasedOptions{Clock: clock})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		},
		"optimistic": func(t *testing.T, inner store.Home, clock weir.Clock) store.Home {
			t.Helper()
			s := newOptimistic(t, inner, store.OptimisticOptions{Clock: clock})
			t.Cleanup(func() { _ = s.Close() })
			return s
		},
	} {
		for _, by := range []time.Duration{time.Hour, -time.Hour} {
			t.Run(name+" "+by.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					clock, innerClock := manualclock.New(int64(time.Hour)), newVirtual()
					clock.Advance(24 * time.Hour)
					inner := &outage{Home: newMemory(t, store.MemoryOptions{Clock: innerClock})}
					s := over(t, inner, clock)
					granted := func() (n int) {
						for range 40 {
							ds := make([]weir.Decision, 1)
							err := store.Take(t.Context(), s, []store.Charge{{Policy: "p", Key: "k", Limit: limit, N: 1}}, ds)
							if err == nil && ds[0].Allowed {
								n++
							} else if err != nil && !errors.Is(err, store.ErrUnavailable) {
								t.Fatal(err)
							}
						}
						return n
					}
					pass := func(d time.Duration) {
						for range 100 {
							clock.Advance(d / 100)
							innerClock.Advance(d / 100)
							synctest.Wait()
						}
					}
					if n := granted(); n > 10 {
						t.Fatalf("%d of 10 were granted", n)
					}
					if name == "breaker" {
						repair := inner.breaks()
						_ = granted()
						repair()
					}
					pass(time.Second)
					clock.Advance(by)
					synctest.Wait()
					total := granted()
					for range 5 {
						pass(time.Second)
						n := granted()
						total += n
						if n == 0 {
							t.Errorf("nothing is granted a second after a step of %v", by)
						}
					}
					if total > 10+50 {
						t.Errorf("%d were granted in 5 s of 10/s", total)
					}
				})
			})
		}
	}
}
