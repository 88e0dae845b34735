package httplimit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/ratelimitfields"
)

// refusing returns a handler that refuses every request by one decision.
func refusing(tb testing.TB, d weir.Decision, o httplimit.Options) http.Handler {
	tb.Helper()
	o.Keyed = &fixedKeyed{d}
	if o.Policies == nil {
		o.Policies = []ratelimitfields.Policy{{Name: "api", Quota: 20, Window: 2 * time.Second}}
	}
	return limit(tb, o)(ok)
}

const limitedDetail = `The limit "api" allows 20 requests per 2 seconds and has 0 remaining, but this request needs 1; ` +
	`retry after 1 second.`

var limited = weir.Decision{
	Reason: weir.ReasonLimited, Limit: 20, RetryAfter: 100 * time.Millisecond, ResetAfter: 2 * time.Second, Policy: "api",
}

func problem(tb testing.TB, resp answer) (p httplimit.Problem) {
	tb.Helper()
	decoder := json.NewDecoder(strings.NewReader(resp.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		tb.Fatal(err)
	}
	return p
}

func TestProblemOfEachReason(t *testing.T) {
	slotPolicy := []ratelimitfields.Policy{{Name: "slots", Quota: 4, Unit: ratelimitfields.ConcurrentRequests}}
	for _, c := range []struct {
		name     string
		decision weir.Decision
		options  httplimit.Options
		status   int
		detail   string
	}{
		{
			"limited", limited,
			httplimit.Options{},
			429,
			limitedDetail,
		},
		{
			"some left",
			weir.Decision{Reason: weir.ReasonLimited, Remaining: 3, RetryAfter: 61 * time.Second},
			httplimit.Options{
				Cost:     func(*http.Request) int64 { return 5 },
				Policies: []ratelimitfields.Policy{{Name: "up", Quota: 1, Window: 24 * time.Hour, Unit: ratelimitfields.ContentBytes}},
			},
			429, `The limit "up" allows 1 byte per day and has 3 remaining, but this request needs 5; retry after 1 minute 1 second.`,
		},
		{
			"never",
			weir.Decision{Reason: weir.ReasonNever, RetryAfter: weir.Never, Policy: "api"},
			httplimit.Options{Cost: func(*http.Request) int64 { return 30 }},
			429,
			`The limit "api" allows 20 requests per 2 seconds, but this request needs 30; no later attempt can succeed.`,
		},
		{
			"never, of a limit as it was configured",
			weir.Decision{Reason: weir.ReasonNever, RetryAfter: weir.Never, Policy: "api"},
			httplimit.Options{
				Cost:     func(*http.Request) int64 { return 3 },
				Policies: []ratelimitfields.Policy{ratelimitfields.PolicyOf("api", weir.TokenBucket(weir.PerMinute(1), 2))},
			},
			429, `The limit "api" is 1/min, burst 2, but this request needs 3; no later attempt can succeed.`,
		},
		{
			"queue full",
			weir.Decision{Reason: weir.ReasonQueueFull, RetryAfter: time.Minute},
			httplimit.Options{},
			429,
			`The limit "api" allows 20 requests per 2 seconds and has 0 remaining, but this request needs 1, ` +
				`and there is no room to wait; retry after 1 minute.`,
		},
		{
			"deadline",
			weir.Decision{Reason: weir.ReasonDeadline, RetryAfter: time.Minute},
			httplimit.Options{},
			429,
			`The limit "api" allows 20 requests per 2 seconds and has 0 remaining, but this request needs 1, ` +
				`and its turn would come too late; retry after 1 minute.`,
		},
		{
			"evicted",
			weir.Decision{Reason: weir.ReasonEvicted, RetryAfter: time.Minute},
			httplimit.Options{},
			429,
			`The limit "api" allows 20 requests per 2 seconds and has 0 remaining, but this request needs 1, ` +
				`and newer requests took its place in the queue; retry after 1 minute.`,
		},
		{
			"concurrency",
			weir.Decision{Reason: weir.ReasonLimited},
			httplimit.Options{Policies: slotPolicy},
			503,
			`The limit "slots" allows 4 requests at a time and has 0 remaining, but this request needs 1; retry later.`,
		},
		{
			"concurrency that is told as requests",
			weir.Decision{Reason: weir.ReasonLimited},
			httplimit.Options{},
			503,
			`The limit "api" allows 20 requests per 2 seconds and has 0 remaining, but this request needs 1; retry later.`,
		},
		{
			"concurrency, too late",
			weir.Decision{Reason: weir.ReasonDeadline, RetryAfter: 1},
			httplimit.Options{Policies: slotPolicy},
			503,
			`The limit "slots" allows 4 requests at a time and has 0 remaining, but this request needs 1, ` +
				`and its turn would come too late; retry after 1 second.`,
		},
		{
			"closed",
			weir.Decision{Reason: weir.ReasonClosed, Remaining: 9, RetryAfter: weir.Never},
			httplimit.Options{},
			503,
			`The limit "api" is closed and lets no request pass.`,
		},
		{
			"table full",
			weir.Decision{Reason: weir.ReasonTableFull, Remaining: 9, RetryAfter: 2 * time.Second},
			httplimit.Options{},
			503,
			`The limit "api" tracks as many clients as it can; retry after 2 seconds.`,
		},
		{
			"no numbers", limited,
			httplimit.Options{Headers: ratelimitfields.Headers{Fields: ratelimitfields.NoFields}},
			429,
			`The limit does not allow this request; retry after 1 second.`,
		},
		{
			"odd units",
			weir.Decision{Reason: weir.ReasonLimited, RetryAfter: 1},
			httplimit.Options{Policies: []ratelimitfields.Policy{
				{Name: "x", Quota: 2, Unit: "teapots", Window: 1500 * time.Millisecond},
			}},
			429,
			`The limit "x" allows 2 teapots per 1.5 seconds and has 0 remaining, but this request needs 1; ` +
				`retry after 1 second.`,
		},
		{
			"odd window",
			weir.Decision{Reason: weir.ReasonLimited, RetryAfter: 1},
			httplimit.Options{Policies: []ratelimitfields.Policy{{Name: "x", Quota: 2, Window: 1500 * time.Microsecond}}},
			429, `The limit "x" allows 2 requests per 1.5ms and has 0 remaining, but this request needs 1; retry after 1 second.`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			resp := get(refusing(t, c.decision, c.options))
			p := problem(t, resp)
			kind := httplimit.QuotaExceeded
			if c.status == http.StatusServiceUnavailable {
				kind = httplimit.TemporaryReducedCapacity
			}
			if resp.status != c.status || p.Status != c.status || p.Type != kind {
				t.Errorf("status %d, in the body %d, type %s; want %d", resp.status, p.Status, p.Type, c.status)
			}
			if p.Detail != c.detail {
				t.Errorf("detail %s\nwant   %s", p.Detail, c.detail)
			}
			if got := resp.header.Get("Retry-After"); strings.TrimPrefix(fmt.Sprint(p.RetryAfter), "0") != got {
				t.Errorf("Retry-After is %q in the header and %d in the body", got, p.RetryAfter)
			}
			if c.decision.Remaining == 9 && !strings.Contains(resp.header.Get("Ratelimit"), ";r=0") {
				t.Errorf("RateLimit: %s, want r=0 where nothing can be had", resp.header.Get("Ratelimit"))
			}
		})
	}
}

