package interop_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/programtest"
)

// limits lets each client of an address pass three times in an hour, so that the tests need not hurry.
const limits = `version: 1
policies:
  per-client: {limit: 1/h, burst: 3, key: client.ip}
  orders: {limit: 1/h, key: 'request.headers["x-account"]'}
  soft: {limit: 1/h, mode: tag}
  accounts: {limit: 1/h, key: 'request.headers["x-account"]'}
rules:
  - name: free
    match: {host: free.example}
    exempt: true
  - name: accounts
    match: {path: /account}
    limits: accounts
    final: true
  - name: health
    match: {path: /healthz}
    exempt: true
  - name: orders
    match: {method: POST, host: shop.example, path: "/orders/{id}"}
    limits: orders
    final: true
  - name: soft
    match: {path: /soft}
    limits: soft
    final: true
  - name: everybody
    limits: per-client
`

// notInVariables are the bytes of a field's name that CGI, WSGI and PHP read alike.
var notInVariables = regexp.MustCompile("[^0-9A-Za-z]")

// app is the service behind the front. It returns what it has got.
func app(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if r.URL.Path == "/forbidden" {
			w.WriteHeader(http.StatusForbidden)
		}
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.RequestURI(), body)
		if r.URL.Path == "/host" {
			fmt.Fprintf(w, "at %s", r.Host)
		}
		if r.URL.Path == "/account" {
			fmt.Fprintf(w, "of %q", r.Header.Get("X-Account"))
		}
		for name, over := range r.Header {
			if strings.EqualFold(notInVariables.ReplaceAllString(name, "-"), "Weir-Over") {
				fmt.Fprintf(w, "over %s", over)
			}
		}
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// front is one of the servers under test.
type front struct {
	start func(t *testing.T, a addresses)
	// open lets everything pass if weir is gone.
	open func(t *testing.T, a addresses)
	// behind starts it behind a load balancer at 127.0.0.1, which names the client in X-Forwarded-For or, for some, by the PROXY protocol.
	behind        func(t *testing.T, a addresses)
	proxyProtocol bool
	// gone is the status without weir.
	gone int
}

var fronts = map[string]front{
	"nginx": {
		start: func(t *testing.T, a addresses) {
			t.Helper()
			programtest.Nginx(t, a.front, a.in(t, snippet(t, "nginx", "weir.conf")))
		},
		open: func(t *testing.T, a addresses) {
			t.Helper()
			config := a.in(t, snippet(t, "nginx", "weir.conf"))
			config = insert(t, config, "internal;", snippet(t, "nginx", "weir-open.conf"))
			config = insert(t, config, "listen "+a.front+";", snippet(t, "nginx", "weir-gone.conf"))
			programtest.Nginx(t, a.front, config)
		},
		behind: func(t *testing.T, a addresses) {
			t.Helper()
			programtest.Nginx(t, a.front, "set_real_ip_from 127.0.0.1;\nreal_ip_header X-Forwarded-For;\n"+
				a.in(t, snippet(t, "nginx", "weir.conf")))
		},
		gone: http.StatusInternalServerError,
	},
	"Caddy": {
		start: func(t *testing.T, a addresses) {
			t.Helper()
			caddyServer(t, a.front, "", a.in(t, snippet(t, "caddyfile", "Caddyfile")))
		},
		open: func(t *testing.T, a addresses) {
			t.Helper()
			errors := strings.ReplaceAll(snippet(t, "caddyfile", "Caddyfile-open"), documentApp, a.app)
			caddyServer(t, a.front, "", insert(t, a.in(t, snippet(t, "caddyfile", "Caddyfile")), "bind 127.0.0.1", errors))
		},
		behind: func(t *testing.T, a addresses) {
			t.Helper()
			caddyServer(t, a.front, "servers {\n\ttrusted_proxies static 127.0.0.1/32\n}\n", a.in(t, snippet(t, "caddyfile", "Caddyfile")))
		},
		gone: http.StatusBadGateway,
	},
	"HAProxy": {
		start: func(t *testing.T, a addresses) {
			t.Helper()
			haproxyServer(t, a, snippet(t, "haproxy", "haproxy.cfg"), haproxyScript(t))
		},
		open: func(t *testing.T, a addresses) {
			t.Helper()
			haproxyServer(t, a, without(t, snippet(t, "haproxy", "haproxy.cfg"), "# fail closed"), haproxyScript(t))
		},
		behind: func(t *testing.T, a addresses) {
			t.Helper()
			config := replaced(t, snippet(t, "haproxy", "haproxy.cfg"), "bind 127.0.0.1:8080", "bind 127.0.0.1:8080 accept-proxy")
			haproxyServer(t, a, config, haproxyScript(t))
		},
		proxyProtocol: true,
		gone:          http.StatusServiceUnavailable,
	},
	"Apache": {
		start: func(t *testing.T, a addresses) {
			t.Helper()
			apacheServer(t, a, snippet(t, "apache", "weir.conf"), apacheScript(t))
		},
		open: func(t *testing.T, a addresses) {
			t.Helper()
			apacheServer(t, a, snippet(t, "apache", "weir.conf"), replaced(t, apacheScript(t), "return 503", "return apache2.DECLINED"))
		},
		behind: func(t *testing.T, a addresses) {
			t.Helper()
			site := insert(t, snippet(t, "apache", "weir.conf"), "LuaScope thread",
				"    RemoteIPHeader X-Forwarded-For\n    RemoteIPInternalProxy 127.0.0.1\n")
			apacheServer(t, a, site, apacheScript(t))
		},
		gone: http.StatusServiceUnavailable,
	},
}

