package httplimit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/overload"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// hourly is a policy with one limit: a bucket of n permits, of which n come back in an hour.
func hourly(name string, n int64, key policy.Text) policy.Policy {
	return policy.Policy{Name: name, Key: key, Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(n), 0)}}}
}

// atATime is the policy "slots" with n of them, and a queue for as many.
func atATime(n int64) policy.Policy {
	return policy.Policy{
		Name: "slots", QueueLimit: n, MaxWait: time.Minute,
		Limits: []policy.Limit{{Limit: weir.AtOnce(n)}},
	}
}

// everything is a rule that applies policies to all requests.
func everything(policies ...string) policy.Rule {
	r := policy.Rule{Name: "everything"}
	for _, name := range policies {
		r.Limits = append(r.Limits, policy.Use{Policy: name})
	}
	return r
}

func engineOf(tb testing.TB, o policy.EngineOptions, set *policy.Set) *policy.Engine {
	tb.Helper()
	e, err := policy.NewEngine(set, o)
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// standing is an engine whose clock stands still.
func standing(tb testing.TB, set *policy.Set) *policy.Engine {
	tb.Helper()
	return engineOf(tb, policy.EngineOptions{Clock: manualclock.New(0)}, set)
}

func gate(tb testing.TB, o httplimit.GateOptions) *httplimit.Gate {
	tb.Helper()
	g, err := httplimit.NewGate(o)
	if err != nil {
		tb.Fatal(err)
	}
	return g
}

// available is how many permits the only limit of a policy has left for a key.
func available(tb testing.TB, e *policy.Engine, name, key string) int64 {
	tb.Helper()
	charges, ok := e.Charges(nil, name, key, 0)
	if !ok {
		tb.Fatalf("no policy %q", name)
	}
	decisions, binding := keyset.PeekAll(nil, charges...)
	return decisions[binding].Remaining
}

// TestMiddlewareTellsEveryPolicy is about one answer that tells all limits of the verdict, those that bind first.
func TestMiddlewareTellsEveryPolicy(t *testing.T) {
	e := standing(t, &policy.Set{
		Policies: []policy.Policy{
			{Name: "per-client", Key: policy.ClientIP(), Limits: []policy.Limit{
				{Name: "burst", Limit: weir.TokenBucket(weir.PerSecond(2), 5)},
				{Name: "hour", Limit: weir.SlidingWindow(weir.PerHour(2), 0)},
			}},
			hourly("all", 100, nil),
			atATime(9),
		},
		Rules: []policy.Rule{everything("per-client", "all", "slots")},
	})
	g := gate(t, httplimit.GateOptions{Engine: e})
	h := g.Handler(ok)
	quotas := `"per-client/burst";q=5;w=3`
	for i, want := range []string{
		`"per-client/hour";r=1;t=3600, "per-client/burst";r=4;t=1, "all";r=99;t=36, "slots";r=8`,
		`"per-client/hour";r=0;t=3600, "per-client/burst";r=3;t=1, "all";r=98;t=72, "slots";r=8`,
	} {
		resp := get(h)
		expect(t, resp.header, map[string]string{
			"Ratelimit":        want,
			"Ratelimit-Policy": `"per-client/hour";q=2;w=3600, ` + quotas + `, "all";q=100;w=3600, "slots";q=9;qu="concurrent-requests"`,
		})
		if resp.status != http.StatusOK {
			t.Errorf("request %d: status %d", i, resp.status)
		}
	}
	resp := get(h)
	if p := problem(t, resp); resp.status != http.StatusTooManyRequests || p.Type != httplimit.QuotaExceeded ||
		strings.Join(p.ViolatedPolicies, " ") != "per-client/hour" || p.RetryAfter != 3600 || p.Status != 429 {
		t.Errorf("status %d, %+v", resp.status, p)
	}
	if got := resp.header.Get("Ratelimit"); !strings.HasPrefix(got, `"per-client/hour";r=0;t=3600, "per-client/burst";r=`) {
		t.Errorf("RateLimit: %s", got)
	}
	if got := resp.header.Get("Retry-After"); got != "3600" {
		t.Errorf("Retry-After: %s", got)
	}
	if s := g.Stats(); s != (httplimit.GateStats{Allowed: 2, Refused: 1}) {
		t.Errorf("%+v", s)
	}
}

// TestMiddlewareAllOrNothing is about a refusal that leaves every other limit uncharged, and names all that have refused.
func TestMiddlewareAllOrNothing(t *testing.T) {
	e := standing(t, &policy.Set{
		Policies: []policy.Policy{hourly("a", 10, nil), hourly("b", 1, nil), hourly("c", 2, nil)},
		Rules:    []policy.Rule{everything("a", "b", "c")},
	})
	h := gate(t, httplimit.GateOptions{Engine: e, Cost: func(r *http.Request) int64 { return int64(len(r.URL.Path)) }})
	handler := h.Handler(ok)
	get(handler)
	resp := send(handler, request(http.MethodGet, "/x"))
	p := problem(t, resp)
	if strings.Join(p.ViolatedPolicies, " ") != "b c" || resp.header.Get("Retry-After") != "" {
		t.Errorf("%+v, %v: the cost can never be granted", p, resp.header)
	}
	if a, b, c := available(t, e, "a", ""), available(t, e, "b", ""), available(t, e, "c", ""); a != 9 || b != 0 || c != 1 {
		t.Errorf("left are %d, %d and %d, want 9, 0 and 1", a, b, c)
	}
}

// TestMiddlewareSeesTheRequest is about what rules can ask for.
func TestMiddlewareSeesTheRequest(t *testing.T) {
	clients, err := clientip.New(clientip.Options{TrustedProxies: prefixes("10.0.0.0/8")})
	if err != nil {
		t.Fatal(err)
	}
	attribute := policy.AttributeText("subject")
	rule := func(name string, m policy.Match) policy.Rule {
		return policy.Rule{Name: name, Match: m, Limits: []policy.Use{{Policy: name}}}
	}
	e := standing(t, &policy.Set{
		Policies: []policy.Policy{
			hourly("method", 9, nil), hourly("host", 9, nil), hourly("path", 9, nil), hourly("header", 9, nil),
			hourly("client", 9, nil), hourly("route", 9, nil), hourly("protocol", 9, nil), hourly("subject", 9, attribute),
		},
		Rules: []policy.Rule{
			rule("method", policy.Match{Methods: []string{"POST"}}),
			rule("host", policy.Match{Hosts: []string{"example.com"}}),
			rule("path", policy.Match{Paths: []string{"/items/{id}"}}),
			rule("header", policy.Match{Headers: []policy.HeaderMatch{{Name: "X-Plan", Value: "gold"}}}),
			rule("client", policy.Match{Clients: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/32")}}),
			rule("route", policy.Match{Routes: []string{"/items/{id}"}}),
			rule("protocol", policy.Match{Protocols: []string{"http"}}),
			rule("subject", policy.Match{}),
		},
	})
	mux := http.NewServeMux()
	mux.Handle("/items/{id}", ok)
	h := gate(t, httplimit.GateOptions{
		Engine: e, Clients: clients, Routes: mux,
		Attributes: func(r *http.Request) map[string]string { return map[string]string{"subject": r.Header.Get("X-User")} },
	}).Handler(mux)
	r := request(http.MethodPost, "http://example.com/items/5?q=1")
	r.RemoteAddr = "10.1.2.3:5000"
	r.Header.Set("X-Forwarded-For", "203.0.113.9, 192.0.2.7")
	r.Header.Set("X-Plan", "gold")
	r.Header.Set("X-User", "ada")
	send(h, r)
	for _, name := range []string{"method", "host", "path", "header", "client", "route", "protocol"} {
		if n := available(t, e, name, ""); n != 8 {
			t.Errorf("%s: %d left, want 8", name, n)
		}
	}
	if ada, other := available(t, e, "subject", "ada"), available(t, e, "subject", "bob"); ada != 8 || other != 9 {
		t.Errorf("left are %d for ada and %d for others", ada, other)
	}
}

// TestMiddlewareRoutesAreNamedByThePattern is about rules for the pattern of a ServeMux, from inside and from outside of it.
func TestMiddlewareRoutesAreNamedByThePattern(t *testing.T) {
	set := &policy.Set{
		Policies: []policy.Policy{hourly("items", 2, nil)},
		Rules: []policy.Rule{{
			Name: "items", Match: policy.Match{Routes: []string{"GET /items/{id}"}}, Limits: []policy.Use{{Policy: "items"}},
		}},
	}
	for name, build := range map[string]func(e *policy.Engine) http.Handler{
		"inside": func(e *policy.Engine) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("GET /items/{id}", gate(t, httplimit.GateOptions{Engine: e}).Handler(ok))
			return mux
		},
		"outside": func(e *policy.Engine) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("GET /items/{id}", ok)
			return gate(t, httplimit.GateOptions{Engine: e, Routes: mux}).Handler(mux)
		},
		"of another router": func(e *policy.Engine) http.Handler {
			return gate(t, httplimit.GateOptions{Engine: e, Route: func(r *http.Request) string { return "GET /items/{id}" }}).Handler(ok)
		},
	} {
		h := build(standing(t, set))
		for i, want := range []int{200, 200, 429} {
			if got := send(h, request(http.MethodGet, fmt.Sprintf("/items/%d", i))); got.status != want {
				t.Errorf("%s: request %d has status %d, want %d", name, i, got.status, want)
			}
		}
	}
}

// TestMiddlewareWaitsInTheQueue is about requests that would be refused, but may wait.
func TestMiddlewareWaitsInTheQueue(t *testing.T) {
	for _, c := range []struct {
		name    string
		options httplimit.GateOptions
		status  int
		after   time.Duration
	}{
		{"no waiting", httplimit.GateOptions{}, 503, 0},
		{"waiting", httplimit.GateOptions{Wait: true}, 200, 20 * time.Second},
		{"waiting for less", httplimit.GateOptions{Wait: true, MaxWait: 5 * time.Second}, 503, 5 * time.Second},
		{"waiting to reserve", httplimit.GateOptions{Wait: true, Reserve: true}, 200, 20 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			c.options.Engine = engineOf(t, policy.EngineOptions{}, &policy.Set{
				Policies: []policy.Policy{atATime(1)}, Rules: []policy.Rule{everything("slots")},
			})
			h := gate(t, c.options).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					time.Sleep(20 * time.Second)
				}
			}))
			start := time.Now()
			var wait sync.WaitGroup
			wait.Go(func() { send(h, request(http.MethodGet, "/slow")) })
			synctest.Wait()
			if resp := get(h); resp.status != c.status || time.Since(start) != c.after {
				t.Errorf("%s: status %d after %v, want %d after %v", c.name, resp.status, time.Since(start), c.status, c.after)
			}
			wait.Wait()
		})
	}
}

