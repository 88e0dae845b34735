package policy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// spentSet has a rule that asks first, by a look, and one for what was spent, charged as it is told to be.
func spentSet(afterwards bool, p policy.Policy) *policy.Set {
	return &policy.Set{Policies: []policy.Policy{p}, Rules: []policy.Rule{
		{Name: "ask", Match: policy.Match{Paths: []string{"/ask"}}, Limits: []policy.Use{{Policy: p.Name, Cost: policy.FixedNumber(0)}}},
		{Name: "spent", Match: policy.Match{Paths: []string{"/spent"}}, Limits: uses(p.Name), Afterwards: afterwards},
	}}
}

// spending are the ways to ask first, by a look, and to tell afterwards what was spent.
var spending = map[string]func(t *testing.T, afterwards bool) (ask, spent *policy.Request){
	"by a rule": func(*testing.T, bool) (ask, spent *policy.Request) {
		return &policy.Request{Path: "/ask"}, &policy.Request{Path: "/spent", Cost: 600}
	},
	"by name": func(t *testing.T, afterwards bool) (ask, spent *policy.Request) {
		t.Helper()
		ask, spent = named(t.Context(), "p", "k", 0), named(t.Context(), "p", "k", 600)
		spent.Named.Afterwards = afterwards
		return ask, spent
	},
}

// TestCostsToldAfterwardsBind sends requests that each cost 600 of 1000 permits an hour, which is told when they are over: the third
// is refused. Were a refused cost not charged, all of them would be served.
func TestCostsToldAfterwardsBind(t *testing.T) {
	kinds := map[string]func(all ...policy.Policy) []policy.Policy{
		"local": func(all ...policy.Policy) []policy.Policy { return all }, "durable": durably,
	}
	for name, c := range map[string]policy.Consistency{
		"coherent": policy.ConsistencyCoherent, "leased": policy.ConsistencyLeased, "optimistic": policy.ConsistencyOptimistic,
	} {
		kinds[name] = func(all ...policy.Policy) []policy.Policy {
			for i := range all {
				all[i].Consistency = c
			}
			return all
		}
	}
	tokens := weir.TokenBucket(weir.Rate{Permits: 1000, Period: time.Hour}, 1000)
	for name, kind := range kinds {
		for way, spend := range spending {
			for _, afterwards := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, %v", name, way, afterwards), func(t *testing.T) {
					clock := manualclock.New(1)
					set := spentSet(afterwards, kind(policy.Policy{Name: "p", Limits: one(tokens)})[0])
					e := ownedBy(t, newOwner(t, clock), memory(t, clock), clock, set)
					ask, spent := spend(t, afterwards)
					served := 0
					for range 20 {
						if !take(e, *ask).Allowed {
							continue
						}
						served++
						if v := take(e, *spent); afterwards && served == 2 && (v.Allowed || v.Decision().Remaining != 0 || v.Decision().RetryAfter != 201*time.Hour/1000) {
							t.Errorf("what is left is told as of before: %+v", v.Decision())
						}
					}
					if want := map[bool]int{false: 20, true: 2}[afterwards]; served != want {
						t.Errorf("%d requests were served, want %d", served, want)
					}
					if !afterwards {
						return
					}
					// 200 are owed: the first permit comes after 201 thousandths of an hour.
					clock.Advance(201*time.Hour/1000 - 1)
					if take(e, *ask).Allowed {
						t.Error("a permit is there before the debt is regained")
					}
					clock.Advance(1)
					if !take(e, *ask).Allowed {
						t.Error("no permit is there once the debt is regained")
					}
				})
			}
		}
	}
}

