package policy_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/overload"
	"github.com/weirhq/weir/policy"
)

// asks are requests for paths.
func asks(paths ...string) (all []*policy.Request) {
	for _, path := range paths {
		all = append(all, &policy.Request{Method: "GET", Path: path})
	}
	return all
}

func takeAll(t testing.TB, e *policy.Engine, requests ...*policy.Request) *policy.Verdict {
	t.Helper()
	v := new(policy.Verdict)
	e.TakeAll(t.Context(), requests, v)
	return v
}

// byPath is a set with a policy for what is got, and a rule that frees /free.
func byPath(p policy.Policy) *policy.Set {
	p.Key = policy.PathText()
	return &policy.Set{
		Policies: []policy.Policy{p},
		Rules: []policy.Rule{
			{Name: "all", Match: policy.Match{Methods: []string{"GET"}}, Limits: uses(p.Name)},
			{Name: "free", Match: policy.Match{Paths: []string{"/free"}}, Exempt: true},
		},
	}
}

// TestTakeAllBounds: how many requests and charges there may be, and what others are told.
func TestTakeAllBounds(t *testing.T) {
	two := []policy.Limit{{Limit: perHour(200)}, {Name: "second", Limit: perHour(200)}}
	e := engine(t, byPath(policy.Policy{Name: "p", Limits: two}))
	same, different := make([]string, 65), make([]string, 33)
	for i := range same {
		same[i] = "/same"
	}
	for i := range different {
		different[i] = fmt.Sprint("/", i)
	}
	v := new(policy.Verdict)
	for name, c := range map[string]struct {
		paths []string
		want  weir.Reason
	}{
		"none":                     {nil, weir.ReasonNone},
		"64 of one key":            {same[:64], weir.ReasonNone},
		"64 charges":               {different[:32], weir.ReasonNone},
		"65 requests":              {same, weir.ReasonInvalid},
		"66 charges":               {different, weir.ReasonInvalid},
		"66 charges and an exempt": {append([]string{"/free"}, different...), weir.ReasonInvalid},
	} {
		for how, ask := range []func(){
			func() { e.PeekAll(t.Context(), asks(c.paths...), v) },
			func() { e.TakeAll(t.Context(), asks(c.paths...), v) },
			func() { e.ReserveAll(t.Context(), asks(c.paths...), v); v.Cancel() },
		} {
			before := e.Report()
			ask()
			allowed := c.want == weir.ReasonNone
			if d := v.Decision(); v.Allowed != allowed || d.Allowed != allowed || d.Reason != c.want {
				t.Errorf("%s: %v, %+v", name, v.Allowed, d)
			}
			if d, limited := v.Answer(len(c.paths) - 1); !allowed && (!limited || d.Reason != weir.ReasonInvalid || d.RetryAfter != weir.Never) {
				t.Errorf("%s: %v, %+v", name, limited, d)
			}
			if v.Exempt || !allowed && len(v.Parts) > 0 {
				t.Errorf("%s: %+v", name, v)
			}
			v.Release()
			after := e.Report()
			exempt := after.Exempt - before.Exempt
			if n, refused := after.Requests-before.Requests, after.Refused-before.Refused; how > 0 &&
				(n != uint64(len(c.paths)) || allowed != (refused == 0) || !allowed && refused+exempt != n) {
				t.Errorf("%s: %d requests, %d refused, %d exempt", name, n, refused, exempt)
			}
		}
	}
	wantLeft(t, e, "p", "/same", 200-64)
	wantLeft(t, e, "p", "/0", 199)
	wantLeft(t, e, "p", "/32", 200)
}