func TestRealLimitersOutOfCapacity(t *testing.T) {
	limiter := slots(t, 1, weir.Options{Name: "slots"})
	handler := limit(t, httplimit.Options{Limiter: limiter})(ok)
	limiter.TryAcquire(1)
	resp := get(handler)
	if resp.status != http.StatusServiceUnavailable || resp.header.Get("Retry-After") != "" ||
		resp.header.Get("Ratelimit") != `"slots";r=0` {
		t.Errorf("all in use: status %d, %v", resp.status, resp.header)
	}
	if err := limiter.Close(); err != nil {
		t.Fatal(err)
	}
	if resp = get(handler); resp.status != http.StatusServiceUnavailable ||
		problem(t, resp).Type != httplimit.TemporaryReducedCapacity {
		t.Errorf("closed: status %d", resp.status)
	}

	keyed, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(1), 0), weir.KeyedOptions{MaxKeys: 1, Clock: manualclock.New(0)})
	if err != nil {
		t.Fatal(err)
	}
	keyed.Take("somebody else", 1)
	resp = get(limit(t, httplimit.Options{Keyed: keyed})(ok))
	expectRetry := resp.header.Get("Retry-After")
	if resp.status != http.StatusServiceUnavailable || expectRetry != "1" || resp.header.Get("Ratelimit") != `"default";r=0;t=1` {
		t.Errorf("table full: status %d, %v", resp.status, resp.header)
	}
}

