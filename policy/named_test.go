package policy_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// freeing are rules that free requests of limits, or end the look at rules, in all ways that there are.
func freeing(t *testing.T) map[string][]policy.Rule {
	t.Helper()
	exempt := func(m policy.Match, when policy.Condition) []policy.Rule {
		return []policy.Rule{{Name: "x", Match: m, When: when, Exempt: true}, {Name: "all", Limits: uses("p")}}
	}
	return map[string][]policy.Rule{
		"none":       nil,
		"everything": exempt(policy.Match{}, nil),
		"behind":     {{Name: "all", Limits: uses("p"), Final: true}, {Name: "x", Exempt: true}},
		"condition":  exempt(policy.Match{}, always{}),
		"path":       exempt(policy.Match{Paths: []string{"/{rest...}"}}, nil),
		"no header":  exempt(policy.Match{Headers: []policy.HeaderMatch{{Name: "X-Key", Absent: true}}}, nil),
		"final":      {{Name: "x", Limits: uses("other"), Final: true}, {Name: "all", Limits: uses("p")}},
		"no limits":  {{Name: "x", Final: true}},
	}
}

type always struct{}

func (always) Holds(*policy.Request) (bool, error) { return true, nil }
func (always) String() string                      { return "always" }

// TestNamedRequestsAskNoRules: each of three requests costs a permit of two, whatever rules there are and however the engine is asked.
func TestNamedRequestsAskNoRules(t *testing.T) {
	for name, rules := range freeing(t) {
		for way, ask := range map[string]func(e *policy.Engine, r *policy.Request, v *policy.Verdict){
			"Take":    (*policy.Engine).Take,
			"Reserve": (*policy.Engine).Reserve,
			"Wait": func(e *policy.Engine, r *policy.Request, v *policy.Verdict) {
				if err := verdictOf(e.Wait(t.Context(), r, v), v); err != nil {
					t.Error(err)
				}
			},
			"TakeAll": func(e *policy.Engine, r *policy.Request, v *policy.Verdict) {
				e.TakeAll(t.Context(), []*policy.Request{r}, v)
			},
			"ReserveAll": func(e *policy.Engine, r *policy.Request, v *policy.Verdict) {
				e.ReserveAll(t.Context(), []*policy.Request{r}, v)
			},
		} {
			t.Run(name+", "+way, func(t *testing.T) {
				e := engine(t, &policy.Set{Policies: []policy.Policy{
					{Name: "p", Limits: one(perHour(2)), Key: policy.ClientIP(), Cost: policy.FixedNumber(7)},
					{Name: "other", Limits: one(perHour(2))},
				}, Rules: rules})
				for i, want := range []bool{true, true, false} {
					r, v := named(t.Context(), "p", "k", 1), new(policy.Verdict)
					r.Path, r.Header = "/a", http.Header{}
					if e.Peek(r, v); v.Allowed != want || v.Exempt || v.Unknown(0) {
						t.Errorf("peek %d: %+v", i, v.Decision())
					}
					ask(e, r, v)
					if v.Allowed != want || v.Exempt || len(v.Parts) != 1 || v.Parts[0].Rule != nil || string(v.Parts[0].Key) != "k" || v.Parts[0].Cost != 1 {
						t.Errorf("%d: %+v", i, v.Parts)
					}
					v.Release()
				}
				if r := e.Report(); r.Exempt != 0 || r.Unlimited != 0 || r.Requests != 3 || r.Refused != 1 || left(t, e, "other", "") != 2 {
					t.Errorf("%+v", r)
				}
				x := e.Explain(named(t.Context(), "p", "k", 1))
				if x.Allowed || x.Exempt || len(x.Rules) != 0 || len(x.Limits) != 1 || x.Limits[0].Rule != "" || x.Limits[0].KeyFrom != "key" ||
					x.Limits[0].Key != "k" || x.Limits[0].Before != 0 {
					t.Errorf("%+v", x)
				}
			})
		}
	}
}

