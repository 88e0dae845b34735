package httplimit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/manualclock"
)

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })

func limit(tb testing.TB, o httplimit.Options) func(http.Handler) http.Handler {
	tb.Helper()
	m, err := httplimit.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// bucket is a token bucket that stands still: 10/s, burst 20.
func bucket(tb testing.TB, limit weir.Limit, o weir.Options) *weir.Limiter {
	tb.Helper()
	if limit == weir.TokenBucket(weir.Rate{}, 0) {
		limit = weir.TokenBucket(weir.PerSecond(10), 20)
	}
	if o.Clock == nil {
		o.Clock = manualclock.New(0)
	}
	b, err := weir.New(limit, o)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func slots(tb testing.TB, limit int64, o weir.Options) *weir.Concurrency {
	tb.Helper()
	c, err := weir.NewConcurrency(limit, o)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// perClient is a keyed limiter that stands still.
func perClient(tb testing.TB, burst int64) *weir.Keyed[string] {
	tb.Helper()
	k, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(10), burst), weir.KeyedOptions{
		Name: "per-client", Clock: manualclock.New(0),
	})
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

// recordingKeyed allows everything and remembers the keys.
type recordingKeyed struct{ keys []string }

func (k *recordingKeyed) Take(key string, n int64) weir.Decision {
	k.keys = append(k.keys, key)
	return weir.Decision{Allowed: true, Limit: 9, Remaining: 9 - n, Policy: "recording"}
}

func (k *recordingKeyed) Peek(string, int64) weir.Decision {
	return weir.Decision{Allowed: true, Limit: 9, Remaining: 9, Policy: "recording"}
}

// fixed is a limiter with one answer.
type fixed struct {
	weir.Acquirer

	err error
}

func (f *fixed) Peek(int64) weir.Decision {
	return weir.Decision{Allowed: true, Limit: 5, Policy: "fixed"}
}

func (f *fixed) Acquire(context.Context, int64) (weir.Lease, error) { return weir.Lease{}, f.err }

type fixedKeyed struct{ decision weir.Decision }

func (f *fixedKeyed) Take(string, int64) weir.Decision { return f.decision }

func (f *fixedKeyed) Peek(string, int64) weir.Decision {
	return weir.Decision{Limit: 5, Policy: "fixed"}
}

// answer is a response that has been read.
type answer struct {
	status int
	header http.Header
	body   string
	proto  string
}

func request(method, target string) *http.Request {
	return httptest.NewRequestWithContext(context.Background(), method, target, http.NoBody)
}

func send(h http.Handler, r *http.Request) answer {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answer{w.Code, w.Result().Header, w.Body.String(), ""}
}

func get(h http.Handler) answer { return send(h, request(http.MethodGet, "/")) }

// fetch sends a request over a connection.
func fetch(t *testing.T, server *httptest.Server, method string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text), resp.Proto}
}

func TestEveryAnswerTellsTheLimit(t *testing.T) {
	handler := limit(t, httplimit.Options{Limiter: bucket(t, weir.TokenBucket(weir.Rate{}, 0), weir.Options{Name: "api"})})(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if w.Header().Get("Ratelimit") == "" {
				t.Error("RateLimit is not set before the handler runs")
			}
			w.WriteHeader(http.StatusTeapot)
		}))
	for _, want := range []string{`"api";r=19;t=1`, `"api";r=18;t=1`} {
		resp := get(handler)
		if resp.status != http.StatusTeapot {
			t.Errorf("status %d", resp.status)
		}
		expect(t, resp.header, map[string]string{"Ratelimit": want, "Ratelimit-Policy": `"api";q=20;w=2`})
	}
}

