package checkapi_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/cmd/weir/internal/front/checkapi"
	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/policy"
)

// newConfigured returns a front with the limits of a configuration, whose clock stands still unless it is given none.
func newConfigured(t *testing.T, text string, engine policy.EngineOptions) (*checkapi.Handler, *live.Limits) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	limits, err := live.Load(live.Options{
		Path: path, Engine: engine, Logger: slog.New(slog.DiscardHandler),
		Parse: func(files live.Files) (live.Parsed, error) {
			f, err := config.Parse(files.File.Name, files.File.Data, config.Options{})
			if err != nil {
				return live.Parsed{}, err
			}
			return live.Parsed{Set: f.Set}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = limits.Engine().Close() })
	return checkapi.NewHandler(checkapi.Options{Limits: limits, Admin: guard(t, adminguard.Options{Local: true})}), limits
}

const patient = `version: 1
policies:
  fast: {limit: 20/s, burst: 1, queue: {limit: 10, max_wait: 1h}}
  slow: {limit: 3/h, burst: 1, queue: {limit: 2, max_wait: 1h}}
  short: {limit: 1/h, burst: 1, queue: {limit: 2, max_wait: 1ms}}
  none: {limit: 1/h, burst: 1}
rules:
  - {name: all, match: {path: /fast}, limits: fast}
`

// TestWait: a client that is ready to wait gets its permits when they come, or is told why not.
func TestWait(t *testing.T) {
	h, _ := newConfigured(t, patient, policy.EngineOptions{})
	for _, step := range []struct {
		path, body string
		status     int
		want       string
	}{
		{"/v1/check", `{"policy":"fast","key":"a","wait":60}`, 200, `"allowed":true`},
		{"/v1/check", `{"policy":"fast","key":"a","wait":60}`, 200, `"allowed":true`}, // after 50 ms
		{"/v1/decide", `{"path":"/fast","wait":60}`, 200, `"allowed":true`},
		{"/v1/decide", `{"path":"/fast","wait":60}`, 200, `"allowed":true`},
		{"/v1/check", `{"policy":"slow","key":"a","wait":0.000000001}`, 200, `"allowed":true`}, // what is there needs no time
		{"/v1/check", `{"policy":"slow","key":"a","wait":0.001}`, 429, `"reason":"deadline"`},
		{"/v1/check", `{"policy":"slow","key":"a","wait":0}`, 429, `"reason":"limited"`},
		{"/v1/check", `{"policy":"slow","key":"a","cost":2,"wait":5}`, 429, `"reason":"never"`},
		{"/v1/check", `{"policy":"short","key":"a"}`, 200, `"allowed":true`},
		{"/v1/check", `{"policy":"short","key":"a","wait":3600}`, 429, `"reason":"deadline"`}, // the policy bounds it
		{"/v1/check", `{"policy":"none","key":"a"}`, 200, `"allowed":true`},
		{"/v1/check", `{"policy":"none","key":"a","wait":3600}`, 429, `"reason":`}, // it has no queue
	} {
		w := send(h, "POST", step.path, "application/json", step.body)
		if w.Code != step.status || !strings.Contains(w.Body.String(), step.want) {
			t.Errorf("%s: %d %s", step.body, w.Code, w.Body)
		}
		retry := w.Header().Get("Retry-After")
		if refused := step.status != 200 && !strings.Contains(step.want, "never"); (retry != "") != refused {
			t.Errorf("%s: Retry-After: %q", step.body, retry)
		}
	}
}

// waiting is a client that waits.
type waiting struct {
	conn   net.Conn
	answer *bufio.Reader
}

