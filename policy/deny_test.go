package policy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// wantDenied checks that a verdict is that of a rule that denies.
func wantDenied(t *testing.T, v *policy.Verdict, rule string) {
	t.Helper()
	d := v.Decision()
	if v.Allowed || v.Exempt || len(v.Parts) != 0 || v.Binding != -1 || d.Reason != weir.ReasonDenied || d.RetryAfter != weir.Never {
		t.Errorf("%+v: %+v", v, d)
	}
	if by := v.DeniedBy(0); by == nil || by.Name != rule {
		t.Errorf("denied by %+v, want %s", by, rule)
	}
}

// TestDenyWinsAnywhere: a rule that denies comes before rules that exempt, before limits and before rules that are final, wherever
// it stands.
func TestDenyWinsAnywhere(t *testing.T) {
	deny := policy.Rule{Name: "deny", Match: policy.Match{Methods: []string{"DELETE"}}, Deny: true}
	others := []policy.Rule{
		{Name: "all", Limits: uses("p"), Final: true},
		{Name: "free", Match: policy.Match{Paths: []string{"/free"}}, Exempt: true},
	}
	for at := range len(others) + 1 {
		e := engine(t, &policy.Set{
			Policies: []policy.Policy{{Name: "p", Limits: one(perHour(9))}}, Rules: slices.Insert(slices.Clone(others), at, deny),
		})
		for _, path := range []string{"/", "/free"} {
			r := policy.Request{Method: "DELETE", Path: path}
			wantDenied(t, take(e, r), "deny")
			if x := e.Explain(&r); x.Denied != "deny" || x.Allowed || x.Exempt || x.Reason != weir.ReasonDenied || len(x.Limits) != 0 {
				t.Errorf("at %d: %s is explained as %+v", at, path, x)
			}
		}
		if v := take(e, policy.Request{Method: "GET", Path: "/free"}); !v.Allowed || !v.Exempt {
			t.Errorf("at %d: %+v", at, v)
		}
		if v := take(e, policy.Request{Method: "GET", Path: "/"}); !v.Allowed || len(v.Parts) != 1 {
			t.Errorf("at %d: %+v", at, v)
		}
		wantLeft(t, e, "p", "", 8)
		report := e.Report()
		if report.Requests != 4 || report.Refused != 2 || report.Denied != 2 || report.Exempt != 1 || report.Rules[at].Matched != 2 {
			t.Errorf("at %d: %+v", at, report)
		}
	}
}

// TestDenyUnderAnyReading: a path is denied if any server may read it as one that is.
func TestDenyUnderAnyReading(t *testing.T) {
	e := engine(t, &policy.Set{Rules: []policy.Rule{
		{Name: "deny", Match: policy.Match{Hosts: []string{"api.example.com"}, Paths: []string{"/admin/{rest...}"}}, Deny: true},
		{Name: "free", Exempt: true},
	}})
	for target, want := range map[string]bool{
		"/admin/x": true, "/%61dmin/x": true, "/%61%64%6d%69%6E/x": true, "//admin/x": true, "/admin//x": true, "/./admin/x": true,
		"/public/../admin/x": true, "/public/%2e%2e/admin/x": true, "/public/..%2fadmin/x": true, "/public/..%2Fadmin%2fx": true,
		`/public\..\admin\x`: true, "/public/..%5cadmin/x": true, "/%2561dmin/x": true, "/public/..%252fadmin/x": true,
		"/public%2f..%2fadmin%2fx": true, "/admin/..%2fadmin/x": true, "/admin%2fx": true, "/admin/x?y": true,
		"/admin/../public": true,
		"/administrator/x": false, "/public/admin": false, "/": false, "/public/x": false,
	} {
		for _, host := range []string{"api.example.com", "API.Example.COM", "api.example.com:8080", "api.example.com."} {
			r := sent(t, target)
			r.Host = host
			x := e.Explain(&r)
			if v := take(e, r); v.Allowed == want || v.Exempt == want || x.Allowed == want || (e.Denies(&r) != nil) != want {
				t.Errorf("%s%s: allowed %t (explained: %t), exempt %t; want denied: %t", host, target, v.Allowed, x.Allowed, v.Exempt, want)
			}
		}
	}
	if r := e.Report(); r.Denied == 0 || r.Denied != r.Rules[0].Matched {
		t.Errorf("a request that is denied counts once: %d, %d", r.Denied, r.Rules[0].Matched)
	}
}

// TestDenyConditionThatFails: a request is denied if it cannot be told whether it should be.
func TestDenyConditionThatFails(t *testing.T) {
	e := engine(t, &policy.Set{Rules: []policy.Rule{
		{Name: "deny", When: failing{}, Deny: true}, {Name: "free", Exempt: true},
	}})
	wantDenied(t, take(e, policy.Request{}), "deny")
	if r := e.Report(); r.Rules[0].Failed != 1 || r.Rules[0].Matched != 1 {
		t.Errorf("%+v", r.Rules)
	}
}

