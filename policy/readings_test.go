package policy_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// sent is the request for a target as it is sent.
func sent(tb testing.TB, target string) policy.Request {
	tb.Helper()
	u, err := url.ParseRequestURI(target)
	if err != nil {
		tb.Fatal(err)
	}
	return policy.Request{Protocol: "http", Method: "GET", Path: u.Path, RawPath: u.RawPath, Query: u.RawQuery}
}

// notBelow is a condition of another package, which is true of all paths but those below a prefix.
type notBelow string

func (n notBelow) Holds(r *policy.Request) (bool, error) {
	return !strings.HasPrefix(r.CleanPath(), string(n)), nil
}
func (notBelow) String() string { return "notBelow" }

// TestExemptOnlyIfEveryReadingIs: an exemption counts for a path only if it does for every way in which a server could read it.
func TestExemptOnlyIfEveryReadingIs(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "p", Limits: one(perHour(1000))}},
		Rules: []policy.Rule{
			{Name: "all", Limits: uses("p")},
			{Name: "health", Match: policy.Match{Paths: []string{"/healthz", "/static/{file...}", "/projects/{id}"}}, Exempt: true},
			{Name: "inside", Match: policy.Match{Paths: []string{"/inside/{$}"}}, When: notBelow("/inside/private"), Exempt: true},
		},
	})
	for target, exempt := range map[string]bool{
		"/healthz": true, "/health%7a": true, "/health%7A": true, "/static/a%2Fb": true, "/projects/a": true, "/inside/": true,
		"/search/..%2fhealthz": false, "/v1/..%2Fhealthz": false, "/search/%2e%2e/healthz": false, "/search/%2e%2e%2fhealthz": false,
		`/search\..\..\healthz`: false, "/search/..%5chealthz": false, "/search/..%252fhealthz": false, "/search/..%25252fhealthz": false,
		"/search/../healthz": false, "//healthz": false, "/./healthz": false, "/%2fhealthz": false, "/%2e/healthz": false,
		"/static/..%2flogin": false, "/static/%2e%2e/login": false, `/static/..\login`: false, "/static/%252e%252e/login": false,
		"/projects/a%2fb": false, "/projects/a%5Cb": false, "/inside/private%2f..%2f": false,
	} {
		r := sent(t, target)
		v := take(e, r)
		x := e.Explain(&r)
		if v.Exempt != exempt || x.Exempt != exempt || len(v.Parts) == 0 != exempt {
			t.Errorf("%s: exempt %t (explained: %t), %d limits; want %t", target, v.Exempt, x.Exempt, len(v.Parts), exempt)
		}
		v.Release()
		for _, rule := range x.Rules {
			if rule.Name != "all" && rule.Matched && !exempt {
				t.Errorf("%s: %s is explained as matching", target, rule.Name)
			}
		}
	}
}