// TestTakeAllExemptAndUnlimited: each request is free by itself, also if rules before have limited it, and the key of one is not that
// of another.
func TestTakeAllExemptAndUnlimited(t *testing.T) {
	set := byPath(policy.Policy{Name: "p", Limits: one(perHour(2))})
	set.Policies = append(set.Policies, policy.Policy{Name: "client", Limits: one(perHour(5)), Key: policy.ClientIP()})
	set.Rules = append(set.Rules, policy.Rule{Name: "clients", Match: policy.Match{Paths: []string{"/c"}}, Limits: uses("client")})
	e := engine(t, set)
	from := func(path, client string) *policy.Request {
		return &policy.Request{Method: "GET", Path: path, Client: netip.MustParseAddr(client)}
	}
	v := takeAll(t, e, asks("/free", "/free")...)
	if !v.Allowed || !v.Exempt || !v.ExemptOf(0) || !v.ExemptOf(1) || v.ExemptOf(2) || v.ExemptOf(-1) || len(v.Parts) != 0 {
		t.Errorf("%+v", v)
	}
	v = takeAll(t, e, &policy.Request{Path: "/free"}, from("/c", "192.0.2.1"), &policy.Request{Method: "PUT"}, from("/c", "192.0.2.2"))
	if !v.Allowed || v.Exempt || !v.ExemptOf(0) || v.ExemptOf(1) || len(v.Parts) != 4 {
		t.Errorf("%+v", v)
	}
	for i, want := range []bool{false, true, false, true} {
		if d, limited := v.Answer(i); limited != want || !d.Allowed {
			t.Errorf("request %d: %v, %+v", i, limited, d)
		}
	}
	wantLeft(t, e, "client", "192.0.2.1", 4)
	wantLeft(t, e, "client", "192.0.2.2", 4)
	wantLeft(t, e, "p", "/c", 0)
	v = takeAll(t, e, from("/free", "192.0.2.1"), from("/c", "192.0.2.1"), from("/x", "192.0.2.1"))
	if d, _ := v.Answer(1); v.Allowed || v.ExemptOf(1) || d.Allowed || d.Policy != "p" || v.Parts[v.Binding].Request != 1 {
		t.Errorf("%+v", v)
	}
	if d, limited := v.Answer(2); !limited || !d.Allowed || d.Remaining != 2 {
		t.Errorf("%+v, which was not refused itself", d)
	}
	wantLeft(t, e, "client", "192.0.2.1", 4)
}

// TestTakeAllMoreThanThereEverIs: a sum is what is compared with the limit, and its sum is settled.
func TestTakeAllMoreThanThereEverIs(t *testing.T) {
	for name, e := range map[string]*policy.Engine{
		"local":  engine(t, byPath(policy.Policy{Name: "p", Limits: one(perHour(5))})),
		"shared": over(t, memory(t, manualclock.New(1)), nil, byPath(shared(policy.Policy{Name: "p", Limits: one(perHour(5))})[0])),
	} {
		three := func(n int) []*policy.Request {
			all := asks("/a", "/a", "/a")[:n]
			for _, r := range all {
				r.Cost = 3
			}
			return all
		}
		v := takeAll(t, e, three(2)...)
		for i := range 2 {
			if d, _ := v.Answer(i); v.Allowed || d.Reason != weir.ReasonNever {
				t.Errorf("%s: request %d: %+v", name, i, d)
			}
		}
		huge := three(3)
		for _, r := range huge {
			r.Cost = 1e15
		}
		if v = takeAll(t, e, huge...); v.Allowed || v.Decision().Reason != weir.ReasonNever {
			t.Errorf("%s: %+v", name, v.Decision())
		}
		e.ReserveAll(t.Context(), append(three(1), asks("/a")...), v)
		if !v.Allowed {
			t.Fatalf("%s: %+v", name, v.Decision())
		}
		v.Commit(func(p *policy.Part) int64 {
			if p.Request == 0 {
				return 1
			}
			return -1 // as reserved
		})
		wantStored(t, e, "p", "", "/a", 3)
		v.Commit(func(*policy.Part) int64 { t.Error("settled twice"); return 0 })
	}
}

