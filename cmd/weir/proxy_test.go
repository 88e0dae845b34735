package main_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
)

// TestProxyAsItIsRun limits real requests, and ends by a signal while one of them is in flight.
func TestProxyAsItIsRun(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(arrived)
			<-release
		}
		_, _ = io.WriteString(w, "hello")
	}))
	defer service.Close()
	s := startProxy(t, "--upstream", service.URL, "--limit", "1/day", "--burst", "3")
	s.logged("msg=proxying")
	for _, want := range []int{http.StatusOK, http.StatusOK} {
		if a, text := s.do(http.MethodGet, "/", ""); a.status != want || text != "hello" || a.header.Get("Ratelimit") == "" {
			t.Errorf("status %d, %q, %v", a.status, text, a.header)
		}
	}
	slow := make(chan string, 1)
	go func() {
		_, text := s.do(http.MethodGet, "/slow", "")
		slow <- text
	}()
	<-arrived
	if a, text := s.do(http.MethodGet, "/", ""); a.status != http.StatusTooManyRequests || !strings.Contains(text, "quota-exceeded") {
		t.Errorf("status %d, %q, want 429", a.status, text)
	}
	s.signal(syscall.SIGTERM)
	s.logged("msg=stopping in_flight=1")
	close(release)
	if text := <-slow; text != "hello" {
		t.Errorf("the request in flight got %q", text)
	}
	if status := s.wait(); status.ExitCode() != 0 {
		t.Errorf("%v:\n%s", status, strings.Join(s.lines, "\n"))
	}
	if last := s.lines[len(s.lines)-1]; !strings.Contains(last, "msg=stopped allowed=3 refused=1 over_concurrency=0") {
		t.Errorf("the last line is %s", last)
	}
}

// TestEveryLineOfTheProxyIsLogged has a service that sends more than it was asked for. The transport reports that to the
// default logger.
func TestEveryLineOfTheProxyIsLogged(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\n\r\n")
	}))
	defer service.Close()
	s := startProxy(t, "--upstream", service.URL, "--log-format", "json")
	if a, text := s.do(http.MethodGet, "/", ""); a.status != http.StatusOK || text != "hello" {
		t.Errorf("status %d, %q", a.status, text)
	}
	line := s.logged("Unsolicited response")
	if !strings.HasPrefix(line, "{") || !strings.Contains(line, `"level":"WARN"`) {
		t.Errorf("the log has the line %s", line)
	}
}

// TestSecondSignalEndsTheProxy has a request that never ends.
func TestSecondSignalEndsTheProxy(t *testing.T) {
	arrived := make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}))
	defer service.Close()
	s := startProxy(t, "--upstream", service.URL)
	done := make(chan error, 1)
	go func() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.address, http.NoBody)
		if err == nil {
			var res *http.Response
			if res, err = http.DefaultClient.Do(r); err == nil {
				_ = res.Body.Close()
			}
		}
		done <- err
	}()
	<-arrived
	s.signal(syscall.SIGINT)
	s.logged("msg=stopping")
	s.signal(syscall.SIGTERM) // not SIGINT, which is ignored in what a script has started in the background
	status := s.wait()
	if ws, ok := status.Sys().(syscall.WaitStatus); !ok || !ws.Signaled() { // it exits when --shutdown-timeout has passed
		t.Error(status)
	}
	if <-done == nil {
		t.Error("the client got an answer")
	}
}

func TestMisuseOfTheProxy(t *testing.T) {
	for args, want := range map[string]string{
		"proxy":                           `--upstream is missing: must be the service, such as http://127.0.0.1:3000; run "weir proxy --help"`,
		"proxy --upstream localhost:3000": `--upstream "localhost:3000": must be http://host:port`,
		"proxy --upstream http://x --trusted-proxies 10/8":   `--trusted-proxies "10/8": must be addresses or networks such as 10.0.0.0/8`,
		"proxy --upstream http://x --concurrency -1":         `--concurrency "-1": must be a whole number from 0 to 1000000`,
		"proxy --upstream http://x --max-body 1k":            `--max-body "1k": must be a whole number of bytes, KB, MB`,
		"proxy --upstream http://x --upstream-timeout 1":     `--upstream-timeout "1": must be a duration such as 500ms, 10s or 1m30s, from 0s to 24h`,
		"proxy --upstream http://x --upstreem-host y":        `did you mean "--upstream-host"?`,
		"proxy --upstream http://127.0.0.1:8080":             `must not be the address that the proxy listens on, 127.0.0.1:8080`,
		"proxy --upstream http://x --queue 5":                `--queue needs --concurrency`,
		"proxy --upstream http://x --tls-cert c.pem":         `--tls-cert needs --tls-key`,
		"proxy --upstream http://x http://y":                 `unexpected argument "http://y"`,
		"proxy --upstream http://x --limit 1/day --burst 0":  `--burst "0": must be a whole number from 1`,
		"proxy --upstream http://x --by header:Host":         `header:Host is written host`,
		"proxy --upstream http://x --upstream-host= --by ip": `--upstream-host "": must not be empty`,
	} {
		got := weir(t, nil, strings.Fields(args)...)
		if got.status != 2 || got.stdout != "" || !strings.HasPrefix(got.stderr, "weir: ") || strings.Count(got.stderr, "\n") != 1 ||
			!strings.Contains(got.stderr, want) || !strings.HasSuffix(got.stderr, "; run \"weir proxy --help\"\n") {
			t.Errorf("weir %s: status %d, %s\nwant one line with %s", args, got.status, got.stderr, want)
		}
	}
}
