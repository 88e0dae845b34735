package proxy_test

import (
	"io"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/proxy"
)

// seen is a request as the upstream got it.
type seen struct {
	*http.Request

	body string
}

// recorder is an upstream that shows each request.
func recorder(tb testing.TB) (url string, requests chan seen) {
	tb.Helper()
	requests = make(chan seen, 100)
	return upstream(tb, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- seen{r, string(body)}
		ok(w, r)
	}), requests
}

func TestRequestsArriveAsTheyWereSent(t *testing.T) {
	url, requests := recorder(t)
	p := start(t, url, nil)
	for _, target := range []string{
		"/", "/a/b", "//a//b", "/a%2Fb", "/a/../b", "/%2e%2e/b", "/a;b=c", "/?a=b;c=d&e=%zz&f", "/a?", "/healthz", "/a%20b?q=%20",
	} {
		conn, reader := p.raw(t, "PURGE "+target+" HTTP/1.1\r\nHost: Example.test:81\r\nX-Twice: 1\r\nX-Twice: 2\r\n"+
			"Content-Length: 4\r\n\r\nbody")
		read(t, reader)
		_ = conn.Close()
		got := receive(t, requests, "the request")
		if got.Method != "PURGE" || got.RequestURI != target || got.Host != "Example.test:81" || got.body != "body" ||
			got.ContentLength != 4 || !reflect.DeepEqual(got.Header["X-Twice"], []string{"1", "2"}) {
			t.Errorf("%s arrived as %s %s, Host %s, %q, %v", target, got.Method, got.RequestURI, got.Host, got.body, got.Header)
		}
		want := http.Header{
			"X-Twice": {"1", "2"}, "Content-Length": {"4"},
			"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Host": {"Example.test:81"}, "X-Forwarded-Proto": {"http"},
		}
		if !reflect.DeepEqual(got.Header, want) {
			t.Errorf("%s arrived with %v, want %v", target, got.Header, want)
		}
	}
	p.expectTotals(t, proxy.Totals{Allowed: 11})
}

func TestPrefixOfTheUpstream(t *testing.T) {
	url, requests := recorder(t)
	for _, prefix := range []string{"/base", "/base/"} {
		p := start(t, url+prefix, nil)
		for target, want := range map[string]string{
			"/":                        "/base/",
			"/a/b?c=/../d":             "/base/a/b?c=/../d",
			"/a%2Fb":                   "/base/a%2Fb",
			"//a":                      "/base//a",
			"/...":                     "/base/...",
			"http://elsewhere.test/a":  "/base/a",
			"http://elsewhere.test":    "/base/",
			"http://elsewhere.test?a=": "/base/?a=",
		} {
			_, reader := p.raw(t, "GET "+target+" HTTP/1.1\r\nHost: x\r\n\r\n")
			if res := read(t, reader); res.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s", target, res.Status)
			}
			if got := receive(t, requests, "the request"); got.RequestURI != want {
				t.Errorf("%s arrived as %s, want %s", target, got.RequestURI, want)
			}
		}
		for _, target := range []string{
			"/..", "/../admin", "/%2e%2e/admin", "/a/../../admin", "/a/..%2f..%2fadmin", `/..\admin`, "/a/..%5cadmin", "/..;/admin",
			"/.%2E;x=y/admin", "/a#b", "/a?b#c",
		} {
			_, reader := p.raw(t, "GET "+target+" HTTP/1.1\r\nHost: x\r\n\r\n")
			res := read(t, reader)
			if res.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: %s, want 400", target, res.Status)
			}
		}
		p.expectTotals(t, proxy.Totals{Allowed: 8, Rejected: 11})
	}
	if len(requests) > 0 {
		t.Errorf("the upstream got %s", (<-requests).RequestURI)
	}
}