// TestLimitsOfEveryReadingApply: a limit applies under every way to read the path, with the keys of each, once for each key.
func TestLimitsOfEveryReadingApply(t *testing.T) {
	set := &policy.Set{
		Policies: []policy.Policy{
			{Name: "search", Limits: one(perHour(1000))},
			{Name: "others", Limits: one(perHour(1000))},
			{Name: "user", Key: policy.PathValueText("user"), Limits: one(perHour(1000))},
			{Name: "everywhere", Limits: one(perHour(1000))},
		},
		Rules: []policy.Rule{
			{Name: "search", Match: policy.Match{Paths: []string{"/search/{q}"}}, Limits: uses("search"), Final: true},
			{Name: "user", Match: policy.Match{Paths: []string{"/users/{user}"}}, Limits: uses("user")},
			{Name: "others", When: notBelow("/search/"), Limits: uses("others")},
			{Name: "everywhere", Limits: uses("everywhere")},
		},
	}
	for target, want := range map[string][]string{
		"/search/x":             {"search"},
		"/x":                    {"others", "everywhere"},
		"/search/..%2fx":        {"search", "others", "everywhere"}, // final for one reading only
		"/search/a%2fb":         {"search", "everywhere"},
		`/search/..\x`:          {"search", "others", "everywhere"},
		"/search/..%252fx":      {"search", "others", "everywhere"},
		"/a/..%2fsearch/y":      {"search", "others", "everywhere"},
		"/users/bob":            {"user:bob", "others", "everywhere"},
		"/users/x%2f..%2fbob":   {"user:bob", "user:x%2F..%2Fbob", "others", "everywhere"},
		"/users/%62ob":          {"user:bob", "others", "everywhere"},
		"/users/./bob":          {"user:bob", "others", "everywhere"},
		"/a%2fb/../users/bob":   {"user:bob", "others", "everywhere"},
		"/users/bob%2f..%2fbob": {"user:bob", "user:bob%2F..%2Fbob", "others", "everywhere"},
	} {
		e := engine(t, set)
		r := sent(t, target)
		v := take(e, r)
		var got []string
		for i := range v.Parts {
			name := v.Parts[i].Policy.Name
			if key := string(v.Parts[i].Key); key != "" {
				name += ":" + key
			}
			got = append(got, name)
		}
		v.Release()
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
		if left := left(t, e, "everywhere", ""); slices.Contains(want, "everywhere") && left != 999 {
			t.Errorf("%s: %d left of 1000, want 999: a limit is charged once", target, left)
		}
		for _, rule := range e.Report().Rules {
			if rule.Matched > 1 {
				t.Errorf("%s: the rule %s is counted %d times for one request", target, rule.Name, rule.Matched)
			}
		}
		x := e.Explain(&r)
		if several := len(x.Paths) > 0; several != strings.ContainsAny(target, `%\.`) && target != "/users/%62ob" {
			t.Errorf("%s: explained with the paths %q", target, x.Paths)
		}
		if len(x.Limits) != len(want) {
			t.Errorf("%s: %d limits are explained, want %d", target, len(x.Limits), len(want))
		}
	}
}

// TestReadingsOfOneKeyAgreeOnTheStricter: where the ways to read a path lead to the same key with another cost or another tier, the
// higher cost counts, and the lower limit.
func TestReadingsOfOneKeyAgreeOnTheStricter(t *testing.T) {
	tiers := map[string][]policy.Limit{
		"gold": one(weir.TokenBucket(weir.PerHour(500), 500)), "free": one(weir.TokenBucket(weir.PerHour(5), 5)),
	}
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{
			Name: "p", Limits: one(weir.TokenBucket(weir.PerHour(50), 50)), TierBy: policy.PathValueText("tier"), Tiers: tiers,
		}},
		Rules: []policy.Rule{
			{Name: "dear", Match: policy.Match{Paths: []string{"/dear/{tier}"}}, Limits: []policy.Use{{Policy: "p", Cost: policy.FixedNumber(3)}}},
			{Name: "cheap", Match: policy.Match{Paths: []string{"/{tier}", "/cheap/{tier}"}}, Limits: []policy.Use{{Policy: "p"}}},
		},
	})
	for _, c := range []struct {
		target      string
		limit, cost int64
	}{
		{"/gold", 500, 1},
		{"/free", 5, 1},
		{"/dear/gold", 500, 3},
		{"/free/..%2fgold", 500, 1}, // one reading matches only
		{"/cheap/gold%2f..%2ffree", 5, 1},
		{"/cheap/free%2f..%2f..%2fgold", 50, 1},
		{"/dear/gold%2f..%2f..%2fcheap%2fgold", 50, 3},
		{"/dear/free%2f..%2f..%2fcheap%2fgold", 50, 3},
		{"/cheap/..%2fdear%2ffree", 5, 3},
	} {
		r := sent(t, c.target)
		var v policy.Verdict
		e.Peek(&r, &v)
		if len(v.Parts) != 1 || v.Parts[0].Decision.Limit != c.limit || v.Parts[0].Cost != c.cost {
			t.Errorf("%s: %+v, want one limit of %d and a cost of %d", c.target, v.Parts, c.limit, c.cost)
		}
	}
}

// TestRequestsWithSeveralReadingsInABatch are counted as one request each.
func TestRequestsWithSeveralReadingsInABatch(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "p", Limits: one(perHour(1000))}},
		Rules: []policy.Rule{
			{Name: "all", Limits: uses("p")},
			{Name: "health", Match: policy.Match{Paths: []string{"/healthz"}}, Exempt: true},
		},
	})
	a, b, c := sent(t, "/x/..%2fhealthz"), sent(t, "/healthz"), sent(t, "/x/..%2fhealthz")
	var v policy.Verdict
	e.TakeAll(t.Context(), []*policy.Request{&a, &b, &c}, &v)
	defer v.Release()
	if v.Exempt || len(v.Parts) != 2 || left(t, e, "p", "") != 998 {
		t.Errorf("exempt %t, %d parts, %d left of 1000", v.Exempt, len(v.Parts), left(t, e, "p", ""))
	}
}