// TestMiddlewareClientAbortIsNotARejection is about a client that goes away while its request waits.
func TestMiddlewareClientAbortIsNotARejection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engineOf(t, policy.EngineOptions{}, &policy.Set{
			Policies: []policy.Policy{atATime(1)}, Rules: []policy.Rule{everything("slots")},
		})
		refused, served := 0, 0
		g := gate(t, httplimit.GateOptions{
			Engine: e, Wait: true, OnRefused: func(*http.Request, *httplimit.Refusal) { refused++ },
		})
		h := g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			served++
			time.Sleep(time.Minute / 2)
		}))
		var wait sync.WaitGroup
		wait.Go(func() { get(h) })
		synctest.Wait()
		ctx, abort := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, abort)
		start := time.Now()
		resp := send(h, request(http.MethodGet, "/").WithContext(ctx))
		if resp.status != httplimit.StatusClientClosedRequest || len(resp.header) > 0 || time.Since(start) != time.Second {
			t.Errorf("status %d, %v after %v", resp.status, resp.header, time.Since(start))
		}
		wait.Wait()
		if s := g.Stats(); refused != 0 || served != 1 || s != (httplimit.GateStats{Allowed: 1, Aborted: 1}) {
			t.Errorf("%d refused, %d served, %+v", refused, served, s)
		}
		if e.Report().Refused != 0 {
			t.Errorf("the engine counts a refusal: %+v", e.Report())
		}
		if n := available(t, e, "slots", ""); n != 1 {
			t.Errorf("%d slots are free, want 1", n)
		}
	})
}