func TestOptionsOfTheServerAndConnect(t *testing.T) {
	url, requests := recorder(t)
	p := start(t, url+"/base", nil)
	_, reader := p.raw(t, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\nCONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n")
	// What answers OPTIONS * at the upstream is its net/http, not its handler.
	if res := read(t, reader); res.StatusCode != http.StatusOK {
		t.Errorf("OPTIONS *: %s", res.Status)
	}
	if res := read(t, reader); res.StatusCode != http.StatusNotImplemented {
		t.Errorf("CONNECT: %s", res.Status)
	}
	p.expectTotals(t, proxy.Totals{Allowed: 1, Rejected: 1})
	if len(requests) > 0 {
		t.Errorf("the upstream got %+v", <-requests)
	}
}

// TestTraceIsNotPassedOn: an upstream that serves it shows what proxies have added to a request.
func TestTraceIsNotPassedOn(t *testing.T) {
	url, requests := recorder(t)
	p := start(t, url, nil)
	for _, method := range []string{http.MethodTrace, "TRACK", "trace", "tRACK"} {
		res := p.do(t, request(t, method, p.url, nil))
		if res.StatusCode != http.StatusMethodNotAllowed || !strings.Contains(res.Header.Get("Allow"), "GET") {
			t.Errorf("%s: %s, Allow %q", method, res.Status, res.Header.Get("Allow"))
		}
	}
	p.expectTotals(t, proxy.Totals{Rejected: 4})
	if len(requests) > 0 {
		t.Errorf("the upstream got %+v", <-requests)
	}
}

func TestHopByHopHeadersEndHere(t *testing.T) {
	got := make(chan http.Header, 1)
	p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Clone()
		h := w.Header()
		h.Set("Connection", "X-Own")
		h.Set("X-Own", "secret")
		h.Set("Keep-Alive", "timeout=5")
		h.Set("Proxy-Authenticate", "Basic")
		h.Set("X-End-To-End", "yes")
		ok(w, r)
	}), nil)
	req := request(t, http.MethodGet, p.url, nil)
	for name, value := range map[string]string{
		"Connection": "X-Mine, X-Forwarded-For", "X-Mine": "1", "Keep-Alive": "1", "Proxy-Authorization": "x",
		"Proxy-Connection": "x", "Te": "trailers, deflate", "Upgrade": "x", "X-End-To-End": "yes",
	} {
		req.Header.Set(name, value)
	}
	res := p.do(t, req)
	header := receive(t, got, "the request")
	for _, name := range []string{"Connection", "X-Mine", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Upgrade"} {
		if header.Get(name) != "" {
			t.Errorf("the upstream got %s: %s", name, header.Get(name))
		}
	}
	if header.Get("TE") != "trailers" || header.Get("X-End-To-End") != "yes" || header.Get("X-Forwarded-For") != "127.0.0.1" {
		t.Errorf("the upstream got %v", header)
	}
	for _, name := range []string{"Connection", "X-Own", "Keep-Alive", "Proxy-Authenticate"} {
		if res.Header.Get(name) != "" {
			t.Errorf("the client got %s: %s", name, res.Header.Get(name))
		}
	}
	if res.Header.Get("X-End-To-End") != "yes" {
		t.Errorf("the client got %v", res.Header)
	}
}