// TestNotesOfAnotherRequestAreNotTrusted: a Request that is used again, and bytes that a caller reads the next path into, say
// nothing about the next request.
func TestNotesOfAnotherRequestAreNotTrusted(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "p", Limits: one(perHour(1000)), Key: policy.PathValueText("id")}},
		Rules: []policy.Rule{
			{Name: "old", Match: policy.Match{Hosts: []string{"a"}, Paths: []string{"/x/{id}"}}, Limits: uses("p")},
			{Name: "new", Match: policy.Match{Hosts: []string{"b"}, Paths: []string{"/y/{id}"}}, Limits: uses("p")},
		},
	})
	host, path := []byte("a"), []byte("/x/7")
	r := policy.Request{
		Host: unsafe.String(&host[0], len(host)), Path: unsafe.String(&path[0], len(path)),
	}
	var v policy.Verdict
	for _, now := range []struct{ host, path, rule, key string }{{"a", "/x/7", "old", "7"}, {"b", "/y/8", "new", "8"}} {
		copy(host, now.host)
		copy(path, now.path)
		e.Take(&r, &v)
		if len(v.Parts) != 1 || v.Parts[0].Rule.Name != now.rule || string(v.Parts[0].Key) != now.key {
			t.Errorf("%s%s: %+v", now.host, now.path, v.Parts)
		}
		v.Release()
	}
	r.Path = "/other/path"
	if id := r.PathValue("id"); id != "" {
		t.Errorf("the value %q of an old path", id)
	}
}

// TestMethodsInLowerCase: a limit of a method applies however it is spelled, and no spelling is a key of its own.
func TestMethodsInLowerCase(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{
			{Name: "writes", Limits: one(perHour(1))}, {Name: "methods", Key: policy.MethodText(), Limits: one(perHour(1))},
		},
		Rules: []policy.Rule{
			{Name: "writes", Match: policy.Match{Methods: []string{"POST"}, Paths: []string{"/writes"}}, Limits: uses("writes")},
			{Name: "denied", Match: policy.Match{Methods: []string{"PURGE"}}, Deny: true},
			{Name: "methods", Match: policy.Match{Paths: []string{"/methods"}}, Limits: uses("methods")},
		},
	})
	for i, method := range []string{"POST", "post", "Post", "poſt"} {
		for _, path := range []string{"/writes", "/methods"} {
			r := sent(t, path)
			r.Method = method
			if v := take(e, r); v.Allowed != (i == 0) {
				t.Errorf("%s %s: allowed %t", method, path, v.Allowed)
			}
			if x := e.Explain(&r); x.Allowed {
				t.Errorf("%s %s: explained as allowed", method, path)
			}
		}
	}
	r := sent(t, "/")
	for _, r.Method = range []string{"PURGE", "purge"} {
		if v := take(e, r); v.Allowed {
			t.Errorf("%s is allowed", r.Method)
		}
	}
}

// TestHostsWithPorts: a limit of a host applies however many ports a client adds to it.
func TestHostsWithPorts(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "api", Limits: one(perHour(1))}, {Name: "hosts", Key: policy.HostText(), Limits: one(perHour(1))}},
		Rules: []policy.Rule{
			{Name: "api", Match: policy.Match{Hosts: []string{"api.example.com"}}, Limits: uses("api")},
			{Name: "hosts", Match: policy.Match{Paths: []string{"/hosts"}}, Limits: uses("hosts")},
		},
	})
	for i, suffix := range []string{"", ":80", ":", ".", ".:80", ":80:80", "::", ".:80:80", ":a:b:c"} {
		oneOfHost(t, e, "API.example.com"+suffix, "other.example.com"+suffix, i == 0)
	}
}