// TestRefusalHasTheLimitAsItWasMade: a user who is told "5 requests per 5 minutes" does not find that in the configuration.
func TestRefusalHasTheLimitAsItWasMade(t *testing.T) {
	slow := bucket(t, weir.TokenBucket(weir.PerMinute(1), 5), weir.Options{Name: "slow"})
	window := bucket(t, weir.FixedWindow(weir.PerHour(3)), weir.Options{Name: "window"})
	chain, err := weir.NewChain(bucket(t, weir.Limit{}, weir.Options{Name: "wide"}), window)
	if err != nil {
		t.Fatal(err)
	}
	changed := slots(t, 1, weir.Options{Name: "slots"})
	atOnce := limit(t, httplimit.Options{Limiter: changed})(ok)
	if err := changed.SetLimit(2); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		use  weir.Acquirer
		h    http.Handler
		want string
	}{
		{slow, limit(t, httplimit.Options{Limiter: slow})(ok), `The limit "slow" is 1/min, burst 5, and has 0 remaining`},
		{window, limit(t, httplimit.Options{Limiter: chain})(ok), `The limit "window" is fixed-window 3/h, and has 0 remaining`},
		{changed, atOnce, `The limit "slots" allows 2 requests at a time and has 0 remaining`},
	} {
		held := c.use.TryAcquire(c.use.Stats().Remaining)
		if got := problem(t, get(c.h)).Detail; !strings.HasPrefix(got, c.want) {
			t.Errorf("%q, want it to begin with %q", got, c.want)
		}
		held.Release()
	}
}

func TestStatusOption(t *testing.T) {
	for _, d := range []weir.Decision{limited, {Reason: weir.ReasonClosed, RetryAfter: weir.Never}} {
		resp := get(refusing(t, d, httplimit.Options{Status: 420}))
		if resp.status != 420 || problem(t, resp).Status != 420 {
			t.Errorf("%v: status %d", d.Reason, resp.status)
		}
	}
}

func TestTextIsOneLine(t *testing.T) {
	r := request(http.MethodGet, "/")
	r.Header.Set("Accept", "text/plain, application/json;q=0.5")
	resp := send(refusing(t, limited, httplimit.Options{}), r)
	if got := resp.body; got != limitedDetail+"\n" || resp.header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%s: %s", resp.header.Get("Content-Type"), got)
	}

	resp = send(refusing(t, limited, httplimit.Options{OnRefused: func(_ *http.Request, f *httplimit.Refusal) {
		f.Problem.Detail = "one\r\ntwo\u2028three"
	}}), r)
	if got := resp.body; got != "one  two three\n" {
		t.Errorf("a detail of several lines became %q", got)
	}
	resp = send(refusing(t, limited, httplimit.Options{OnRefused: func(_ *http.Request, f *httplimit.Refusal) {
		f.Problem.Detail = ""
	}}), r)
	if got := resp.body; got != "Request cannot be satisfied as assigned quota has been exceeded\n" {
		t.Errorf("without a detail: %q", got)
	}
}

func TestHeadHasNoBody(t *testing.T) {
	for _, accept := range []string{"", "text/plain"} {
		r := request(http.MethodHead, "/")
		r.Header.Set("Accept", accept)
		resp := send(refusing(t, limited, httplimit.Options{}), r)
		if resp.status != http.StatusTooManyRequests || resp.header.Get("Retry-After") != "1" || resp.body != "" {
			t.Errorf("status %d, %v, with a body", resp.status, resp.header)
		}
	}
}

