package main_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
)

// service is what stands behind a proxy. It counts the requests that it gets, by their targets as it reads them.
type service struct {
	*httptest.Server

	mu   sync.Mutex
	seen map[string]int
}

func startService(t *testing.T, slow chan struct{}) *service {
	t.Helper()
	s := &service{seen: make(map[string]int)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.seen[r.RequestURI]++
		s.mu.Unlock()
		if r.URL.Path == "/slow" {
			slow <- struct{}{}
			<-slow
		}
		_, _ = io.WriteString(w, "hello")
	}))
	t.Cleanup(s.Close)
	return s
}

// got is how often a target was asked for.
func (s *service) got(target string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[target]
}

// all is how many requests there were.
func (s *service) all() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, times := range s.seen {
		n += times
	}
	return n
}

// proxied has two rules: for all requests, and for the login, of which a client has a few.
func proxied(kind, rest string, logins int) string {
	return fmt.Sprintf(`version: 1
%spolicies:
  client: {limit: 100000/day, key: client.ip}
  login: {limit: %d/day, key: client.ip%s}
rules:
  - {name: all, limits: client}
  - {name: login, match: {method: POST, path: /login}, limits: login}
`, rest, logins, kind)
}

// addressOf is where a front of a proxy listens, by the line that it has logged.
func addressOf(t *testing.T, line, name string) string {
	t.Helper()
	found := regexp.MustCompile(" " + name + `=(\S+)`).FindStringSubmatch(line)
	if found == nil {
		t.Fatalf("no %s in %s", name, line)
	}
	return found[1]
}

// TestProxyWithAConfiguration: all that weir serve has of a configuration, in front of a service: rules, refusals that can be
// explained, named checks, the admin pages, metrics, and a shared store.
func TestProxyWithAConfiguration(t *testing.T) {
	t.Parallel()
	for _, home := range []string{"memory", "redis"} {
		t.Run(home, func(t *testing.T) {
			t.Parallel()
			service := startService(t, nil)
			kind, store := "", ""
			if home == "redis" {
				kind, store = ", consistency: coherent", "store: {url: '"+startRedis(t).url()+"', timeout: 1m}\n"
			}
			path := filepath.Join(t.TempDir(), "weir.yaml")
			writeConfig(t, path, proxied(kind, store, 2))
			args := []string{
				"--upstream", service.URL, "--config", path, "--state", "none", "--admin", "127.0.0.1:0", "--http", "127.0.0.1:0",
			}
			p := startProxy(t, args...)
			line := p.logged("msg=proxying")
			if !strings.Contains(line, "upstream="+service.URL) || !strings.Contains(line, "policies=2 rules=2") {
				t.Errorf("the log says %s", line)
			}
			operators, checks := &server{t: t, address: addressOf(t, line, "admin")}, &server{t: t, address: addressOf(t, line, "http")}
			a, _ := p.do(http.MethodPost, "/login", "")
			fields := strings.Join(a.header.Values("Ratelimit-Policy"), ", ")
			if a.status != http.StatusOK || !strings.HasPrefix(fields, `"login";q=2`) || !strings.Contains(fields, `"client";q=100000`) {
				t.Errorf("%d, RateLimit-Policy %s", a.status, fields)
			}
			if got, text := checks.check(`{"policy":"login","key":"127.0.0.1"}`); got.status != http.StatusOK {
				t.Errorf("a check by name: %d, %s", got.status, text)
			}
			if got, text := checks.do(http.MethodGet, "/login", ""); got.status != http.StatusNotFound ||
				!strings.Contains(text, "no request is passed on here, but at --listen "+p.address) {
				t.Errorf("a client at --http: %d, %s", got.status, text)
			}
			refused, text := p.do(http.MethodPost, "/login", "")
			id := refused.header.Get("Weir-Refusal")
			if refused.status != http.StatusTooManyRequests || len(id) != 16 || !strings.Contains(text, `"login"`) {
				t.Errorf("beyond the limit: %d, %v, %s", refused.status, refused.header, text)
			}
			if got, _ := p.do(http.MethodGet, "/login", ""); got.status != http.StatusOK {
				t.Errorf("another rule: %d", got.status)
			}
			hasAll(t, "why", operators.ask(t, "why", id), "/login from 127.0.0.1 by http", `key "127.0.0.1", by rule login`, "refused")
			for page, want := range map[string][]string{
				"/metrics": {
					`weir_proxy_requests_total{result="allowed"} 2`, `weir_proxy_requests_total{result="refused"} 1`,
					`weir_front_connections{front="proxy"}`, `weir_front_connections{front="admin"}`,
				},
				"/v1/status": {`"proxy":{`, `"version":1`, `"rules":[`},
				"/ui/":       {"<html"},
			} {
				got, text := operators.do(http.MethodGet, page, "")
				if got.status != http.StatusOK {
					t.Errorf("%s: %d", page, got.status)
				}
				hasAll(t, page, text, want...)
			}
			if home == "redis" {
				other := startProxy(t, args...)
				if got, _ := other.do(http.MethodPost, "/login", ""); got.status != http.StatusTooManyRequests {
					t.Errorf("another proxy with the same store: %d", got.status)
				}
			}
			if n := service.got("/login"); n != 2 {
				t.Errorf("the service got %d requests of /login, want the POST that was allowed, and the GET", n)
			}
		})
	}
}

