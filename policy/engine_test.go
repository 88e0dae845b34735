package policy_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/overload"
	"github.com/weirhq/weir/policy"
)

// perHour is a bucket of n permits, of which one an hour comes back.
func perHour(n int64) weir.Limit {
	return weir.TokenBucket(weir.Rate{Permits: 1, Period: time.Hour}, n)
}

func one(l weir.Limit) []policy.Limit { return []policy.Limit{{Limit: l}} }

func uses(names ...string) (all []policy.Use) {
	for _, name := range names {
		all = append(all, policy.Use{Policy: name})
	}
	return all
}

func engine(t testing.TB, set *policy.Set, changes ...func(*policy.EngineOptions)) *policy.Engine {
	t.Helper()
	o := policy.EngineOptions{Clock: manualclock.New(1)}
	for _, change := range changes {
		change(&o)
	}
	e, err := policy.NewEngine(set, o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// verdictOf is the error of a call of Wait that decided on v: nil if it is the one that the verdict calls for, a *weir.RefusedError with
// its decision if the request was refused, which has another reason where there is no queue.
func verdictOf(err error, v *policy.Verdict) error {
	refused, ok := errors.AsType[*weir.RefusedError](err)
	decision := v.Decision()
	if errors.Is(err, weir.ErrNoQueue) && decision.Reason == weir.ReasonLimited {
		decision.Reason = weir.ReasonQueueFull
	}
	switch {
	case err == nil && !v.Allowed:
		return errors.New("refused, and the error is nil")
	case !ok:
		return err
	case v.Allowed || !errors.Is(err, weir.ErrRefused) || refused.Decision != decision:
		return fmt.Errorf("not the refusal of the verdict: %w", err)
	}
	return nil
}

func take(e *policy.Engine, r policy.Request) *policy.Verdict {
	v := new(policy.Verdict)
	e.Take(&r, v)
	return v
}

// named is a request that names its policy and its key.
func named(ctx context.Context, name, key string, cost int64) *policy.Request {
	return &policy.Request{Named: &policy.Named{Policy: []byte(name), Key: []byte(key), Cost: cost}, Context: ctx}
}

// takeKey, reserveKey and peekKey ask for n permits of a key of a policy, and report whether there is such a policy.
func takeKey(ctx context.Context, e *policy.Engine, name, key string, n int64, v *policy.Verdict) bool {
	e.Take(named(ctx, name, key, n), v)
	return !v.Unknown(0)
}

func reserveKey(ctx context.Context, e *policy.Engine, name, key string, n int64, v *policy.Verdict) bool {
	e.Reserve(named(ctx, name, key, n), v)
	return !v.Unknown(0)
}

func peekKey(ctx context.Context, e *policy.Engine, name, key string, n int64, v *policy.Verdict) bool {
	e.Peek(named(ctx, name, key, n), v)
	return !v.Unknown(0)
}

// left is how many permits of a key a policy with one limit has.
func left(t testing.TB, e *policy.Engine, name, key string) int64 {
	t.Helper()
	charges, ok := e.Charges(nil, name, key, 0)
	if !ok {
		t.Fatalf("no policy %q", name)
	}
	d, b := keyset.PeekAll(nil, charges...)
	return d[b].Remaining
}

func wantLeft(t testing.TB, e *policy.Engine, name, key string, want int64) {
	t.Helper()
	if got := left(t, e, name, key); got != want {
		t.Errorf("%s has %d permits of %q left, want %d", name, got, key, want)
	}
}

// TestEngineGlobalThenRoute: all rules that match add their limits, all of which must grant.
func TestEngineGlobalThenRoute(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{
			{Name: "global", Limits: one(perHour(5))},
			{Name: "login", Limits: one(perHour(2)), Key: policy.ClientIP()},
			{Name: "search", Limits: one(perHour(3)), Key: policy.ClientIP()},
		},
		Rules: []policy.Rule{
			{Name: "all", Limits: uses("global")},
			{Name: "login", Match: policy.Match{Paths: []string{"/login"}}, Limits: uses("login")},
			{Name: "search", Match: policy.Match{Paths: []string{"/search"}}, Limits: uses("search")},
		},
	})
	client := netip.MustParseAddr("192.0.2.1")
	login, search := policy.Request{Path: "/login", Client: client}, policy.Request{Path: "/search", Client: client}
	for i := range 3 {
		v := take(e, login)
		if v.Allowed != (i < 2) || len(v.Parts) != 2 || v.Decision().Policy != "login" {
			t.Errorf("login %d: %+v", i, v)
		}
	}
	wantLeft(t, e, "global", "", 3)
	for i := range 4 {
		v := take(e, search)
		want := "global"
		if v.Allowed != (i < 3) || v.Decision().Policy != want && i > 0 {
			t.Errorf("search %d: %+v", i, v.Decision())
		}
	}
	if v := take(e, policy.Request{Path: "/other"}); v.Allowed || len(v.Parts) != 1 || v.Decision().RetryAfter != time.Hour {
		t.Errorf("other: %+v", v)
	}
	wantLeft(t, e, "login", "192.0.2.1", 0)
	wantLeft(t, e, "search", "192.0.2.1", 0)
}