func TestRefusal(t *testing.T) {
	limiter := bucket(t, weir.TokenBucket(weir.Rate{}, 0), weir.Options{Name: "api"})
	handler := limit(t, httplimit.Options{Limiter: limiter})(ok)
	limiter.TryAcquire(20)
	resp := get(handler)
	if resp.status != http.StatusTooManyRequests {
		t.Errorf("status %d", resp.status)
	}
	expect(t, resp.header, map[string]string{
		"Ratelimit": `"api";r=0;t=1`, "Ratelimit-Policy": `"api";q=20;w=2`, "Retry-After": "1",
		"Content-Type": "application/problem+json", "X-Content-Type-Options": "nosniff",
	})
	var got map[string]any
	if err := json.Unmarshal([]byte(resp.body), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"type":              "https://iana.org/assignments/http-problem-types#quota-exceeded",
		"title":             "Request cannot be satisfied as assigned quota has been exceeded",
		"status":            429.,
		"detail":            `The limit "api" is 10/s, burst 20, and has 0 remaining, but this request needs 1; retry after 1 second.`,
		"violated-policies": []any{"api"},
		"retry-after":       1.,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("body %v\nwant %v", got, want)
	}
}

func TestKeyedByClient(t *testing.T) {
	handler := limit(t, httplimit.Options{Keyed: perClient(t, 1)})(ok)
	ask := func(remote string, status int) {
		t.Helper()
		r := request(http.MethodGet, "/")
		r.RemoteAddr = remote
		r.Header.Set("X-Forwarded-For", "203.0.113.1")
		resp := send(handler, r)
		if resp.status != status || resp.header.Get("Ratelimit-Policy") != `"per-client";q=1` {
			t.Errorf("%s: status %d, %v; want %d", remote, resp.status, resp.header, status)
		}
	}
	ask("192.0.2.1:1", 200)
	ask("192.0.2.1:2", 429)
	ask("[::ffff:192.0.2.1]:3", 429)
	ask("192.0.2.2:1", 200)
	ask("[2001:db8::1]:1", 200)
	ask("[2001:db8::2]:1", 429)
	ask("[2001:db8:0:1::1]:1", 200)
}

func TestPartitionKey(t *testing.T) {
	handler := limit(t, httplimit.Options{
		Keyed: perClient(t, 20), Key: httplimit.ByHeader("X-Plan"),
		PartitionKey: func(_ *http.Request, key string) []byte { return []byte(key) },
	})(ok)
	r := request(http.MethodGet, "/")
	r.Header.Set("X-Plan", "trial121323\"\xff;x")
	expect(t, send(handler, r).header, map[string]string{
		"Ratelimit":        `"per-client";r=19;t=1;pk=:dHJpYWwxMjEzMjMi/zt4:`,
		"Ratelimit-Policy": `"per-client";q=20;w=2;pk=:dHJpYWwxMjEzMjMi/zt4:`,
	})
}