// queue sends a check that has to wait, and returns when it does.
func queue(t *testing.T, l *fronttest.Listener, limits *live.Limits, waits int64) waiting {
	t.Helper()
	conn := dialed(t, l)
	const body = `{"policy":"slow","key":"a","wait":3600}`
	fmt.Fprintf(conn, "POST /v1/check HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	queued(t, limits, waits)
	return waiting{conn, bufio.NewReader(conn)}
}

func dialed(t *testing.T, l *fronttest.Listener) net.Conn {
	t.Helper()
	conn, err := l.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// queued expects that so many permits of the policy slow are waited for.
func queued(t *testing.T, limits *live.Limits, want int64) {
	t.Helper()
	synctest.Wait()
	for _, p := range limits.Engine().Report().Policies {
		if p.Name == "slow" && p.Queued != want {
			t.Fatalf("%d permits are waited for, want %d", p.Queued, want)
		}
	}
}

// TestWaitingClients: a full queue refuses, a client that disconnects gives up its place, and a server that ends answers those who
// wait. None is cut off by the timeouts of the server.
func TestWaitingClients(t *testing.T) {
	synctest.Test(t, testWaitingClients)
}

func testWaitingClients(t *testing.T) {
	const timeout = 300 * time.Millisecond
	h, limits := newConfigured(t, patient, policy.EngineOptions{})
	server, l := &http.Server{Handler: h, ReadTimeout: timeout, WriteTimeout: timeout}, fronttest.Pipes()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := errors.Join(server.Close(), <-ended); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	if w := check(h, `{"policy":"slow","key":"a"}`); w.Code != 200 {
		t.Fatal(w.Code)
	}
	first := queue(t, l, limits, 1)
	second := queue(t, l, limits, 2)
	full := check(h, `{"policy":"slow","key":"a","wait":60}`)
	if full.Code != 429 || !strings.Contains(full.Body.String(), `"reason":"queue-full"`) || full.Header().Get("Retry-After") == "" {
		t.Errorf("%d %s %s", full.Code, full.Body, full.Header())
	}
	if err := second.conn.Close(); err != nil {
		t.Fatal(err)
	}
	queued(t, limits, 1)
	third := queue(t, l, limits, 2)

	// The timeouts of the server hold for a client that does not wait, and not for those that do.
	idle, begun := dialed(t, l), time.Now()
	fmt.Fprint(idle, "POST /v1/check HTTP/1.1\r\nHost: weir\r\nContent-Length: 9\r\n\r\n")
	if text, err := io.ReadAll(idle); err != nil || strings.HasPrefix(string(text), "HTTP/1.1 200") || time.Since(begun) < timeout {
		t.Errorf("%v, %s", err, text)
	}
	queued(t, limits, 2)

	h.EndWaiting()
	for _, c := range []waiting{first, third} {
		response, err := http.ReadResponse(c.answer, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if _ = response.Body.Close(); err != nil || response.StatusCode != http.StatusServiceUnavailable ||
			!strings.Contains(string(body), `"allowed":false,"reason":"closed","policy":"slow"`) {
			t.Errorf("%v, %d %s", err, response.StatusCode, body)
		}
	}
	queued(t, limits, 0)
	if w := check(h, `{"policy":"slow","key":"a","wait":60}`); w.Code != 429 || !strings.Contains(w.Body.String(), `"reason":"limited"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestCheckWithoutKey: the key of a check is empty only where requests by the rules have an empty key, and then it is the same state.
func TestCheckWithoutKey(t *testing.T) {
	h, _ := newConfigured(t, `version: 1
policies:
  shared: {limit: 1/h, burst: 2}
  own: {limit: 1/h, burst: 2, key: client.ip}
rules:
  - {name: all, limits: shared}
`, policy.EngineOptions{})
	for _, step := range []struct {
		path, body string
		status     int
	}{
		{"/v1/check", `{"policy":"shared","key":""}`, 200},
		{"/v1/decide", `{"path":"/"}`, 200},
		{"/v1/check", `{"policy":"shared","key":""}`, 429},
		{"/v1/check", `{"policy":"shared","key":"a"}`, 200},
		{"/v1/check", `{"policy":"shared"}`, 400},
		{"/v1/check", `{"policy":"own","key":""}`, 400},
		{"/v1/check", `{"policy":"none","key":""}`, 404},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, step.path, strings.NewReader(step.body))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
		if w.Code != step.status {
			t.Errorf("%s %s: %d %s, want %d", step.path, step.body, w.Code, w.Body, step.status)
		}
	}
}