func TestForwardedHeadersCannotBeForged(t *testing.T) {
	url, requests := recorder(t)
	p := start(t, url, func(o *proxy.Options) { o.Engine = limit(t, 3) })
	forged := http.Header{
		"X-Forwarded-For": {"192.0.2.1", "192.0.2.2"}, "X-Forwarded-Host": {"evil.test"}, "X-Forwarded-Proto": {"https"},
		"X-Forwarded-Port": {"1"}, "X-Forwarded-User": {"root"}, "X-Real-Ip": {"192.0.2.3"}, "Forwarded": {"for=192.0.2.4"},
		"X_forwarded_for": {"192.0.2.5"}, "X-Forwarded_proto": {"https"}, "X_real_ip": {"192.0.2.6"},
		"X-Original-Url": {"/admin"}, "X-Original-Uri": {"/admin"}, "X-Rewrite-Url": {"/admin"}, "X-Original-Forwarded-For": {"192.0.2.7"},
		"Cf-Connecting-Ip": {"192.0.2.8"}, "True-Client-Ip": {"192.0.2.8"}, "X-Client-Ip": {"192.0.2.8"}, "Client-Ip": {"192.0.2.8"},
		"X-Cluster-Client-Ip": {"192.0.2.8"}, "X-Envoy-External-Address": {"192.0.2.8"}, "Fastly-Client-Ip": {"192.0.2.8"},
		"X-Forwarded": {"for=192.0.2.8"}, "X-Azure-Clientip": {"192.0.2.8"}, "X-Remote-Addr": {"192.0.2.8"}, "X-Host": {"evil.test"},
		"True_client-Ip": {"192.0.2.8"}, "X_original_url": {"/admin"}, "Proxy": {"http://evil.test"},
		"X.forwarded.for": {"192.0.2.9"}, "X-Forwarded.proto": {"https"}, "X~real+Ip": {"192.0.2.9"},
		"X-Forwards": {"kept"}, "X-Other": {"kept"}, "X.other": {"kept"},
	}
	for i := range 4 {
		req := request(t, http.MethodGet, p.url, nil)
		req.Header = forged.Clone()
		req.Header.Set("X-Forwarded-For", "192.0.2."+string(rune('1'+i)))
		req.Host = "right.test"
		if res := p.do(t, req); i < 3 && res.StatusCode != http.StatusOK || i == 3 && res.StatusCode != http.StatusTooManyRequests {
			t.Errorf("request %d: %s", i, res.Status)
		}
		if i == 3 {
			break
		}
		got := receive(t, requests, "the request").Header
		delete(got, "Accept-Encoding")
		delete(got, "User-Agent")
		want := http.Header{
			"X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Host": {"right.test"}, "X-Forwarded-Proto": {"http"},
			"X-Forwards": {"kept"}, "X-Other": {"kept"}, "X.other": {"kept"},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the upstream got %v, want %v", got, want)
		}
	}
}

func TestTrustedProxiesAreBelieved(t *testing.T) {
	url, requests := recorder(t)
	p := start(t, url, func(o *proxy.Options) {
		o.Engine = limit(t, 1)
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
	})
	for _, c := range []struct {
		forwardedFor []string
		admitted     bool
		chain        string
	}{
		{[]string{"192.0.2.1"}, true, "192.0.2.1, 127.0.0.1"},
		{[]string{"192.0.2.9, 192.0.2.1"}, false, ""},
		{[]string{"192.0.2.1", "192.0.2.2, 10.1.1.1"}, true, "192.0.2.1, 192.0.2.2, 10.1.1.1, 127.0.0.1"},
		{nil, true, "127.0.0.1"},
		{[]string{""}, false, ""},
	} {
		req := request(t, http.MethodGet, p.url, nil)
		req.Header = http.Header{
			"X-Forwarded-For": c.forwardedFor, "X-Forwarded-Proto": {"https"}, "X-Forwarded-Host": {"public.test"},
			"X-Real-Ip": {"192.0.2.7"}, "X-Forwarded-Port": {"443"}, "Forwarded": {"for=192.0.2.4"}, "X_forwarded_for": {"forged"},
			"X-Original-Url": {"/before"}, "Cf-Connecting-Ip": {"192.0.2.7"}, "Cf_connecting_ip": {"forged"}, "Proxy": {"forged"},
		}
		res := p.do(t, req)
		if (res.StatusCode == http.StatusOK) != c.admitted {
			t.Errorf("%q: %s", c.forwardedFor, res.Status)
			continue
		}
		if !c.admitted {
			continue
		}
		got := receive(t, requests, "the request").Header
		delete(got, "User-Agent")
		want := http.Header{
			"X-Forwarded-For": {c.chain}, "X-Forwarded-Proto": {"https"}, "X-Forwarded-Host": {"public.test"},
			"X-Real-Ip": {"192.0.2.7"}, "X-Forwarded-Port": {"443"}, "X-Original-Url": {"/before"}, "Cf-Connecting-Ip": {"192.0.2.7"},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: the upstream got %v, want %v", c.forwardedFor, got, want)
		}
	}
}

