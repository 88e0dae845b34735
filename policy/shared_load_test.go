package policy_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// TestSharedReloads: the store carries what it has over to new limits; where limits are kept elsewhere from now on, they are as
// stored there; and the changes say so.
func TestSharedReloads(t *testing.T) {
	window := func(n int64) weir.Limit {
		return weir.FixedWindow(weir.Rate{Permits: n, Period: time.Hour})
	}
	of := func(c policy.Consistency, limits ...policy.Limit) policy.Policy {
		return policy.Policy{Name: "p", Limits: limits, Consistency: c}
	}
	named := func(name string, l weir.Limit) policy.Limit { return policy.Limit{Name: name, Limit: l} }
	const local, coherent, leased = policy.ConsistencyLocal, policy.ConsistencyCoherent, policy.ConsistencyLeased
	ten := policy.Limit{Limit: perHour(10)}
	for _, c := range []struct {
		name     string
		from, to policy.Policy
		left     []int64 // of the 10, of which 4 were taken
		state    []string
	}{
		{"shared", of(local, ten), of(coherent, ten), []int64{10}, []string{
			"policies.p.consistency:  -> coherent (as stored)",
		}},
		{"shared no more", of(coherent, ten), of(local, ten), []int64{10}, []string{
			"policies.p.consistency: coherent ->  (begins anew)",
		}},
		{"more exact", of(leased, ten), of(coherent, ten), []int64{6}, []string{
			"policies.p.consistency: leased -> coherent (kept)",
		}},
		{"shared, with another limit", of(local, ten), of(coherent, policy.Limit{Limit: perHour(20)}), []int64{20}, []string{
			"policies.p.consistency:  -> coherent (as stored)", "policies.p.limits.1h: 1/h, burst 10 -> 1/h, burst 20 (as stored)",
		}},
		{"less", of(coherent, ten), of(coherent, policy.Limit{Limit: perHour(5)}), []int64{5}, []string{
			"policies.p.limits.1h: 1/h, burst 10 -> 1/h, burst 5 (kept)",
		}},
		{"more", of(coherent, ten), of(coherent, policy.Limit{Limit: perHour(100)}), []int64{6}, []string{
			"policies.p.limits.1h: 1/h, burst 10 -> 1/h, burst 100 (kept)",
		}},
		{"another name", of(coherent, ten), of(coherent, named("x", perHour(10))), []int64{6}, []string{
			"policies.p.limits.1h: 1/h, burst 10 ->  (kept)", "policies.p.limits.x:  -> 1/h, burst 10 (kept)",
		}},
		{"another algorithm", of(coherent, ten), of(coherent, policy.Limit{Limit: window(10)}), []int64{10}, []string{
			"policies.p.limits.1h: 1/h, burst 10 -> fixed-window 10/h (as stored)",
		}},
		{"a second one", of(coherent, named("a", perHour(10))), of(coherent, named("a", perHour(10)), named("b", window(12))), []int64{10, 12}, []string{
			"policies.p.limits.a: stored as p -> stored as p/a (as stored)", "policies.p.limits.b:  -> fixed-window 12/h (as stored)",
		}},
		{
			"one of two", of(coherent, named("a", perHour(10)), named("b", window(10))),
			of(coherent, named("b", window(12)), named("c", perHour(10))),
			[]int64{8, 10},
			[]string{
				"policies.p.limits.a: 1/h, burst 10 ->  (stays stored)", "policies.p.limits.b: fixed-window 10/h -> fixed-window 12/h (kept)",
				"policies.p.limits.c:  -> 1/h, burst 10 (as stored)",
			},
		},
		{"longer", of(coherent, ten), func() policy.Policy { p := of(coherent, ten); p.Hold = time.Hour; return p }(), []int64{6}, []string{
			"policies.p.hold:  -> 1h0m0s ()",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := manualclock.New(int64(1000 * time.Hour))
			rules := []policy.Rule{{Name: "all", Limits: uses("p")}}
			e := over(t, memory(t, clock), clock, &policy.Set{Policies: []policy.Policy{c.from}, Rules: rules})
			if v := take(e, policy.Request{Cost: 4}); !v.Allowed {
				t.Fatalf("%+v", v)
			}
			before := e.Report().Policies[0].Allowed
			var got []string
			for _, c := range load(t, e, &policy.Set{Policies: []policy.Policy{c.to}, Rules: rules}) {
				got = append(got, fmt.Sprintf("%s: %s -> %s (%s)", c.Path, c.Old, c.New, c.State))
			}
			if !slices.Equal(got, c.state) {
				t.Errorf("%q, want %q", got, c.state)
			}
			var v policy.Verdict
			e.Peek(&policy.Request{}, &v)
			for i := range v.Parts {
				if got := v.Parts[i].Decision.Remaining; got != c.left[i] {
					t.Errorf("%d are left of limit %d, want %d", got, i, c.left[i])
				}
			}
			if len(v.Parts) != len(c.left) || e.Report().Policies[0].Allowed != before {
				t.Errorf("%+v", v)
			}
		})
	}
}