// insert puts lines behind the line that ends with mark.
func insert(t *testing.T, text, mark, lines string) string {
	t.Helper()
	at := strings.Index(text, mark+"\n")
	if at < 0 {
		t.Fatalf("%q is not in\n%s", mark, text)
	}
	at += len(mark) + 1
	return text[:at] + lines + text[at:]
}

// eachFront runs a test with weir, each front and the service behind it.
func eachFront(t *testing.T, test func(t *testing.T, f front, a addresses, weir *programtest.Process)) {
	t.Helper()
	for name, f := range fronts {
		t.Run(name, func(t *testing.T) {
			weir, address := weirServer(t, limits)
			test(t, f, addresses{weir: address, front: programtest.FreeAddress(t), app: app(t)}, weir)
		})
	}
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request from a source address, with fields as "Name: value".
func ask(t *testing.T, from, method, url, body string, fields ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		if name == "Host" {
			r.Host = value
		}
		r.Header.Add(name, value)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	client := http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range response.Header {
		if slices.Sort(values); len(slices.Compact(slices.Clone(values))) != len(values) {
			t.Errorf("%s twice: %q", name, values)
		}
	}
	return answer{response.StatusCode, response.Header, string(text)}
}

// checkRefusal: a refusal tells the client everything.
func checkRefusal(t *testing.T, a answer, policy string) {
	t.Helper()
	var problem struct {
		Type       string   `json:"type"`
		Status     int      `json:"status"`
		Violated   []string `json:"violated-policies"` //nolint:tagliatelle // registered
		RetryAfter int      `json:"retry-after"`       //nolint:tagliatelle // registered
	}
	if err := json.Unmarshal([]byte(a.body), &problem); err != nil {
		t.Errorf("%v in %q", err, a.body)
	}
	retry := a.header.Get("Retry-After")
	if a.status != 429 || problem.Status != 429 || !strings.HasSuffix(problem.Type, "#quota-exceeded") ||
		!slices.Equal(problem.Violated, []string{policy}) || fmt.Sprint(problem.RetryAfter) != retry {
		t.Errorf("%d %s, Retry-After %s", a.status, a.body, retry)
	}
	if got := a.header.Get("Ratelimit"); got != fmt.Sprintf("%q;r=0;t=%s", policy, retry) || retry == "" {
		t.Errorf("RateLimit: %s, Retry-After: %s", got, retry)
	}
	if got := a.header.Get("Ratelimit-Policy"); !strings.HasPrefix(got, fmt.Sprintf("%q;q=", policy)) {
		t.Errorf("RateLimit-Policy: %s", got)
	}
	if got := a.header.Get("Weir-Refusal"); len(got) != 16 {
		t.Errorf("Weir-Refusal: %q, want the ID that weir why explains", got)
	}
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type: %s", got)
	}
	if got := a.header.Get("X-Weir-Problem"); got != "" {
		t.Errorf("X-Weir-Problem: %s", got)
	}
}