// TestUnknownPoliciesAllowNothing: a request that names a policy which there is not is refused however it is asked, with all that are
// decided on with it, and charges nothing.
func TestUnknownPoliciesAllowNothing(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "p", Limits: one(perHour(2)), QueueLimit: 5}},
		Rules:    []policy.Rule{{Name: "x", Exempt: true}},
	})
	known, unknown := named(t.Context(), "p", "k", 1), named(t.Context(), "gone", "k", 1)
	free := &policy.Request{}
	all := []*policy.Request{known, unknown, free}
	v := new(policy.Verdict)
	for way, c := range map[string]struct {
		ask func()
		at  int
	}{
		"Take":        {func() { e.Take(unknown, v) }, 0},
		"Reserve":     {func() { e.Reserve(unknown, v) }, 0},
		"Peek":        {func() { e.Peek(unknown, v) }, 0},
		"Wait":        {func() { _ = e.Wait(t.Context(), unknown, v) }, 0},
		"WaitReserve": {func() { _ = e.WaitReserve(t.Context(), unknown, v) }, 0},
		"TakeAll":     {func() { e.TakeAll(t.Context(), all, v) }, 1},
		"ReserveAll":  {func() { e.ReserveAll(t.Context(), all, v) }, 1},
		"PeekAll":     {func() { e.PeekAll(t.Context(), all, v) }, 1},
	} {
		c.ask()
		d := v.Decision()
		answer, limited := v.Answer(c.at)
		if p, ok := v.BindingPart(); p != nil || ok {
			t.Errorf("%s: %+v binds", way, p)
		}
		if v.Allowed || v.Exempt || v.Binding != -1 || d.Allowed || d.Reason != weir.ReasonInvalid || d.RetryAfter != weir.Never || !v.Unknown(c.at) ||
			v.Unknown(c.at+1) || c.at > 0 && v.Unknown(0) || answer != d || !limited {
			t.Errorf("%s: %+v, %+v", way, v, answer)
		}
		v.Release()
		if e.Explain(unknown).Allowed {
			t.Error("the explanation allows it")
		}
	}
	if got := left(t, e, "p", "k"); got != 2 {
		t.Errorf("%d permits are left of 2", got)
	}
	e.DebitAll(t.Context(), all, v)
	if v.Allowed || !v.Unknown(1) || v.Binding != -1 || left(t, e, "p", "k") != 1 {
		t.Errorf("a debit: %+v", v)
	}
	if p, ok := new(policy.Verdict).BindingPart(); p != nil || ok {
		t.Error("of a verdict without parts one binds")
	}
	if e.Take(known, v); !v.Allowed || v.Unknown(0) || v.Unknown(1) || v.Unknown(-1) || v.Unknown(64) {
		t.Errorf("%+v", v)
	}
	if p, ok := v.BindingPart(); !ok || p != &v.Parts[0] || p.Applied() != perHour(2) {
		t.Errorf("%+v binds", p)
	}
	v.Release()
	if _, err := e.Load(&policy.Set{}); err != nil {
		t.Fatal(err)
	}
	if e.Take(known, v); v.Allowed || !v.Unknown(0) {
		t.Errorf("after a reload: %+v", v)
	}
}