// pair is an engine whose limits are shared by many, and one that has them for itself.
type pair struct {
	*testing.T

	r      *rand.Rand
	clock  *manualclock.Clock
	shared []*policy.Engine
	alone  *policy.Engine
	held   [][2]*policy.Verdict
}

func (p *pair) ask(step int) {
	e := p.shared[p.r.IntN(len(p.shared))]
	r := policy.Request{
		Method: []string{"GET", "PUT", "PATCH"}[p.r.IntN(3)], Cost: 1 + p.r.Int64N(6),
	}
	v := [2]*policy.Verdict{new(policy.Verdict), new(policy.Verdict)}
	way, ctx := p.r.IntN(7), p.Context()
	if r.Method == http.MethodPatch {
		way = max(way, 3) // what is asked by a key has no tier, and a key one limit here
	}
	for i, e := range []*policy.Engine{e, p.alone} {
		switch way {
		case 0:
			e.Peek(&r, v[i])
		case 1:
			takeKey(ctx, e, "child", r.Method, r.Cost, v[i])
		case 2:
			reserveKey(ctx, e, "child", r.Method, r.Cost, v[i])
		case 3:
			if err := verdictOf(e.WaitReserve(ctx, &r, v[i]), v[i]); err != nil {
				p.Error(err)
			}
		case 4:
			e.Reserve(&r, v[i])
		default:
			e.Take(&r, v[i])
		}
	}
	p.compare(step, r, v)
	if way != 0 && v[0].Allowed {
		p.held = append(p.held, v)
	}
}

func (p *pair) compare(step int, r policy.Request, v [2]*policy.Verdict) {
	if v[0].Allowed != v[1].Allowed || v[0].Binding != v[1].Binding || len(v[0].Parts) != len(v[1].Parts) {
		p.Errorf("step %d: %s costs %d: shared %+v\nalone %+v", step, r.Method, r.Cost, v[0].Decision(), v[1].Decision())
	}
	for i := range v[0].Parts {
		a, b := v[0].Parts[i], v[1].Parts[i]
		if a.Decision != b.Decision || !bytes.Equal(a.Key, b.Key) || a.Cost != b.Cost || a.Unasked {
			p.Errorf("step %d: %s costs %d: shared %+v\nalone %+v", step, r.Method, r.Cost, a, b)
		}
	}
}

// settle ends some request of both.
func (p *pair) settle() {
	if len(p.held) == 0 {
		return
	}
	i, way, n := p.r.IntN(len(p.held)), p.r.IntN(4), p.r.Int64N(5)
	for _, v := range p.held[i] {
		switch way {
		case 0:
			v.Cancel()
		case 1:
			v.Commit(func(*policy.Part) int64 { return n - 1 })
		default:
			v.Release()
		}
	}
	p.held = slices.Delete(p.held, i, i+1)
}