// TestFrontRefuses: what is within the limit reaches the service as it is, what is beyond reaches the client as 429.
func TestFrontRefuses(t *testing.T) {
	eachFront(t, func(t *testing.T, f front, a addresses, _ *programtest.Process) {
		f.start(t, a)
		for left := 2; left >= 0; left-- {
			got := ask(t, "127.0.0.2", "POST", "http://"+a.front+"/a%20b/c?x=1&y=%2F", "the body")
			if got.status != 200 || got.body != "POST /a%20b/c?x=1&y=%2F the body" {
				t.Errorf("%d %s", got.status, got.body)
			}
			if limit := got.header.Get("Ratelimit"); !strings.HasPrefix(limit, fmt.Sprintf(`"per-client";r=%d;t=`, left)) {
				t.Errorf("RateLimit: %s, want r=%d", limit, left)
			}
			if policy := got.header.Get("Ratelimit-Policy"); policy != `"per-client";q=3;w=10800` {
				t.Errorf("RateLimit-Policy: %s", policy)
			}
		}
		checkRefusal(t, ask(t, "127.0.0.2", "POST", "http://"+a.front+"/a", "more"), "per-client")
		checkRefusal(t, ask(t, "127.0.0.2", "GET", "http://"+a.front+"/forbidden", ""), "per-client")

		// Another client is another one, and 403 of the service is its own.
		got := ask(t, "127.0.0.3", "GET", "http://"+a.front+"/forbidden", "")
		if got.status != 403 || got.body != "GET /forbidden " {
			t.Errorf("another client: %d %s", got.status, got.body)
		}
		// Nothing is told where nothing is limited.
		got = ask(t, "127.0.0.2", "GET", "http://"+a.front+"/healthz", "")
		_, told := got.header["Ratelimit"]
		if got.status != 200 || told {
			t.Errorf("exempt: %d %v", got.status, got.header)
		}
	})
}

// TestFrontTellsWhatRulesNeed: method, host, path and header reach the rules.
func TestFrontTellsWhatRulesNeed(t *testing.T) {
	eachFront(t, func(t *testing.T, f front, a addresses, _ *programtest.Process) {
		f.start(t, a)
		order := func(from, method, host, path, account string) answer {
			return ask(t, from, method, "http://"+a.front+path, "1 weir", "Host: "+host, "X-Account: "+account)
		}
		if got := order("127.0.0.2", "POST", "shop.example", "/orders/1", "a"); got.status != 200 {
			t.Errorf("the first order: %d %s", got.status, got.body)
		}
		checkRefusal(t, order("127.0.0.3", "POST", "shop.example", "/orders/2?x", "a"), "orders")
		for _, c := range [][4]string{
			{"POST", "shop.example", "/orders/2", "b"},
			{"PUT", "shop.example", "/orders/2", "a"},
			{"POST", "other.example", "/orders/2", "a"},
			{"POST", "shop.example", "/orders/2/3", "a"},
		} {
			if got := order("127.0.0.2", c[0], c[1], c[2], c[3]); got.status != 200 {
				t.Errorf("%q: %d %s", c, got.status, got.body)
			}
		}
	})
}

// TestFrontForgedFields: a client gains nothing from the fields that the front sets.
func TestFrontForgedFields(t *testing.T) {
	eachFront(t, func(t *testing.T, f front, a addresses, _ *programtest.Process) {
		f.start(t, a)
		last := answer{}
		for i := range 4 {
			forged := []string{
				fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", i), fmt.Sprintf("X-Real-IP: 203.0.113.%d", i),
				fmt.Sprintf("Forwarded: for=203.0.113.%d", i), "X-Envoy-External-Address: 203.0.113.1",
				"X-Original-URI: /healthz", "X-Forwarded-Uri: /healthz", "X-Original-Method: GET", "X-Forwarded-Method: GET",
				"X-Forwarded-Host: shop.example", "X-Rewrite-Url: /healthz", "X-Weir-Problem: {}", "RateLimit: none",
			}
			last = ask(t, "127.0.0.2", "GET", "http://"+a.front+"/a", "", forged...)
			if i < 3 && last.status != 200 {
				t.Errorf("request %d: %d %s", i, last.status, last.body)
			}
		}
		checkRefusal(t, last, "per-client")
		// Nor does it reach weir itself.
		for _, path := range []string{"/_weir", "/v1/status", "/v1/reload"} {
			if got := ask(t, "127.0.0.4", "POST", "http://"+a.front+path, ""); strings.Contains(got.body, "version") {
				t.Errorf("%s: %d %s", path, got.status, got.body)
			}
		}
	})
}

