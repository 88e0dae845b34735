//go:build !race

package policy_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// TestReloadHistories compares what an engine decides under random reloads with limits as one would write them down: new parameters
// hold from the next request of a key on, what was left then is held to the new limit, and what was taken stays taken.
func TestReloadHistories(t *testing.T) {
	for seed := range uint64(60) {
		h := &history{
			T: t, r: rand.New(rand.NewPCG(7, seed)), clock: manualclock.New(int64(time.Hour) * int64(seed%3)),
			keys: map[string]*oldLimit{}, began: map[string]int64{}, next: map[string]map[weir.Limit]succession{},
		}
		h.e = engine(t, &policy.Set{}, func(o *policy.EngineOptions) { o.Clock = h.clock })
		h.reload()
		for step := range 300 {
			switch h.r.IntN(12) {
			case 0:
				h.reload()
			case 1, 2:
				hours := 1 + h.r.Int64N(3)
				h.hour += hours
				h.clock.Advance(time.Duration(hours) * time.Hour)
			case 3, 4, 5:
				h.release()
			default:
				h.request(step)
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

// TestTakeAllHistories compares what an engine decides on several requests at a time, held to limits of this process, of a store and of
// an owner, with buckets as one would write them down: all that is asked of each is there, or nothing is taken of any. What is debited
// is taken whatever is there.
func TestTakeAllHistories(t *testing.T) {
	for seed := range uint64(25) {
		b := &batches{
			T: t, r: rand.New(rand.NewPCG(8, seed)), clock: manualclock.New(1),
			bursts: map[string]int64{}, left: map[string]int64{}, granted: map[string]uint64{},
		}
		for _, name := range []string{"local", "total", "stored", "owned", "watched"} {
			b.bursts[name] = 3 + b.r.Int64N(12)
			for _, key := range batchKeys {
				if name == "total" {
					key = ""
				}
				b.left[name+" "+key] = b.bursts[name]
			}
		}
		b.e = ownedBy(t, newOwner(t, b.clock), memory(t, b.clock), b.clock, batchSet(b.bursts))
		for step := range 100 {
			if b.r.IntN(3) == 0 {
				hours := 1 + b.r.Int64N(3)
				b.clock.Advance(time.Duration(hours) * time.Hour)
				for bucket := range b.left {
					b.left[bucket] = min(b.left[bucket]+hours, b.bursts[bucket[:lastSpace(bucket)]])
				}
			}
			if b.r.IntN(10) == 0 {
				load(t, b.e, batchSet(b.bursts))
			}
			b.step(step)
		}
		b.compareReport(fmt.Sprint("seed ", seed))
	}
}

// TestEngineAgainstReference compares verdicts with those of rules that are tried one by one, over budgets that never come
// back.
func TestEngineAgainstReference(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(5, seed))
		methods := []string{"GET", "PUT", "POST"}
		set := &policy.Set{}
		budgets := map[string]int64{}
		for i := range 1 + r.IntN(5) {
			p := policy.Policy{Name: fmt.Sprint("p", i)}
			for j := range 1 + r.IntN(3) {
				n := 1 + r.Int64N(30)
				p.Limits = append(p.Limits, policy.Limit{Name: fmt.Sprint(j), Limit: perHour(n)})
				budgets[fmt.Sprint(p.Name, "/", j)] = n
			}
			if r.IntN(2) == 0 {
				p.Key = policy.MethodText()
			}
			if i > 0 && r.IntN(3) == 0 {
				p.Parent = fmt.Sprint("p", r.IntN(i))
			}
			p.Cost = policy.FixedNumber(1 + r.Int64N(3))
			set.Policies = append(set.Policies, p)
		}
		for i := range 1 + r.IntN(6) {
			rule := policy.Rule{Name: fmt.Sprint("r", i), Final: r.IntN(5) == 0}
			if r.IntN(2) == 0 {
				rule.Match.Methods = []string{methods[r.IntN(3)]}
			}
			if rule.Exempt = r.IntN(8) == 0; !rule.Exempt {
				for range 1 + r.IntN(3) {
					rule.Limits = append(rule.Limits, policy.Use{Policy: set.Policies[r.IntN(len(set.Policies))].Name})
				}
			}
			set.Rules = append(set.Rules, rule)
		}
		e := engine(t, set)
		used := map[string]int64{}
		for step := range 100 {
			method := methods[r.IntN(3)]
			v := take(e, policy.Request{Method: method})
			allowed, charges := reference(set, budgets, used, method)
			if v.Allowed != allowed || len(v.Parts) != len(charges) {
				t.Fatalf("seed %d, step %d, %s: %v with %d limits, want %v with %d", seed, step, method, v.Allowed, len(v.Parts), allowed, len(charges))
			}
			if allowed {
				for at, n := range charges {
					used[at] += n
				}
			}
		}
	}
}