// TestSharedKeysNeedPolicies: what is asked by name must be there, and permits within their range.
func TestSharedKeysNeedPolicies(t *testing.T) {
	clock := manualclock.New(1)
	e := over(t, memory(t, clock), clock, &policy.Set{Policies: append(
		shared(
			policy.Policy{Name: "p", Limits: []policy.Limit{{Limit: perHour(5)}, {Name: "b", Limit: perHour(9)}}},
			policy.Policy{Name: "none", Mode: policy.ModeOff},
		),
		policy.Policy{Name: "local", Limits: one(perHour(7)), Parent: "p"},
		policy.Policy{Name: "apart", Limits: one(perHour(7)), Key: policy.MethodText()},
	)})
	v := new(policy.Verdict)
	ctx := t.Context()
	if takeKey(ctx, e, "q", "", 1, v) || reserveKey(ctx, e, "q", "", 1, v) || peekKey(ctx, e, "q", "", 1, v) {
		t.Error("there is no such policy")
	}
	for _, n := range []int64{-1, 1_000_000_000_000_001} {
		for i, ask := range []func(){
			func() { takeKey(ctx, e, "p", "", n, v) }, func() { reserveKey(ctx, e, "apart", "", n, v) }, func() { peekKey(ctx, e, "p", "", n, v) },
		} {
			ask()
			if d := v.Decision(); v.Allowed || d.Reason != weir.ReasonInvalid || d.RetryAfter != weir.Never || d.Policy == "" || len(v.Parts) != 0 {
				t.Errorf("%d, %d: %+v", i, n, v)
			}
			v.Release()
		}
	}
	if !takeKey(ctx, e, "local", "k", 5, v) || !v.Allowed || len(v.Parts) != 3 || v.Parts[0].Rule != nil || string(v.Parts[0].Key) != "k" ||
		len(v.Parts[1].Key) != 0 || v.Parts[1].Decision.Policy != "p/1h" {
		t.Errorf("%+v", v)
	}
	if !takeKey(ctx, e, "local", "j", 1, v) || v.Allowed || v.Decision().Policy != "p/1h" {
		t.Errorf("%+v", v)
	}
	if !takeKey(ctx, e, "local", "j", 0, v) || v.Allowed {
		t.Errorf("a probe: %+v", v)
	}
	if !takeKey(ctx, e, "none", "", 5, v) || !v.Allowed || e.Report().Unlimited != 1 {
		t.Errorf("%+v", v)
	}
	if charges, ok := e.Charges(nil, "local", "k", 1); ok || len(charges) != 0 {
		t.Error("charges of a policy with a shared parent")
	}
	if charges, ok := e.Charges(nil, "apart", "k", 1); !ok || len(charges) != 1 {
		t.Error("no charges of a local policy")
	}
	if e.Limiter("p", "b") != nil || e.Limiter("apart", "") == nil {
		t.Error("a limiter is in this process only")
	}
	wantStored(t, e, "p", "1h", "", 0)
	wantStored(t, e, "local", "", "k", 2)
	wantStored(t, e, "local", "", "j", 7)
	for _, name := range []string{"p", "local"} {
		for _, key := range []string{"", "k"} {
			if err := e.Reset(ctx, name, key); err != nil {
				t.Error(err)
			}
		}
	}
	wantStored(t, e, "p", "1h", "", 5)
	wantStored(t, e, "p", "b", "", 9)
	wantStored(t, e, "local", "", "k", 7)
	const unknown, noLimit = `weir: policy is "q": must be the name of a policy`, `weir: limit of the policy "p" is "": must be the name of one of its limits`
	if err := e.Reset(ctx, "q", ""); err == nil || err.Error() != unknown {
		t.Error(err)
	}
	if _, err := e.Inspect(ctx, "q", "", ""); err == nil || err.Error() != unknown {
		t.Error(err)
	}
	if _, err := e.Inspect(ctx, "p", "", ""); err == nil || err.Error() != noLimit {
		t.Error(err)
	}
	r := e.Report()
	if r.Requests != r.Refused+2 || r.Policies[0].Allowed != 1 || r.Policies[2].Allowed != 1 || r.Policies[0].Refused != 2 {
		t.Errorf("%+v", r)
	}
}

// TestSharedTakeAllocatesLittle: a decision about keys that a verdict has seen before allocates nothing here, and one about others
// the text of its keys.
func TestSharedTakeAllocatesLittle(t *testing.T) {
	if race.Enabled {
		return // the race detector allocates
	}
	clock := manualclock.New(1)
	s, err := store.NewMemory(store.MemoryOptions{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	e := over(t, s, clock, &policy.Set{
		Policies: append(shared(policy.Policy{Name: "p", Limits: one(weir.TokenBucket(weir.PerSecond(1e6), 1e9)), Key: policy.MethodText()}),
			policy.Policy{Name: "local", Limits: one(weir.TokenBucket(weir.PerSecond(1e6), 1e9)), Key: policy.MethodText()}),
		Rules: []policy.Rule{{Name: "all", Limits: uses("p", "local")}},
	})
	var v policy.Verdict
	requests := []policy.Request{{Method: "GET"}, {Method: "PUT"}}
	same := testing.AllocsPerRun(1000, func() {
		e.Take(&requests[0], &v)
		v.Release()
	})
	i := 0
	other := testing.AllocsPerRun(1000, func() {
		i++
		e.Take(&requests[i%2], &v)
		v.Release()
	})
	if same != 0 || other > 1 || !v.Allowed {
		t.Errorf("%v and %v allocations", same, other)
	}
}
