package checkapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/cmd/weir/internal/front/checkapi"
	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// newFront returns a front with the policies "default", 10/s burst 20, and "small", 1/s burst 1 for one key at a time.
func newFront(t testing.TB) (*checkapi.Handler, *manualclock.Clock) {
	t.Helper()
	clock := manualclock.New(0)
	one := func(name string, rate weir.Rate, burst int64, keys int) policy.Policy {
		return policy.Policy{
			Name: name, Key: policy.NamedKey(), MaxKeys: keys, Limits: []policy.Limit{{Limit: weir.TokenBucket(rate, burst)}},
		}
	}
	return newFixed(t, clock, one("default", weir.PerSecond(10), 20, 1000), one("small", weir.PerSecond(1), 1, 1)), clock
}

// newFixed returns a front with policies that are not those of a file.
func newFixed(t testing.TB, clock weir.Clock, policies ...policy.Policy) *checkapi.Handler {
	t.Helper()
	limits, err := live.Fixed(&policy.Set{Policies: policies}, policy.EngineOptions{Clock: clock}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	held := holds.New(holds.Options{Most: 100})
	t.Cleanup(func() {
		held.Close()
		_ = limits.Engine().Close()
	})
	return checkapi.NewHandler(checkapi.Options{Limits: limits, Holds: held, Admin: guard(t, adminguard.Options{Local: true})})
}

// guard returns a guard whose own rate limit no test reaches.
func guard(t testing.TB, o adminguard.Options) *adminguard.Guard {
	t.Helper()
	o.Rate, o.Burst = weir.PerSecond(1_000_000), 1_000_000
	g, err := adminguard.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func send(h http.Handler, method, path, contentType, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), method, "http://127.0.0.1:7070"+path, strings.NewReader(body))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func check(h http.Handler, body string) *httptest.ResponseRecorder {
	return send(h, "POST", "/v1/check", "application/json", body)
}

// want is what an answer must be. A field that is "" must not be there.
type want struct {
	status                        int
	rateLimit, policy, retryAfter string
	body                          string
}

func (w want) compare(t *testing.T, what string, r *httptest.ResponseRecorder) {
	t.Helper()
	got := want{
		r.Code, strings.Join(r.Header().Values("Ratelimit"), ", "), strings.Join(r.Header().Values("Ratelimit-Policy"), ", "),
		strings.Join(r.Header().Values("Retry-After"), ", "), r.Body.String(),
	}
	w.body += "\n"
	if got != w {
		t.Errorf("%s:\n got %+v\nwant %+v", what, got, w)
	}
	if kind := r.Header().Get("Content-Type"); kind != "application/json" {
		t.Errorf("%s: Content-Type %q", what, kind)
	}
}

func TestDecisions(t *testing.T) {
	front, clock := newFront(t)
	const policies = `"default";q=20;w=2`
	for _, step := range []struct {
		what    string
		advance time.Duration
		body    string
		want    want
	}{
		{"the first", 0, `{"key":"alice"}`, want{
			200, `"default";r=19;t=1`, policies, "",
			`{"allowed":true,"reason":"none","policy":"default","limit":20,"remaining":19,"retry_after":0,"reset_after":0.1}`,
		}},
		{"the rest of the burst", 0, `{"policy":"default","key":"alice","cost":19}`, want{
			200, `"default";r=0;t=2`, policies, "",
			`{"allowed":true,"reason":"none","policy":"default","limit":20,"remaining":0,"retry_after":0,"reset_after":2}`,
		}},
		{"one too many", 500 * time.Microsecond, `{"key":"alice"}`, want{
			429, `"default";r=0;t=1`, policies, "1",
			`{"allowed":false,"reason":"limited","policy":"default","limit":20,"remaining":0,"retry_after":0.1,"reset_after":2}`,
		}},
		{"a probe that fails", 0, `{"key":"alice","cost":0}`, want{
			429, `"default";r=0;t=1`, policies, "1",
			`{"allowed":false,"reason":"limited","policy":"default","limit":20,"remaining":0,"retry_after":0.1,"reset_after":2}`,
		}},
		{"never", 0, `{"key":"alice","cost":21}`, want{
			429, `"default";r=0;t=2`, policies, "",
			`{"allowed":false,"reason":"never","policy":"default","limit":20,"remaining":0,"retry_after":null,"reset_after":2}`,
		}},
		{"a long wait", 0, `{"key":"alice","cost":20}`, want{
			429, `"default";r=0;t=2`, policies, "2",
			`{"allowed":false,"reason":"limited","policy":"default","limit":20,"remaining":0,"retry_after":2,"reset_after":2}`,
		}},
		{"another key", 0, `{"key":"bob"}`, want{
			200, `"default";r=19;t=1`, policies, "",
			`{"allowed":true,"reason":"none","policy":"default","limit":20,"remaining":19,"retry_after":0,"reset_after":0.1}`,
		}},
		{"a probe that succeeds", 99_500 * time.Microsecond, `{"key":"alice","cost":0}`, want{
			200, `"default";r=1;t=2`, policies, "",
			`{"allowed":true,"reason":"none","policy":"default","limit":20,"remaining":1,"retry_after":0,"reset_after":1.9}`,
		}},
		{"coming back in time", 0, `{"key":"alice"}`, want{
			200, `"default";r=0;t=2`, policies, "",
			`{"allowed":true,"reason":"none","policy":"default","limit":20,"remaining":0,"retry_after":0,"reset_after":2}`,
		}},
		{"another policy", 0, `{"policy":"small","key":"alice"}`, want{
			200, `"small";r=0;t=1`, `"small";q=1;w=1`, "",
			`{"allowed":true,"reason":"none","policy":"small","limit":1,"remaining":0,"retry_after":0,"reset_after":1}`,
		}},
		{"a full table", 0, `{"policy":"small","key":"bob"}`, want{
			429, `"small";r=0;t=1`, `"small";q=1;w=1`, "1",
			`{"allowed":false,"reason":"table-full","policy":"small","limit":1,"remaining":0,"retry_after":1,"reset_after":0}`,
		}},
	} {
		clock.Advance(step.advance)
		step.want.compare(t, step.what, check(front, step.body))
	}
	if n := front.Rejected(); n != 0 {
		t.Errorf("%d requests counted as rejected", n)
	}
}

func TestProblems(t *testing.T) {
	front, _ := newFront(t)
	const isJSON = "application/json"
	for _, c := range []struct {
		method, path, contentType, body string
		status                          int
		field, detail                   string
	}{
		{"POST", "/v1/check", isJSON, `{"key":""}`, 400, "key", `key "": must be a string that is not empty`},
		{"POST", "/v1/check", isJSON, `{"key":"a","cost":-5}`, 400, "cost", "cost -5: must be a whole number from 0 to 10^15"},
		{"POST", "/v1/check", isJSON, `{"key":"a","quota":5}`, 400, "field", "must be policy, key, cost, charge or wait"},
		{"POST", "/v1/check", isJSON, `{}`, 400, "key", `key: is missing; must be a string, which is "" for a policy without a key`},
		{"POST", "/v1/check", isJSON, `{"key":"a","key":"a"}`, 400, "key", "key: stands there twice"},
		{"POST", "/v1/check", isJSON, `{`, 400, "", "not JSON"},
		{"POST", "/v1/check", isJSON, strings.Repeat(" ", 64<<10+1), 413, "body", "must be at most 65536 bytes"},
		{"POST", "/v1/check", isJSON, strings.Repeat(" ", 64<<10), 400, "", "not JSON"},
		{"POST", "/v1/check", isJSON, `{"policy":"gold","key":"a"}`, 404, "policy", `policy "gold": there is no such policy; must be one of: default, small`},
		{"POST", "/v1/check", "multipart/form-data", `{"key":"a"}`, 415, "Content-Type", `Content-Type "multipart/form-data": must be application/json`},
		{"POST", "/v1/check", "text/plain", `{"key":"a"}`, 415, "Content-Type", `Content-Type "text/plain": must be application/json`},
		{"POST", "/v1/check", isJSON + "; charset=latin1", `{"key":"a"}`, 415, "Content-Type", "must be application/json"},
		{"GET", "/v1/check", "", "", 405, "method", `method "GET": must be POST for /v1/check`},
		{"PUT", "/v1/check", isJSON, `{"key":"a"}`, 405, "method", "must be POST"},
		{"POST", "/healthz", "", "", 405, "method", "must be GET or HEAD"},
		{"DELETE", "/", "", "", 405, "method", "must be GET or HEAD"},
		{"POST", "/v1/checks", isJSON, `{"key":"a"}`, 404, "", "there is no such page; there are POST /v1/check"},
	} {
		r := send(front, c.method, c.path, c.contentType, c.body)
		what := fmt.Sprintf("%s %s %.30s", c.method, c.path, c.body)
		var p struct {
			Type, Title, Detail, Field, Accepted string
			Status                               int
			Policies                             []string
		}
		if err := unmarshal(r.Body.String(), &p); err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if r.Code != c.status || p.Status != c.status || p.Type != "about:blank" || p.Title != http.StatusText(c.status) {
			t.Errorf("%s: %d, %+v, want %d", what, r.Code, p, c.status)
		}
		if kind := r.Header().Get("Content-Type"); kind != "application/problem+json" {
			t.Errorf("%s: Content-Type %q", what, kind)
		}
		if p.Field != c.field || !strings.Contains(p.Detail, c.detail) {
			t.Errorf("%s: field %q, detail %q, want %q, %q", what, p.Field, p.Detail, c.field, c.detail)
		}
		if p.Accepted != "" && !strings.HasPrefix(p.Accepted, "must be ") {
			t.Errorf("%s: accepted is %q, which says something else", what, p.Accepted)
		}
		if (c.status == 405) != (r.Header().Get("Allow") != "") {
			t.Errorf("%s: Allow %q", what, r.Header().Get("Allow"))
		}
		if c.field == "policy" && strings.Join(p.Policies, " ") != "default small" {
			t.Errorf("%s: policies %q", what, p.Policies)
		}
		if r.Header().Get("Ratelimit") != "" {
			t.Errorf("%s: tells a RateLimit", what)
		}
	}
	if got := front.Rejected(); got != 17 {
		t.Errorf("%d requests counted as rejected, want 17", got)
	}
}

func unmarshal(text string, to any) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	if err := decoder.Decode(to); err != nil {
		return fmt.Errorf("%w in %s", err, text)
	}
	return nil
}

