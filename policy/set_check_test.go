package policy_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/policy"
)

// TestSetCheck: every mistake is told, with what it is about, the value, and what is accepted.
func TestSetCheck(t *testing.T) {
	ok := one(perHour(1))
	many := make([]policy.Limit, 9)
	for i := range many {
		many[i].Limit = perHour(1)
	}
	window := weir.FixedWindow(weir.PerSecond(1))
	for _, c := range []struct {
		want string
		p    policy.Policy
	}{
		{`Policies[0].Name is "": must be from 1 to 128 printable ASCII characters except "/"`, policy.Policy{Limits: ok}},
		{`Policies[0].Name is "a/b": must be`, policy.Policy{Name: "a/b", Limits: ok}},
		{`policy "p": Limits is 0 of them: must be from 1 to 8`, policy.Policy{Name: "p"}},
		{`policy "p": Limits is 9 of them: must be from 1 to 8`, policy.Policy{Name: "p", Limits: many}},
		{`policy "p": Limits[0]: weir: Limit.Rate`, policy.Policy{Name: "p", Limits: one(weir.Limit{})}},
		{`policy "p": Limits[1].Name is "x": must be`, policy.Policy{Name: "p", Limits: []policy.Limit{{Name: "x", Limit: perHour(1)}, {Name: "x", Limit: perHour(1)}}}},
		{`policy "p": Mode is Mode(9): must be enforce, shadow, tag or off`, policy.Policy{Name: "p", Limits: ok, Mode: 9}},
		{`policy "p": Fail is Fail(9): must be closed, open or local`, policy.Policy{Name: "p", Limits: ok, Fail: 9}},
		{`policy "p": Candidate is given: must be none`, policy.Policy{Name: "p", Limits: ok, Candidate: ok, Mode: policy.ModeShadow}},
		{`policy "p": TierBy is nil: must be`, policy.Policy{Name: "p", Limits: ok, Tiers: map[string][]policy.Limit{"a": ok}}},
		{`policy "p": Tiers is none: must be`, policy.Policy{Name: "p", Limits: ok, TierBy: policy.MethodText()}},
		{`policy "p": Tiers["a"] is 2 of them: must be as many`, policy.Policy{
			Name: "p", Limits: ok, TierBy: policy.MethodText(), Tiers: map[string][]policy.Limit{"a": append(ok, ok...)},
		}},
		{`policy "p": Keys["a"][0] is fixed-window 1/s: must be as many limits as Limits, with the same names and algorithms`, policy.Policy{
			Name: "p", Limits: ok, Keys: map[string][]policy.Limit{"a": one(window)},
		}},
		{`policy "p": Parent is "q": must be the name of a policy`, policy.Policy{Name: "p", Limits: ok, Parent: "q"}},
		{`policy "p": Parent is "p": must be a policy of which this one is not a parent itself`, policy.Policy{Name: "p", Limits: ok, Parent: "p"}},
		{`policy "p": weir: Bounds.QueueLimit is -1`, policy.Policy{Name: "p", Limits: ok, QueueLimit: -1}},
		{`policy "p": weir: Bounds.MaxKeys is -1`, policy.Policy{Name: "p", Limits: ok, MaxKeys: -1}},
		{`policy "p": MaxWait is 2h0m0s: must be from 1ms to 1h`, policy.Policy{Name: "p", Limits: ok, QueueLimit: 1, MaxWait: 2 * time.Hour}},
		{`policy "p": MaxWait is 1s: must be 0, as QueueLimit is 0`, policy.Policy{Name: "p", Limits: ok, MaxWait: time.Second}},
		{`policy "p": Priority is Priority(7): must be background`, policy.Policy{Name: "p", Limits: ok, Priority: 7}},
		{`policy "p": Lockout.Refusals is 0: must be from 1 to 65535`, policy.Policy{Name: "p", Limits: ok, Lockout: &policy.Lockout{Within: 1e9, For: 1e9}}},
		{`policy "p": Lockout.Within is 0s: must be from 1ms to 24h`, policy.Policy{Name: "p", Limits: ok, Lockout: &policy.Lockout{Refusals: 1, For: 1e9}}},
		{`policy "p": Lockout.For is 0s: must be from 1ms to 3660 days`, policy.Policy{Name: "p", Limits: ok, Lockout: &policy.Lockout{Refusals: 1, Within: 1e9}}},
		{`policy "p": Consistency is Consistency(9): must be local, coherent, leased or optimistic`, policy.Policy{Name: "p", Limits: ok, Consistency: 9}},
		{`policy "p": Fail is local: must be closed or open, as Consistency is local`, policy.Policy{Name: "p", Limits: ok, Fail: policy.FailLocal}},
		{`policy "p": Hold is 1s: must be 0, as Consistency is local`, policy.Policy{Name: "p", Limits: ok, Hold: time.Second}},
		{`policy "p": Hold is 1ns: must be from 1ms to 24h, or 0 for 1m`, policy.Policy{
			Name: "p", Limits: ok, Hold: 1, Consistency: policy.ConsistencyCoherent,
		}},
		{`policy "p": Hold is 25h0m0s: must be from 1ms to 24h`, policy.Policy{
			Name: "p", Limits: ok, Hold: 25 * time.Hour, Consistency: policy.ConsistencyCoherent,
		}},
		{`policy "p": QueueLimit is 3: must be 0, as Consistency is leased: a shared limit has no queue`, policy.Policy{
			Name: "p", Limits: ok, QueueLimit: 3, Consistency: policy.ConsistencyLeased,
		}},
		{`policy "p": AdmitWhenFull is true: must be false, as Consistency is leased`, policy.Policy{
			Name: "p", Limits: ok, AdmitWhenFull: true, Consistency: policy.ConsistencyLeased,
		}},
		{`policy "p": Consistency is optimistic: must be coherent or local, as its limit "concurrency" is one of concurrency`, policy.Policy{
			Name: "p", Limits: one(weir.AtOnce(1)), Consistency: policy.ConsistencyOptimistic,
		}},
		{`policy "p": Consistency is coherent: must be local, as Durability is cluster`, policy.Policy{
			Name: "p", Limits: ok, Durability: policy.DurabilityCluster, Consistency: policy.ConsistencyCoherent,
		}},
		{`policy "p": Fail is local: must be closed or open, as Durability is cluster`, policy.Policy{
			Name: "p", Limits: ok, Durability: policy.DurabilityCluster, Fail: policy.FailLocal,
		}},
		{`policy "p": NewestFirst is true: must be false, as Durability is cluster`, policy.Policy{
			Name: "p", Limits: ok, Durability: policy.DurabilityCluster, QueueLimit: 1, NewestFirst: true,
		}},
		{`policy "p": AdmitWhenFull is true: must be false, as Durability is cluster`, policy.Policy{
			Name: "p", Limits: ok, Durability: policy.DurabilityCluster, AdmitWhenFull: true,
		}},
		{`policy "p": Hold is 48h0m0s: must be from 1ms to 24h`, policy.Policy{
			Name: "p", Limits: ok, Durability: policy.DurabilityCluster, Hold: 48 * time.Hour,
		}},
		{`policy "p": Limits[0]: weir: Limit.Calendar.Zone is "here": must be UTC or a zone with a name`, policy.Policy{
			Name: "p", Limits: one(month(time.FixedZone("here", 60))), Durability: policy.DurabilityCluster,
		}},
		{`policy "p": Durability is Durability(7): must be memory, cluster or file`, policy.Policy{Name: "p", Limits: ok, Durability: 7}},
		{`policy "p": Keys["k"][0]: weir: Limit.Calendar.Zone is "here": must be UTC or a zone with a name`, policy.Policy{
			Name: "p", Limits: one(month(time.UTC)), Keys: map[string][]policy.Limit{"k": one(month(time.FixedZone("here", 60)))},
			Consistency: policy.ConsistencyCoherent,
		}},
	} {
		err := (&policy.Set{Policies: []policy.Policy{c.p}}).Check()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	for _, c := range []struct {
		want string
		r    policy.Rule
	}{
		{`Rules[0].Name is "": must be`, policy.Rule{}},
		{`rule "r": Limits[0].Policy is "q": must be the name of a policy`, policy.Rule{Name: "r", Limits: uses("q")}},
		{`rule "r": Limits is 1 of them: must be none, as the rule is Exempt`, policy.Rule{Name: "r", Exempt: true, Limits: uses("p")}},
		{`rule "r": Limits is 1 of them: must be none, as the rule denies`, policy.Rule{Name: "r", Deny: true, Limits: uses("p")}},
		{`rule "r": Exempt is true: must be false, as the rule denies`, policy.Rule{Name: "r", Deny: true, Exempt: true}},
		{`rule "r": Final is true: must be false, as the rule denies`, policy.Rule{Name: "r", Deny: true, Final: true}},
		{`rule "r": Afterwards is true: must be false, as the rule denies`, policy.Rule{Name: "r", Deny: true, Afterwards: true}},
		{`rule "r": Mode is tag: must be enforce, shadow or off`, policy.Rule{Name: "r", Deny: true, Mode: policy.ModeTag}},
		{`rule "r": Mode is Mode(9): must be enforce, shadow or off`, policy.Rule{Name: "r", Deny: true, Mode: 9}},
		{`rule "r": Mode is shadow: must be enforce, as the rule does not Deny`, policy.Rule{Name: "r", Mode: policy.ModeShadow}},
		{`Match.Paths[0] is "x": must`, policy.Rule{Name: "r", Match: policy.Match{Paths: []string{"x"}}}},
		{`Match.Clients[0]`, policy.Rule{Name: "r", Match: policy.Match{Clients: []netip.Prefix{{}}}}},
	} {
		set := &policy.Set{Policies: []policy.Policy{{Name: "p", Limits: ok}}, Rules: []policy.Rule{c.r}}
		if err := set.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func TestMatchNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		m    policy.Match
		want string
	}{
		{policy.Match{Methods: []string{"GET", "get"}}, `Match.Methods[1] is "get": must be a method in upper case, such as GET`},
		{policy.Match{Methods: []string{""}}, `Match.Methods[0] is "": must be a method`},
		{policy.Match{Methods: []string{"GET POST"}}, `Match.Methods[0] is "GET POST": must be a method`},
		{policy.Match{Hosts: []string{""}}, `Match.Hosts[0] is "": must be a host such as api.example.com or *.example.com`},
		{policy.Match{Hosts: []string{"*"}}, `Match.Hosts[0] is "*"`},
		{policy.Match{Hosts: []string{"*."}}, `Match.Hosts[0] is "*."`},
		{policy.Match{Hosts: []string{"."}}, `Match.Hosts[0] is "."`},
		{policy.Match{Hosts: []string{"a..com"}}, `Match.Hosts[0] is "a..com"`},
		{policy.Match{Hosts: []string{"a.*.com"}}, `Match.Hosts[0] is "a.*.com"`},
		{policy.Match{Hosts: []string{"*.*.com"}}, `Match.Hosts[0] is "*.*.com"`},
		{policy.Match{Hosts: []string{"example.com:80"}}, `Match.Hosts[0] is "example.com:80"`},
		{policy.Match{Hosts: []string{"[::1]0"}}, `Match.Hosts[0] is "[::1]0"`},
		{policy.Match{Hosts: []string{"[::1]:80"}}, `Match.Hosts[0] is "[::1]:80"`},
		{policy.Match{Hosts: []string{"bücher.example"}}, `Match.Hosts[0] is "bücher.example"`},
		{policy.Match{Hosts: []string{strings.Repeat("a", 256)}}, `..: must be a host`},
		{policy.Match{Paths: []string{"login"}}, `Match.Paths[0] is "login": must be a pattern such as /users/{id}`},
		{policy.Match{Paths: []string{"/a", "/{"}}, `Match.Paths[1] is "/{": must be with wildcards that are whole segments`},
		{policy.Match{Headers: []policy.HeaderMatch{{}}}, `Match.Headers[0].Name is "": must be the name of a header field`},
		{policy.Match{Headers: []policy.HeaderMatch{{Name: "a b"}}}, `Match.Headers[0].Name is "a b"`},
		{policy.Match{Headers: []policy.HeaderMatch{{Name: "host", Value: "x"}}}, `Match.Headers[0].Name is "host": must be another field`},
		{policy.Match{Headers: []policy.HeaderMatch{{Name: "A", Value: "x", Absent: true}}}, `Match.Headers[0].Value is "x": must be empty with Absent`},
		{policy.Match{Headers: []policy.HeaderMatch{{Name: "A", Value: "x\n"}}}, `Match.Headers[0].Value is "x\n": must be without control`},
		{policy.Match{Headers: []policy.HeaderMatch{{Name: "A", Value: " x"}}}, `Match.Headers[0].Value is " x": must be without control`},
		{policy.Match{Clients: []netip.Prefix{{}}}, `Match.Clients[0] is invalid Prefix: must be a network such as 10.0.0.0/8`},
		{policy.Match{Routes: []string{""}}, `Match.Routes[0] is "": must be the name of a route`},
		{policy.Match{Protocols: []string{"HTTP"}}, `Match.Protocols[0] is "HTTP": must be a protocol in lower case`},
	} {
		err := (&policy.Set{Rules: []policy.Rule{{Name: "ok"}, {Name: "login", Match: c.m}}}).Check()
		var option *weir.OptionError
		if !errors.As(err, &option) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), `weir: rule "login": Match.`) {
			t.Errorf("%+v: %v, want %s", c.m, err, c.want)
		}
	}
	err := (&policy.Set{Rules: []policy.Rule{
		{Name: "a", Match: policy.Match{Methods: []string{"a", "GET", "b"}}}, {Name: "c", Match: policy.Match{Paths: []string{"c"}}},
	}}).Check()
	if err == nil || strings.Count(err.Error(), "weir: ") != 3 {
		t.Errorf("three mistakes: %v", err)
	}
}