func TestCost(t *testing.T) {
	limiter := bucket(t, weir.TokenBucket(weir.Rate{}, 0), weir.Options{Name: "api"})
	var logged bytes.Buffer
	served := 0
	handler := limit(t, httplimit.Options{
		Limiter: limiter, Cost: func(r *http.Request) int64 { return r.ContentLength },
		Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
	ask := func(cost int64) answer {
		r := request(http.MethodPost, "/")
		r.ContentLength = cost
		return send(handler, r)
	}
	for _, c := range []struct {
		cost   int64
		status int
		limit  string
		retry  string
	}{
		{0, 200, `"api";r=20`, ""},
		{15, 200, `"api";r=5;t=2`, ""},
		{15, 429, `"api";r=5;t=1`, "1"},
		{21, 429, `"api";r=5;t=2`, ""}, // never
		{5, 200, `"api";r=0;t=2`, ""},
		{0, 200, `"api";r=0;t=2`, ""}, // passes although nothing is left
		{1, 429, `"api";r=0;t=1`, "1"},
		{-1, 500, "", ""},
	} {
		resp := ask(c.cost)
		if resp.status != c.status || resp.header.Get("Ratelimit") != c.limit || resp.header.Get("Retry-After") != c.retry {
			t.Errorf("cost %d: status %d, %v; want %d, %s, %q", c.cost, resp.status, resp.header, c.status, c.limit, c.retry)
		}
	}
	if served != 4 {
		t.Errorf("served %d requests, want 4", served)
	}
	if log := logged.String(); !strings.Contains(log, "cost=-1") || strings.Count(log, "\n") != 1 {
		t.Errorf("logged %q, want one line about the negative cost", log)
	}
}

func TestCostZeroOfAKeyedLimiter(t *testing.T) {
	keyed := perClient(t, 1)
	cost := int64(1)
	handler := limit(t, httplimit.Options{Keyed: keyed, Cost: func(*http.Request) int64 { return cost }})(ok)
	get(handler)
	cost = 0
	if resp := get(handler); resp.status != http.StatusOK || resp.header.Get("Ratelimit") != `"per-client";r=0;t=1` {
		t.Errorf("cost 0: status %d, %v", resp.status, resp.header)
	}
}

func TestErrorsAreLoggedAndNotTold(t *testing.T) {
	for name, o := range map[string]httplimit.Options{
		"key": {
			Keyed: perClient(t, 1),
			Key:   func(*http.Request) (string, error) { return "", errors.New("secret of the database") },
		},
		"limiter": {Limiter: &fixed{err: errors.New("secret of the database")}, MaxWait: time.Second},
		"invalid": {Keyed: &fixedKeyed{weir.Decision{Reason: weir.ReasonInvalid}}},
	} {
		t.Run(name, func(t *testing.T) {
			var logged bytes.Buffer
			o.Logger = slog.New(slog.NewTextHandler(&logged, nil))
			resp := get(limit(t, o)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				t.Error("the handler was called")
			})))
			if resp.status != http.StatusInternalServerError || strings.Contains(resp.body, "secret") ||
				resp.body != `{"type":"about:blank","title":"Internal Server Error","status":500}`+"\n" {
				t.Errorf("status %d, body %s", resp.status, resp.body)
			}
			if !strings.Contains(logged.String(), "level=ERROR") {
				t.Errorf("logged %q", logged.String())
			}
		})
	}
}

func TestSkip(t *testing.T) {
	limiter := bucket(t, weir.TokenBucket(weir.Rate{}, 0), weir.Options{})
	handler := limit(t, httplimit.Options{
		Limiter: limiter, Skip: func(r *http.Request) bool { return r.URL.Path == "/healthz" },
	})(ok)
	resp := send(handler, request(http.MethodGet, "/healthz"))
	if resp.header.Get("Ratelimit") != "" || limiter.Stats().Allowed != 0 {
		t.Errorf("skipped: %v, %+v", resp.header, limiter.Stats())
	}
	get(handler)
	if limiter.Stats().Allowed != 1 {
		t.Errorf("not skipped: %+v", limiter.Stats())
	}
}

func TestARequestIsChargedOnce(t *testing.T) {
	limiter, other := bucket(t, weir.TokenBucket(weir.Rate{}, 0), weir.Options{Name: "one"}), bucket(t, weir.TokenBucket(weir.Rate{}, 0), weir.Options{Name: "other"})
	one, two := limit(t, httplimit.Options{Limiter: limiter}), limit(t, httplimit.Options{Limiter: other})
	resp := get(one(two(one(two(one(ok))))))
	if a, b := limiter.Stats().Allowed, other.Stats().Allowed; a != 1 || b != 1 {
		t.Errorf("charged %d and %d times", a, b)
	}
	want := `"one";r=19;t=1, "other";r=19;t=1`
	if got := strings.Join(resp.header.Values("Ratelimit"), ", "); got != want {
		t.Errorf("RateLimit: %s, want %s", got, want)
	}
	get(one(ok))
	if n := limiter.Stats().Allowed; n != 2 {
		t.Errorf("after another request: charged %d times", n)
	}
}

