package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// try prints the status and the RateLimit field that a handler answers, and returns the body.
func try(h http.Handler, header ...string) (body string) {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/items", http.NoBody)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Fprintln(os.Stdout, w.Code, w.Header().Get("Ratelimit"))
	return w.Body.String()
}

var items = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "items") })

// listenPerClient is a server in one line.
func listenPerClient(mux *http.ServeMux) error {
	return http.ListenAndServe(":8080", httplimit.PerClient(weir.PerSecond(10), 20)(mux))
}

var _ = listenPerClient // it would serve until the process ends

// Each client sends two requests at once, and then one in 30 seconds.
func ExamplePerClient() {
	handler := httplimit.PerClient(weir.PerMinute(2), 2)(items)
	for range 3 {
		try(handler)
	}
	// Output:
	// 200 "per-client";r=1;t=30
	// 200 "per-client";r=0;t=60
	// 429 "per-client";r=0;t=30
}

// A request is charged to all limits or to none: the second one of an API key has used up nothing of its client's.
func ExampleOptions_limits() {
	clock := manualclock.New(0) // a clock that stands, for this example
	perClient, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(10), 20), weir.KeyedOptions{Name: "per-client", Clock: clock})
	if err != nil {
		panic(err)
	}
	monthly, err := weir.NewKeyed[string](weir.CalendarWindow(1, algo.Calendar{Unit: algo.CalendarMonth}), weir.KeyedOptions{
		Name: "monthly", Clock: clock,
	})
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.New(httplimit.Options{Limits: []httplimit.Limit{
		{Keyed: perClient},
		{Keyed: monthly, Key: httplimit.RequireHeader("X-Api-Key")},
	}})
	if err != nil {
		panic(err)
	}
	for _, key := range []string{"a", "a", ""} {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/items", http.NoBody)
		r.Header.Set("X-Api-Key", key)
		w := httptest.NewRecorder()
		limit(items).ServeHTTP(w, r)
		fmt.Println(w.Code, perClient.Peek("192.0.2.1", 0).Remaining)
	}
	// Output:
	// 200 19
	// 429 19
	// 401 19
}

// listen is a server in ten lines.
func listen(mux *http.ServeMux) error {
	perClient, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(10), 20), weir.KeyedOptions{Name: "per-client"})
	if err != nil {
		return err
	}
	limit, err := httplimit.New(httplimit.Options{Keyed: perClient})
	if err != nil {
		return err
	}
	return http.ListenAndServe(":8080", limit(mux))
}

var _ = listen // it would serve until the process ends

// Each client has a limit of its own.
func ExampleNew() {
	clock := manualclock.New(0) // a clock that stands, for this example
	perClient, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerMinute(2), 0), weir.KeyedOptions{Name: "per-client", Clock: clock})
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.New(httplimit.Options{Keyed: perClient})
	if err != nil {
		panic(err)
	}
	handler := limit(items)

	for range 3 {
		try(handler)
	}
	// Output:
	// 200 "per-client";r=1;t=30
	// 200 "per-client";r=0;t=60
	// 429 "per-client";r=0;t=30
}

// All requests together pass several limits, or are charged to none. At most 100 are served at a time; more wait for up to 5 s.
func ExampleNew_chain() {
	slots, err := weir.NewConcurrency(100, weir.Options{Name: "slots", QueueLimit: 1000})
	if err != nil {
		panic(err)
	}
	hourly, err := weir.New(weir.FixedWindow(weir.PerHour(2)), weir.Options{
		Name: "hourly", Clock: manualclock.New(0),
	})
	if err != nil {
		panic(err)
	}
	both, err := weir.NewChain(slots, hourly)
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.New(httplimit.Options{Limiter: both, MaxWait: 5 * time.Second})
	if err != nil {
		panic(err)
	}
	handler := limit(items)

	for range 3 {
		try(handler)
	}
	// Output:
	// 200 "hourly";r=1;t=3600
	// 200 "hourly";r=0;t=3600
	// 429 "hourly";r=0;t=3600
}