// TestProxyReloadsUnderTraffic: requests that come while the file is read again are held to the old limit or to the new one, and
// none is lost. A file with a mistake changes nothing, and the end of the program waits for a request in flight.
func TestProxyReloadsUnderTraffic(t *testing.T) {
	t.Parallel()
	slow := make(chan struct{})
	service := startService(t, slow)
	path := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, path, proxied("", "", 3))
	p := startProxy(t, "--upstream", service.URL, "--config", path, "--state", "none")
	p.logged("msg=proxying")
	var allowed, pages atomic.Int64
	var traffic sync.WaitGroup
	stop := make(chan struct{})
	for i := range 4 {
		traffic.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				method, target, count := http.MethodPost, "/login", &allowed
				if i > 0 {
					method, target, count = http.MethodGet, "/page", &pages
				}
				a, _ := fetch(t, p.address, method, target, "")
				switch {
				case a.status == http.StatusOK:
					count.Add(1)
				case a.status != http.StatusTooManyRequests || i > 0:
					t.Errorf("%s: %d", target, a.status)
				}
				if len(a.header.Values("Ratelimit")) == 0 {
					t.Errorf("%s: %d says nothing of a limit", target, a.status)
				}
			}
		})
	}
	const last = 3 + 20
	for logins := 4; logins <= last; logins++ {
		writeConfig(t, path, proxied("", "", logins))
		p.signal(syscall.SIGHUP)
		p.logged("configuration loaded")
	}
	writeConfig(t, path, "version: 1\nrules: 7\n")
	p.signal(syscall.SIGHUP)
	p.logged("configuration refused, the one before stays in force")
	close(stop)
	traffic.Wait()
	if n := int64(service.got("/login")); n != allowed.Load() || n < 3 || n > last {
		t.Errorf("%d logins were allowed, and %d came through, want 3 to %d", allowed.Load(), n, last)
	}
	if a, _ := p.do(http.MethodPost, "/login", ""); !strings.Contains(a.header.Get("Ratelimit-Policy"), fmt.Sprintf(`"login";q=%d`, last)) {
		t.Errorf("after the last reload: %v", a.header)
	}
	if n := int64(service.got("/page")); n != pages.Load() || n == 0 {
		t.Errorf("%d pages were answered, and %d asked for", pages.Load(), n)
	}
	done := make(chan answer, 1)
	go func() {
		a, _ := fetch(t, p.address, http.MethodGet, "/slow", "")
		done <- a
	}()
	<-slow
	p.signal(syscall.SIGTERM)
	p.logged("msg=stopping in_flight=1")
	slow <- struct{}{}
	if a := <-done; a.status != http.StatusOK {
		t.Errorf("the request in flight: %d", a.status)
	}
	if status := p.wait(); status.ExitCode() != 0 {
		t.Errorf("%v:\n%s", status, strings.Join(p.lines, "\n"))
	}
}