func TestEngineRequestWithoutLimitPasses(t *testing.T) {
	e := engine(t, &policy.Set{})
	v := take(e, policy.Request{Path: "/"})
	if d := v.Decision(); !v.Allowed || v.Binding != -1 || !d.Allowed || d.Remaining == 0 || e.Report().Unlimited != 1 {
		t.Errorf("%+v, %+v", v, e.Report())
	}
	v.Release()
}

func TestEngineExemptWinsAnywhere(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "all", Limits: one(perHour(1))}},
		Rules: []policy.Rule{
			{Name: "all", Limits: uses("all"), Final: true},
			{Name: "health", Match: policy.Match{Paths: []string{"/healthz"}}, Exempt: true},
			{Name: "never looked at", Limits: uses("all")},
		},
	})
	for range 3 {
		if v := take(e, policy.Request{Path: "/healthz"}); !v.Allowed || !v.Exempt || len(v.Parts) != 0 {
			t.Errorf("%+v", v)
		}
	}
	if v := take(e, policy.Request{Path: "/"}); !v.Allowed || len(v.Parts) != 1 || v.Parts[0].Rule.Name != "all" {
		t.Errorf("%+v", v)
	}
	r := e.Report()
	if r.Exempt != 3 || r.Rules[0].Matched != 4 || r.Rules[1].Matched != 3 || r.Rules[2].Matched != 0 {
		t.Errorf("%+v", r)
	}
}

func TestEnginePolicyHoldsOncePerKey(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "p", Limits: one(perHour(10)), Key: policy.MethodText()}},
		Rules: []policy.Rule{
			{Name: "1", Limits: uses("p")},
			{Name: "2", Limits: uses("p")},
			{Name: "3", Limits: []policy.Use{{Policy: "p", Key: policy.ConstantText("other")}}},
		},
	})
	if v := take(e, policy.Request{Method: "GET"}); len(v.Parts) != 2 || string(v.Parts[0].Key) != "GET" || string(v.Parts[1].Key) != "other" {
		t.Errorf("%+v", v)
	}
	wantLeft(t, e, "p", "GET", 9)
	wantLeft(t, e, "p", "other", 9)
}

func TestEngineSeveralWindowsInOnePolicy(t *testing.T) {
	clock := manualclock.New(1)
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "p", Limits: []policy.Limit{
			{Limit: weir.TokenBucket(weir.PerSecond(2), 0)},
			{Name: "day", Limit: weir.SlidingWindow(weir.Rate{Permits: 3, Period: 24 * time.Hour}, 0)},
		}}},
		Rules: []policy.Rule{{Name: "all", Limits: uses("p")}},
	}, func(o *policy.EngineOptions) { o.Clock = clock })
	for i, want := range []string{"p/1s", "p/1s", "p/1s"} {
		if v := take(e, policy.Request{}); v.Allowed != (i < 2) || v.Decision().Policy != want {
			t.Errorf("request %d: %+v", i, v.Decision())
		}
	}
	clock.Advance(time.Second)
	for i := range 2 {
		if v := take(e, policy.Request{}); v.Allowed != (i < 1) || i == 1 && v.Decision().Policy != "p/day" {
			t.Errorf("request %d of the next second: %+v", i, v.Decision())
		}
	}
	if d := e.Explain(&policy.Request{}).Limits; len(d) != 2 || d[0].Before != 1 || d[1].Before != 0 {
		t.Errorf("%+v", d)
	}
}

// TestEngineChildNeverExceedsParent: organisation over team over key.
func TestEngineChildNeverExceedsParent(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{
			{Name: "key", Limits: one(perHour(4)), Key: policy.HeaderText("X-Key"), Parent: "team"},
			{Name: "team", Limits: one(perHour(6)), Key: policy.HeaderText("X-Team"), Parent: "org"},
			{Name: "org", Limits: one(perHour(9)), Key: policy.HeaderText("X-Org")},
		},
		Rules: []policy.Rule{{Name: "all", Limits: uses("key")}},
	})
	granted := map[string]int{}
	for range 10 {
		for _, who := range []string{"a/1/o", "b/1/o", "c/2/o", "d/2/o", "e/3/q"} {
			p := strings.Split(who, "/")
			v := take(e, policy.Request{Header: http.Header{"X-Key": {p[0]}, "X-Team": {p[1]}, "X-Org": {p[2]}}})
			if v.Allowed {
				granted[p[0]]++
				granted["team "+p[1]]++
				granted["org "+p[2]]++
			}
			if len(v.Parts) != 3 {
				t.Fatalf("%+v", v)
			}
		}
	}
	for who, most := range map[string]int{"a": 4, "b": 4, "c": 4, "d": 4, "team 1": 6, "team 2": 6, "org o": 9} {
		if granted[who] > most {
			t.Errorf("%s got %d, more than %d", who, granted[who], most)
		}
	}
	if granted["org o"] != 9 || granted["e"] != 4 {
		t.Errorf("%v: the organisation has 9, and the other one is not held up by it", granted)
	}
	wantLeft(t, e, "org", "o", 0)
	wantLeft(t, e, "key", "a", 4-int64(granted["a"]))
}

