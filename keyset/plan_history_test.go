//go:build !race

package keyset_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	parts "github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
)

// TestPlanCallsAnswerAsKeyed compares the calls of plans with those of a limiter that chooses the same limits by its function,
// for all algorithms, on histories in which limits change, clocks advance, and keys have overrides.
func TestPlanCallsAnswerAsKeyed(t *testing.T) {
	for _, base := range []weir.Limit{
		weir.TokenBucket(weir.PerSecond(10), 20),
		weir.FixedWindow(weir.PerSecond(10)),
		weir.SlidingWindow(weir.PerSecond(10), 4),
		weir.SlidingCounter(weir.PerSecond(10)),
		weir.CalendarWindow(10, algo.Calendar{Unit: algo.CalendarMinute}),
	} {
		t.Run(base.Algorithm().String(), func(t *testing.T) {
			for seed := range uint64(40) {
				comparePlanCalls(t, base, seed)
			}
		})
	}
}

func comparePlanCalls(t *testing.T, base weir.Limit, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	clock := manualclock.New(1)
	chosen := base
	o := weir.KeyedOptions{Clock: clock}
	planned := keyedOf(t, base, o)
	byFunc, err := weir.NewKeyedFunc(base, o, func(string) weir.Limit { return chosen })
	if err != nil {
		t.Fatal(err)
	}
	limits := []weir.Limit{base}
	for range 4 {
		l := base
		if l.Algorithm() == weir.AlgorithmTokenBucket {
			l = parts.WithRate(l, weir.Rate{Permits: 1 + random.Int64N(30), Period: time.Duration(1 + random.Int64N(3e9))})
		}
		limits = append(limits, parts.WithPermits(l, 1+random.Int64N(40)))
	}
	var plans []*keyset.Plan
	for _, l := range limits {
		plans = append(plans, planOf(t, planned, l))
	}
	held := map[string]weir.Limit{}
	for i := range 3 { // an override of a key that is not known would be in the place of another limit
		held[strconv.Itoa(i)] = base
		planned.Take(strconv.Itoa(i), 1)
		byFunc.Take(strconv.Itoa(i), 1)
	}
	for step := range 400 {
		which, key, n := random.IntN(len(limits)), strconv.Itoa(random.IntN(3)), random.Int64N(12)
		p := plans[which]
		chosen = limits[which]
		var got, want weir.Decision
		kind := random.IntN(10)
		switch kind {
		case 0:
			clock.Advance(time.Duration(random.Int64N(2e9)))
			continue
		case 1:
			if random.IntN(8) == 0 {
				d := time.Duration(1 + random.Int64N(1e9))
				chosen = held[key] // what the override is in the place of
				l := limits[random.IntN(len(limits))]
				if x, y := keyset.Of(planned).Override(key, l, d), keyset.Of(byFunc).Override(key, l, d); x != nil || y != nil {
					t.Fatal(x, y)
				}
			}
			continue
		case 2:
			got, want = p.PeekBytes([]byte(key), n), byFunc.Peek(key, n)
		case 3, 4:
			byFunc.Peek(key, 0) // moves it to the limit
			byFunc.Refund(key, n)
			got, want = p.RefundBytes([]byte(key), n), byFunc.Peek(key, 0)
		default:
			got, want = p.TakeBytes([]byte(key), n), byFunc.Take(key, n)
		}
		held[key] = limits[which]
		if got != want {
			t.Fatalf("seed %d, step %d, call %d of %d permits under %v: %+v, want %+v", seed, step, kind, n, limits[which], got, want)
		}
	}
}