// TestNamedRequestsAreHeldToAllOfAPolicy: its tiers, keys, mode, lockout, candidate and parents, and overrides, as with rules.
func TestNamedRequestsAreHeldToAllOfAPolicy(t *testing.T) {
	plan := policy.AttributeText("plan")
	e := engine(t, &policy.Set{Policies: []policy.Policy{
		{
			Name: "p", Limits: one(perHour(3)), TierBy: plan, Parent: "all",
			Tiers: map[string][]policy.Limit{"gold": one(perHour(5))}, Keys: map[string][]policy.Limit{"own": one(perHour(1))},
		},
		{Name: "all", Limits: one(perHour(6)), Key: plan, Cost: policy.FixedNumber(2)},
		{Name: "shadow", Limits: one(perHour(1)), Mode: policy.ModeShadow},
		{Name: "off", Mode: policy.ModeOff},
		{Name: "locks", Limits: one(perHour(1)), Lockout: &policy.Lockout{Refusals: 2, Within: time.Minute, For: time.Hour}},
		{Name: "measured", Limits: one(perHour(5)), Candidate: one(perHour(1))},
		{Name: "brings", Limits: one(perHour(1)), LimitBy: policy.NamedLimit()},
		{Name: "keyed", Limits: one(perHour(1)), Key: policy.NamedKey()},
	}, Rules: []policy.Rule{{Name: "x", Match: policy.Match{Methods: []string{"GET"}}, Limits: uses("keyed")}}})
	ask := func(name, key, plan string, cost int64) *policy.Verdict {
		r, v := named(t.Context(), name, key, cost), new(policy.Verdict)
		r.Attributes = map[string]string{"plan": plan}
		e.Take(r, v)
		return v
	}
	if v := ask("p", "k", "gold", 1); !v.Allowed || len(v.Parts) != 2 || v.Parts[0].Decision.Limit != 5 || v.Parts[1].Cost != 2 || string(v.Parts[1].Key) != "gold" {
		t.Errorf("a tier: %+v", v.Parts)
	}
	if v := ask("p", "own", "gold", 1); !v.Allowed || v.Parts[0].Decision.Limit != 1 {
		t.Errorf("a key: %+v", v.Parts)
	}
	if v := ask("p", "l", "gold", 1); !v.Allowed || v.Parts[1].Decision.Remaining != 0 {
		t.Errorf("the parent: %+v", v.Parts)
	}
	if v := ask("p", "m", "gold", 1); v.Allowed || v.Decision().Policy != "all" {
		t.Errorf("beyond the parent: %+v", v.Parts)
	}
	if err := e.Override(&policy.Override{Policy: "p", Key: "k", Limits: one(perHour(9)), For: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if v := ask("p", "k", "silver", 1); !v.Allowed || v.Parts[0].Decision.Limit != 9 {
		t.Errorf("an override: %+v", v.Parts)
	}
	for range 2 {
		if v := ask("shadow", "k", "", 1); !v.Allowed || v.Exempt || len(v.Parts) != 0 || v.Unknown(0) {
			t.Errorf("in shadow: %+v", v)
		}
	}
	if v := ask("off", "k", "", 1); !v.Allowed || v.Unknown(0) || len(v.Parts) != 0 {
		t.Errorf("off: %+v", v)
	}
	for i, want := range []weir.Reason{weir.ReasonNone, weir.ReasonLimited, weir.ReasonHardLockout, weir.ReasonHardLockout} {
		if v := ask("locks", "k", "", 1); v.Decision().Reason != want {
			t.Errorf("lockout %d: %+v", i, v.Decision())
		}
	}
	for range 2 {
		if v := ask("measured", "k", "", 1); !v.Allowed {
			t.Errorf("%+v", v.Decision())
		}
	}
	r := e.Report()
	if r.Policies[2].Refused != 1 || r.Policies[5].Difference.NewlyRefused != 1 || r.Unlimited != 1 {
		t.Errorf("%+v", r)
	}
	v := new(policy.Verdict)
	if e.Take(&policy.Request{Method: "GET"}, v); v.Allowed || v.Decision().Reason != weir.ReasonUnavailable {
		t.Errorf("a request that names no key: %+v", v.Decision())
	}
	if got := fmt.Sprint(policy.NamedKey(), policy.NamedLimit()); got != "key limit" {
		t.Error(got)
	}
}

// TestNamedRequestsMisused: a limit where none can be, and numbers out of range, are refused whatever the Fail of the policy.
func TestNamedRequestsMisused(t *testing.T) {
	e := engine(t, &policy.Set{Policies: []policy.Policy{
		{Name: "p", Limits: one(perHour(1)), Fail: policy.FailOpen},
		{Name: "brings", Limits: one(perHour(1)), LimitBy: policy.NamedLimit(), Fail: policy.FailOpen},
	}})
	for what, c := range map[string]struct {
		named policy.Named
		limit int64 // 0: refused with ReasonInvalid
	}{
		"a limit":           {policy.Named{Policy: []byte("brings"), Cost: 1, Limit: perHour(8)}, 8},
		"none":              {policy.Named{Policy: []byte("brings"), Cost: 1}, 1},
		"another algorithm": {policy.Named{Policy: []byte("brings"), Cost: 1, Limit: weir.AtOnce(3)}, 0},
		"no limit":          {policy.Named{Policy: []byte("brings"), Cost: 1, Limit: weir.TokenBucket(weir.Rate{}, 3)}, 0},
		"not brought":       {policy.Named{Policy: []byte("p"), Cost: 1, Limit: perHour(8)}, 0},
		"less than nothing": {policy.Named{Policy: []byte("p"), Cost: -1}, 0},
		"too much":          {policy.Named{Policy: []byte("p"), Cost: 1_000_000_000_000_001}, 0},
		"too much, brought": {policy.Named{Policy: []byte("brings"), Cost: 1_000_000_000_000_001, Limit: perHour(8)}, 0},
	} {
		v := new(policy.Verdict)
		r := &policy.Request{Named: &c.named}
		e.Peek(r, v)
		d := v.Decision()
		if c.limit == 0 && (v.Allowed || d.Reason != weir.ReasonInvalid || d.RetryAfter != weir.Never) || c.limit > 0 && (!v.Allowed || d.Limit != c.limit) {
			t.Errorf("%s: %+v", what, d)
		}
		if x := e.Explain(r); c.limit == 0 && (x.Allowed || x.Limits[0].Failure == "") {
			t.Errorf("%s: %+v", what, x)
		}
	}
}

// TestNamedRequestsAcrossStores: named requests and others are one step, and the store sees the same key.
func TestNamedRequestsAcrossStores(t *testing.T) {
	clock := manualclock.New(1)
	e := over(t, memory(t, clock), clock, &policy.Set{
		Policies: append(shared(policy.Policy{Name: "far", Limits: one(perHour(3)), Key: policy.ClientIP()}), policy.Policy{Name: "near", Limits: one(perHour(3))}),
		Rules:    []policy.Rule{{Name: "far", Limits: uses("far")}},
	})
	r := request(ann)
	all := []*policy.Request{&r, named(t.Context(), "far", ann, 1), named(t.Context(), "near", "k", 1)}
	v := new(policy.Verdict)
	for i, want := range []int64{1, 1} {
		if e.TakeAll(t.Context(), all, v); v.Allowed != (i == 0) || left(t, e, "near", "k") != 2 {
			t.Errorf("%d: %+v", i, v.Parts)
		}
		v.Release()
		wantStored(t, e, "far", "", ann, want)
	}
}

// TestNamedRequestsOfCallersThatHaveGone: the Context of the request bounds how long a store is asked.
func TestNamedRequestsOfCallersThatHaveGone(t *testing.T) {
	clock := manualclock.New(1)
	e := over(t, memory(t, clock), clock, &policy.Set{Policies: shared(policy.Policy{Name: "far", Limits: one(perHour(3))})})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("gone"))
	v := new(policy.Verdict)
	if e.Take(named(ctx, "far", "k", 1), v); v.Allowed || v.Decision().Reason != weir.ReasonCanceled {
		t.Errorf("%+v", v.Decision())
	}
	wantStored(t, e, "far", "", "k", 3)
}

// TestNamedRequestsAllocateNothing, as the names are bytes that are not kept.
func TestNamedRequestsAllocateNothing(t *testing.T) {
	if race.Enabled {
		return // the race detector allocates
	}
	e := engine(t, &policy.Set{Policies: []policy.Policy{{Name: "p", Limits: one(weir.TokenBucket(weir.PerSecond(1e9), 0))}}})
	r, v := named(t.Context(), "p", "k", 1), new(policy.Verdict)
	if n := testing.AllocsPerRun(1000, func() {
		e.Take(r, v)
		v.Release()
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
}