// TestMiddlewareLeasesAreReleased is about handlers that return, answer an error, panic, and give up.
func TestMiddlewareLeasesAreReleased(t *testing.T) {
	for name, act := range map[string]func(w http.ResponseWriter){
		"returns": func(http.ResponseWriter) {},
		"errors":  func(w http.ResponseWriter) { http.Error(w, "no", http.StatusInternalServerError) },
		"panics":  func(http.ResponseWriter) { panic("no") },
		"aborts":  func(http.ResponseWriter) { panic(http.ErrAbortHandler) },
	} {
		for _, reserve := range []bool{false, true} {
			e := standing(t, &policy.Set{Policies: []policy.Policy{atATime(2)}, Rules: []policy.Rule{everything("slots")}})
			h := gate(t, httplimit.GateOptions{Engine: e, Reserve: reserve}).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if n := available(t, e, "slots", ""); n != 1 {
					t.Errorf("%s: while it is served %d slots are free, want 1", name, n)
				}
				act(w)
			}))
			for range 3 {
				func() {
					defer func() { _ = recover() }()
					get(h)
				}()
			}
			if n := available(t, e, "slots", ""); n != 2 {
				t.Errorf("%s: %d slots are free afterwards, want 2", name, n)
			}
		}
	}
}

// TestMiddlewareChargesTheGlobalLimiterOnce is about a request that passes several layers.
func TestMiddlewareChargesTheGlobalLimiterOnce(t *testing.T) {
	set := &policy.Set{Policies: []policy.Policy{hourly("global", 9, nil)}, Rules: []policy.Rule{everything("global")}}
	e, other := standing(t, set), standing(t, set)
	one, two := gate(t, httplimit.GateOptions{Engine: e}), gate(t, httplimit.GateOptions{Engine: e, Reserve: true})
	third := gate(t, httplimit.GateOptions{Engine: other})
	get(one.Handler(two.Handler(third.Handler(one.Handler(ok)))))
	if a, b := available(t, e, "global", ""), available(t, other, "global", ""); a != 8 || b != 8 {
		t.Errorf("left are %d and %d, want 8 and 8", a, b)
	}
	get(one.Handler(ok))
	if n := available(t, e, "global", ""); n != 7 {
		t.Errorf("after another request %d are left, want 7", n)
	}
}