// A hook counts refusals, and answers with a page of its own.
func ExampleNew_onRefused() {
	clock := manualclock.New(0) // a clock that stands, for this example
	bucket, err := weir.New(weir.TokenBucket(weir.PerMinute(1), 0), weir.Options{Name: "api", Clock: clock})
	if err != nil {
		panic(err)
	}
	refused := 0
	limit, err := httplimit.New(httplimit.Options{
		Limiter: bucket,
		OnRefused: func(r *http.Request, f *httplimit.Refusal) {
			refused++
			f.Status = http.StatusServiceUnavailable
			f.Body = fmt.Appendf(nil, "%s is busy, come back in %s s", r.URL.Path, f.Header.Get("Retry-After"))
		},
	})
	if err != nil {
		panic(err)
	}
	handler := limit(items)

	try(handler)
	fmt.Println(try(handler))
	fmt.Println(refused, "refused")
	// Output:
	// 200 "api";r=0;t=60
	// 503 "api";r=0;t=60
	// /items is busy, come back in 60 s
	// 1 refused
}

// The server stands behind proxies in 10.0.0.0/8, which name their clients in X-Forwarded-For.
func ExampleByClient() {
	byClient, err := httplimit.ByClient(httplimit.ClientOptions{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	})
	if err != nil {
		panic(err)
	}
	r := &http.Request{
		RemoteAddr: "10.0.0.1:40000",
		Header:     http.Header{"X-Forwarded-For": {"127.0.0.1, 2001:db8:1:2::3, 10.0.0.2"}},
	}
	key, err := byClient(r)
	fmt.Println(key, err)
	// Output: 2001:db8:1:2::/64 <nil>
}

// byHops keys requests by the client, which is two proxies away.
func byHops() (httplimit.KeyFunc, error) {
	clients, err := clientip.New(clientip.Options{TrustedHops: 2})
	if err != nil {
		return nil, err
	}
	return func(r *http.Request) (string, error) {
		client, ok := clients.Client(r.RemoteAddr, r.Header["X-Forwarded-For"])
		if !ok {
			return r.RemoteAddr, nil
		}
		return clients.Key(client), nil
	}, nil
}

// A KeyFunc may tell clients in another way than ByClient: here every request comes through two proxies, whose addresses are not
// known.
func ExampleKeyFunc() {
	key, err := byHops()
	if err != nil {
		panic(err)
	}
	fmt.Println(key(&http.Request{
		RemoteAddr: "203.0.113.1:40000",
		Header:     http.Header{"X-Forwarded-For": {"127.0.0.1, 2001:db8:1:2::3, 203.0.113.2"}},
	}))
	// Output: 2001:db8:1:2::/64 <nil>
}

// Requests with an API key are limited by it, all others by the address of the client.
func ExampleByFirst() {
	byClient, err := httplimit.ByClient(httplimit.ClientOptions{})
	if err != nil {
		panic(err)
	}
	keyed, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerMinute(1), 0), weir.KeyedOptions{Name: "api"})
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.New(httplimit.Options{
		Keyed: keyed,
		Key:   httplimit.ByFirst(httplimit.ByHeader("X-Api-Key"), byClient),
	})
	if err != nil {
		panic(err)
	}
	handler := limit(items)

	try(handler, "X-Api-Key", "carol")
	try(handler, "X-Api-Key", "dave")
	try(handler)
	// Output:
	// 200 "api";r=0;t=60
	// 200 "api";r=0;t=60
	// 200 "api";r=0;t=60
}

// apiSet is which clients have which limits: all requests together, each client, and reports, which need tokens.
func apiSet() *policy.Set {
	return &policy.Set{
		Policies: []policy.Policy{
			{Name: "all", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1000), 0)}}},
			{Name: "per-client", Key: policy.Client(), Limits: []policy.Limit{
				{Name: "burst", Limit: weir.TokenBucket(weir.PerMinute(10), 20)},
				{Name: "hour", Limit: weir.SlidingWindow(weir.PerHour(3), 0)},
			}},
			{Name: "tokens", Key: policy.HeaderText("X-Api-Key"), Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerDay(6000), 0)}}},
		},
		Rules: []policy.Rule{
			{Name: "everything", Limits: []policy.Use{{Policy: "all"}, {Policy: "per-client"}}},
			{Name: "health", Match: policy.Match{Paths: []string{"/healthz"}}, Exempt: true},
		},
	}
}

// serveByRules is a server whose limits are rules.
func serveByRules(set *policy.Set, options policy.EngineOptions, mux *http.ServeMux) (http.Handler, error) {
	engine, err := policy.NewEngine(set, options) // policy.EngineOptions{} will do
	if err != nil {
		return nil, err
	}
	gate, err := httplimit.NewGate(httplimit.GateOptions{Engine: engine, Routes: mux})
	if err != nil {
		return nil, err
	}
	return gate.Handler(mux), nil
}

