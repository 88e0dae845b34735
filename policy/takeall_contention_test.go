package policy_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// twoAlike is a set whose two policies are asked for equally by every batch.
func twoAlike(burst int64, kind func(all ...policy.Policy) []policy.Policy) *policy.Set {
	s := &policy.Set{Policies: kind(
		policy.Policy{Name: "a", Limits: one(perHour(burst)), Key: policy.MethodText()},
		policy.Policy{Name: "b", Limits: one(perHour(burst)), Key: policy.MethodText()},
	)}
	for _, name := range []string{"a", "b"} {
		s.Rules = append(s.Rules, policy.Rule{Name: name, Match: policy.Match{Paths: []string{"/" + name}}, Limits: uses(name)})
	}
	return s
}

// batchOf asks for n permits of each of the keys of both policies, in any order.
func batchOf(r *rand.Rand, n int64, keys ...string) (all []*policy.Request) {
	for _, key := range keys {
		all = append(all, &policy.Request{Path: "/a", Method: key, Cost: n}, &policy.Request{Path: "/b", Method: key, Cost: n})
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// TestTakeAllContention: two limits that all batches charge equally are equal at every look, while the set is replaced and, in
// the second run, keys are overridden. What is gone in the end was allowed.
func TestTakeAllContention(t *testing.T) {
	t.Run("plain", func(t *testing.T) { takeAllEqually(t, false) })
	t.Run("overridden", func(t *testing.T) { takeAllEqually(t, true) })
}

func takeAllEqually(t *testing.T, override bool) {
	const goroutines, rounds, most = 8, 250, 900
	set := twoAlike(most, func(all ...policy.Policy) []policy.Policy { return all })
	e := engine(t, set)
	keys := []string{"GET", "PUT"}
	var granted [2]atomic.Int64
	var refused atomic.Int64
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 4))
			v := new(policy.Verdict)
			for range rounds {
				n, of := 1+r.Int64N(3), []int{r.IntN(2)}
				if r.IntN(2) == 0 {
					of = []int{0, 1}
				}
				named := make([]string, 0, len(of))
				for _, i := range of {
					named = append(named, keys[i])
				}
				requests := batchOf(r, n, named...)
				switch r.IntN(20) {
				case 0:
					load(t, e, set)
					continue
				case 1:
					if !override {
						continue
					}
					l := e.Limiter([]string{"a", "b"}[r.IntN(2)], "")
					_ = keyset.Of(l).Override(keys[0], perHour(most), time.Minute)
					continue
				case 2, 3, 4:
					if e.PeekAll(t.Context(), requests, v); !override { // which are looked at one after the other
						equal(t, v)
					}
					continue
				case 5:
					requests[0].Cost += most // more than there ever is
					if e.TakeAll(t.Context(), requests, v); v.Allowed {
						t.Errorf("%d permits were granted", requests[0].Cost)
					}
					equal(t, v)
					continue
				case 6, 7, 8:
					e.ReserveAll(t.Context(), requests, v)
				default:
					e.TakeAll(t.Context(), requests, v)
				}
				if !v.Allowed {
					refused.Add(1)
					equal(t, v)
					continue
				}
				equal(t, v)
				for _, i := range of {
					granted[i].Add(n)
				}
				v.Release()
			}
		})
	}
	all.Wait()
	for i, key := range keys {
		for _, name := range []string{"a", "b"} {
			keyset.Of(e.Limiter(name, "")).Restore(key)
			wantLeft(t, e, name, key, most-granted[i].Load())
		}
		if n := granted[i].Load(); n > most || n < most-6 {
			t.Errorf("%d of %q were granted", n, key)
		}
	}
	if refused.Load() == 0 {
		t.Error("no request was refused")
	}
}

// equal compares what the two policies have left of each key.
func equal(t *testing.T, v *policy.Verdict) {
	t.Helper()
	left := map[string]int64{}
	for i := range v.Parts {
		p := &v.Parts[i]
		if n, ok := left[string(p.Key)]; ok && n != p.Decision.Remaining {
			t.Errorf("%s has %d permits of %q left, the other one %d", p.Policy.Name, p.Decision.Remaining, p.Key, n)
		}
		left[string(p.Key)] = p.Decision.Remaining
	}
}

// TestTakeAllSharedContention: several engines over one store, or over one owner, each with limits of its own. Every permit that is
// gone was granted, and no more than there were.
func TestTakeAllSharedContention(t *testing.T) {
	for name, c := range map[string]struct {
		kind    func(all ...policy.Policy) []policy.Policy
		rounds  int
		engines func(set *policy.Set) []*policy.Engine
	}{
		"shared": {shared, 300, func(set *policy.Set) []*policy.Engine {
			s := memory(t, manualclock.New(1))
			return []*policy.Engine{over(t, s, nil, set), over(t, s, nil, set)}
		}},
		"durable": {durably, 60, func(set *policy.Set) []*policy.Engine {
			s := newNode(t, newCluster(t), nil)
			return []*policy.Engine{ownedBy(t, s, nil, nil, set), ownedBy(t, s, nil, nil, set)}
		}},
	} {
		t.Run(name, func(t *testing.T) { takeAllShared(t, c.kind, c.rounds, c.engines) })
	}
}

func takeAllShared(
	t *testing.T, kind func(all ...policy.Policy) []policy.Policy, rounds int, engines func(set *policy.Set) []*policy.Engine,
) {
	most := int64(rounds) * 6
	set := twoAlike(most, kind)
	set.Policies = append(set.Policies, policy.Policy{Name: "local", Limits: one(perHour(most)), Key: policy.MethodText()})
	set.Rules = append(set.Rules, policy.Rule{Name: "local", Match: policy.Match{Paths: []string{"/a"}}, Limits: uses("local")})
	over := engines(set)
	keys := []string{"GET", "PUT"}
	local := make([][2]atomic.Int64, len(over))
	var total [2]atomic.Int64
	var all sync.WaitGroup
	for g := range 6 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 5))
			e := over[g%len(over)]
			v := new(policy.Verdict)
			for range rounds {
				i, cost := r.IntN(2), 3+r.Int64N(3) // by two requests for each of the policies
				requests := append(batchOf(r, cost-2, keys[i]), batchOf(r, 2, keys[i])...)
				reserve := r.IntN(3) > 0
				if reserve {
					e.ReserveAll(t.Context(), requests, v)
				} else {
					e.TakeAll(t.Context(), requests, v)
				}
				if !v.Allowed {
					v.Release()
					continue
				}
				switch how := r.IntN(3); {
				case how == 0 && reserve:
					v.Cancel()
					cost = 0
				case how == 1 && reserve:
					v.Commit(func(p *policy.Part) int64 { return p.Cost - 1 })
					cost -= 2
				default:
					v.Release()
				}
				local[g%len(over)][i].Add(cost)
				total[i].Add(cost)
			}
		})
	}
	all.Wait()
	for i, key := range keys {
		if n := total[i].Load(); n > most || n == 0 {
			t.Errorf("%d of %q were granted, and there were %d", n, key, most)
		}
		for at, e := range over {
			wantLeft(t, e, "local", key, most-local[at][i].Load())
			for _, name := range []string{"a", "b"} {
				wantStored(t, e, name, "", key, most-total[i].Load())
			}
		}
	}
}