func TestTheContextIsPassedOn(t *testing.T) {
	type name struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), name{}, "value"))
	handler := limit(t, httplimit.Options{Limiter: bucket(t, weir.TokenBucket(weir.Rate{}, 0), weir.Options{})})(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Context().Value(name{}) != "value" || r.Context().Value("value") != nil {
				t.Error("values of the context are lost")
			}
			cancel()
			<-r.Context().Done()
			if !errors.Is(context.Cause(r.Context()), context.Canceled) {
				t.Errorf("cause %v", context.Cause(r.Context()))
			}
		}))
	send(handler, request(http.MethodGet, "/").WithContext(ctx))
}

func TestLeaseIsReleased(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		panics  any
	}{
		{"return", func(http.ResponseWriter, *http.Request) {}, nil},
		{"error", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadGateway) }, nil},
		{"panic", func(http.ResponseWriter, *http.Request) { panic("lost") }, "lost"},
		{"abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, http.ErrAbortHandler},
	} {
		t.Run(c.name, func(t *testing.T) {
			limiter := slots(t, 1, weir.Options{Name: "slots"})
			watch := func(w http.ResponseWriter, r *http.Request) {
				if limiter.Stats().Remaining != 0 {
					t.Error("the handler runs without a permit")
				}
				c.handler(w, r)
			}
			handler := limit(t, httplimit.Options{Limiter: limiter})(http.HandlerFunc(watch))
			func() {
				defer func() {
					if got := recover(); got != c.panics {
						t.Errorf("the panic %v became %v", c.panics, got)
					}
				}()
				get(handler)
			}()
			if limiter.Stats().Remaining != 1 {
				t.Error("the permit was not given back")
			}
		})
	}
}

// TestTheResponseWriterIsNotWrapped shows it for every interface at once: the handler gets the very same value.
func TestTheResponseWriterIsNotWrapped(t *testing.T) {
	w := httptest.NewRecorder()
	handler := limit(t, httplimit.Options{Limiter: bucket(t, weir.TokenBucket(weir.Rate{}, 0), weir.Options{})})(
		http.HandlerFunc(func(got http.ResponseWriter, _ *http.Request) {
			if got != http.ResponseWriter(w) {
				t.Errorf("the handler got a %T", got)
			}
		}))
	handler.ServeHTTP(w, request(http.MethodGet, "/"))
}

func expect(t *testing.T, h http.Header, want map[string]string) {
	t.Helper()
	if len(h) != len(want) {
		t.Errorf("header is %v, want %d fields", h, len(want))
	}
	for name, value := range want {
		if got := strings.Join(h.Values(name), " | "); got != value {
			t.Errorf("%s: %s, want %s", name, got, value)
		}
	}
}

// TestWhatHandlersFindInRequests: the server removes the files of a form that a limited handler has parsed, and what is in front
// of the limit sees the pattern by which the handler was found.
func TestWhatHandlersFindInRequests(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /files/{name}", func(_ http.ResponseWriter, r *http.Request) {
		if err := r.ParseMultipartForm(1); err != nil {
			t.Error(err)
		}
	})
	var sent bytes.Buffer
	form := multipart.NewWriter(&sent)
	file, err := form.CreateFormFile("file", "file")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = file.Write(make([]byte, 100)) // goes to the disk
	_ = form.Close()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/files/a", &sent)
	r.Header.Set("Content-Type", form.FormDataContentType())
	httplimit.PerClient(weir.PerSecond(1), 1)(mux).ServeHTTP(httptest.NewRecorder(), r)
	if r.Pattern != "POST /files/{name}" {
		t.Errorf("the pattern is %q", r.Pattern)
	}
	if r.MultipartForm == nil || len(r.MultipartForm.File["file"]) != 1 {
		t.Fatal("the form is not there")
	}
	if err := r.MultipartForm.RemoveAll(); err != nil {
		t.Error(err)
	}
}