func TestUpstreamHost(t *testing.T) {
	url, requests := recorder(t)
	p := start(t, url, func(o *proxy.Options) { o.UpstreamHost = "inner.test" })
	req := request(t, http.MethodGet, p.url, nil)
	req.Host = "outer.test"
	p.do(t, req)
	if got := receive(t, requests, "the request"); got.Host != "inner.test" || got.Header.Get("X-Forwarded-Host") != "outer.test" {
		t.Errorf("Host %s, X-Forwarded-Host %s", got.Host, got.Header.Get("X-Forwarded-Host"))
	}
}

func TestResponsesArriveAsTheyWereSent(t *testing.T) {
	p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		switch r.URL.Path {
		case "/204":
			w.WriteHeader(http.StatusNoContent)
		case "/304":
			h.Set("ETag", `"x"`)
			w.WriteHeader(http.StatusNotModified)
		case "/500":
			h["Content-Type"] = nil
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, "<html>no type is told</html>")
		case "/gzip":
			h.Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "as it is, and not unpacked")
		case "/head":
			h.Set("Content-Length", "1234")
		case "/redirect":
			h.Set("Location", "/elsewhere")
			h.Add("Set-Cookie", "a=1")
			h.Add("Set-Cookie", "b=2")
			w.WriteHeader(http.StatusFound)
		}
	}), nil)
	for _, c := range []struct {
		method, path string
		status       int
		header       http.Header
		body         string
	}{
		{"GET", "/204", 204, http.Header{"Content-Type": nil, "Content-Length": nil}, ""},
		{"GET", "/304", 304, http.Header{"Etag": {`"x"`}, "Content-Type": nil}, ""},
		{"GET", "/500", 500, http.Header{"Content-Type": nil}, "<html>no type is told</html>"},
		{"GET", "/gzip", 200, http.Header{"Content-Encoding": {"gzip"}}, "as it is, and not unpacked"},
		{"HEAD", "/head", 200, http.Header{"Content-Length": {"1234"}}, ""},
		{"GET", "/redirect", 302, http.Header{"Location": {"/elsewhere"}, "Set-Cookie": {"a=1", "b=2"}}, ""},
	} {
		req := request(t, c.method, p.url+c.path, nil)
		req.Header.Set("Accept-Encoding", "gzip")
		res := p.do(t, req)
		if res.StatusCode != c.status || res.body != c.body {
			t.Errorf("%s: %s %q", c.path, res.Status, res.body)
		}
		for name, want := range c.header {
			if got := res.Header[name]; !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s is %v, want %v", c.path, name, got, want)
			}
		}
		if !strings.HasPrefix(res.Header.Get("Ratelimit"), `"default";r=`) {
			t.Errorf("%s: RateLimit is %q", c.path, res.Header.Get("Ratelimit"))
		}
	}
	p.expectTotals(t, proxy.Totals{Allowed: 6})
}

func TestEncodingIsLeftToTheClient(t *testing.T) {
	url, requests := recorder(t)
	p := start(t, url, nil)
	for _, encoding := range []string{"", "br"} {
		line := ""
		if encoding != "" {
			line = "Accept-Encoding: " + encoding + "\r\n"
		}
		_, reader := p.raw(t, "GET / HTTP/1.1\r\nHost: x\r\n"+line+"\r\n")
		read(t, reader)
		got := receive(t, requests, "the request").Header
		if got.Get("Accept-Encoding") != encoding || got.Get("User-Agent") != "" {
			t.Errorf("the upstream got %v", got)
		}
	}
}