// TestTakeAllLockouts: several refusals of a key at a time are one towards a lockout, and a request that is locked out takes the others
// with it.
func TestTakeAllLockouts(t *testing.T) {
	e := engine(t, byPath(policy.Policy{
		Name: "p", Limits: one(perHour(2)), Lockout: &policy.Lockout{Refusals: 2, Within: time.Hour, For: 24 * time.Hour},
	}))
	bad := asks("/a", "/b", "/a", "/a")
	for i, want := range []weir.Reason{weir.ReasonNever, weir.ReasonNever} {
		if v := takeAll(t, e, bad...); v.Allowed || v.Decision().Reason != want {
			t.Errorf("refusal %d: %+v", i, v.Decision())
		}
	}
	wantLeft(t, e, "p", "/b", 2)
	takeAll(t, e, asks("/a", "/a")...) // there is no row of those that ask for more than there ever is
	for i, want := range []weir.Reason{weir.ReasonLimited, weir.ReasonHardLockout, weir.ReasonHardLockout} {
		v := new(policy.Verdict)
		e.PeekAll(t.Context(), asks("/b", "/a", "/a"), v)
		peeked := v.Decision()
		v = takeAll(t, e, asks("/b", "/a", "/a")...)
		for at := range 3 {
			d, _ := v.Answer(at)
			if limited := at > 0; v.Allowed || limited && d.Reason != want || !limited && !d.Allowed {
				t.Errorf("refusal %d, request %d: %+v", i, at, d)
			}
		}
		if d := v.Decision(); peeked.Reason != d.Reason || peeked.RetryAfter != d.RetryAfter {
			t.Errorf("refusal %d: %+v, and %+v was foreseen", i, d, peeked)
		}
	}
	if r := e.Report().Policies[0]; r.LockedOut != 4 || r.Locked != 1 || r.Refused != 2*3+3*2 || r.Allowed != 2 {
		t.Errorf("%+v", r)
	}
	wantLeft(t, e, "p", "/b", 2)
}

// TestTakeAllFailures: a request about which something cannot be told is refused, with all others, if its policy is closed.
func TestTakeAllFailures(t *testing.T) {
	cost := costOf(func(r *policy.Request) (int64, error) { return 1, map[string]error{"/bad": errCannot}[r.Path] })
	for _, fail := range []policy.Fail{policy.FailClosed, policy.FailOpen} {
		e := engine(t, byPath(policy.Policy{Name: "p", Limits: one(perHour(9)), Cost: cost, Fail: fail}))
		v := takeAll(t, e, asks("/good", "/bad", "/good", "/bad")...)
		open := fail == policy.FailOpen
		for i, bad := range []bool{false, true, false, true} {
			d, limited := v.Answer(i)
			switch {
			case bad && open && (limited || !d.Allowed),
				bad && !open && (!limited || d.Reason != weir.ReasonUnavailable || d.Policy != "p"),
				!bad && (!limited || !d.Allowed):
				t.Errorf("%v: request %d: %v, %+v", fail, i, limited, d)
			}
		}
		r := e.Report()
		left := int64(9)
		if open {
			left -= 2
		} else if r.Refused != 4 || v.Binding != -1 || v.Decision().Reason != weir.ReasonUnavailable {
			t.Errorf("%+v, %+v", r, v.Decision())
		}
		if v.Allowed != open || r.Requests != 4 || r.Policies[0].Failed != 2 {
			t.Errorf("%v: %v, %+v", fail, v.Allowed, r)
		}
		wantLeft(t, e, "p", "/good", left)
	}
}

// TestTakeAllShedsOnce: requests that are decided on as one have the highest priority among them, and those without a limit pass.
func TestTakeAllShedsOnce(t *testing.T) {
	load := 0.99
	shedder, err := overload.NewShedder(overload.ShedderOptions{Sources: []overload.Pressure{fixedPressure{&load}}, Rise: -1, Fall: -1, Random: func() float64 { return 0.1 }})
	if err != nil {
		t.Fatal(err)
	}
	e := engine(t, byPath(policy.Policy{Name: "p", Limits: one(perHour(9)), Priority: overload.PriorityBackground}),
		func(o *policy.EngineOptions) { o.Shedder = shedder })
	v := takeAll(t, e, append(asks("/a", "/free", "/b"), &policy.Request{Method: "PUT"})...)
	for i, want := range []bool{true, false, true, false} {
		if d, limited := v.Answer(i); v.Allowed || limited != want || d.Allowed == want || want && d.Reason != weir.ReasonOverloaded {
			t.Errorf("request %d: %v, %+v", i, limited, d)
		}
	}
	if r := e.Report(); r.Requests != 4 || r.Refused != 2 || r.Exempt != 1 || r.Unlimited != 1 {
		t.Errorf("%+v", r)
	}
}