func TestContentTypesThatAreJSON(t *testing.T) {
	front, _ := newFront(t)
	for _, kind := range []string{
		"application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8", "application/json; profile=x",
	} {
		if r := send(front, "POST", "/v1/check", kind, `{"key":"a","cost":0}`); r.Code != 200 {
			t.Errorf("%s: %d", kind, r.Code)
		}
	}
}

// endless is a body that never ends, or fails.
type endless struct{ err error }

func (e endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), e.err
}

func TestBodiesOfUnknownLength(t *testing.T) {
	front, _ := newFront(t)
	for want, body := range map[int]io.Reader{
		200: io.MultiReader(strings.NewReader(`{"key":`), strings.NewReader(strings.Repeat(" ", 60_000)), strings.NewReader(`"a"}`)),
		413: endless{},
		400: endless{errors.New("the client went away")},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/check", io.NopCloser(body))
		r.ContentLength = -1
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		front.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%d, want %d: %s", w.Code, want, w.Body)
		}
	}
}

// TestReady: a server that does not take part in its cluster is up, and not ready; why is for operators.
func TestReady(t *testing.T) {
	var why error
	front := checkapi.NewHandler(checkapi.Options{Ready: func() error { return why }})
	for _, c := range []struct {
		why           error
		health, ready int
	}{{nil, 200, 200}, {errors.New("the disk is full"), 200, 503}, {nil, 200, 200}} {
		why = c.why
		if r := send(front, "GET", "/healthz", "", ""); r.Code != c.health {
			t.Errorf("/healthz: %d, want %d", r.Code, c.health)
		}
		if r := send(front, "GET", "/readyz", "", ""); r.Code != c.ready || strings.Contains(r.Body.String(), "disk") {
			t.Errorf("/readyz: %d %s, want %d", r.Code, r.Body, c.ready)
		} else if want := "durable limits cannot be decided\n"; c.ready == 503 && r.Body.String() != want {
			t.Errorf("/readyz: %q, want %q", r.Body, want)
		}
	}
	front.Drain()
	if r := send(front, "GET", "/readyz", "", ""); r.Code != 503 || r.Body.String() != "shutting down\n" {
		t.Errorf("/readyz while shutting down: %d %s", r.Code, r.Body)
	}
}