func TestEngineTiersAndKeys(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{
			Name: "p", Limits: one(perHour(1)), Key: policy.HeaderText("X-User"), TierBy: policy.HeaderText("X-Plan"),
			Tiers: map[string][]policy.Limit{"gold": one(perHour(3))},
			Keys:  map[string][]policy.Limit{"acme": one(perHour(5))},
		}},
		Rules: []policy.Rule{{Name: "all", Limits: uses("p")}},
	})
	for _, c := range []struct {
		user, plan string
		want       int
	}{{"a", "", 1}, {"b", "gold", 3}, {"c", "unknown", 1}, {"acme", "gold", 5}} {
		got := 0
		for range 10 {
			if take(e, policy.Request{Header: http.Header{"X-User": {c.user}, "X-Plan": {c.plan}}}).Allowed {
				got++
			}
		}
		if got != c.want {
			t.Errorf("%s with plan %q got %d, want %d", c.user, c.plan, got, c.want)
		}
	}
	x := e.Explain(&policy.Request{Header: http.Header{"X-User": {"z"}, "X-Plan": {"gold"}}})
	if l := x.Limits[0]; l.Tier != "gold" || l.Before != 3 || l.After != 2 || l.Holds != "1/h, burst 3" {
		t.Errorf("%+v", l)
	}
	x = e.Explain(&policy.Request{Header: http.Header{"X-User": {"acme"}, "X-Plan": {"gold"}}})
	if l := x.Limits[0]; l.Tier != "" || l.Holds != "1/h, burst 5" {
		t.Errorf("a key with a limit of its own: %+v", l)
	}
}

// failing is an expression that fails.
type failing struct{}

var errCannot = errors.New("cannot be told")

func (failing) AppendTo(b []byte, _ *policy.Request) ([]byte, error) { return b, errCannot }
func (failing) Holds(*policy.Request) (bool, error)                  { return false, errCannot }
func (failing) Int(*policy.Request) (int64, error)                   { return 0, errCannot }
func (failing) String() string                                       { return "failing" }

func TestEngineFailsClosedOrOpen(t *testing.T) {
	for name, p := range map[string]policy.Policy{
		"key": {Key: failing{}}, "cost": {Cost: failing{}},
		"tier": {TierBy: failing{}, Tiers: map[string][]policy.Limit{"x": one(perHour(1))}},
	} {
		for _, fail := range []policy.Fail{policy.FailClosed, policy.FailOpen} {
			p.Name, p.Limits, p.Fail = "p", one(perHour(1)), fail
			e := engine(t, &policy.Set{
				Policies: []policy.Policy{p, {Name: "q", Limits: one(perHour(9))}},
				Rules:    []policy.Rule{{Name: "all", Limits: uses("p", "q")}},
			})
			v := take(e, policy.Request{})
			if v.Allowed != (fail == policy.FailOpen) {
				t.Errorf("%s, %v: %+v", name, fail, v.Decision())
			}
			want := int64(9)
			if fail == policy.FailOpen {
				want = 8
			} else if d := v.Decision(); d.Reason != weir.ReasonUnavailable || d.Policy != "p" {
				t.Errorf("%s: %+v", name, d)
			}
			wantLeft(t, e, "q", "", want)
			if r := e.Report(); r.Policies[0].Failed != 1 {
				t.Errorf("%s: %+v", name, r.Policies[0])
			}
			if x := e.Explain(&policy.Request{}); x.Limits[0].Failure == "" || x.Allowed != v.Allowed {
				t.Errorf("%s: %+v", name, x)
			}
		}
	}
}

// TestEngineRefusesWhatNoRequestCanCost whatever the Fail of a policy is: otherwise a client would pass a limit by asking for more.
func TestEngineRefusesWhatNoRequestCanCost(t *testing.T) {
	for cost, want := range map[int64]weir.Reason{
		-1: weir.ReasonInvalid, math.MinInt64: weir.ReasonInvalid, 1e15 + 1: weir.ReasonNever, math.MaxInt64: weir.ReasonNever,
	} {
		for _, fail := range []policy.Fail{policy.FailClosed, policy.FailOpen} {
			for name, r := range map[string]policy.Request{"its own": {Cost: cost}, "an expression": {Path: "/x"}} {
				p := policy.Policy{Name: "p", Limits: one(perHour(1)), Fail: fail}
				if name != "its own" {
					p.Cost = policy.FixedNumber(cost)
				}
				e := engine(t, &policy.Set{Policies: []policy.Policy{p}, Rules: []policy.Rule{{Name: "all", Limits: uses("p")}}})
				if d := take(e, r).Decision(); d.Allowed || d.Reason != want || d.RetryAfter != weir.Never || d.Policy != "p" {
					t.Errorf("%d by %s, %v: %+v", cost, name, fail, d)
				}
				wantLeft(t, e, "p", "", 1)
			}
		}
	}
}