// TestTakeAllMeasuresCandidates: the candidate is asked once for what several requests ask of a key.
func TestTakeAllMeasuresCandidates(t *testing.T) {
	var live []policy.Explanation
	e := engine(t, byPath(policy.Policy{Name: "p", Limits: one(perHour(9)), Candidate: one(perHour(2))}),
		func(o *policy.EngineOptions) {
			o.ExplainEvery, o.OnExplain = 2, func(x policy.Explanation) { live = append(live, x) }
		})
	takeAll(t, e, asks("/a", "/a", "/b")...)
	takeAll(t, e, asks("/a", "/b")...)
	takeAll(t, e, asks("/b", "/b", "/b", "/b", "/b", "/b", "/b", "/b")...) // which only this policy refuses
	d := e.Report().Policies[0].Difference
	if d.Requests != 3+2+8 || d.NewlyRefused != 1 || d.NewlyAdmitted != 0 || len(d.RefusedKeys) != 1 || d.RefusedKeys[0].Key != "/a" {
		t.Errorf("%+v", d)
	}
	if len(live) != (3+2+8)/2 || live[0].Limits[0].Key != "/a" {
		t.Errorf("%d explained: %+v", len(live), live)
	}
}

// TestTakeAllConcurrency: what is held while requests are served comes back once, with all of them.
func TestTakeAllConcurrency(t *testing.T) {
	inUse := weir.AtOnce(3)
	for name, p := range map[string]policy.Policy{
		"local": {Name: "p", Limits: one(inUse)}, "shared": shared(policy.Policy{Name: "p", Limits: one(inUse)})[0],
	} {
		e := over(t, memory(t, manualclock.New(1)), nil, byPath(p))
		v := takeAll(t, e, asks("/a", "/a", "/b")...)
		if refused := takeAll(t, e, asks("/b", "/a", "/a")...); !v.Allowed || refused.Allowed {
			t.Errorf("%s: %+v, %+v", name, v.Decision(), refused.Decision())
		}
		wantStored(t, e, "p", "", "/a", 1)
		wantStored(t, e, "p", "", "/b", 2)
		for range 2 {
			v.Release()
			wantStored(t, e, "p", "", "/a", 3)
			wantStored(t, e, "p", "", "/b", 3)
		}
	}
}

// TestTakeAllOfAnOwner: a real owner, with its log in memory, is charged for all requests or none, beside limits of the process.
func TestTakeAllOfAnOwner(t *testing.T) {
	p := durably(policy.Policy{Name: "owned", Limits: one(perHour(5)), Key: policy.PathText()})[0]
	set := byPath(policy.Policy{Name: "p", Limits: one(perHour(9))})
	set.Policies = append(set.Policies, p)
	set.Rules = append(set.Rules, policy.Rule{Name: "owned", Limits: uses("owned")})
	e := ownedBy(t, newNode(t, newCluster(t), nil), nil, nil, set)
	v := takeAll(t, e, asks("/a", "/b", "/a")...)
	if !v.Allowed || len(v.Parts) != 6 {
		t.Fatalf("%+v", v.Decision())
	}
	v = takeAll(t, e, asks("/b", "/a", "/a", "/a", "/a")...)
	if d, _ := v.Answer(1); v.Allowed || d.Allowed || d.Policy != "owned" || v.Decision().Policy != "owned" {
		t.Errorf("%+v, %+v", d, v.Decision())
	}
	e.ReserveAll(t.Context(), asks("/a", "/b", "/a"), v)
	if !v.Allowed {
		t.Fatalf("%+v", v.Decision())
	}
	v.Commit(func(p *policy.Part) int64 { return int64(p.Request) / 2 })
	for key, used := range map[string]int64{"/a": 3, "/b": 1} {
		wantStored(t, e, "owned", "", key, 5-used)
		wantStored(t, e, "p", "", key, 9-used)
	}
}

// TestTakeAllAllocatesNothing, also where requests share keys.
func TestTakeAllAllocatesNothing(t *testing.T) {
	if race.Enabled {
		return // it allocates itself
	}
	e := engine(t, byPath(policy.Policy{Name: "p", Limits: one(weir.TokenBucket(weir.PerSecond(1_000_000), 0))}))
	requests := asks("/a", "/b", "/a", "/c")
	v := new(policy.Verdict)
	ctx := t.Context()
	n := testing.AllocsPerRun(200, func() {
		e.TakeAll(ctx, requests, v)
		v.Release()
		e.PeekAll(ctx, requests, v)
	})
	if n != 0 || !v.Allowed {
		t.Errorf("%v allocations", n)
	}
}