// TestFrontWithoutWeir: what happens if weir is gone is as documented.
func TestFrontWithoutWeir(t *testing.T) {
	eachFront(t, func(t *testing.T, f front, a addresses, weir *programtest.Process) {
		f.start(t, a)
		if got := ask(t, "127.0.0.2", "GET", "http://"+a.front+"/a", ""); got.status != 200 {
			t.Errorf("with weir: %d %s", got.status, got.body)
		}
		weir.Stop()
		if got := ask(t, "127.0.0.2", "GET", "http://"+a.front+"/a", ""); got.status != f.gone || strings.HasPrefix(got.body, "GET ") {
			t.Errorf("without weir: %d %s, want %d", got.status, got.body, f.gone)
		}
	})
}

// TestFrontOpen: with the documented change everything passes if weir is gone, and only then.
func TestFrontOpen(t *testing.T) {
	eachFront(t, func(t *testing.T, f front, a addresses, weir *programtest.Process) {
		f.open(t, a)
		for i := range 3 {
			if got := ask(t, "127.0.0.2", "GET", "http://"+a.front+"/a", ""); got.status != 200 {
				t.Errorf("request %d: %d %s", i, got.status, got.body)
			}
		}
		checkRefusal(t, ask(t, "127.0.0.2", "GET", "http://"+a.front+"/a", ""), "per-client")
		weir.Stop()
		if got := ask(t, "127.0.0.2", "POST", "http://"+a.front+"/a?b", "body"); got.status != 200 || got.body != "POST /a?b body" {
			t.Errorf("without weir: %d %s", got.status, got.body)
		}
	})
}

// TestScriptThatFailsAllowsNothing: an error in the Lua of HAProxy or Apache allows no request.
func TestScriptThatFailsAllowsNothing(t *testing.T) {
	_, address := weirServer(t, limits)
	check := func(a addresses, want int) {
		t.Helper()
		if got := ask(t, "127.0.0.2", "GET", "http://"+a.front+"/a", ""); got.status != want || strings.HasPrefix(got.body, "GET ") {
			t.Errorf("%d %s, want %d", got.status, got.body, want)
		}
	}
	a := addresses{weir: address, front: programtest.FreeAddress(t), app: app(t)}
	haproxyServer(t, a, snippet(t, "haproxy", "haproxy.cfg"), replaced(t, haproxyScript(t), "core.httpclient()", "core.nothing()"))
	check(a, http.StatusServiceUnavailable)
	a.front = programtest.FreeAddress(t)
	apacheServer(t, a, snippet(t, "apache", "weir.conf"), replaced(t, apacheScript(t), "http.request {", "http.nothing {"))
	check(a, http.StatusInternalServerError)
}