// month is a limit of one permit in each month.
func month(zone *time.Location) weir.Limit {
	return weir.CalendarWindow(1, algo.Calendar{Unit: algo.CalendarMonth, Zone: zone})
}

// TestSetWithSharedPoliciesNeedsStore, or to be said that the engine is alone.
func TestSetWithSharedPoliciesNeedsStore(t *testing.T) {
	set := &policy.Set{Policies: []policy.Policy{{Name: "p", Limits: one(perHour(1)), Consistency: policy.ConsistencyCoherent}}}
	const want = `policy "p": Consistency is coherent: must be local, as the engine has no Store`
	if _, err := policy.NewEngine(set, policy.EngineOptions{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	e := engine(t, set, func(o *policy.EngineOptions) { o.Alone = true })
	wantLeft(t, e, "p", "", 1)
}

// TestConsistencyText: every consistency is what its text says.
func TestConsistencyText(t *testing.T) {
	for c := policy.ConsistencyLocal; c <= policy.ConsistencyOptimistic; c++ {
		text, err := c.MarshalText()
		var back policy.Consistency
		if err != nil || back.UnmarshalText(text) != nil || back != c || c.Shared() != (c != policy.ConsistencyLocal) ||
			c.Shared() && c.Stored().String() != c.String() {
			t.Errorf("%s: %v, %v", text, back, err)
		}
	}
	var c policy.Consistency
	if err := c.UnmarshalText([]byte("exact")); err == nil || !strings.Contains(err.Error(), "local, coherent, leased or optimistic") {
		t.Error(err)
	}
	if policy.ConsistencyLocal.Stored().String() != "coherent" || policy.Consistency(9).String() != "Consistency(9)" {
		t.Error("others have no name of their own")
	}
}

// TestDurabilityText: every durability is what its text says.
func TestDurabilityText(t *testing.T) {
	for d := policy.DurabilityMemory; d <= policy.DurabilityFile; d++ {
		text, err := d.MarshalText()
		var back policy.Durability
		p := policy.Policy{Durability: d}
		if err != nil || back.UnmarshalText(text) != nil || back != d || p.Shared() != (d != policy.DurabilityMemory) {
			t.Errorf("%s: %v, %v", text, back, err)
		}
	}
	var d policy.Durability
	if err := d.UnmarshalText([]byte("disk")); err == nil || !strings.Contains(err.Error(), "memory, cluster or file") || policy.Durability(9).String() != "Durability(9)" {
		t.Error(err)
	}
}

// TestSetCheckTellsAllMistakes at once, also of a ring of parents.
func TestSetCheckTellsAllMistakes(t *testing.T) {
	err := (&policy.Set{
		Policies: []policy.Policy{
			{Name: "a", Limits: one(perHour(1)), Parent: "b"},
			{Name: "b", Limits: one(perHour(1)), Parent: "c"},
			{Name: "c", Limits: one(perHour(1)), Parent: "b"},
			{Name: "c", Mode: 5, QueueLimit: -1, MaxKeys: -1},
		},
		Rules: []policy.Rule{{Name: "r", Limits: uses("x")}, {Name: "r"}},
	}).Check()
	for _, want := range []string{
		`policy "b": Parent is "c"`, `Policies[3].Name is "c"`, `policy "c": Mode`, `Limits[0].Policy is "x"`, `Rules[1].Name is "r"`,
		"QueueLimit is -1", "MaxKeys is -1",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestSetNamesLimitsByTheirWindows(t *testing.T) {
	limit := func(d time.Duration) policy.Limit {
		return policy.Limit{Limit: weir.TokenBucket(weir.Rate{Permits: 1, Period: d}, 0)}
	}
	e := engine(t, &policy.Set{Policies: []policy.Policy{{Name: "p", Limits: []policy.Limit{
		limit(time.Second), limit(time.Minute), limit(24 * time.Hour), limit(90 * time.Second), limit(time.Second), limit(1500 * time.Millisecond),
		{Limit: weir.AtOnce(1)},
		{Limit: weir.CalendarWindow(1, algo.Calendar{Unit: algo.CalendarMonth})},
	}}}})
	var got []string
	for _, l := range e.Set().Policies[0].Limits {
		got = append(got, l.Name)
	}
	if want := "1s 1m 24h 90s 1s-2 1500ms concurrency month"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}