// TestMiddlewareStatusIsSetBeforeTheHook is about a hook that sees what would be answered, and changes it.
func TestMiddlewareStatusIsSetBeforeTheHook(t *testing.T) {
	for _, c := range []struct{ option, seen, set, want int }{
		{0, 429, 0, 429}, {0, 429, 503, 503}, {418, 418, 0, 418}, {418, 418, 200, 200}, {0, 429, 1000, 429},
	} {
		e := standing(t, &policy.Set{Policies: []policy.Policy{hourly("a", 1, policy.ClientIP())}, Rules: []policy.Rule{everything("a")}})
		h := gate(t, httplimit.GateOptions{
			Engine: e, Status: c.option,
			OnRefused: func(r *http.Request, f *httplimit.Refusal) {
				if f.Status != c.seen || f.Problem.Status != c.seen || f.Header.Get("Retry-After") != "3600" || f.Key != "192.0.2.1" ||
					f.Cost != 1 || f.Decision.Reason != weir.ReasonLimited {
					t.Errorf("the hook sees %+v", f)
				}
				if f.Verdict == nil || f.Verdict.Parts[f.Verdict.Binding].Rule.Name != "everything" {
					t.Errorf("the hook sees the verdict %+v", f.Verdict)
				}
				if c.set != 0 {
					f.Status = c.set
				}
			},
		}).Handler(ok)
		get(h)
		if resp := get(h); resp.status != c.want {
			t.Errorf("%+v: status %d", c, resp.status)
		}
	}
}