// TestProxyCertificatesAreReadAgain: the proxy and its admin pages speak TLS with the certificate that is in the file now.
func TestProxyCertificatesAreReadAgain(t *testing.T) {
	t.Parallel()
	service := startService(t, nil)
	dir := t.TempDir()
	path, cert := filepath.Join(dir, "weir.yaml"), filepath.Join(dir, "both.pem")
	writeConfig(t, path, proxied("", "", 2))
	first, second := fronttest.SelfSigned(t, "first"), fronttest.SelfSigned(t, "second")
	writeConfig(t, cert, string(first.Text)+string(first.Key))
	p := startProxy(t, "--upstream", service.URL, "--config", path, "--state", "none", "--admin", "127.0.0.1:0",
		"--tls-cert", cert, "--tls-key", cert)
	admin := addressOf(t, p.logged("listen=https://"), "admin")
	status := func(trusted *fronttest.Certificate, url string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted.Pool}, DisableKeepAlives: true, ForceAttemptHTTP2: true}
		answer, err := transport.RoundTrip(r)
		if err != nil {
			return 0
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	for _, url := range []string{"https://" + p.address + "/", "https://" + admin + "/healthz"} {
		if got := status(&first, url); got != http.StatusOK {
			t.Errorf("%s: %d", url, got)
		}
	}
	writeConfig(t, cert, string(second.Text)+string(second.Key))
	eventually(t, "the new certificate is shown", func() bool { return status(&second, "https://"+p.address+"/") == http.StatusOK })
}

// TestAttackPathConfusionAtTheProxy: a limit for a path holds for every spelling of it that a service could take for the same.
func TestAttackPathConfusionAtTheProxy(t *testing.T) {
	t.Parallel()
	service := startService(t, nil)
	path := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, path, pathConfig)
	p := startProxy(t, "--upstream", service.URL, "--config", path, "--state", "none", "--trusted-proxies", "127.0.0.0/8")
	p.logged("msg=proxying")
	for i, target := range []string{
		"/login/alice", "//login/alice", "/login//alice", "/./login/./alice", "/x/../login/alice", "/assets/../login/alice",
		"/assets/%2e%2e/login/alice", "/assets/.%2e%2flogin%2falice", "/%6C%6F%67%69%6E/%61lice", "/login%2falice",
		"/login/%2e/alice", "/login/alice?x=/assets/", "/login/alice;jsessionid=1", "/login/alice%00", "/login/bob%2f..%2falice",
		"http://shop.example/login/alice", "x:/login/alice", "/../login/alice", "/login/x%2f..%2f..%2fassets%2fy",
		"/login/..%5calice", `/login\alice`, `/assets\..\login\alice`, "/assets/%252e%252e/login/alice",
		"/assets/..%252flogin%252falice", "/assets/%25252e%25252e%25252flogin/alice", "/login/a%2fb/../alice",
		"/%zz/login/alice", "login/alice", "x:login/alice", "http:login/alice", "", "*",
	} {
		client := fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", i+1)
		if a, _ := fetch(t, p.address, http.MethodGet, "/login/alice", "", client); a.status != http.StatusOK {
			t.Fatalf("a new client: %d", a.status)
		}
		before := service.all()
		if a, _ := fetch(t, p.address, http.MethodGet, target, "", client); a.status < 400 || service.all() != before {
			t.Errorf("%q came through: %d", target, a.status)
		}
	}
}