// TestParentRefusesWhatOneChildCannotCost: of several children the highest cost counts, so that of one which cannot be told, or which
// no request can have, is no reason to charge that of another one.
func TestParentRefusesWhatOneChildCannotCost(t *testing.T) {
	for name, c := range map[string]struct {
		cost policy.Number
		want weir.Reason
	}{"fails": {failing{}, weir.ReasonUnavailable}, "too much": {policy.FixedNumber(1e15 + 1), weir.ReasonNever}} {
		for _, swap := range []bool{false, true} {
			u := uses("a", "b")
			if swap {
				u[0], u[1] = u[1], u[0]
			}
			e := engine(t, &policy.Set{
				Policies: []policy.Policy{
					{Name: "parent", Limits: one(perHour(9))},
					{Name: "a", Limits: one(perHour(9)), Parent: "parent", Mode: policy.ModeShadow},
					{Name: "b", Limits: one(perHour(9)), Parent: "parent", Mode: policy.ModeShadow, Cost: c.cost},
				},
				Rules: []policy.Rule{{Name: "all", Limits: u}},
			})
			if d := take(e, policy.Request{}).Decision(); d.Reason != c.want || d.Policy != "parent" {
				t.Errorf("%s, swapped %v: %+v", name, swap, d)
			}
			wantLeft(t, e, "parent", "", 9)
		}
	}
}

// TestRulesWithOneKeyAgreeOnTheHigherCost: a policy to which several rules lead with the same key applies once, at the highest cost,
// and refuses what one of them cannot cost, whatever their order.
func TestRulesWithOneKeyAgreeOnTheHigherCost(t *testing.T) {
	beyond := policy.FixedNumber(1e15 + 1)
	for name, c := range map[string]struct {
		costs  [2]policy.Number
		reason weir.Reason
		fail   policy.Fail
		left   int64
	}{
		"its own and 10":   {[2]policy.Number{nil, policy.FixedNumber(10)}, weir.ReasonNone, policy.FailClosed, 10},
		"10 and 3":         {[2]policy.Number{policy.FixedNumber(10), policy.FixedNumber(3)}, weir.ReasonNone, policy.FailClosed, 10},
		"0 and its own":    {[2]policy.Number{policy.FixedNumber(0), nil}, weir.ReasonNone, policy.FailClosed, 19},
		"more than it has": {[2]policy.Number{nil, policy.FixedNumber(21)}, weir.ReasonNever, policy.FailClosed, 20},
		"fails":            {[2]policy.Number{nil, failing{}}, weir.ReasonUnavailable, policy.FailClosed, 20},
		"beyond any":       {[2]policy.Number{nil, beyond}, weir.ReasonNever, policy.FailOpen, 20},
		"fails and beyond": {[2]policy.Number{failing{}, beyond}, weir.ReasonNever, policy.FailOpen, 20},
	} {
		for _, swap := range []bool{false, true} {
			rules := []policy.Rule{
				{Name: "all", Limits: []policy.Use{{Policy: "p", Cost: c.costs[0]}}},
				{Name: "export", Match: policy.Match{Paths: []string{"/export"}}, Limits: []policy.Use{{Policy: "p", Cost: c.costs[1]}}},
			}
			if swap {
				slices.Reverse(rules)
			}
			e := engine(t, &policy.Set{Policies: []policy.Policy{{Name: "p", Limits: one(perHour(20)), Fail: c.fail}}, Rules: rules})
			v := take(e, policy.Request{Path: "/export"})
			if d := v.Decision(); v.Allowed != (c.reason == weir.ReasonNone) || !v.Allowed && d.Reason != c.reason {
				t.Errorf("%s, swapped %v: %+v", name, swap, d)
			}
			wantLeft(t, e, "p", "", c.left)
		}
	}
}

// TestEngineConditionThatFails: a rule whose condition cannot be evaluated limits its requests. It exempts none, and as a final rule
// it frees none of the rules behind it.
func TestEngineConditionThatFails(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "p", Limits: one(perHour(1))}, {Name: "behind", Limits: one(perHour(1))}},
		Rules: []policy.Rule{
			{Name: "limited", When: failing{}, Limits: uses("p"), Final: true},
			{Name: "exempt", When: failing{}, Exempt: true},
			{Name: "behind", Limits: uses("behind")},
		},
	})
	if x := e.Explain(&policy.Request{}); !x.Rules[2].Matched {
		t.Errorf("explained as freed by the rule in front: %+v", x.Rules[2])
	}
	if v := take(e, policy.Request{}); !v.Allowed || v.Exempt || len(v.Parts) != 2 {
		t.Errorf("%+v", v)
	}
	r := e.Report()
	if r.Rules[0].Failed != 1 || r.Rules[1].Failed != 1 || r.Rules[0].Matched != 1 || r.Rules[1].Matched != 0 {
		t.Errorf("%+v", r.Rules)
	}
	if x := e.Explain(&policy.Request{}); !x.Rules[0].Matched || x.Rules[1].Condition != "when: failing cannot be told: cannot be told" {
		t.Errorf("%+v", x.Rules)
	}
}

