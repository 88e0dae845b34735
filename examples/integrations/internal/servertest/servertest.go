// Package servertest drives the servers of the examples, which serve the same routes with different routers, by requests over
// a connection.
package servertest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// Answer is what a server has answered.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Get asks a server, with a header of names and values.
func Get(t *testing.T, url string, header ...string) Answer {
	t.Helper()
	return Send(t, http.MethodGet, url, header...)
}

// Send is Get with another method.
func Send(t *testing.T, method, url string, header ...string) Answer {
	t.Helper()
	r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err = resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return Answer{resp.StatusCode, resp.Header, string(body)}
}

// Burst is how many requests a client may send to a route at once. Then it may send one every 10 seconds. The servers serve two
// at a time, of all clients together.
const Burst = 3

// Run checks a server with these routes:
//
//	GET /items/{id}     limited by client and route
//	GET /search         limited likewise
//	GET /panic          panics, limited likewise
//	GET /admin/report   for those with "X-Token: secret", limited likewise, behind the check
//	GET /healthz        not limited
//
// A middleware in front of the limits sets X-Request-ID, one behind them X-Served.
func Run(t *testing.T, newHandler func() (http.Handler, error)) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, string){
		"parameters of paths work, and every answer tells the limit": parameters,
		"a route has one limit, whatever its URL":                    routes,
		"middlewares keep their order":                               order,
		"groups check first, and then charge":                        groups,
		"a panic gives its permits back":                             panics,
		"what is not served is answered by the router":               unknown,
	} {
		t.Run(name, func(t *testing.T) {
			h, err := newHandler()
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(h)
			defer server.Close()
			defer http.DefaultClient.CloseIdleConnections()
			test(t, server.URL)
		})
	}
}

func want(t *testing.T, a Answer, status int, body string) {
	t.Helper()
	if a.Status != status || body != "" && strings.TrimSpace(a.Body) != body {
		t.Fatalf("status %d, %q: want %d, %q", a.Status, a.Body, status, body)
	}
}

// refused checks a refusal.
func refused(t *testing.T, a Answer) {
	t.Helper()
	want(t, a, http.StatusTooManyRequests, "")
	for name, value := range map[string]string{"Content-Type": "application/problem+json", "X-Served": ""} {
		if got := a.Header.Get(name); got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	wait := a.Header.Get("Retry-After")
	if seconds, err := strconv.Atoi(wait); err != nil || seconds < 1 || seconds > 10 {
		t.Errorf("Retry-After is %q", wait)
	}
	if got := strings.Join(a.Header.Values("Ratelimit"), ", "); !strings.Contains(got, `"per-route";r=0;t=`+wait) {
		t.Errorf("Ratelimit is %s", got)
	}
	if !strings.Contains(a.Body, `"violated-policies":["per-route"]`) {
		t.Errorf("the body is %s", a.Body)
	}
}

func parameters(t *testing.T, url string) {
	t.Helper()
	for i := range Burst {
		a := Get(t, fmt.Sprintf("%s/items/%d", url, 40+i))
		want(t, a, http.StatusOK, fmt.Sprintf("item %d", 40+i))
		told := strings.Join(a.Header.Values("Ratelimit"), ", ")
		if !strings.Contains(told, fmt.Sprintf(`"per-route";r=%d;t=`, Burst-1-i)) {
			t.Errorf("request %d: Ratelimit is %s", i, told)
		}
		policies := strings.Join(a.Header.Values("Ratelimit-Policy"), ", ")
		if !strings.Contains(policies, `"per-route";q=3;w=30`) ||
			!strings.Contains(policies, `"slots";q=2;qu="concurrent-requests"`) {
			t.Errorf("request %d: Ratelimit-Policy is %s", i, policies)
		}
	}
}

func routes(t *testing.T, url string) {
	t.Helper()
	for i := range Burst {
		want(t, Get(t, fmt.Sprintf("%s/items/%d?n=%d", url, i, i)), http.StatusOK, "")
	}
	refused(t, Get(t, url+"/items/another"))
	want(t, Get(t, url+"/search?q=weir"), http.StatusOK, "results for weir")
	for range 5 * Burst {
		want(t, Get(t, url+"/healthz"), http.StatusOK, "ok")
	}
}

func order(t *testing.T, url string) {
	t.Helper()
	for range Burst {
		a := Get(t, url+"/search")
		want(t, a, http.StatusOK, "")
		if a.Header.Get("X-Request-ID") == "" || a.Header.Get("X-Served") != "yes" {
			t.Errorf("the header is %v", a.Header)
		}
	}
	a := Get(t, url+"/search")
	refused(t, a)
	if a.Header.Get("X-Request-ID") == "" {
		t.Errorf("the header is %v", a.Header)
	}
}

func groups(t *testing.T, url string) {
	t.Helper()
	for range 2 * Burst {
		want(t, Get(t, url+"/admin/report"), http.StatusUnauthorized, "")
	}
	for range Burst {
		want(t, Get(t, url+"/admin/report", "X-Token", "secret"), http.StatusOK, "report")
	}
	refused(t, Get(t, url+"/admin/report", "X-Token", "secret"))
	want(t, Get(t, url+"/admin/report"), http.StatusUnauthorized, "")
}

func panics(t *testing.T, url string) {
	t.Helper()
	for range Burst { // more than there are slots
		want(t, Get(t, url+"/panic"), http.StatusInternalServerError, "")
	}
	refused(t, Get(t, url+"/panic"))
	want(t, Get(t, url+"/search?q=more"), http.StatusOK, "results for more")
}

func unknown(t *testing.T, url string) {
	t.Helper()
	for range 2 * Burst {
		want(t, Get(t, url+"/nothing"), http.StatusNotFound, "")
		want(t, Send(t, http.MethodDelete, url+"/items/1"), http.StatusMethodNotAllowed, "")
	}
	want(t, Get(t, url+"/items/1"), http.StatusOK, "item 1")
}