// TestNginxRefusedBy401: with the status 401, what else nginx refuses by 403 is told apart by itself.
func TestNginxRefusedBy401(t *testing.T) {
	_, address := weirServer(t, limits, "--auth-refusal-status", "401")
	a := addresses{weir: address, front: programtest.FreeAddress(t), app: app(t)}
	config := strings.Replace(a.in(t, snippet(t, "nginx", "weir.conf")), "error_page 403 =", "error_page 401 =", 1)
	config = insert(t, config, "listen "+a.front+";", "location /denied { deny all; }\n")
	programtest.Nginx(t, a.front, config)
	for range 3 {
		if got := ask(t, "127.0.0.2", "GET", "http://"+a.front+"/a", ""); got.status != 200 {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	checkRefusal(t, ask(t, "127.0.0.2", "GET", "http://"+a.front+"/a", ""), "per-client")
	if got := ask(t, "127.0.0.2", "GET", "http://"+a.front+"/denied", ""); got.status != 403 {
		t.Errorf("denied: %d %s", got.status, got.body)
	}
}

// TestFrontDocument: the configuration of weir in the document does what it says.
func TestFrontDocument(t *testing.T) {
	_, address := weirServer(t, snippet(t, "yaml", "weir.yaml"))
	fields := []string{
		"X-Forwarded-Method: GET", "X-Forwarded-Uri: /a", "X-Forwarded-Host: example.com", "X-Forwarded-For: 203.0.113.7",
	}
	got := ask(t, "127.0.0.1", "GET", "http://"+address+"/v1/auth", "", fields...)
	if policy := got.header.Get("Ratelimit-Policy"); got.status != 200 || policy != `"per-client";q=20;w=2` {
		t.Errorf("%d, RateLimit-Policy %s", got.status, policy)
	}
	fields[1] = "X-Forwarded-Uri: /healthz"
	got = ask(t, "127.0.0.1", "GET", "http://"+address+"/v1/auth", "", fields...)
	if policy := got.header.Get("Ratelimit-Policy"); got.status != 200 || policy != "" {
		t.Errorf("/healthz: %d, RateLimit-Policy %s", got.status, policy)
	}
}

// TestServiceIsToldWhatItIsOver: a request that is over a soft limit comes with its name, and no request comes with what the client says
// it is over.
func TestServiceIsToldWhatItIsOver(t *testing.T) {
	eachFront(t, func(t *testing.T, f front, a addresses, _ *programtest.Process) {
		f.start(t, a)
		for _, want := range []string{"GET /soft ", `GET /soft over ["soft"]`} {
			got := ask(t, "127.0.0.1", http.MethodGet, "http://"+a.front+"/soft", "",
				`Weir-Over: "mine"`, `Weir_Over: "mine"`, `weir.over: "mine"`, `WEIR~OVER: "mine"`)
			if got.status != 200 || got.body != want {
				t.Errorf("%d %q, want %q", got.status, got.body, want)
			}
		}
	})
}

// TestServiceIsToldNothingByClients: where everything passes if weir is gone, what a client says it is over does not.
func TestServiceIsToldNothingByClients(t *testing.T) {
	eachFront(t, func(t *testing.T, f front, a addresses, weir *programtest.Process) {
		f.open(t, a)
		weir.Stop()
		got := ask(t, "127.0.0.1", http.MethodGet, "http://"+a.front+"/soft", "", `Weir-Over: "mine"`, `Weir_Over: "mine"`)
		if got.status != 200 || got.body != "GET /soft " {
			t.Errorf("%d %q", got.status, got.body)
		}
	})
}

// TestFrontsBehindABalancerAreToldNothingByClients: a balancer tells a front who the client is, and passes on what the client says of the
// request itself.
func TestFrontsBehindABalancerAreToldNothingByClients(t *testing.T) {
	eachFront(t, func(t *testing.T, f front, a addresses, _ *programtest.Process) {
		f.behind(t, a)
		for client, forged := range []string{
			"", "X-Forwarded-Host: free.example\r\n", "X-Forwarded-Uri: /healthz\r\n", "X-Forwarded-Method: POST\r\n",
			"X-Original-URI: /healthz\r\n", "X-Original-Method: POST\r\n", "X-Real-IP: 203.0.113.7\r\n", "Forwarded: for=203.0.113.7\r\n",
			"X-Forwarded-Host: free.example\r\nX-Forwarded-Uri: /healthz\r\nConnection: X-Forwarded-Host, X-Forwarded-Uri\r\n",
		} {
			var got [4]int
			for i := range got {
				text := fmt.Sprintf("GET /a HTTP/1.1\r\nHost: other.example\r\nX-Forwarded-For: 203.0.113.%d, 198.51.100.%d\r\n%s%s", i, client,
					forged, "Connection: close\r\n\r\n")
				if f.proxyProtocol {
					text = fmt.Sprintf("PROXY TCP4 198.51.100.%d 127.0.0.1 1000 80\r\n%s", client, text)
				}
				got[i], _ = raw(t, a.front, text)
			}
			if want := [4]int{200, 200, 200, 429}; got != want {
				t.Errorf("%q: %d, want %d", forged, got, want)
			}
		}
	})
}

// raw sends a request as it is written, and returns the status and what came with it.
func raw(t *testing.T, address, text string) (status int, rest string) {
	t.Helper()
	dialer := net.Dialer{Timeout: time.Minute}
	conn, err := dialer.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(conn, text) }() // which may be refused before all of it is read
	got, _ := io.ReadAll(conn)
	var version int
	_, _ = fmt.Sscanf(string(got), "HTTP/1.%d %d", &version, &status)
	return status, string(got)
}

// credulousApp is a service that serves all that it gets.
func credulousApp(t *testing.T) string {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(time.Minute))
				for r := bufio.NewReader(conn); ; {
					if line, err := r.ReadString('\n'); err != nil || line == "\r\n" {
						break
					}
				}
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nserved")
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		served.Wait()
	})
	return l.Addr().String()
}