// TestMiddlewareReservations is about handlers that know the cost only when they are done.
func TestMiddlewareReservations(t *testing.T) {
	var kept *httplimit.Reserved
	for _, c := range []struct {
		name             string
		act              func(r *httplimit.Reserved) bool
		settled          bool
		requests, tokens int64
	}{
		{"nothing", func(*httplimit.Reserved) bool { return false }, false, 9, 900},
		{"less", func(r *httplimit.Reserved) bool { return r.CommitPolicy("tokens", 30) }, true, 9, 970},
		{"more", func(r *httplimit.Reserved) bool { return r.CommitPolicy("tokens", 300) }, true, 9, 700},
		{"a negative cost", func(r *httplimit.Reserved) bool { return r.CommitPolicy("tokens", -5) }, true, 9, 1000},
		{"another policy", func(r *httplimit.Reserved) bool { return r.CommitPolicy("x", 5) }, true, 9, 900},
		{"each", func(r *httplimit.Reserved) bool {
			return r.Commit(func(p *policy.Part) int64 { return p.Cost / 2 })
		}, true, 10, 950},
		{"cancel", func(r *httplimit.Reserved) bool { return r.Cancel() }, true, 10, 1000},
		{"twice", func(r *httplimit.Reserved) bool { r.Cancel(); return r.CommitPolicy("tokens", 5) }, false, 10, 1000},
		{"too late", func(r *httplimit.Reserved) bool { kept = r; return false }, false, 9, 900},
		{"a panic", func(*httplimit.Reserved) bool { panic("no") }, false, 9, 900},
	} {
		e := standing(t, &policy.Set{
			Policies: []policy.Policy{hourly("requests", 10, nil), hourly("tokens", 1000, nil)},
			Rules: []policy.Rule{{Name: "both", Limits: []policy.Use{
				{Policy: "requests"}, {Policy: "tokens", Cost: policy.FixedNumber(100)},
			}}},
		})
		h := gate(t, httplimit.GateOptions{Engine: e, Reserve: true}).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if got := c.act(httplimit.Reservation(r.Context())); got != c.settled {
				t.Errorf("%s: settled is %v", c.name, got)
			}
		}))
		func() {
			defer func() { _ = recover() }()
			get(h)
		}()
		if kept != nil && kept.Cancel() {
			t.Errorf("%s: it can be settled after the handler has returned", c.name)
		}
		if r, n := available(t, e, "requests", ""), available(t, e, "tokens", ""); r != c.requests || n != c.tokens {
			t.Errorf("%s: %d requests and %d tokens are left, want %d and %d", c.name, r, n, c.requests, c.tokens)
		}
	}
	if httplimit.Reservation(t.Context()) != nil {
		t.Error("a reservation without a gate")
	}
	var none *httplimit.Reserved
	if none.Cancel() || none.CommitPolicy("x", 1) {
		t.Error("no reservation can be settled")
	}
	e := standing(t, &policy.Set{Policies: []policy.Policy{hourly("a", 10, nil)}, Rules: []policy.Rule{everything("a")}})
	get(gate(t, httplimit.GateOptions{Engine: e}).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if httplimit.Reservation(r.Context()) != nil {
			t.Error("a reservation without the option")
		}
	})))
}

// TestMiddlewareCost is about costs that a function tells.
func TestMiddlewareCost(t *testing.T) {
	e := standing(t, &policy.Set{Policies: []policy.Policy{hourly("a", 10, nil)}, Rules: []policy.Rule{everything("a")}})
	var log bytes.Buffer
	cost := int64(4)
	g := gate(t, httplimit.GateOptions{
		Engine: e, Cost: func(*http.Request) int64 { return cost }, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Skip: func(r *http.Request) bool { return r.URL.Path == "/skip" },
	})
	h := g.Handler(ok)
	for _, c := range []struct {
		cost   int64
		status int
		left   int64
	}{{4, 200, 6}, {6, 200, 0}, {1, 429, 0}, {0, 200, 0}, {-1, 500, 0}} {
		cost = c.cost
		resp := get(h)
		if n := available(t, e, "a", ""); resp.status != c.status || n != c.left {
			t.Errorf("cost %d: status %d with %d left", c.cost, resp.status, n)
		}
		if told := resp.header.Get("Ratelimit"); (told != "") != (c.status != 500) {
			t.Errorf("cost %d: RateLimit: %s", c.cost, told)
		}
	}
	if !strings.Contains(log.String(), "the cost is negative") {
		t.Errorf("the log says %s", log.String())
	}
	if resp := send(h, request(http.MethodGet, "/skip")); resp.status != 200 || resp.header.Get("Ratelimit") != "" {
		t.Errorf("what is skipped: %d, %v", resp.status, resp.header)
	}
	if s := g.Stats(); s != (httplimit.GateStats{Allowed: 3, Refused: 1, Failed: 1}) {
		t.Errorf("%+v", s)
	}
}