// TestDenyInShadow: it counts what it would deny, and changes nothing. One that is off does neither.
func TestDenyInShadow(t *testing.T) {
	set := func(mode policy.Mode) *policy.Set {
		return &policy.Set{
			Policies: []policy.Policy{{Name: "p", Limits: one(perHour(9))}},
			Rules:    []policy.Rule{{Name: "deny", Deny: true, Mode: mode}, {Name: "all", Limits: uses("p")}},
		}
	}
	var e *policy.Engine
	for _, c := range []struct {
		mode policy.Mode
		want uint64
	}{{policy.ModeShadow, 1}, {policy.ModeOff, 0}} {
		mode, want := c.mode, c.want
		e = engine(t, set(mode))
		if v := take(e, policy.Request{}); !v.Allowed || len(v.Parts) != 1 || v.DeniedBy(0) != nil {
			t.Errorf("%v: %+v", mode, v)
		}
		r, x := e.Report(), e.Explain(&policy.Request{})
		if r.Denied != 0 || r.Refused != 0 || r.Rules[0].Matched != want {
			t.Errorf("%v: %+v", mode, r)
		}
		if rule := x.Rules[0]; !rule.Deny || rule.Matched != (want > 0) || rule.Shadow != (want > 0) || x.Denied != "" {
			t.Errorf("%v: %+v", mode, rule)
		}
	}
	changes, err := e.Load(set(policy.ModeEnforce))
	if err != nil || !slices.Contains(changes, policy.Change{Path: "rules.deny.mode", Old: "off"}) {
		t.Errorf("%+v, %v", changes, err)
	}
	wantDenied(t, take(e, policy.Request{}), "deny")
}

// TestDeniedRequestNamesNoPolicy: rules are not asked about a request that names its policy.
func TestDeniedRequestNamesNoPolicy(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "p", Limits: one(perHour(9))}}, Rules: []policy.Rule{{Name: "deny", Deny: true}},
	})
	var v policy.Verdict
	if takeKey(t.Context(), e, "p", "k", 1, &v); !v.Allowed || v.DeniedBy(0) != nil || e.Denies(named(t.Context(), "p", "k", 1)) != nil {
		t.Errorf("%+v", v)
	}
}

// denySet has everything that a request can change, for requests that are denied if their method is DELETE.
func denySet(mode policy.Mode) *policy.Set {
	set := &policy.Set{
		Policies: []policy.Policy{
			{
				Name: "limited", Key: policy.ClientIP(), Limits: one(perHour(2)), Candidate: one(perHour(1)),
				Lockout: &policy.Lockout{Refusals: 2, Within: time.Hour, For: time.Hour}, Parent: "parent",
			},
			{Name: "parent", Limits: one(perHour(100))},
			{Name: "workers", Limits: one(weir.AtOnce(2))},
			{Name: "shadow", Key: policy.ClientIP(), Limits: one(perHour(1)), Mode: policy.ModeShadow},
		},
		Rules: []policy.Rule{
			{Name: "all", Limits: uses("limited", "workers", "shadow")},
			{Name: "reports", Match: policy.Match{Paths: []string{"/report"}}, Limits: uses("limited"), Afterwards: true},
			{Name: "deny", Match: policy.Match{Methods: []string{"DELETE"}}, Deny: true, Mode: mode},
		},
	}
	set.Policies = append(set.Policies, shared(policy.Policy{Name: "stored", Limits: one(perHour(9)), Key: policy.ClientIP()})...)
	set.Policies = append(set.Policies, durably(policy.Policy{Name: "owned", Limits: one(perHour(9)), QueueLimit: 5})...)
	set.Rules[0].Limits = append(set.Rules[0].Limits, uses("stored", "owned")...)
	return set
}