func TestEngineLogsFailuresSparingly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		e := engine(t, &policy.Set{
			Policies: []policy.Policy{{Name: "p", Limits: one(perHour(1)), Key: failing{}}},
			Rules:    []policy.Rule{{Name: "r", When: failing{}, Limits: uses("p")}},
		}, func(o *policy.EngineOptions) { o.Logger = slog.New(slog.NewTextHandler(&text, nil)) })
		lines := func(want int) {
			t.Helper()
			for range 5 {
				take(e, policy.Request{})
			}
			if n := strings.Count(text.String(), "an expression failed"); n != want {
				t.Errorf("%d lines, want %d:\n%s", n, want, text.String())
			}
		}
		lines(2)
		time.Sleep(time.Minute)
		lines(4)
		if !strings.Contains(text.String(), "rule=r error=\"cannot be told\"") {
			t.Error(text.String())
		}
	})
}

func TestEngineShadowRefusesNobody(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{
			{Name: "live", Limits: one(perHour(4)), Key: policy.MethodText()},
			{Name: "shadow", Limits: one(perHour(1)), Key: policy.MethodText(), Mode: policy.ModeShadow},
			{Name: "off", Mode: policy.ModeOff},
		},
		Rules: []policy.Rule{{Name: "all", Limits: uses("live", "shadow", "off")}},
	})
	for i := range 6 {
		if v := take(e, policy.Request{Method: "GET"}); v.Allowed != (i < 4) || len(v.Parts) != 1 {
			t.Errorf("request %d: %+v", i, v)
		}
	}
	p := e.Report().Policies[1]
	if d := p.Difference; p.Allowed != 1 || p.Refused != 3 || d.Requests != 4 || d.NewlyRefused != 3 || d.NewlyAdmitted != 0 ||
		len(d.RefusedKeys) != 1 || d.RefusedKeys[0] != (policy.KeyCount{Key: "GET", Count: 3}) {
		t.Errorf("%+v, %+v", p, p.Difference)
	}
}

func TestEngineCandidateIsMeasuredBeside(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{
			{Name: "stricter", Limits: one(perHour(4)), Candidate: one(perHour(2)), Key: policy.MethodText()},
			{Name: "looser", Limits: one(perHour(2)), Candidate: one(perHour(4)), Key: policy.MethodText()},
			{Name: "other", Limits: one(perHour(100)), Key: policy.MethodText()},
		},
		Rules: []policy.Rule{
			{Name: "s", Match: policy.Match{Paths: []string{"/s"}}, Limits: uses("stricter", "other")},
			{Name: "l", Match: policy.Match{Paths: []string{"/l"}}, Limits: uses("looser", "other")},
		},
	})
	for range 6 {
		take(e, policy.Request{Method: "GET", Path: "/s"})
		take(e, policy.Request{Method: "PUT", Path: "/l"})
	}
	r := e.Report()
	s, l := r.Policies[0].Difference, r.Policies[1].Difference
	if s.Requests != 6 || s.NewlyRefused != 2 || s.NewlyAdmitted != 0 || s.RefusedKeys[0] != (policy.KeyCount{Key: "GET", Count: 2}) {
		t.Errorf("stricter: %+v", s)
	}
	if l.Requests != 6 || l.NewlyRefused != 0 || l.NewlyAdmitted != 2 || l.AdmittedKeys[0] != (policy.KeyCount{Key: "PUT", Count: 2}) {
		t.Errorf("looser: %+v", l)
	}
	wantLeft(t, e, "stricter", "GET", 0)
	wantLeft(t, e, "looser", "PUT", 0)
	if x := e.Explain(&policy.Request{Method: "GET", Path: "/s"}); len(x.Limits) != 3 || x.Limits[1].Role != "candidate" || x.Limits[1].Before != 0 {
		t.Errorf("%+v", x.Limits)
	}
}

// TestEngineCandidateIsNotAskedWhereOthersRefuse: it would not be charged either if it were live.
func TestEngineCandidateIsNotAskedWhereOthersRefuse(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{
			{Name: "p", Limits: one(perHour(5)), Candidate: one(perHour(5))},
			{Name: "other", Limits: one(perHour(1))},
		},
		Rules: []policy.Rule{{Name: "all", Limits: uses("p", "other")}},
	})
	for range 4 {
		take(e, policy.Request{})
	}
	if d := e.Report().Policies[0].Difference; d.Requests != 1 || d.NewlyRefused+d.NewlyAdmitted != 0 {
		t.Errorf("%+v", d)
	}
}

