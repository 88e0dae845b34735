package httplimit_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// muxSet has a global limiter and policies for routes.
func muxSet() *policy.Set {
	return &policy.Set{
		Policies: []policy.Policy{
			hourly("global", 100, nil), hourly("login", 2, policy.ClientIP()), hourly("items", 5, policy.ClientIP()),
		},
		Rules: []policy.Rule{everything("global")},
	}
}

func newMux(tb testing.TB, o httplimit.MuxOptions) *httplimit.Mux {
	tb.Helper()
	if o.Engine.Clock == nil {
		o.Engine.Clock = manualclock.New(0)
	}
	m, err := httplimit.NewMux(o)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func handlerOf(tb testing.TB, m *httplimit.Mux) http.Handler {
	tb.Helper()
	h, err := m.Handler()
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// TestMiddlewareGlobalLimiterThenTheEndpointsPolicy is about both holding for a request, and about either refusing it.
func TestMiddlewareGlobalLimiterThenTheEndpointsPolicy(t *testing.T) {
	m := newMux(t, httplimit.MuxOptions{Set: muxSet()})
	m.Handle("POST /login", ok, httplimit.WithPolicy("login"))
	m.HandleFunc("GET /free", func(http.ResponseWriter, *http.Request) {})
	h := handlerOf(t, m)
	left := func(global, login int64) {
		t.Helper()
		if g, l := available(t, m.Engine(), "global", ""), available(t, m.Engine(), "login", "192.0.2.1"); g != global || l != login {
			t.Errorf("left are %d of the global limiter and %d of the policy, want %d and %d", g, l, global, login)
		}
	}
	resp := send(h, request(http.MethodPost, "/login"))
	expect(t, resp.header, map[string]string{
		"Ratelimit": `"login";r=1;t=1800, "global";r=99;t=36`, "Ratelimit-Policy": `"login";q=2;w=3600, "global";q=100;w=3600`,
	})
	left(99, 1)
	send(h, request(http.MethodPost, "/login"))
	resp = send(h, request(http.MethodPost, "/login")) // the policy of the endpoint refuses, and the global limiter is not charged
	if p := problem(t, resp); resp.status != 429 || strings.Join(p.ViolatedPolicies, " ") != "login" {
		t.Errorf("%d, %+v", resp.status, p)
	}
	left(98, 0)
	for range 98 {
		if free := send(h, request(http.MethodGet, "/free")); free.status != 200 {
			t.Errorf("a route without a policy: %d", free.status)
		}
	}
	m.Engine().Limiter("login", "1h").Reset("192.0.2.1")
	resp = send(h, request(http.MethodPost, "/login")) // the global limiter refuses, and the policy of the endpoint is not charged
	if p := problem(t, resp); resp.status != 429 || strings.Join(p.ViolatedPolicies, " ") != "global" {
		t.Errorf("%d, %+v", resp.status, p)
	}
	left(0, 2)
	if lost := send(h, request(http.MethodGet, "/nowhere")); lost.status != 429 {
		t.Errorf("a request without a route has status %d: it must pass the global limiter too", lost.status)
	}
	if s := m.Gate().Stats(); s.Allowed != 100 || s.Refused != 3 {
		t.Errorf("%+v", s)
	}
}

// policyOf tells which policies apply to a request.
func policyOf(t *testing.T, h http.Handler, path string) string {
	t.Helper()
	resp := send(h, request(http.MethodGet, path))
	var names []string
	for item := range strings.SplitSeq(resp.header.Get("Ratelimit"), ", ") {
		name, _, _ := strings.Cut(item, ";")
		names = append(names, strings.Trim(name, `"`))
	}
	return fmt.Sprint(resp.status, " ", strings.Join(names, " "))
}

// TestMiddlewareDisableAnywhereWins is about routes that are freed of all limits by themselves or by any group around them,
// whatever else was said before or behind.
func TestMiddlewareDisableAnywhereWins(t *testing.T) {
	off, login, items := httplimit.Disabled(), httplimit.WithPolicy("login"), httplimit.WithPolicy("items")
	m := newMux(t, httplimit.MuxOptions{Set: muxSet()})
	m.Handle("/route", ok, off)
	m.Handle("/before", ok, off, login)
	m.Handle("/behind", ok, login, off)
	m.Group(off).Handle("/group", ok)
	m.Group(off).Handle("/group/enabled", ok, items)
	m.Group(off).Group(login).Group(items).Handle("/outermost", ok, login)
	m.Group(login).Handle("/inner", ok, off)
	m.Group(login).Handle("/control", ok)
	h := handlerOf(t, m)
	for _, path := range []string{"/route", "/before", "/behind", "/group", "/group/enabled", "/outermost", "/inner"} {
		for range 6 {
			if got := policyOf(t, h, path); got != "200 " {
				t.Errorf("%s: %s, want no limit", path, got)
			}
		}
	}
	if got := policyOf(t, h, "/control"); got != "200 login global" {
		t.Errorf("/control: %s", got)
	}
	if n := available(t, m.Engine(), "global", ""); n != 99 {
		t.Errorf("%d are left of the global limiter: what is disabled was charged", n)
	}
}

// TestMiddlewareLastEnableCounts is about routes with several policies.
func TestMiddlewareLastEnableCounts(t *testing.T) {
	login, items := httplimit.WithPolicy("login"), httplimit.WithPolicy("items")
	m := newMux(t, httplimit.MuxOptions{Set: muxSet()})
	m.Handle("/two", ok, login, items)
	m.Handle("/swapped", ok, items, login)
	m.Group(login).Handle("/group", ok)
	m.Group(login).Handle("/route", ok, items)
	m.Group(items).Group(login).Handle("/inner", ok)
	m.Group(items, login).Handle("/list", ok)
	m.Handle("/none", ok)
	h := handlerOf(t, m)
	for path, want := range map[string]string{
		"/two": "items", "/swapped": "login", "/group": "login", "/route": "items", "/inner": "login", "/list": "login", "/none": "",
	} {
		m.Engine().Limiter("login", "1h").Reset("192.0.2.1")
		m.Engine().Limiter("items", "1h").Reset("192.0.2.1")
		if got := policyOf(t, h, path); got != strings.TrimSpace("200 "+want)+" global" {
			t.Errorf("%s: %s, want %q", path, got, want)
		}
	}
}

// TestMiddlewarePolicyKeysAreNamespaced is about the same key under two policies, and one policy under two routes.
func TestMiddlewarePolicyKeysAreNamespaced(t *testing.T) {
	m := newMux(t, httplimit.MuxOptions{Set: muxSet()})
	m.Handle("/login", ok, httplimit.WithPolicy("login"))
	m.Handle("/signup", ok, httplimit.WithPolicy("login"))
	m.Handle("/items", ok, httplimit.WithPolicy("items"))
	h := handlerOf(t, m)
	for i, c := range []struct{ path, want string }{
		{"/login", "200 login global"},
		{"/signup", "200 login global"},
		{"/login", "429 login global"},
		{"/signup", "429 login global"},
		{"/items", "200 items global"},
	} {
		if got := policyOf(t, h, c.path); got != c.want {
			t.Errorf("request %d to %s: %s, want %s", i, c.path, got, c.want)
		}
	}
	if n := available(t, m.Engine(), "items", "192.0.2.1"); n != 4 {
		t.Errorf("%d are left of the same key under another policy, want 4", n)
	}
}

// TestMiddlewareUnknownPolicyIsAnErrorAtStart is about mistakes that must not become routes without a limit.
func TestMiddlewareUnknownPolicyIsAnErrorAtStart(t *testing.T) {
	m := newMux(t, httplimit.MuxOptions{Set: muxSet()})
	m.Handle("POST /login", ok, httplimit.WithPolicy("lgoin"))
	m.Handle("/disabled", ok, httplimit.WithPolicy("nobody"), httplimit.Disabled())
	m.Handle("/fine", ok, httplimit.WithPolicy("items"))
	h, err := m.Handler()
	if h != nil || err == nil || m.Engine() != nil {
		t.Fatalf("%v, %v", h, err)
	}
	for _, want := range []string{`"POST /login" is "lgoin"`, `"/disabled" is "nobody"`, `"global", "login", "items"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if option, ok := errors.AsType[*weir.OptionError](err); !ok || strings.Contains(err.Error(), "/fine") {
		t.Errorf("%v, %v", option, err)
	}
}

// TestMuxLoad is about a set that is replaced while requests are served.
func TestMuxLoad(t *testing.T) {
	m := newMux(t, httplimit.MuxOptions{Set: muxSet()})
	if _, err := m.Load(muxSet()); !errors.Is(err, httplimit.ErrNotStarted) {
		t.Errorf("before the start: %v", err)
	}
	m.Handle("/login", ok, httplimit.WithPolicy("login"))
	m.Handle("/health", ok, httplimit.Disabled())
	h := handlerOf(t, m)
	send(h, request(http.MethodGet, "/login"))
	set := muxSet()
	set.Policies[1] = hourly("login", 3, policy.ClientIP())
	changes, err := m.Load(set)
	if err != nil || len(changes) == 0 {
		t.Fatalf("%v, %v", changes, err)
	}
	for _, c := range changes {
		if strings.HasPrefix(c.Path, "rules.") {
			t.Errorf("the rules of the routes have changed: %+v", c)
		}
	}
	resp := send(h, request(http.MethodGet, "/login"))
	if got := resp.header.Get("Ratelimit-Policy"); !strings.HasPrefix(got, `"login";q=3;w=3600`) {
		t.Errorf("after the change: %s", got)
	}
	if got := policyOf(t, h, "/health"); got != "200 " {
		t.Errorf("/health: %s", got)
	}
	set = muxSet()
	set.Policies = set.Policies[:1]
	if _, err := m.Load(set); err == nil || !strings.Contains(err.Error(), `"/login"`) {
		t.Errorf("a set without the policy of a route: %v", err)
	}
	if _, err := m.Load(nil); err == nil {
		t.Error("no set is accepted")
	}
	if got := policyOf(t, h, "/login"); !strings.HasPrefix(got, "200 login") && !strings.HasPrefix(got, "429 login") {
		t.Errorf("after a refused set: %s", got)
	}
}

// TestMuxRuleNames is about rules of the set that have the names which the mux would choose, and long names of policies.
func TestMuxRuleNames(t *testing.T) {
	set := muxSet()
	long := strings.Repeat("x", 128)
	set.Policies = append(set.Policies, hourly(long, 5, nil), hourly(long[:127]+"y", 5, nil))
	for _, name := range []string{"routes with login", "routes with login (2)", "routes without limits"} {
		set.Rules = append(set.Rules, policy.Rule{Name: name, Match: policy.Match{Paths: []string{"/never"}}, Limits: []policy.Use{{Policy: "items"}}})
	}
	m := newMux(t, httplimit.MuxOptions{Set: set})
	m.Handle("/login", ok, httplimit.WithPolicy("login"))
	m.Handle("/x", ok, httplimit.WithPolicy(long))
	m.Handle("/y", ok, httplimit.WithPolicy(long[:127]+"y"))
	m.Handle("/off", ok, httplimit.Disabled())
	h := handlerOf(t, m)
	if again := handlerOf(t, m); again == nil {
		t.Error("a second call of Handler answers nothing")
	}
	for path, want := range map[string]string{
		"/login": "200 login global", "/x": "200 " + long + " global", "/y": "200 " + long[:127] + "y global", "/off": "200 ",
	} {
		if got := policyOf(t, h, path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestMuxMisuse(t *testing.T) {
	for want, o := range map[string]httplimit.MuxOptions{
		"MuxOptions.Set is nil":         {},
		"MuxOptions.Gate.Engine is set": {Set: muxSet(), Gate: httplimit.GateOptions{Engine: standing(t, muxSet())}},
		"MuxOptions.Gate.Routes is set": {Set: muxSet(), Gate: httplimit.GateOptions{Routes: http.NewServeMux()}},
	} {
		if _, err := httplimit.NewMux(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewMux: %v, want an error about %s", err, want)
		}
	}
	for want, o := range map[string]httplimit.MuxOptions{
		"GateOptions.Status is 200": {Set: muxSet(), Gate: httplimit.GateOptions{Status: 200}},
		"a":                         {Set: &policy.Set{Policies: []policy.Policy{{}}}},
	} {
		if _, err := newMux(t, o).Handler(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Handler: %v, want an error about %s", err, want)
		}
	}
	m := newMux(t, httplimit.MuxOptions{Set: &policy.Set{}})
	m.Handle("/a", ok, httplimit.WithPolicy("x"))
	if _, err := m.Handler(); err == nil || !strings.Contains(err.Error(), "which has none") {
		t.Errorf("Handler: %v", err)
	}
	m = newMux(t, httplimit.MuxOptions{Set: muxSet()})
	for name, act := range map[string]func(){
		"no name":     func() { m.Handle("/a", ok, httplimit.WithPolicy("")) },
		"nil handler": func() { m.Handle("/b", nil) },
		"nil func":    func() { m.HandleFunc("/b", nil) },
		"twice":       func() { m.Handle("/c", ok); m.Handle("/c", ok) },
		"too late": func() {
			late := newMux(t, httplimit.MuxOptions{Set: muxSet()})
			handlerOf(t, late)
			late.Handle("/late", ok)
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			act()
		}()
	}
}
