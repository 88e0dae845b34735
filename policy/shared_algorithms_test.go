package policy_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// TestServersThatDifferInAnAlgorithm: servers one of which has another algorithm for a limit of the same name ask in turn. At most
// what both limits have is allowed, and a reset at either makes the permits of both available.
func TestServersThatDifferInAnAlgorithm(t *testing.T) {
	const n = 100
	for _, c := range []policy.Consistency{policy.ConsistencyCoherent, policy.ConsistencyLeased, policy.ConsistencyOptimistic} {
		synctest.Test(t, func(t *testing.T) {
			s := memory(t, nil)
			var engines []*policy.Engine
			for _, l := range []weir.Limit{perHour(n), weir.FixedWindow(weir.PerHour(n))} {
				engines = append(engines, node(t, s, &policy.Set{
					Policies: []policy.Policy{{Name: "p", Limits: one(l), Consistency: c}},
					Rules:    []policy.Rule{{Name: "all", Limits: uses("p")}},
				}, nil))
			}
			allowed := 0
			for i := range 1001 {
				if take(engines[i%2], policy.Request{}).Allowed {
					allowed++
				}
				time.Sleep(time.Millisecond)
			}
			if allowed > 2*n || allowed < 2*n-10 {
				t.Errorf("%v: %d of 1001 were allowed, the limits have %d together", c, allowed, 2*n)
			}
			if err := engines[0].Reset(t.Context(), "p", ""); err != nil {
				t.Fatal(err)
			}
			for i, e := range engines {
				if state, err := e.Inspect(t.Context(), "p", "", ""); err != nil || state.Known {
					t.Errorf("%v, engine %d: %+v, %v after a reset", c, i, state, err)
				}
			}
		})
	}
}

// TestReloadBackToAnAlgorithm: a limit in a store begins anew under another algorithm, and goes on where it was when that is
// changed back.
func TestReloadBackToAnAlgorithm(t *testing.T) {
	clock := manualclock.New(int64(1000 * time.Hour))
	rules := []policy.Rule{{Name: "all", Limits: uses("p")}}
	set := func(policies []policy.Policy) *policy.Set { return &policy.Set{Policies: policies, Rules: rules} }
	bucket := policy.Policy{Name: "p", Limits: one(perHour(10))}
	window := policy.Policy{Name: "p", Limits: one(weir.FixedWindow(weir.PerHour(10)))}
	for _, c := range []struct {
		what       string
		of         func(all ...policy.Policy) []policy.Policy
		kept, owns store.Home
	}{
		{"shared", shared, memory(t, clock), nil},
		{"durable", durably, nil, newOwner(t, clock)},
	} {
		before, after := set(c.of(bucket)), set(c.of(window))
		e := engine(t, before, func(o *policy.EngineOptions) {
			o.Clock = clock
			if c.kept != nil {
				o.Store = c.kept
			} else {
				o.Durable = c.owns
			}
		})
		left := func() int64 {
			v := new(policy.Verdict)
			e.Peek(&policy.Request{}, v)
			return v.Decision().Remaining
		}
		take(e, policy.Request{Cost: 4})
		for i, to := range []struct {
			set  *policy.Set
			left int64
		}{{after, 10}, {before, 6}, {after, 9}} {
			changes := load(t, e, to.set)
			if len(changes) != 1 || changes[0].State != "as stored" || left() != to.left {
				t.Errorf("%s, reload %d: %d are left, want %d: %+v", c.what, i, left(), to.left, changes)
			}
			if i == 0 {
				take(e, policy.Request{})
			}
		}
		if err := e.Reset(t.Context(), "p", ""); err != nil || left() != 10 {
			t.Errorf("%s: %d are left after a reset, %v", c.what, left(), err)
		}
		if load(t, e, before); left() != 10 {
			t.Errorf("%s: %d are left of the algorithm before, after a reset", c.what, left())
		}
	}
}