func TestEngineLockout(t *testing.T) {
	clock := manualclock.New(1)
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{
			{
				Name: "p", Limits: one(weir.TokenBucket(weir.PerSecond(1), 0)), Key: policy.MethodText(),
				Lockout: &policy.Lockout{Refusals: 3, Within: time.Second, For: time.Minute, InARow: true},
			},
			{Name: "other", Limits: one(perHour(100))},
		},
		Rules: []policy.Rule{{Name: "all", Limits: uses("p", "other")}},
	}, func(o *policy.EngineOptions) { o.Clock = clock })
	get := policy.Request{Method: "GET"}
	check := func(want weir.Reason, retry time.Duration) {
		t.Helper()
		var peeked policy.Verdict
		e.Peek(&get, &peeked)
		if d := peeked.Decision(); d.Reason != want || d.RetryAfter != retry {
			t.Errorf("peeked %+v, want %v after %v", d, want, retry)
		}
		if x := e.Explain(&get); x.Reason != want || x.RetryAfter != retry {
			t.Errorf("explained %+v, want %v after %v", x, want, retry)
		}
		v := take(e, get)
		if d := v.Decision(); d.Reason != want || d.RetryAfter != retry || d.Policy == "" {
			t.Errorf("%+v, want %v after %v", d, want, retry)
		}
	}
	check(weir.ReasonNone, 0)
	check(weir.ReasonLimited, time.Second)
	check(weir.ReasonLimited, time.Second)
	clock.Advance(time.Second)
	check(weir.ReasonNone, 0) // the refusals were not in a row
	check(weir.ReasonLimited, time.Second)
	check(weir.ReasonLimited, time.Second)
	check(weir.ReasonHardLockout, time.Minute)
	clock.Advance(10 * time.Second)
	check(weir.ReasonHardLockout, 50*time.Second)
	wantLeft(t, e, "other", "", 98)
	if v := take(e, policy.Request{Method: "PUT"}); !v.Allowed {
		t.Errorf("another key: %+v", v.Decision())
	}
	if p := e.Report().Policies[0]; p.LockedOut != 2 || p.Locked != 1 || p.Refused != 6 {
		t.Errorf("%+v", p)
	}
	if x := e.Explain(&get); x.Reason != weir.ReasonHardLockout || x.RetryAfter != 50*time.Second {
		t.Errorf("%+v", x)
	}
	clock.Advance(50 * time.Second)
	check(weir.ReasonNone, 0)
	for range 3 {
		take(e, get)
	}
	if !e.Unlock("p", "GET") || e.Unlock("p", "GET") || e.Unlock("other", "GET") || e.Unlock("none", "") {
		t.Error("Unlock is wrong")
	}
	check(weir.ReasonLimited, time.Second)
}

// TestEngineLockoutWindow: exactly at its end a refusal still counts, and the window slides.
func TestEngineLockoutWindow(t *testing.T) {
	clock := manualclock.New(1)
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{
			Name: "p", Limits: one(perHour(1)), Lockout: &policy.Lockout{Refusals: 3, Within: time.Second, For: time.Minute},
		}},
		Rules: []policy.Rule{{Name: "all", Limits: uses("p")}},
	}, func(o *policy.EngineOptions) { o.Clock = clock })
	take(e, policy.Request{})
	for i, c := range []struct {
		after time.Duration
		want  weir.Reason
	}{
		{0, weir.ReasonLimited},
		{time.Second, weir.ReasonLimited},
		{time.Second, weir.ReasonLimited},                           // the first one is two seconds old
		{50 * time.Microsecond, weir.ReasonLimited},                 // and the second one a little older than a second
		{time.Second - 50*time.Microsecond, weir.ReasonHardLockout}, // the third one is exactly a second old
	} {
		clock.Advance(c.after)
		if d := take(e, policy.Request{}).Decision(); d.Reason != c.want {
			t.Errorf("refusal %d: %+v, want %v", i, d, c.want)
		}
	}
	// A lockout that is shorter than the wait for a permit must not make clients spin.
	if d := take(e, policy.Request{}).Decision(); d.RetryAfter != time.Hour-3*time.Second {
		t.Errorf("%+v", d)
	}
}

func TestEngineReserveIsSettledLater(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{
			{Name: "requests", Limits: one(perHour(10))},
			{Name: "tokens", Limits: one(perHour(1000)), Cost: policy.FixedNumber(400)},
		},
		Rules: []policy.Rule{{Name: "all", Limits: uses("requests", "tokens")}},
	})
	reserve := func() *policy.Verdict {
		v := new(policy.Verdict)
		e.Reserve(&policy.Request{}, v)
		if !v.Allowed {
			t.Fatalf("%+v", v.Decision())
		}
		return v
	}
	v := reserve()
	wantLeft(t, e, "tokens", "", 600)
	v.Commit(func(p *policy.Part) int64 {
		if p.Policy.Name == "tokens" {
			return 150
		}
		return -1
	})
	v.Cancel()
	wantLeft(t, e, "requests", "", 9)
	wantLeft(t, e, "tokens", "", 850)
	reserve().Cancel()
	wantLeft(t, e, "requests", "", 9)
	wantLeft(t, e, "tokens", "", 850)
	reserve().Release()
	wantLeft(t, e, "tokens", "", 450)
}