// Rules say which limits apply to a request. It is charged to all of them or to none, and told the one that binds first.
func ExampleNewGate() {
	mux := http.NewServeMux()
	mux.Handle("GET /items", items)
	options := policy.EngineOptions{Clock: manualclock.New(0)} // a clock that stands, for this example
	handler, err := serveByRules(apiSet(), options, mux)
	if err != nil {
		panic(err)
	}

	for range 3 {
		try(handler)
	}
	// Output:
	// 200 "per-client/hour";r=2;t=3600, "all";r=999;t=4, "per-client/burst";r=19;t=6
	// 200 "per-client/hour";r=1;t=3600, "all";r=998;t=8, "per-client/burst";r=18;t=12
	// 200 "per-client/hour";r=0;t=3600, "all";r=997;t=11, "per-client/burst";r=17;t=18
}

// routes are handlers that say which policy applies to them.
func routes(set *policy.Set, options policy.EngineOptions, handler http.Handler) (http.Handler, error) {
	mux, err := httplimit.NewMux(httplimit.MuxOptions{Set: set, Engine: options}) // Engine may be left out
	if err != nil {
		return nil, err
	}
	mux.Handle("GET /status", handler, httplimit.Disabled())
	api := mux.Group(httplimit.WithPolicy("per-key"))
	api.Handle("GET /items", handler)
	api.Handle("POST /login", handler, httplimit.WithPolicy("login"))
	return mux.Handler()
}

// A server whose policies are set in code: one limit for all clients together, and one for each route.
func ExampleMux() {
	handler, err := routes(&policy.Set{
		Policies: []policy.Policy{
			{Name: "all", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(100), 0)}}},
			{Name: "per-key", Key: policy.HeaderText("X-Api-Key"), Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerMinute(2), 0)}}},
			{Name: "login", Key: policy.Client(), Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerMinute(5), 0)}}},
		},
		Rules: []policy.Rule{{Name: "everything", Limits: []policy.Use{{Policy: "all"}}}},
	}, policy.EngineOptions{Clock: manualclock.New(0)}, items) // a clock that stands, for this example
	if err != nil {
		panic(err)
	}

	for range 3 {
		try(handler, "X-Api-Key", "carol")
	}
	try(handler, "X-Api-Key", "dave")
	// Output:
	// 200 "per-key";r=1;t=30, "all";r=99;t=36
	// 200 "per-key";r=0;t=60, "all";r=98;t=72
	// 429 "per-key";r=0;t=30, "all";r=98;t=30
	// 200 "per-key";r=1;t=30, "all";r=97;t=108
}

// A spelling mistake is found before the first request comes.
func ExampleMux_Handler() {
	mux, err := httplimit.NewMux(httplimit.MuxOptions{Set: apiSet()})
	if err != nil {
		panic(err)
	}
	mux.Handle("GET /items", items, httplimit.WithPolicy("per-cleint"))
	_, err = mux.Handler()
	fmt.Println(err)
	// Output:
	// weir: httplimit.Mux: the policy of "GET /items" is "per-cleint": must be the name of a policy in the Set: "all", "per-client", "tokens"
}

// complete returns a prompt, and how many tokens that has taken.
func complete(*http.Request) (text string, tokens int64) { return "42", 130 }

// prompt is a handler that knows only when it is done how many tokens the answer has cost.
func prompt(w http.ResponseWriter, r *http.Request) {
	text, tokens := complete(r)
	httplimit.Reservation(r.Context()).CommitPolicy("tokens", tokens)
	fmt.Fprint(w, text)
}

// A request reserves 1000 tokens, and pays for those that it has used.
func ExampleReservation() {
	set := apiSet()
	set.Rules = []policy.Rule{{
		Name:   "prompts",
		Limits: []policy.Use{{Policy: "tokens", Cost: policy.FixedNumber(1000)}},
	}}
	engine, err := policy.NewEngine(set, policy.EngineOptions{Clock: manualclock.New(0)}) // a clock that stands, for this example
	if err != nil {
		panic(err)
	}
	gate, err := httplimit.NewGate(httplimit.GateOptions{
		Engine: engine, Reserve: true, Units: map[string]ratelimitfields.Unit{"tokens": ratelimitfields.Tokens},
	})
	if err != nil {
		panic(err)
	}
	handler := gate.Handler(http.HandlerFunc(prompt))

	try(handler, "X-Api-Key", "carol")
	fmt.Println(engine.Limiter("tokens", "24h").Peek("carol", 0).Remaining, "tokens are left")
	// Output:
	// 200 "tokens";r=5000;t=14400
	// 5870 tokens are left
}
