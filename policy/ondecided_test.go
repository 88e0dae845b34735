package policy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// TestOnDecidedOfAPolicy: it is called once for each request that its policy is enforced for, by every verb, with the limit that binds, and
// for no other policy, no probe, and no request that is exempt, denied or refused before a key was known.
func TestOnDecidedOfAPolicy(t *testing.T) {
	var told []string
	set := &policy.Set{
		Policies: []policy.Policy{
			{
				Name: "login", Key: policy.ClientIP(),
				Limits: []policy.Limit{{Name: "minute", Limit: weir.TokenBucket(weir.PerMinute(9), 0)}, {Name: "hour", Limit: perHour(2)}},
				OnDecided: func(r *policy.Request, p *policy.Part, v *policy.Verdict) {
					told = append(told, fmt.Sprint(r.Path, " ", p.Policy.Limits[p.Limit].Name, " ", string(p.Key), " ", p.Decision.Allowed, " ", v.Allowed, " ", v.RefusalID))
				},
			},
			{Name: "other", Limits: one(perHour(100))},
			{Name: "tight", Limits: one(perHour(1))},
		},
		Rules: []policy.Rule{
			{Name: "login", Match: policy.Match{Paths: []string{"/login"}}, Limits: uses("login", "other")},
			{Name: "both", Match: policy.Match{Paths: []string{"/both"}}, Limits: uses("login", "tight")},
			{Name: "others", Match: policy.Match{Paths: []string{"/"}}, Limits: uses("other")},
			{Name: "free", Match: policy.Match{Paths: []string{"/free"}}, Limits: uses("login")},
			{Name: "exempt", Match: policy.Match{Paths: []string{"/free"}}, Exempt: true},
			{Name: "banned", Match: policy.Match{Paths: []string{"/banned"}}, Limits: uses("login")},
			{Name: "deny", Match: policy.Match{Paths: []string{"/banned"}}, Deny: true},
		},
	}
	clock := manualclock.New(1)
	e := engine(t, set, manual(clock), func(o *policy.EngineOptions) {
		o.OnRefused = func([]*policy.Request, *policy.Verdict) uint64 { return 7 }
	})
	ask := func(path string) *policy.Request {
		r := request(ann)
		r.Path = path
		return &r
	}
	var v policy.Verdict
	want := func(what string, all ...string) {
		t.Helper()
		if !slices.Equal(told, all) {
			t.Errorf("%s: %q, want %q", what, told, all)
		}
		told = nil
		v.Release()
	}
	e.Peek(ask("/login"), &v)
	want("a probe")
	e.Take(ask("/login"), &v)
	want("take", "/login hour 192.0.2.1 true true 0")
	for _, path := range []string{"/elsewhere", "/free", "/banned"} {
		e.Take(ask(path), &v)
		want(path)
	}
	e.Reserve(ask("/both"), &v)
	want("reserve", "/both hour 192.0.2.1 true true 0")
	e.Reserve(ask("/both"), &v)
	want("the other refuses too", "/both hour 192.0.2.1 false false 7")
	if err := e.Wait(t.Context(), ask("/login"), &v); !errors.Is(err, weir.ErrRefused) {
		t.Error(err)
	}
	want("wait", "/login hour 192.0.2.1 false false 7")
	e.TakeAll(context.Background(), []*policy.Request{ask("/elsewhere"), ask("/login"), ask("/login")}, &v)
	want("together", "/login hour 192.0.2.1 false false 7", "/login hour 192.0.2.1 false false 7")
	e.DebitAll(context.Background(), []*policy.Request{ask("/login")}, &v)
	want("debit", "/login hour 192.0.2.1 false true 0")
	e.Take(named(t.Context(), "login", "k", 1), &v)
	want("by name", " hour k true true 0")
	other := request(ben)
	other.Path = "/both"
	e.Take(&other, &v)
	want("another refuses", "/both hour 192.0.2.2 true false 7")
}

// TestOnDecidedComesWithALoad, and goes with one.
func TestOnDecidedComesWithALoad(t *testing.T) {
	calls := 0
	set := func(hook func(*policy.Request, *policy.Part, *policy.Verdict)) *policy.Set {
		return &policy.Set{
			Policies: []policy.Policy{{Name: "p", Limits: one(perHour(9)), OnDecided: hook}},
			Rules:    []policy.Rule{{Name: "all", Limits: uses("p")}},
		}
	}
	e := engine(t, set(nil))
	for i, hook := range []func(*policy.Request, *policy.Part, *policy.Verdict){
		func(*policy.Request, *policy.Part, *policy.Verdict) { calls++ }, nil,
	} {
		load(t, e, set(hook))
		take(e, policy.Request{})
		if calls != 1 {
			t.Errorf("after load %d: %d calls", i, calls)
		}
	}
}

// TestOnDecidedAllocatesNothing beside what it does itself.
func TestOnDecidedAllocatesNothing(t *testing.T) {
	calls := 0
	set := manyRules(10, 3)
	set.Policies[1].OnDecided = func(*policy.Request, *policy.Part, *policy.Verdict) { calls++ }
	e := engine(t, set)
	r := request(ann)
	r.Path = "/v1/things7/12"
	var v policy.Verdict
	if n := testing.AllocsPerRun(100, func() {
		e.Take(&r, &v)
		v.Release()
	}); n != 0 && !race.Enabled || calls != 101 {
		t.Errorf("%v allocations, %d calls", n, calls)
	}
}
