//go:build !race

package policy_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	parts "github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// TestSharedDecidesAsAlone compares three engines over one store with a single engine that keeps the same policies in its process,
// through random histories: every decision, and what is left of every limit, is the same.
func TestSharedDecidesAsAlone(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(11, seed))
		limit := func() policy.Limit {
			n := 3 + r.Int64N(20)
			return policy.Limit{Limit: []weir.Limit{
				perHour(n), weir.FixedWindow(weir.Per(n, 10*time.Hour)), weir.SlidingWindow(weir.Per(n, 10*time.Hour), 0),
				weir.AtOnce(n),
				weir.CalendarWindow(n, algo.Calendar{Unit: algo.CalendarDay}),
			}[r.IntN(5)]}
		}
		limits := func() (all []policy.Limit) {
			for range 1 + r.IntN(3) {
				all = append(all, limit())
			}
			return all
		}
		some, parent := limits(), limits()
		variant := func() (all []policy.Limit) {
			for _, l := range some {
				if l.Limit = parts.WithPermits(l.Limit, 1+r.Int64N(30)); l.Algorithm() == weir.AlgorithmTokenBucket && r.IntN(2) == 0 {
					l.Limit = parts.WithRate(l.Limit, weir.PerHour(1+r.Int64N(30)))
				}
				all = append(all, l)
			}
			return all
		}
		set := &policy.Set{
			Policies: shared(
				policy.Policy{
					Name: "child", Key: policy.MethodText(), Limits: some, Parent: "parent", TierBy: policy.MethodText(),
					Tiers: map[string][]policy.Limit{"PATCH": variant()}, Keys: map[string][]policy.Limit{"PUT": variant()},
					Hold: 24 * time.Hour,
				},
				policy.Policy{Name: "parent", Limits: parent, Hold: 24 * time.Hour},
			),
			Rules: []policy.Rule{{Name: "all", Limits: uses("child")}},
		}
		p := &pair{T: t, r: r, clock: manualclock.New(int64(100_000 * time.Hour))}
		s := memory(t, p.clock)
		p.shared = []*policy.Engine{over(t, s, p.clock, set), over(t, s, p.clock, set), over(t, s, p.clock, set)}
		p.alone = engine(t, set, func(o *policy.EngineOptions) { o.Alone, o.Clock = true, p.clock })
		for step := range 300 {
			switch r.IntN(8) {
			case 0:
				p.clock.Advance(time.Duration(1+r.Int64N(3)) * 20 * time.Minute)
			case 1, 2, 3:
				p.settle()
			default:
				p.ask(step)
			}
			if t.Failed() {
				t.Fatalf("seed %d, step %d, %v, parent %v", seed, step, some, parent)
			}
		}
	}
}