func TestJSONIsEscaped(t *testing.T) {
	name := `a "quoted" \ </script> & name`
	resp := get(refusing(t, limited, httplimit.Options{Policies: []ratelimitfields.Policy{{Name: name, Quota: 1}}}))
	p := problem(t, resp)
	if len(p.ViolatedPolicies) != 1 || p.ViolatedPolicies[0] != name || !strings.Contains(p.Detail, name) {
		t.Errorf("%+v", p)
	}

	resp = get(refusing(t, limited, httplimit.Options{OnRefused: func(_ *http.Request, f *httplimit.Refusal) {
		f.Problem.Detail, f.Problem.Instance = "bytes \xff\x00\x1f\u2028", "/log/\"1\""
	}}))
	if p = problem(t, resp); p.Detail != "bytes \ufffd\x00\x1f\u2028" || p.Instance != `/log/"1"` {
		t.Errorf("%q, %q", p.Detail, p.Instance)
	}
}

// TestFieldsOfTheAnswerThatIsNotGiven is about what other middlewares have set for the answer of the handler.
func TestFieldsOfTheAnswerThatIsNotGiven(t *testing.T) {
	refused := refusing(t, limited, httplimit.Options{})
	resp := get(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"Content-Length", "Content-Encoding", "Etag", "Last-Modified", "Cache-Control", "Expires"} {
			w.Header().Set(name, "1")
		}
		w.Header().Set("X-Request-ID", "7")
		w.Header().Set("Content-Type", "image/png")
		refused.ServeHTTP(w, r)
	}))
	expect(t, resp.header, map[string]string{
		"Ratelimit": `"api";r=0;t=1`, "Ratelimit-Policy": `"api";q=20;w=2`, "Retry-After": "1", "X-Request-ID": "7",
		"Content-Type": "application/problem+json", "X-Content-Type-Options": "nosniff",
	})
}

func TestHook(t *testing.T) {
	seen := httplimit.Refusal{}
	handler := func(change func(f *httplimit.Refusal)) http.Handler {
		return refusing(t, limited, httplimit.Options{
			Key: constant("somebody"), Cost: func(*http.Request) int64 { return 3 },
			OnRefused: func(r *http.Request, f *httplimit.Refusal) {
				seen = *f
				if r.URL.Path != "/" {
					t.Errorf("the hook got a request for %s", r.URL.Path)
				}
				change(f)
			},
		})
	}

	resp := get(handler(func(*httplimit.Refusal) {}))
	if seen.Status != http.StatusTooManyRequests || seen.Problem.Status != http.StatusTooManyRequests ||
		seen.Header.Get("Retry-After") != "1" || seen.Key != "somebody" ||
		seen.Cost != 3 || seen.Decision != limited || resp.status != http.StatusTooManyRequests {
		t.Errorf("the hook saw %+v", seen)
	}

	resp = get(handler(func(f *httplimit.Refusal) {
		f.Status, f.Body, f.ContentType = 418, []byte("<p>short and stout"), "text/html"
		f.Header.Set("X-More", "1")
		f.Header.Del("Ratelimit")
	}))
	if got := resp.body; got != "<p>short and stout" || resp.status != http.StatusTeapot {
		t.Errorf("status %d, %s", resp.status, got)
	}
	expect(t, resp.header, map[string]string{
		"Ratelimit-Policy": `"api";q=20;w=2`, "Retry-After": "1", "X-More": "1", "Content-Type": "text/html",
		"X-Content-Type-Options": "nosniff",
	})

	resp = get(handler(func(f *httplimit.Refusal) { f.Status = http.StatusServiceUnavailable }))
	if p := problem(t, resp); resp.status != http.StatusServiceUnavailable || p.Status != http.StatusServiceUnavailable {
		t.Errorf("status %d, in the body %d", resp.status, p.Status)
	}
	resp = get(handler(func(f *httplimit.Refusal) { f.Body = []byte("slower, please") }))
	if got := resp.body; got != "slower, please" || resp.header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%v, %s", resp.header, got)
	}
	resp = get(handler(func(f *httplimit.Refusal) { f.Body = []byte{} }))
	if got := resp.body; got != "" || resp.header.Get("Content-Type") != "" {
		t.Errorf("an empty body: %v, %q", resp.header, got)
	}
	resp = get(handler(func(f *httplimit.Refusal) { f.Status = http.StatusNoContent }))
	if got := resp.body; got != "" || resp.status != http.StatusNoContent {
		t.Errorf("no content: status %d, %q", resp.status, got)
	}
}

