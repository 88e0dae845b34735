//go:build !race

package guard_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/manualclock"
)

// TestGuardEqualsModel compares every answer of random histories with that of a slow and simple guard, with options of all
// kinds. The real one runs cleanups and has other endpoints pass through, which must make no difference.
func TestGuardEqualsModel(t *testing.T) {
	const histories, steps = 150, 400
	seen := map[weir.Reason]int{}
	for seed := range uint64(histories) {
		rng := rand.New(rand.NewPCG(seed, 1))
		pick := func(values ...time.Duration) time.Duration { return values[rng.IntN(len(values))] }
		o := guard.DefaultOptions()
		o.Name = fmt.Sprint("history ", seed)
		// A bucket of one token may lose a part of a nanosecond.
		o.CapacityTokens = 2 + rng.IntN(12)
		o.RefillTokensPerSecond = []float64{6, 0.001, 0.37, 1.0 / 3, 1234.567, 99_999.9}[rng.IntN(6)]
		o.TokenScale = []int{1000, 7777, 1_000_000}[rng.IntN(3)]
		if rng.IntN(2) == 0 {
			o.InitialTokens = o.CapacityTokens
		}
		o.HardLockout = pick(0, time.Second, 3*time.Second+1, 1500*time.Microsecond, time.Minute)
		o.MaxSoftViolations = 1 + rng.IntN(4)
		o.SoftViolationWindow = pick(time.Second, 5*time.Second, time.Minute)
		o.CooldownReset = pick(time.Second, 10*time.Second, time.Hour)
		o.LockoutFactor = 1 + rng.IntN(3)
		o.MaxLockout = max(o.HardLockout, pick(10*time.Second, 24*time.Hour))
		o.StaleEntry, o.CleanupInterval = pick(time.Second, time.Minute), pick(time.Second, time.Minute)
		o.MaxTrackedEndpoints = 2 + rng.IntN(6)
		clock := manualclock.New(rng.Int64N(1e18) - 5e17)
		o.Clock = clock
		g, err := guard.New(o)
		if err != nil {
			t.Fatal(err)
		}
		m := newModelGuard(o, clock.Now())
		var last time.Duration
		for step := range steps {
			switch rng.IntN(6) {
			case 0:
				clock.Advance(time.Duration(rng.Int64N(int64(2e9 / o.RefillTokensPerSecond))))
			case 1:
				clock.Advance(last) // as a client does that is told to wait
			case 2:
				clock.Advance(pick(1, o.SoftViolationWindow, o.SoftViolationWindow+1, o.CooldownReset-1, o.CooldownReset, o.StaleEntry+1))
			}
			if rng.IntN(3) == 0 {
				_, _ = g.CheckAddr(address6(rng.IntN(100)))
			}
			d, err := g.Check("192.0.2.1:80")
			if d.Reason == weir.ReasonTrackingCap {
				// The others fill the guard. What the model has forgotten by then does not matter either.
				continue
			}
			if want := m.check(clock.Now()); d != want || err != nil {
				t.Fatalf("seed %d, step %d: %+v, %v\nwant %+v\noptions %+v", seed, step, d, err, want, o)
			}
			last = d.RetryAfter
			seen[d.Reason]++
		}
		_ = g.Close()
	}
	for _, reason := range []weir.Reason{weir.ReasonNone, weir.ReasonSoftThrottle, weir.ReasonHardLockout} {
		if seen[reason] < histories*steps/30 {
			t.Errorf("%v was compared %d times only", reason, seen[reason])
		}
	}
}
