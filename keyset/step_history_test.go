package keyset_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
)

// TestStepsDecideAsLimitsAlone plays random histories on a Step and on limiters of the same limits, which are asked one by one:
// first what each would decide, and then for the permits if all of them allow it.
func TestStepsDecideAsLimitsAlone(t *testing.T) {
	limits := []weir.Limit{
		weir.TokenBucket(weir.Rate{Permits: 3, Period: time.Second}, 5),
		weir.TokenBucket(weir.Rate{Permits: 1, Period: time.Second}, 1),
		weir.TokenBucket(weir.Rate{Permits: 997, Period: time.Minute}, 40),
		weir.FixedWindow(weir.Rate{Permits: 10, Period: time.Second}),
	}
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(30) {
			r := rand.New(rand.NewPCG(seed, 1))
			var plans []*keyset.Plan
			var alone []*weir.Keyed[string]
			for _, limit := range limits[:2+r.IntN(len(limits)-1)] {
				plans = append(plans, ownPlan(t, limit))
				alone = append(alone, keyedOf(t, limit, weir.KeyedOptions{}))
			}
			var s keyset.Step
			for range 400 {
				time.Sleep(time.Duration(r.Int64N(int64(time.Second) >> r.IntN(12))))
				playStep(t, r, &s, plans, alone)
			}
			for _, k := range alone {
				_ = k.Close()
			}
		}
	})
}

// playStep asks about some of the limits, each with a key of its own, once or twice.
func playStep(t *testing.T, r *rand.Rand, s *keyset.Step, plans []*keyset.Plan, alone []*weir.Keyed[string]) {
	t.Helper()
	of := r.Perm(len(plans))[:1+r.IntN(len(plans))]
	keys, ns := make([]string, len(of)), make([]int64, len(of))
	got, want := make([]weir.Decision, len(of)), make([]weir.Decision, len(of))
	peek := func() (allowed bool) {
		for i, at := range of {
			want[i] = alone[at].Peek(keys[i], ns[i])
		}
		return !slices.ContainsFunc(want, func(d weir.Decision) bool { return !d.Allowed })
	}
	for i := range of {
		keys[i], ns[i] = fmt.Sprint("key ", r.IntN(4)), max(r.Int64N(8)-4, r.Int64N(2))
	}
	add := func() {
		for i, at := range of {
			s.Add(plans[at], []byte(keys[i]), ns[i], &got[i])
		}
	}
	if add(); r.IntN(4) == 0 {
		peek()
		if s.Peek(); !slices.Equal(got, want) {
			t.Fatalf("%d permits of %q: peek of %+v, want %+v", ns, keys, got, want)
		}
		add()
	}
	if peek() {
		for i, at := range of {
			want[i] = alone[at].Take(keys[i], ns[i])
		}
	}
	if s.Take(); !slices.Equal(got, want) {
		t.Fatalf("%d permits of %q: %+v, want %+v", ns, keys, got, want)
	}
}