// TestFrontsLetNothingUnreadPass: what weir cannot read, or not in time, passes no limit, also where everything passes if weir is gone,
// and the service would serve it.
func TestFrontsLetNothingUnreadPass(t *testing.T) {
	eachFront(t, func(t *testing.T, f front, a addresses, _ *programtest.Process) {
		a.app = credulousApp(t)
		f.open(t, a)
		for range 3 {
			ask(t, "127.0.0.1", http.MethodGet, "http://"+a.front+"/a", "")
		}
		var large strings.Builder
		for i := range 40 {
			fmt.Fprintf(&large, "X-Fill-%d: %s\r\n", i, strings.Repeat("a", 7000))
		}
		const end = "Connection: close\r\n\r\n"
		for name, text := range map[string]string{
			"nothing":         "GET /a HTTP/1.1\r\nHost: shop.example\r\n" + end,
			"a control byte":  "GET /a HTTP/1.1\r\nHost: shop.example\r\nX-A: a\x01b\r\n" + end,
			"another one":     "GET /a HTTP/1.1\r\nHost: shop.example\r\nCookie: \x7f\r\n" + end,
			"large fields":    "GET /a HTTP/1.1\r\nHost: shop.example\r\n" + large.String() + end,
			"many fields":     "GET /a HTTP/1.1\r\nHost: shop.example\r\n" + strings.Repeat("X-A: a\r\n", 90) + end,
			"a fragment":      "GET /a#b HTTP/1.1\r\nHost: shop.example\r\n" + end,
			"no host":         "GET /a HTTP/1.0\r\n" + end,
			"two hosts":       "GET /a HTTP/1.1\r\nHost: shop.example\r\nHost: free.example\r\n" + end,
			"a method":        "get /a HTTP/1.1\r\nHost: shop.example\r\n" + end,
			"a long target":   "GET /a?" + strings.Repeat("a", 30_000) + " HTTP/1.1\r\nHost: shop.example\r\n" + end,
			"a folded field":  "GET /a HTTP/1.1\r\nHost: shop.example\r\nX-A: a\r\n b\r\n" + end,
			"a field in vain": "GET /a HTTP/1.1\r\nHost: shop.example\r\nConnection: X-Forwarded-For, X-Real-IP\r\n" + end,
		} {
			if status, got := raw(t, a.front, text); status == http.StatusOK || status == 0 {
				t.Errorf("%s: %d %.500s", name, status, got)
			}
		}
	})
}

// TestFrontsLetNoTrickPass: what the service gets is what weir was asked about.
func TestFrontsLetNoTrickPass(t *testing.T) {
	eachFront(t, func(t *testing.T, f front, a addresses, _ *programtest.Process) {
		f.open(t, a)
		for range 3 {
			ask(t, "127.0.0.1", http.MethodGet, "http://"+a.front+"/a", "")
		}
		const end = "Connection: close\r\n\r\n"
		// The service gets no other host than weir was asked about.
		for _, text := range []string{
			"GET http://free.example/host HTTP/1.1\r\nHost: shop.example\r\n" + end,
			"GET /host HTTP/1.1\r\nHost: shop.example,free.example\r\n" + end,
		} {
			if status, got := raw(t, a.front, text); status == http.StatusOK && strings.Contains(got, "at shop.example") {
				t.Errorf("%q: %s", text, got)
			}
		}
		// A field that the client has the server drop is none, for weir as for the service.
		seen := 0
		for i := range 3 {
			status, got := raw(t, a.front, fmt.Sprintf("GET /account HTTP/1.1\r\nHost: x\r\nX-Account: %d\r\nConnection: X-Account, close\r\n\r\n", i))
			if status == http.StatusOK && strings.HasSuffix(got, `of ""`) {
				seen++
			}
		}
		if seen > 1 {
			t.Errorf("%d requests without an account, of which one is within the limit", seen)
		}
		for i := range 2 {
			status, got := raw(t, a.front, "GET /soft HTTP/1.1\r\nHost: x\r\nConnection: close, weir-over\r\n\r\n")
			if i == 1 && status == http.StatusOK && !strings.Contains(got, `over ["soft"]`) {
				t.Errorf("the tag is gone: %s", got)
			}
			ask(t, "127.0.0.1", http.MethodGet, "http://"+a.front+"/soft", "")
		}
	})
}