func TestPages(t *testing.T) {
	front, _ := newFront(t)
	if r := send(front, "GET", "/healthz", "", ""); r.Code != 200 || r.Body.String() != "ok\n" {
		t.Errorf("/healthz: %d", r.Code)
	}
	r := send(front, "GET", "/", "", "")
	page := r.Body.String()
	for _, part := range []string{
		"rate limiter", `curl -i -d '{"key":"alice"}' http://127.0.0.1:7070/v1/check`,
		"default: 10/s, burst 20\n", "small: 1/s, burst 1\n", "/openapi.json",
	} {
		if !strings.Contains(page, part) {
			t.Errorf("/: %q is missing in\n%s", part, page)
		}
	}
	if kind := r.Header().Get("Content-Type"); kind != "text/plain; charset=utf-8" {
		t.Errorf("/: Content-Type %q", kind)
	}
	front.Drain()
	if r := send(front, "GET", "/healthz", "", ""); r.Code != 503 || r.Body.String() != "shutting down\n" {
		t.Errorf("/healthz while shutting down: %d", r.Code)
	}
	if r := check(front, `{"key":"a"}`); r.Code != 200 {
		t.Errorf("a check while shutting down: %d", r.Code)
	}
}

// sink is a ResponseWriter that keeps its header, as net/http does for one request.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(int)             {}

