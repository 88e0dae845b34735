package policy_test

import (
	"slices"
	"testing"

	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// TestRequestsAreTagged: what a policy in ModeTag would refuse passes, and the verdict says so, whatever keeps the limit and however
// it is asked. A look tells the same before. What an enforced policy refuses is not tagged, and what was spent already is not.
func TestRequestsAreTagged(t *testing.T) {
	soft := policy.Policy{Name: "soft", Limits: one(perHour(2)), Mode: policy.ModeTag}
	for kind, made := range map[string]policy.Policy{
		"local": soft, "shared": shared(soft)[0], "durable": durably(soft)[0],
	} {
		for way, ask := range map[string]func(e *policy.Engine, r *policy.Request, v *policy.Verdict){
			"take":    func(e *policy.Engine, r *policy.Request, v *policy.Verdict) { e.Take(r, v) },
			"reserve": func(e *policy.Engine, r *policy.Request, v *policy.Verdict) { e.Reserve(r, v) },
			"wait":    func(e *policy.Engine, r *policy.Request, v *policy.Verdict) { _ = e.Wait(t.Context(), r, v) },
			"by name": func(e *policy.Engine, _ *policy.Request, v *policy.Verdict) {
				e.Take(named(t.Context(), "soft", "", 1), v)
			},
			"all": func(e *policy.Engine, r *policy.Request, v *policy.Verdict) {
				e.TakeAll(t.Context(), []*policy.Request{r}, v)
			},
			"debit": func(e *policy.Engine, r *policy.Request, v *policy.Verdict) {
				e.DebitAll(t.Context(), []*policy.Request{r}, v)
			},
		} {
			clock := manualclock.New(1)
			e := ownedBy(t, newOwner(t, clock), memory(t, clock), clock, &policy.Set{
				Policies: []policy.Policy{made, {Name: "hard", Limits: one(perHour(4))}},
				Rules:    []policy.Rule{{Name: "all", Limits: uses("soft", "hard")}},
			})
			var v policy.Verdict
			for i := range 6 {
				var want []string
				if i >= 2 && (i < 4 || way == "by name") { // which leaves the other policy alone
					want = []string{"soft"}
				}
				if e.Peek(&policy.Request{}, &v); !slices.Equal(v.Over(0), want) {
					t.Errorf("%s, %s, request %d: a look is over %q", kind, way, i, v.Over(0))
				}
				ask(e, &policy.Request{}, &v)
				refused := i >= 4 && way != "by name" && way != "debit"
				if way == "debit" {
					want = nil
				}
				if got := v.Over(0); v.Allowed == refused || !slices.Equal(got, want) || v.Over(1) != nil {
					t.Errorf("%s, %s, request %d: allowed %v, over %q", kind, way, i, v.Allowed, got)
				}
				v.Release()
			}
			if x := e.Explain(&policy.Request{}); x.Limits[0].Role != "tag" {
				t.Errorf("%s, %s: role %q", kind, way, x.Limits[0].Role)
			}
			if d := e.Report().Policies[0].Difference; d == nil || d.Requests == 0 || (d.NewlyRefused == 0) != (way == "debit") {
				t.Errorf("%s, %s: %+v", kind, way, d)
			}
		}
	}
}

// TestEachRequestIsTagged of several that are decided on as one: by each policy once, also where they share a key. Those in shadow are
// told of apart.
func TestEachRequestIsTagged(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{
			{Name: "a", Key: policy.HostText(), Limits: one(perHour(1)), Mode: policy.ModeTag},
			{Name: "b", Limits: one(perHour(2)), Mode: policy.ModeTag},
			{Name: "watched", Limits: one(perHour(1)), Mode: policy.ModeShadow},
		},
		Rules: []policy.Rule{{Name: "all", Limits: uses("a", "b", "watched")}, {Name: "again", Limits: uses("a")}},
	})
	x, y := &policy.Request{Host: "x"}, &policy.Request{Host: "y"}
	var v policy.Verdict
	e.Take(x, &v)
	if v.Over(0) != nil || v.OverShadow(0) {
		t.Fatal(v.Over(0), v.OverShadow(0))
	}
	e.TakeAll(t.Context(), []*policy.Request{y, x, x}, &v)
	for i, want := range [][]string{{"b"}, {"a", "b"}, {"a", "b"}} {
		if got := v.Over(i); !v.Allowed || !slices.Equal(got, want) || !v.OverShadow(i) {
			t.Errorf("request %d: over %q, want %q", i, got, want)
		}
	}
}

// TestTaggedIfNotKnown: a client does not get rid of a tag by a request that cannot be told, or while the store is away.
func TestTaggedIfNotKnown(t *testing.T) {
	for _, fail := range []policy.Fail{policy.FailClosed, policy.FailOpen} {
		for name, p := range map[string]policy.Policy{
			"key": {Key: failing{}}, "cost": {Cost: failing{}}, "impossible cost": {Cost: policy.FixedNumber(-1)},
			"store": {Consistency: policy.ConsistencyCoherent},
		} {
			p.Name, p.Limits, p.Fail, p.Mode = "soft", one(perHour(5)), fail, policy.ModeTag
			clock := manualclock.New(1)
			s := memory(t, clock)
			s.fail = func() error { return store.ErrUnavailable }
			e := over(t, s, clock, &policy.Set{
				Policies: []policy.Policy{p}, Rules: []policy.Rule{{Name: "all", Limits: uses("soft")}},
			})
			want := fail == policy.FailClosed || name == "impossible cost" // which no Fail is asked about
			var v policy.Verdict
			e.Peek(&policy.Request{}, &v)
			if got := len(v.Over(0)) == 1; !v.Allowed || got != want {
				t.Errorf("%s, %v: a look is allowed %v, over %q", name, fail, v.Allowed, v.Over(0))
			}
			if p := e.Report().Policies[0]; p.Failed != 0 || p.Unavailable != 0 {
				t.Errorf("%s, %v: a look counts: %+v", name, fail, p)
			}
			e.Take(&policy.Request{}, &v)
			if got := len(v.Over(0)) == 1; !v.Allowed || got != want {
				t.Errorf("%s, %v: allowed %v, over %q", name, fail, v.Allowed, v.Over(0))
			}
		}
	}
}

// TestKeysTellTheMode of their policy, those that are known by name and those that are not.
func TestKeysTellTheMode(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "soft", Limits: one(perHour(1)), Mode: policy.ModeTag, Key: policy.HostText()}},
		Rules:    []policy.Rule{{Name: "all", Limits: uses("soft")}},
	})
	for _, host := range []string{"refused", "refused", "allowed"} {
		take(e, policy.Request{Host: host})
	}
	top, err := e.Top(t.Context(), "soft", 10)
	if err != nil || len(top) != 2 {
		t.Fatalf("%+v, %v", top, err)
	}
	asked, err := e.Key(t.Context(), "soft", "refused")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range append(top, asked) {
		if k.Mode != policy.ModeTag {
			t.Errorf("%+v", k)
		}
	}
}