// TestMiddlewareRefusalsThatNoLimitMade is about a server under load, and about a key that cannot be told.
func TestMiddlewareRefusalsThatNoLimitMade(t *testing.T) {
	shedder, err := overload.NewShedder(overload.ShedderOptions{Rise: -1, Sources: []overload.Pressure{overload.NewPressure("full", func(int64) (float64, error) { return 2, nil })}})
	if err != nil {
		t.Fatal(err)
	}
	set := &policy.Set{Policies: []policy.Policy{hourly("a", 10, nil)}, Rules: []policy.Rule{everything("a")}}
	resp := get(gate(t, httplimit.GateOptions{Engine: engineOf(t, policy.EngineOptions{Shedder: shedder}, set)}).Handler(ok))
	if p := problem(t, resp); resp.status != 503 || p.Type != httplimit.TemporaryReducedCapacity || p.ViolatedPolicies != nil ||
		!strings.HasPrefix(p.Detail, "The server is under load") || resp.header.Get("Ratelimit") != "" {
		t.Errorf("overloaded: %d, %+v, %v", resp.status, p, resp.header)
	}
	set.Policies[0].Key = failingText{}
	resp = get(gate(t, httplimit.GateOptions{Engine: standing(t, set)}).Handler(ok))
	if p := problem(t, resp); resp.status != 503 || p.ViolatedPolicies[0] != "a" ||
		p.Detail != `The limit "a" cannot be told for this request; retry later.` {
		t.Errorf("unavailable: %d, %+v, %v", resp.status, p, resp.header)
	}
	locking := hourly("a", 1, policy.ClientIP())
	locking.Lockout = &policy.Lockout{Refusals: 1, Within: time.Minute, For: 2 * time.Hour}
	h := gate(t, httplimit.GateOptions{
		Engine: standing(t, &policy.Set{Policies: []policy.Policy{locking}, Rules: []policy.Rule{everything("a")}}),
	}).Handler(ok)
	get(h)
	get(h)
	resp = get(h)
	if p := problem(t, resp); resp.status != 429 || p.Type != httplimit.QuotaExceeded || resp.header.Get("Retry-After") != "7200" ||
		p.Detail != `The limit "a" was exceeded too often, and locks this client out; retry after 2 hours.` {
		t.Errorf("locked out: %d, %+v, %v", resp.status, p, resp.header)
	}
}

type failingText struct{}

func (failingText) AppendTo(b []byte, _ *policy.Request) ([]byte, error) { return b, errors.New("no") }
func (failingText) String() string                                       { return "failing" }

// TestMiddlewareToldLimitIsThatOfTheTier is about limits that depend on the request.
func TestMiddlewareToldLimitIsThatOfTheTier(t *testing.T) {
	limits := func(rate weir.Rate) []policy.Limit {
		return []policy.Limit{{Name: "l", Limit: weir.TokenBucket(rate, 0)}}
	}
	e := standing(t, &policy.Set{
		Policies: []policy.Policy{{
			Name: "plan", Key: policy.ClientIP(), Limits: limits(weir.PerMinute(10)), TierBy: policy.HeaderText("X-Plan"),
			Tiers: map[string][]policy.Limit{"gold": limits(weir.PerHour(500)), "a": limits(weir.PerHour(70)), "b": limits(weir.PerMinute(70))},
		}},
		Rules: []policy.Rule{everything("plan")},
	})
	h := gate(t, httplimit.GateOptions{Engine: e, Units: map[string]ratelimitfields.Unit{"plan": "credits"}}).Handler(ok)
	for plan, want := range map[string]string{
		"": `"plan";q=10;qu="credits";w=60`, "gold": `"plan";q=500;qu="credits";w=3600`, "a": `"plan";q=70;qu="credits";w=3600`,
	} {
		r := request(http.MethodGet, "/")
		r.Header.Set("X-Plan", plan)
		if got := send(h, r).header.Get("Ratelimit-Policy"); got != want {
			t.Errorf("%q: %s, want %s", plan, got, want)
		}
	}
}

// TestMiddlewareTellsCalendarWindows is about windows that are not all alike.
func TestMiddlewareTellsCalendarWindows(t *testing.T) {
	vienna := time.FixedZone("anywhere", 3600)
	for want, c := range map[string]algo.Calendar{
		`"quota";q=9;w=60`:     {Unit: algo.CalendarMinute},
		`"quota";q=9;w=3600`:   {Unit: algo.CalendarHour, Zone: vienna},
		`"quota";q=9;w=86400`:  {Unit: algo.CalendarDay, Zone: time.UTC},
		`"quota";q=9;w=604800`: {Unit: algo.CalendarWeek},
		`"quota";q=9`:          {Unit: algo.CalendarMonth, Zone: vienna, Day: 15},
	} {
		e := engineOf(t, policy.EngineOptions{}, &policy.Set{
			Policies: []policy.Policy{{Name: "quota", Limits: []policy.Limit{{
				Limit: weir.CalendarWindow(9, c),
			}}}},
			Rules: []policy.Rule{everything("quota")},
		})
		resp := get(gate(t, httplimit.GateOptions{Engine: e}).Handler(ok))
		if got := resp.header.Get("Ratelimit-Policy"); got != want {
			t.Errorf("%v: %s, want %s", c, got, want)
		}
	}
}