// TestEncodedHosts: a limit of a host applies however a client encodes it, as services that take the host for a part of a URL decode
// it. One of the host as it was sent applies as well.
func TestEncodedHosts(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "api", Limits: one(perHour(1))}, {Name: "hosts", Key: policy.HostText(), Limits: one(perHour(1))}},
		Rules: []policy.Rule{
			{Name: "api", Match: policy.Match{Hosts: []string{"*.example.com"}}, Limits: uses("api")},
			{Name: "hosts", Match: policy.Match{Paths: []string{"/hosts"}}, Limits: uses("hosts")},
		},
	})
	for i, hosts := range [][2]string{
		{"api.example.com", "other.example.net"},
		{"%61pi.example.com", "%6fther.example.net"},
		{"api%2Eexample%2ecom", "other%2Eexample.net"},
		{"%41PI.example.com:80", "%4FTHER.example.net."},
		{"api.e%78ample.com:80:80", "other.e%78ample.net:80:80"},
	} {
		oneOfHost(t, e, hosts[0], hosts[1], i == 0)
	}
	for host, want := range map[string]int{
		"%61.example.org": 2, "a%2.example.org": 1, "a.example.org": 1, "a%%61.example.org": 2, "[fe80::1%61]": 1, "fe80::1%61": 1,
	} {
		r := sent(t, "/hosts")
		r.Host = host
		var v policy.Verdict
		e.Peek(&r, &v)
		if len(v.Parts) != want {
			t.Errorf("%s: %d keys, want %d", host, len(v.Parts), want)
		}
		v.Release()
	}
}

// oneOfHost takes of the limit of a host, and of the limit that each host has.
func oneOfHost(t *testing.T, e *policy.Engine, limited, each string, want bool) {
	t.Helper()
	for path, host := range map[string]string{"/": limited, "/hosts": each} {
		r := sent(t, path)
		r.Host = host
		if v := take(e, r); v.Allowed != want {
			t.Errorf("%s: allowed %t", host, v.Allowed)
		}
	}
}

// TestSpellingsFreeNobody: services differ about options and a:80:80. So what a rule allows to OPTIONS or to a, it does not allow to
// these, as a service that takes them for something else would do that without a limit.
func TestSpellingsFreeNobody(t *testing.T) {
	when := func(method string, is bool) policy.Condition {
		return condition{method, func(r *policy.Request) (bool, error) { return (r.CleanMethod() == method) == is, nil }}
	}
	for name, rule := range map[string]policy.Rule{
		"exempt":                {Match: policy.Match{Methods: []string{"OPTIONS"}}, Exempt: true},
		"exempt by a condition": {When: when("OPTIONS", true), Exempt: true},
		"exempt host":           {Match: policy.Match{Hosts: []string{"free.example.com"}}, Exempt: true},
		"final":                 {Match: policy.Match{Methods: []string{"OPTIONS"}}, Limits: uses("many"), Final: true},
	} {
		for _, spelled := range []struct {
			method, host string
			frees        bool
		}{
			{"OPTIONS", "free.example.com", true}, {"options", "free.example.com:80:80", false}, {"Options", "FREE.example.com::", false},
		} {
			rule.Name = "first"
			e := engine(t, &policy.Set{
				Policies: []policy.Policy{{Name: "one", Limits: one(perHour(1))}, {Name: "many", Limits: one(perHour(1000))}},
				Rules:    []policy.Rule{rule, {Name: "all", Limits: uses("one")}},
			})
			for i := range 2 {
				r := sent(t, "/")
				r.Method, r.Host = spelled.method, spelled.host
				want := i == 0 || spelled.frees
				if x := e.Explain(&r); x.Allowed != want {
					t.Errorf("%s, %v: explained as allowed %t", name, spelled, x.Allowed)
				}
				if v := take(e, r); v.Allowed != want {
					t.Errorf("%s, %v: allowed %t", name, spelled, v.Allowed)
				}
			}
		}
	}
	e := engine(t, &policy.Set{Rules: []policy.Rule{{Name: "get alone", When: when("GET", false), Deny: true}}})
	for method, want := range map[string]bool{"GET": true, "get": false, "POST": false} {
		r := sent(t, "/")
		r.Method = method
		if v := take(e, r); v.Allowed != want || (e.Denies(&r) == nil) != want {
			t.Errorf("%s: allowed %t", method, v.Allowed)
		}
	}
}

// condition is true where holds says so.
type condition struct {
	name  string
	holds func(r *policy.Request) (bool, error)
}

func (c condition) Holds(r *policy.Request) (bool, error) { return c.holds(r) }
func (c condition) String() string                        { return c.name }