func TestEngineHoldsConcurrencyUntilReleased(t *testing.T) {
	inUse := weir.AtOnce(1)
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{
			{Name: "live", Limits: one(inUse), Candidate: one(inUse)},
			{Name: "shadow", Limits: one(inUse), Mode: policy.ModeShadow},
		},
		Rules: []policy.Rule{{Name: "all", Limits: uses("live", "shadow")}},
	})
	for range 3 {
		first := take(e, policy.Request{})
		if second := take(e, policy.Request{}); !first.Allowed || second.Allowed || second.Decision().Policy != "live" {
			t.Errorf("%+v, %+v", first.Decision(), second.Decision())
		}
		first.Release()
		first.Release()
	}
	for _, p := range e.Report().Policies {
		if d := p.Difference; d.NewlyRefused+d.NewlyAdmitted != 0 {
			t.Errorf("%s: %+v", p.Name, d)
		}
	}
}

func TestEngineWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, &policy.Set{
			Policies: []policy.Policy{
				{Name: "p", Limits: one(weir.TokenBucket(weir.PerSecond(1), 0)), QueueLimit: 10, MaxWait: 3 * time.Second},
				{Name: "other", Limits: one(perHour(4))},
			},
			Rules: []policy.Rule{{Name: "all", Limits: uses("other", "p")}},
		}, func(o *policy.EngineOptions) { o.Clock = nil })
		start := time.Now()
		wait := func(ctx context.Context) (*policy.Verdict, error) {
			v := new(policy.Verdict)
			return v, verdictOf(e.Wait(ctx, &policy.Request{}, v), v)
		}
		for i := range 4 {
			v, err := wait(t.Context())
			if err != nil || !v.Allowed || time.Since(start) != time.Duration(i)*time.Second {
				t.Fatalf("request %d after %v: %+v, %v", i, time.Since(start), v.Decision(), err)
			}
		}
		if v, err := wait(t.Context()); err != nil || v.Allowed || v.Decision().Policy != "other" || v.Decision().Reason != weir.ReasonLimited {
			t.Errorf("%+v, %v", v.Decision(), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := wait(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if n := e.Report().Canceled; n != 1 {
			t.Errorf("%d canceled", n)
		}
	})
}

func TestEngineWaitsNoLongerThanMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, &policy.Set{
			Policies: []policy.Policy{{Name: "p", Limits: one(weir.AtOnce(1)), QueueLimit: 10}},
			Rules:    []policy.Rule{{Name: "all", Limits: uses("p")}},
		}, func(o *policy.EngineOptions) { o.Clock = nil })
		first := take(e, policy.Request{})
		start, v := time.Now(), new(policy.Verdict)
		err := verdictOf(e.Wait(t.Context(), &policy.Request{}, v), v)
		if d := v.Decision(); err != nil || v.Allowed || d.Reason != weir.ReasonDeadline || d.Policy != "p" || time.Since(start) != time.Second {
			t.Errorf("after %v: %+v, %v", time.Since(start), d, err)
		}
		first.Release()
		if err := verdictOf(e.WaitReserve(t.Context(), &policy.Request{}, v), v); err != nil || !v.Allowed {
			t.Errorf("%+v, %v", v.Decision(), err)
		}
		v.Cancel()
		if v := take(e, policy.Request{}); !v.Allowed {
			t.Errorf("%+v", v.Decision())
		}
	})
}

func TestEngineShedsByPriority(t *testing.T) {
	load := 0.965
	shedder, err := overload.NewShedder(overload.ShedderOptions{
		Name: "shedder", Sources: []overload.Pressure{fixedPressure{&load}}, Rise: -1, Fall: -1, Random: func() float64 { return 0.1 },
		Bands: map[overload.Priority]overload.ShedBand{overload.PriorityNormal: {From: 0.9, To: 0.96}},
	})
	if err != nil {
		t.Fatal(err)
	}
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{
			{Name: "normal", Limits: one(perHour(9))},
			{Name: "critical", Limits: one(perHour(9)), Priority: overload.PriorityCritical},
		},
		Rules: []policy.Rule{
			{Name: "all", Limits: uses("normal")},
			{Name: "pay", Match: policy.Match{Paths: []string{"/pay"}}, Limits: uses("critical")},
		},
	}, func(o *policy.EngineOptions) { o.Shedder = shedder })
	if v := take(e, policy.Request{Path: "/"}); v.Allowed || v.Decision().Reason != weir.ReasonOverloaded || v.Decision().Policy != "shedder" {
		t.Errorf("%+v", v.Decision())
	}
	if v := take(e, policy.Request{Path: "/pay"}); !v.Allowed || v.Priority != overload.PriorityCritical {
		t.Errorf("%+v", v.Decision())
	}
	wantLeft(t, e, "normal", "", 8)
}