// TestMiddlewareTellsTheLowestOfSeveralKeys is about a policy that applies to two keys of a request.
func TestMiddlewareTellsTheLowestOfSeveralKeys(t *testing.T) {
	e := standing(t, &policy.Set{
		Policies: []policy.Policy{hourly("p", 10, nil)},
		Rules: []policy.Rule{{Name: "both", Limits: []policy.Use{
			{Policy: "p", Key: policy.ConstantText("a")}, {Policy: "p", Key: policy.MethodText(), Cost: policy.FixedNumber(3)},
		}}},
	})
	h := gate(t, httplimit.GateOptions{Engine: e}).Handler(ok)
	expect(t, get(h).header, map[string]string{"Ratelimit": `"p";r=7;t=1080`, "Ratelimit-Policy": `"p";q=10;w=3600`})
}

// TestMiddlewareFollowsTheSet is about a set that is replaced while requests come.
func TestMiddlewareFollowsTheSet(t *testing.T) {
	set := func(n int64) *policy.Set {
		return &policy.Set{Policies: []policy.Policy{hourly("a", n, nil)}, Rules: []policy.Rule{everything("a")}}
	}
	e := standing(t, set(10))
	h := gate(t, httplimit.GateOptions{Engine: e}).Handler(ok)
	get(h)
	if _, err := e.Load(set(5)); err != nil {
		t.Fatal(err)
	}
	expect(t, get(h).header, map[string]string{"Ratelimit": `"a";r=4;t=720`, "Ratelimit-Policy": `"a";q=5;w=3600`})
}

// TestMiddlewareTellsNewNames is about limits that get other names while requests come.
func TestMiddlewareTellsNewNames(t *testing.T) {
	set := func(first, second string) *policy.Set {
		p := hourly("a", 10, nil)
		p.Limits = []policy.Limit{
			{Name: first, Limit: weir.TokenBucket(weir.PerHour(10), 0)}, {Name: second, Limit: weir.TokenBucket(weir.PerHour(10), 0)},
		}
		return &policy.Set{Policies: []policy.Policy{p}, Rules: []policy.Rule{everything("a")}}
	}
	e := standing(t, set("x", "y"))
	h := gate(t, httplimit.GateOptions{Engine: e}).Handler(ok)
	if told := get(h).header.Get("Ratelimit-Policy"); told != `"a/x";q=10;w=3600, "a/y";q=10;w=3600` {
		t.Errorf("told is %s", told)
	}
	if _, err := e.Load(set("z", "x")); err != nil {
		t.Fatal(err)
	}
	told := get(h).header.Get("Ratelimit-Policy")
	if !strings.Contains(told, `"a/z";q=10`) || !strings.Contains(told, `"a/x";q=10`) {
		t.Errorf("told is %s", told)
	}
}

// TestMiddlewareTellsManyLimits is about more limits than are told.
func TestMiddlewareTellsManyLimits(t *testing.T) {
	set := &policy.Set{}
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("p%02d", i))
		set.Policies = append(set.Policies, hourly(names[i], 100, nil))
	}
	set.Policies[29].Limits[0].Limit = weir.TokenBucket(weir.PerHour(3), 0)
	set.Rules = []policy.Rule{everything(names...)}
	resp := get(gate(t, httplimit.GateOptions{Engine: standing(t, set)}).Handler(ok))
	told := strings.Split(resp.header.Get("Ratelimit"), ", ")
	if len(told) != 16 || told[0] != `"p29";r=2;t=1200` || strings.Count(resp.header.Get("Ratelimit-Policy"), ";q=") != 16 {
		t.Errorf("%d limits are told, the first is %s", len(told), told[0])
	}
}