func TestHookWithAStatusThatCannotBeSent(t *testing.T) {
	for _, status := range []int{0, -1, 100, 600, 1000} {
		var logged bytes.Buffer
		resp := get(refusing(t, limited, httplimit.Options{
			OnRefused: func(_ *http.Request, f *httplimit.Refusal) { f.Status = status },
			Logger:    slog.New(slog.NewTextHandler(&logged, nil)),
		}))
		if resp.status != http.StatusTooManyRequests || !strings.Contains(logged.String(), fmt.Sprintf("status=%d", status)) {
			t.Errorf("status %d became %d, logged %q", status, resp.status, logged.String())
		}
	}
}

// TestOverTheWire drives a real server, once with each version of HTTP.
func TestOverTheWire(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("HTTP %d", version), func(t *testing.T) {
			handler := limit(t, httplimit.Options{Keyed: perClient(t, 2)})(http.HandlerFunc(
				func(w http.ResponseWriter, _ *http.Request) {
					_, _ = io.WriteString(w, "first ")
					if err := http.NewResponseController(w).Flush(); err != nil {
						t.Errorf("flush: %v", err)
					}
					_, _ = io.WriteString(w, "second")
				}))
			server := httptest.NewUnstartedServer(handler)
			server.EnableHTTP2 = version == 2
			server.StartTLS()
			defer server.Close()
			for i, want := range []string{"first second", "first second", "", "problem"} {
				method := http.MethodGet
				if i == 2 {
					method = http.MethodHead
				}
				resp := fetch(t, server, method)
				if !strings.HasPrefix(resp.proto, fmt.Sprintf("HTTP/%d.", version)) {
					t.Fatalf("it is %s", resp.proto)
				}
				refused := i >= 2
				if !strings.Contains(resp.body, want) || refused != (resp.status == http.StatusTooManyRequests) ||
					refused != (resp.header.Get("Retry-After") == "1") {
					t.Errorf("%d: status %d, %v, %s", i, resp.status, resp.header, resp.body)
				}
			}
		})
	}
}

// TestRefusalsOfHTTP2SayHowLongTheyAre: a refusal has a Content-Length where a server flushes it before the handler ends.
func TestRefusalsOfHTTP2SayHowLongTheyAre(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit(t, httplimit.Options{Keyed: perClient(t, 1), Cost: func(*http.Request) int64 { return 2 }})(ok).ServeHTTP(w, r)
		_ = http.NewResponseController(w).Flush()
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	resp := fetch(t, server, http.MethodGet)
	if resp.proto != "HTTP/2.0" || resp.status != http.StatusTooManyRequests ||
		resp.header.Get("Content-Length") != strconv.Itoa(len(resp.body)) {
		t.Errorf("%s, status %d, %v, %s", resp.proto, resp.status, resp.header, resp.body)
	}
}

func TestHijack(t *testing.T) {
	handler := limit(t, httplimit.Options{Keyed: perClient(t, 2)})(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Errorf("hijack: %v", err)
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
		}))
	server := httptest.NewServer(handler)
	defer server.Close()
	if got := fetch(t, server, http.MethodGet); got.body != "hi" {
		t.Errorf("got %q", got.body)
	}
}

func BenchmarkAdmitted(b *testing.B) {
	keyed, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(1e9), 1e9), weir.KeyedOptions{Name: "per-client"})
	if err != nil {
		b.Fatal(err)
	}
	benchmark(b, limit(b, httplimit.Options{Keyed: keyed})(ok))
}

func BenchmarkRefused(b *testing.B) {
	benchmark(b, refusing(b, limited, httplimit.Options{}))
}

func benchmark(b *testing.B, h http.Handler) {
	b.Helper()
	w := &discard{header: http.Header{}}
	r := request(http.MethodGet, "/")
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
}

type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