// TestDeniedRequestChangesNothing: whatever is asked of an engine about a request that is denied, no limit, lockout, queue, policy in
// shadow, candidate, store or owner is touched, and no policy counts it.
func TestDeniedRequestChangesNothing(t *testing.T) {
	clock := manualclock.New(1)
	e := ownedBy(t, newOwner(t, clock), memory(t, clock), clock, denySet(policy.ModeEnforce))
	ask := func(method, path string) policy.Request {
		r := request(ann)
		r.Method, r.Path, r.Cost, r.Context = method, path, 1, t.Context()
		return r
	}
	var v policy.Verdict
	warm := ask("GET", "/")
	e.Take(&warm, &v)
	v.Release()
	state := func() (all []any) {
		report := e.Report()
		for _, p := range report.Policies {
			all = append(all, fmt.Sprintf("%+v", p.Difference))
			p.Difference = nil
			all = append(all, p)
			for _, key := range []string{"", "192.0.2.1"} {
				s, err := e.Inspect(t.Context(), p.Name, "", key)
				all = append(all, s, err)
			}
		}
		return append(all, e.Overrides())
	}
	before := state()
	for name, verb := range map[string]func(r *policy.Request) error{
		"take":    func(r *policy.Request) error { e.Take(r, &v); return nil },
		"reserve": func(r *policy.Request) error { e.Reserve(r, &v); return nil },
		"peek":    func(r *policy.Request) error { e.Peek(r, &v); return nil },
		"debit":   func(r *policy.Request) error { e.DebitAll(t.Context(), []*policy.Request{r}, &v); return nil },
		"wait":    func(r *policy.Request) error { return e.Wait(t.Context(), r, &v) },
		"wait and reserve": func(r *policy.Request) error {
			return e.WaitReserve(t.Context(), r, &v)
		},
		"all": func(r *policy.Request) error {
			other := ask("GET", "/")
			e.TakeAll(t.Context(), []*policy.Request{r, &other}, &v)
			return nil
		},
	} {
		for _, path := range []string{"/", "/report"} {
			r := ask("DELETE", path)
			for range 5 {
				if err := verb(&r); err != nil && !errors.Is(err, weir.ErrRefused) {
					t.Errorf("%s: %v", name, err)
				}
				if by := v.DeniedBy(0); v.Allowed || by == nil || by.Name != "deny" || v.Decision().Reason != weir.ReasonDenied {
					t.Errorf("%s of %s: %+v", name, path, v.Decision())
				}
				v.Commit(func(*policy.Part) int64 { return 7 })
			}
			if after := state(); !reflect.DeepEqual(before, after) {
				t.Fatalf("%s of %s:\n%+v, before\n%+v", name, path, after, before)
			}
		}
	}
}

// TestWaitForADeniedRequestFailsAtOnce, with an error that says why.
func TestWaitForADeniedRequestFailsAtOnce(t *testing.T) {
	e := engine(t, &policy.Set{Rules: []policy.Rule{{Name: "deny", Deny: true}}})
	var (
		v       policy.Verdict
		refused *weir.RefusedError
	)
	err := e.Wait(t.Context(), &policy.Request{}, &v)
	if !errors.As(err, &refused) || refused.Decision.Reason != weir.ReasonDenied || refused.Decision.RetryAfter != weir.Never {
		t.Errorf("%v", err)
	}
}

// TestDeniedIsLogged with the rule, and observed once.
func TestDeniedIsLogged(t *testing.T) {
	var b bytes.Buffer
	l, err := policy.NewRefusalLog(policy.RefusalLogOptions{Logger: logTo(&b), Keys: policy.KeysPlain})
	if err != nil {
		t.Fatal(err)
	}
	w := &watcher{}
	e := engine(t, &policy.Set{Rules: []policy.Rule{
		{Name: "no deletes", Match: policy.Match{Methods: []string{"DELETE"}}, Deny: true},
	}}, func(o *policy.EngineOptions) {
		o.Observer = w
		o.OnRefused = func(all []*policy.Request, v *policy.Verdict) uint64 { l.Refused(all, v); return w.Refused(all, v) }
	})
	r, other := request(ann), request(ann)
	r.Method, other.Method = "DELETE", "GET"
	var v policy.Verdict
	e.TakeAll(context.Background(), []*policy.Request{&other, &r}, &v)
	const want = `level=INFO msg="request refused" reason=denied retry_after=never rule="no deletes" method=DELETE client=192.0.2.1` +
		" requests=2 unlogged=0\n"
	if got := lines(&b); len(got) != 1 || got[0] != want {
		t.Errorf("%q", got)
	}
	if len(w.decided) != 1 || len(w.refused) != 1 || w.refused[0].reason != weir.ReasonDenied || v.RefusalID != 1 {
		t.Errorf("%+v, %+v", w.decided, w.refused)
	}
	if d, limited := v.Answer(0); !d.Allowed || limited || v.DeniedBy(0) != nil {
		t.Errorf("the other request: %+v", d)
	}
	if d, limited := v.Answer(1); d.Reason != weir.ReasonDenied || !limited || v.DeniedBy(math.MaxInt) != nil || v.DeniedBy(-1) != nil {
		t.Errorf("%+v", d)
	}
}

// TestDenyAllocatesNothing: a flood of what is denied costs no memory.
func TestDenyAllocatesNothing(t *testing.T) {
	e := engine(t, denySetLocal())
	r := request(ann)
	r.Method = "DELETE"
	var v policy.Verdict
	if n := testing.AllocsPerRun(100, func() {
		e.Take(&r, &v)
		v.Release()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func denySetLocal() *policy.Set {
	return &policy.Set{
		Policies: []policy.Policy{{Name: "p", Key: policy.ClientIP(), Limits: one(perHour(9))}},
		Rules: []policy.Rule{
			{Name: "all", Limits: uses("p")},
			{Name: "deny", Match: policy.Match{Methods: []string{"DELETE"}}, Deny: true},
		},
	}
}
