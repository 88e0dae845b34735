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
	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/httplimit"
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

// listen is a server in ten lines.
func listen(mux *http.ServeMux) error {
	perClient, err := weir.NewKeyed[string](weir.KeyedOptions{Name: "per-client", Rate: weir.PerSecond(10), Burst: 20})
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
	perClient, err := weir.NewKeyed[string](weir.KeyedOptions{Name: "per-client", Rate: weir.PerMinute(2)})
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
	slots, err := weir.NewConcurrency(weir.ConcurrencyOptions{Name: "slots", Limit: 100, QueueLimit: 1000})
	if err != nil {
		panic(err)
	}
	hourly, err := weir.NewFixedWindow(weir.FixedWindowOptions{Name: "hourly", Limit: 2, Window: time.Hour})
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
	bucket, err := weir.NewTokenBucket(weir.TokenBucketOptions{Name: "api", Rate: weir.PerMinute(1)})
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

// The server stands behind proxies in 10.0.0.0/8, which say in X-Forwarded-For whom they serve.
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

// A KeyFunc may tell clients in another way than ByClient: nobody can reach this server but through two proxies, whose
// addresses are not known.
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
	keyed, err := weir.NewKeyed[string](weir.KeyedOptions{Name: "api", Rate: weir.PerMinute(1)})
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

// A server that decides by itself writes the same fields.
func ExampleHeaders() {
	policies, err := httplimit.NewPolicies(
		httplimit.Policy{Name: "burst", Quota: 100, Window: time.Minute},
		httplimit.Policy{Name: "daily", Quota: 1000, Window: 24 * time.Hour},
	)
	if err != nil {
		panic(err)
	}
	header := http.Header{}
	headers := httplimit.Headers{Fields: httplimit.RateLimit11 | httplimit.XRateLimit}
	headers.SetRefused(header, policies, 10*time.Hour,
		httplimit.State{Policy: 1, Remaining: 0, Reset: 20 * time.Hour},
		httplimit.State{Policy: 0, Remaining: 50, Reset: 30 * time.Second})
	for _, name := range []string{"Ratelimit", "Ratelimit-Policy", "Retry-After", "X-Ratelimit-Remaining"} {
		fmt.Printf("%s: %s\n", name, header.Get(name))
	}
	// Output:
	// Ratelimit: "daily";r=0;t=36000, "burst";r=50;t=30
	// Ratelimit-Policy: "burst";q=100;w=60, "daily";q=1000;w=86400
	// Retry-After: 36000
	// X-Ratelimit-Remaining: 0
}