func BenchmarkCheck(b *testing.B) {
	front, _ := newFront(b)
	body := strings.NewReader("")
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/check", io.NopCloser(body))
	r.Header.Set("Content-Type", "application/json")
	w := &sink{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		body.Reset(`{"policy":"default","key":"alice","cost":1}`)
		clear(w.header)
		front.ServeHTTP(w, r)
	}
}

// TestContentTypes: what curl -d sends is taken for JSON, but not when a browser sends it for a page of another origin.
func TestContentTypes(t *testing.T) {
	front, _ := newFront(t)
	for _, c := range []struct {
		contentType, origin, site string
		status                    int
	}{
		{"application/json", "", "", 200},
		{"application/json; charset=UTF-8", "", "", 200},
		{"application/x-www-form-urlencoded", "", "", 200},
		{"", "", "", 200},
		{"application/x-www-form-urlencoded", "http://example.com", "same-origin", 200},
		{"application/x-www-form-urlencoded", "https://elsewhere.example", "cross-site", 403},
		{"application/x-www-form-urlencoded", "https://elsewhere.example", "", 403},
		{"", "https://elsewhere.example", "cross-site", 403},
		{"text/plain", "", "", 415},
		{"application/x-www-form-urlencoded; charset=latin1", "", "", 415},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://example.com/v1/check", strings.NewReader(`{"key":"a"}`))
		for name, value := range map[string]string{"Content-Type": c.contentType, "Origin": c.origin, "Sec-Fetch-Site": c.site} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		front.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%q from %q (%s): %d, want %d: %s", c.contentType, c.origin, c.site, w.Code, c.status, w.Body)
		}
	}
}