type fixedPressure struct{ load *float64 }

func (p fixedPressure) Pressure(int64) (float64, error) { return *p.load, nil }
func (fixedPressure) String() string                    { return "fixed" }

func TestEngineExplains(t *testing.T) {
	var live []policy.Explanation
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "p", Limits: one(perHour(3)), Key: policy.PathValueText("user")}},
		Rules: []policy.Rule{
			{Name: "users", Match: policy.Match{Paths: []string{"/users/{user}"}}, Limits: uses("p"), Final: true, Source: "weir.yaml:3:5"},
			{Name: "post", Match: policy.Match{Methods: []string{"POST"}}, Limits: uses("p")},
			{Name: "rest", Limits: uses("p")},
		},
	}, func(o *policy.EngineOptions) {
		o.ExplainEvery, o.OnExplain = 2, func(x policy.Explanation) { live = append(live, x) }
	})
	r := policy.Request{Method: "GET", Path: "/users/ann", Cost: 2}
	x := e.Explain(&r)
	if !x.Allowed || x.Binding != 0 || len(x.Limits) != 1 || len(x.Rules) != 3 {
		t.Fatalf("%+v", x)
	}
	if l := x.Limits[0]; l.Key != "ann" || l.Before != 3 || l.After != 1 || l.Cost != 2 || l.Would != "a cost of up to 3 now" || l.Rule != "users" {
		t.Errorf("%+v", l)
	}
	if !x.Rules[0].Matched || x.Rules[0].Source != "weir.yaml:3:5" || x.Rules[1].Condition != "method is GET, rule wants POST" ||
		x.Rules[2].Condition != "rule users before it matches and is final" {
		t.Errorf("%+v", x.Rules)
	}
	take(e, r)
	if len(live) != 0 {
		t.Error("the first of two is explained")
	}
	take(e, r)
	if len(live) != 1 || live[0].Allowed || live[0].Reason != weir.ReasonLimited || live[0].Limits[0].Would != "a cost of up to 1 now, this one in 1 hour" {
		t.Errorf("%+v", live)
	}
	r.Cost = 4
	if x := e.Explain(&r); x.RetryAfter != weir.Never || x.Limits[0].Would != "a cost of up to 1 now, and never more than 3" {
		t.Errorf("%+v", x)
	}
	if n := e.Report().Rules[0].Matched; n != 2 {
		t.Errorf("explanations count as requests: %d", n)
	}
}

func TestEnginePeekTakesNothing(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "p", Limits: one(perHour(1))}},
		Rules:    []policy.Rule{{Name: "all", Limits: uses("p")}},
	})
	v := new(policy.Verdict)
	for range 3 {
		if e.Peek(&policy.Request{}, v); !v.Allowed || v.Decision().Remaining != 1 {
			t.Errorf("%+v", v.Decision())
		}
	}
	take(e, policy.Request{})
	if e.Peek(&policy.Request{}, v); v.Allowed || v.Decision().RetryAfter != time.Hour {
		t.Errorf("%+v", v.Decision())
	}
	v.Release()
	if r := e.Report(); r.Requests != 1 {
		t.Errorf("%+v", r)
	}
}

func TestEngineClose(t *testing.T) {
	set := &policy.Set{
		Policies: []policy.Policy{{Name: "p", Limits: one(perHour(1)), Candidate: one(perHour(1))}},
		Rules:    []policy.Rule{{Name: "all", Limits: uses("p")}},
	}
	e := engine(t, set)
	for range 2 {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if v := take(e, policy.Request{}); v.Allowed || v.Decision().Reason != weir.ReasonClosed {
		t.Errorf("%+v", v.Decision())
	}
	if _, err := e.Load(set); !errors.Is(err, policy.ErrEngineClosed) {
		t.Error(err)
	}
}

func TestEngineAllocatesNothing(t *testing.T) {
	e, err := policy.NewEngine(manyRules(100, 3), policy.EngineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := policy.Request{Method: "GET", Path: "/v1/things7/12", Header: http.Header{}, Client: netip.MustParseAddr("192.0.2.1")}
	v := new(policy.Verdict)
	e.Take(&r, v)
	if len(v.Parts) != 3 {
		t.Fatalf("%+v", v)
	}
	n := testing.AllocsPerRun(100, func() {
		e.Take(&r, v)
		v.Release()
	})
	if n > 0 && !race.Enabled {
		t.Errorf("%v allocations", n)
	}
}

func TestEngineOptions(t *testing.T) {
	for _, o := range []policy.EngineOptions{{ExplainEvery: -1}, {ExplainEvery: 1}, {ExplainEvery: 2e9}} {
		if _, err := policy.NewEngine(&policy.Set{}, o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	if _, err := policy.NewEngine(nil, policy.EngineOptions{}); err == nil {
		t.Error("no set is accepted")
	}
}