// TestCostsToldAfterwardsAmongOthers: of requests that are decided on as one step, a refusal charges those alone that were spent.
func TestCostsToldAfterwardsAmongOthers(t *testing.T) {
	set := &policy.Set{
		Policies: []policy.Policy{
			{Name: "spent", Limits: one(perHour(10)), Lockout: &policy.Lockout{Refusals: 1, Within: time.Hour, For: 24 * time.Hour}},
			{Name: "asked", Limits: one(perHour(10))},
		},
		Rules: []policy.Rule{
			{Name: "spent", Match: policy.Match{Paths: []string{"/spent"}}, Limits: uses("spent"), Afterwards: true},
			{Name: "asked", Match: policy.Match{Paths: []string{"/asked"}}, Limits: uses("asked")},
		},
	}
	e := engine(t, set)
	if x := e.Explain(&policy.Request{Path: "/spent"}); !x.Rules[0].Afterwards || x.Rules[1].Afterwards {
		t.Errorf("%+v", x.Rules)
	}
	spent, asked := policy.Request{Path: "/spent", Cost: 7}, policy.Request{Path: "/asked", Cost: 4}
	var v policy.Verdict
	for i, want := range []struct {
		allowed     bool
		spent, asks int64
	}{{true, 3, 6}, {false, 0, 6}, {false, 0, 6}} {
		e.TakeAll(t.Context(), []*policy.Request{&spent, &asked}, &v)
		if v.Allowed != want.allowed || left(t, e, "spent", "") != want.spent || left(t, e, "asked", "") != want.asks {
			t.Errorf("step %d: allowed %v, %d and %d left, want %+v", i, v.Allowed, left(t, e, "spent", ""), left(t, e, "asked", ""), want)
		}
		if d := v.Decision(); d.Reason == weir.ReasonHardLockout {
			t.Errorf("step %d: what was spent leads to no lockout: %+v", i, d)
		}
		v.Release()
	}
	// What is owed is bounded by the limit: 4 and 7 were missing, of which 10 are owed.
	if d := take(e, policy.Request{Path: "/spent", Cost: 1}).Decision(); d.Allowed || d.RetryAfter != 11*time.Hour {
		t.Errorf("%+v", d)
	}
	// A cost above the limit is never allowed, and charged nevertheless.
	e = engine(t, set)
	if d := take(e, policy.Request{Path: "/spent", Cost: 15}).Decision(); d.Reason != weir.ReasonNever {
		t.Errorf("%+v", d)
	}
	if d := take(e, policy.Request{Path: "/spent", Cost: 1}).Decision(); d.Allowed || d.RetryAfter != 7*time.Hour {
		t.Errorf("%+v", d)
	}
}

// TestCostsToldAfterwardsBesideASharedLimit: what was spent is charged to all limits, whichever of them refuses: one of this
// process, before the store was asked, or the one in the store.
func TestCostsToldAfterwardsBesideASharedLimit(t *testing.T) {
	for refusing, limits := range map[string][2]int64{"local": {3, 100}, "shared": {100, 3}} {
		t.Run(refusing, func(t *testing.T) {
			clock := manualclock.New(1)
			set := &policy.Set{
				Policies: []policy.Policy{
					{Name: "local", Limits: one(perHour(limits[0]))},
					{Name: "shared", Limits: one(perHour(limits[1])), Consistency: policy.ConsistencyCoherent},
				},
				Rules: []policy.Rule{{Name: "spent", Limits: uses("local", "shared"), Afterwards: true}},
			}
			e := ownedBy(t, newOwner(t, clock), memory(t, clock), clock, set)
			if v := take(e, policy.Request{Cost: 40}); v.Allowed || len(v.Parts) != 2 {
				t.Fatalf("%+v", v)
			}
			for _, name := range []string{"local", "shared"} {
				s, err := e.Inspect(t.Context(), name, "", "")
				if err != nil {
					t.Fatal(err)
				}
				if want := map[bool]int64{true: 0, false: 60}[name == refusing]; s.Decision.Remaining != want {
					t.Errorf("%s: %d left, want %d", name, s.Decision.Remaining, want)
				}
			}
		})
	}
}