// TestMiddlewareExemptRequests is about rules that free requests of all limits.
func TestMiddlewareExemptRequests(t *testing.T) {
	e := standing(t, &policy.Set{
		Policies: []policy.Policy{hourly("a", 1, nil)},
		Rules:    []policy.Rule{everything("a"), {Name: "health", Match: policy.Match{Paths: []string{"/health"}}, Exempt: true}},
	})
	g := gate(t, httplimit.GateOptions{Engine: e})
	for range 3 {
		if resp := send(g.Handler(ok), request(http.MethodGet, "/health")); resp.status != 200 || resp.header.Get("Ratelimit") != "" {
			t.Errorf("%d, %v", resp.status, resp.header)
		}
	}
	if s := g.Stats(); s.Exempt != 3 || s.Allowed != 0 || available(t, e, "a", "") != 1 {
		t.Errorf("%+v", s)
	}
}

func TestGateOptionsThatCannotBeUsed(t *testing.T) {
	e := standing(t, &policy.Set{})
	for want, o := range map[string]httplimit.GateOptions{
		"GateOptions.Engine is nil":  {},
		"GateOptions.Route is set":   {Engine: e, Routes: http.NewServeMux(), Route: func(*http.Request) string { return "" }},
		"GateOptions.MaxWait is 1µs": {Engine: e, Wait: true, MaxWait: time.Microsecond},
		"GateOptions.MaxWait is 1s":  {Engine: e, MaxWait: time.Second},
		"GateOptions.Status is 200":  {Engine: e, Status: 200},
		`GateOptions.Units["a"]`:     {Engine: e, Units: map[string]ratelimitfields.Unit{"a": "ü"}},
		"Headers.Jitter is -1ns":     {Engine: e, Headers: ratelimitfields.Headers{Jitter: -1}},
	} {
		if _, err := httplimit.NewGate(o); err == nil || !strings.HasPrefix(err.Error(), "weir: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("NewGate: %v, want an error about %s", err, want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic for a nil handler")
		}
	}()
	gate(t, httplimit.GateOptions{Engine: e}).Handler(nil)
}

// TestGateAllocations holds the gate to what the middleware of New allocates.
func TestGateAllocations(t *testing.T) {
	w := httptest.NewRecorder()
	r := request(http.MethodGet, "/")
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for name, h := range map[string]http.Handler{
		"one limit": gate(t, httplimit.GateOptions{Engine: limitsOf(t, 1)}).Handler(next),
		"three":     gate(t, httplimit.GateOptions{Engine: limitsOf(t, 3)}).Handler(next),
		"reserved":  gate(t, httplimit.GateOptions{Engine: limitsOf(t, 3), Reserve: true}).Handler(next),
	} {
		h.ServeHTTP(w, r)
		if n := testing.AllocsPerRun(200, func() {
			clear(w.Header())
			h.ServeHTTP(w, r)
		}); n > 4 && !race.Enabled {
			t.Errorf("%s: %v allocations, want 4", name, n)
		}
	}
}

// limitsOf is an engine in which so many limits of the client apply to each request.
func limitsOf(tb testing.TB, n int) *policy.Engine {
	tb.Helper()
	set := &policy.Set{}
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("p%d", i))
		set.Policies = append(set.Policies, policy.Policy{
			Name: names[i], Key: policy.ClientIP(), Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerSecond(1e9), 1e9)}},
		})
	}
	set.Rules = []policy.Rule{everything(names...)}
	return engineOf(tb, policy.EngineOptions{}, set)
}

func BenchmarkBareHandler(b *testing.B) { benchmark(b, ok) }

func BenchmarkGate(b *testing.B) {
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprintf("%d limits", n), func(b *testing.B) {
			benchmark(b, gate(b, httplimit.GateOptions{Engine: limitsOf(b, n)}).Handler(ok))
		})
	}
	mux := http.NewServeMux()
	mux.Handle("/", ok)
	b.Run("route", func(b *testing.B) {
		benchmark(b, gate(b, httplimit.GateOptions{Engine: limitsOf(b, 1), Routes: mux}).Handler(ok))
	})
	b.Run("refused", func(b *testing.B) {
		e := standing(b, &policy.Set{Policies: []policy.Policy{hourly("a", 1, policy.ClientIP())}, Rules: []policy.Rule{everything("a")}})
		h := gate(b, httplimit.GateOptions{Engine: e}).Handler(ok)
		get(h)
		benchmark(b, h)
	})
}