// TestAttackTheLimitOfTheProxy: no request of any kind comes through to the service once the limit of all paths is used up.
func TestAttackTheLimitOfTheProxy(t *testing.T) {
	t.Parallel()
	const limit = 3
	service := startService(t, nil)
	path := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, path, `version: 1
policies:
  client: {limit: 3/day, key: client.ip}
rules:
  - {name: all, match: {path: /}, limits: client}
`)
	p := startProxy(t, "--upstream", service.URL, "--config", path, "--state", "none")
	p.logged("msg=proxying")
	for range limit {
		if a, _ := fetch(t, p.address, http.MethodGet, "/", ""); a.status != http.StatusOK {
			t.Fatalf("within the limit: %d", a.status)
		}
	}
	for name, request := range map[string]string{
		"CONNECT":            "CONNECT example.test:443 HTTP/1.1\r\nHost: example.test:443\r\n",
		"TRACE":              "TRACE / HTTP/1.1\r\nHost: a\r\n",
		"an unknown method":  "FETCH / HTTP/1.1\r\nHost: a\r\n",
		"a small method":     "get / HTTP/1.1\r\nHost: a\r\n",
		"OPTIONS of all":     "OPTIONS * HTTP/1.1\r\nHost: a\r\n",
		"GET of all":         "GET * HTTP/1.1\r\nHost: a\r\n",
		"no path":            "GET http://a HTTP/1.1\r\nHost: a\r\n",
		"a query alone":      "GET http://a?x HTTP/1.1\r\nHost: a\r\n",
		"another host":       "GET http://b/ HTTP/1.1\r\nHost: a\r\n",
		"no slash":           "GET x:y HTTP/1.1\r\nHost: a\r\n",
		"two slashes":        "GET //b/ HTTP/1.1\r\nHost: a\r\n",
		"h2c":                "PRI * HTTP/2.0\r\n\r\nSM\r\n",
		"an upgrade to h2c":  "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
		"a WebSocket":        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
		"a large header":     "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n",
		"many fields":        "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: y\r\n", 10_000),
		"HTTP/1.0":           "GET / HTTP/1.0\r\n",
		"a forged address":   "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.1\r\nForwarded: for=192.0.2.1\r\n",
		"a path that is not": "GET /%zz HTTP/1.1\r\nHost: a\r\n",
		"a body in chunks":   "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n",
	} {
		answer := exchangeRaw(t, p.address, request+"Connection: close\r\n\r\n")
		if strings.HasPrefix(answer, "HTTP/1.1 2") || strings.HasPrefix(answer, "HTTP/1.0 2") {
			t.Errorf("%s: %.200q", name, answer)
		}
	}
	if n := service.all(); n != limit {
		t.Errorf("the service got %d requests, want %d: %v", n, limit, slices.Sorted(maps.Keys(service.seen)))
	}
	p.signal(syscall.SIGTERM)
	if status := p.wait(); status.ExitCode() != 0 || strings.Contains(strings.Join(p.lines, "\n"), "panic") {
		t.Errorf("%v:\n%s", status, strings.Join(p.lines, "\n"))
	}
}

// TestProxyWithoutItsStoreFailsClosed: where a shared limit cannot be decided nothing comes through, as "fail" says by default.
func TestProxyWithoutItsStoreFailsClosed(t *testing.T) {
	t.Parallel()
	service := startService(t, nil)
	path := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, path, proxied(", consistency: coherent, fail: closed", "store: {url: 'redis://127.0.0.1:1'}\n", 2))
	p := startProxy(t, "--upstream", service.URL, "--config", path, "--state", "none")
	p.logged("msg=proxying")
	if a, text := p.do(http.MethodPost, "/login", ""); a.status != http.StatusServiceUnavailable || service.all() != 0 {
		t.Errorf("%d, %s: %d requests came through", a.status, text, service.all())
	}
	if a, _ := p.do(http.MethodGet, "/", ""); a.status != http.StatusOK {
		t.Errorf("a limit of this process: %d", a.status)
	}
}
