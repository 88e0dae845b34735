package proxy_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/proxy"
)

// paths is an upstream that notes which paths it is asked for, and with which bodies.
type paths struct {
	mu   sync.Mutex
	seen []string
}

func (p *paths) handle(w http.ResponseWriter, r *http.Request) {
	var body []byte
	if r.URL.Path == "/early" {
		_ = http.NewResponseController(w).EnableFullDuplex() // answer at once
	} else {
		body, _ = io.ReadAll(r.Body)
	}
	p.mu.Lock()
	p.seen = append(p.seen, r.URL.Path+" "+string(body))
	p.mu.Unlock()
	ok(w, r)
}

func (p *paths) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := p.seen
	p.seen = nil
	return seen
}

// TestAmbiguousRequests sends over one connection what two servers might cut into requests differently.
func TestAmbiguousRequests(t *testing.T) {
	const closes = 0 // after an answer
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, c := range []struct {
		name, sent string
		status     int    // of the first answer
		seen       string // by the upstream
	}{
		{"two lengths", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody" + smuggled, 400, ""},
		{"two lengths in one", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4, 5\r\n\r\nbody" + smuggled, 400, ""},
		{"a signed length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +4\r\n\r\nbody" + smuggled, 400, ""},
		{"a negative length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n" + smuggled, 400, ""},
		{"a space before the colon", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 4\r\n\r\nbody" + smuggled, 400, ""},
		{"two hosts", "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n" + smuggled, 400, ""},
		{"no host", "GET / HTTP/1.1\r\n\r\n" + smuggled, 400, ""},
		{"a bad host", "GET / HTTP/1.1\r\nHost: x y\r\n\r\n" + smuggled, 400, ""},
		{"an unknown coding", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + smuggled, 501, ""},
		{"two codings", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" +
			smuggled, 501, ""},
		{"a newline in a name", "GET / HTTP/1.1\r\nHost: x\r\nX-\nA: b\r\n\r\n" + smuggled, 400, ""},
		{"a null in a value", "GET / HTTP/1.1\r\nHost: x\r\nX-A: \x00\r\n\r\n" + smuggled, 400, ""},
		{"a space in the target", "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n" + smuggled, 400, ""},
		{"a relative target", "GET a HTTP/1.1\r\nHost: x\r\n\r\n" + smuggled, 400, ""},
		{"a zero byte in the path", "GET /admin%00/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 400, ""},
		{"a bad escape", "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n" + smuggled, 400, ""},
		{"an unknown version", "GET / HTTP/1.2.3\r\nHost: x\r\n\r\n" + smuggled, 400, ""},
		{"a header too long", "GET / HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("x", 80_000) + "\r\n\r\n" + smuggled, 431, ""},
		{"a malformed chunk", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\nzz\r\n" + smuggled, 400, "?"},
		{"a chunk without an end", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody" + smuggled, 400, "?"},
		// The coding counts, and the upstream gets it alone: it sees the same request as the proxy.
		{"length and coding", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"4\r\nbody\r\n0\r\n\r\n", 200, "/ body"},
		// Before it stood a server that goes by the length: what follows is a part of the body to it.
		{"length, coding and what follows", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"0\r\n\r\n" + smuggled, closes, "/ "},
		{"coding, length and what follows", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: CHUNKED\r\nContent-Length: 6\r\n\r\n" +
			"0\r\n\r\n" + smuggled + smuggled, closes, "/ "},
		// net/http does not know the coding in HTTP/1.0, and goes by the length.
		{"chunks in HTTP/1.0", "POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" +
			"24\r\n" + smuggled, closes, "/ 24\r\n"},
		{"chunks without a length in HTTP/1.0", "GET / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" +
			smuggled, closes, "/ "},
		{"refused, with length and coding", "TRACE / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"0\r\n\r\n" + smuggled, 405, ""},
		{"equal lengths", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nbody", 200, "/ body"},
		{"a folded line", "POST / HTTP/1.1\r\nHost: x\r\nX-A: 1\r\n Content-Length: 9\r\nContent-Length: 4\r\n\r\nbody", 200, "/ body"},
		// The answer is given before the body is read, and what is wrong with the body is found only then.
		{"a malformed chunk after the answer", "POST /early HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" +
			smuggled, 0, "?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var service paths
			p := start(t, upstream(t, service.handle), nil)
			conn, reader := p.raw(t, c.sent)
			res, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close() // reads it to its end
			if c.status != 0 && res.StatusCode != c.status {
				t.Fatalf("%s, want %d", res.Status, c.status)
			}
			if c.status == http.StatusOK {
				_ = conn.Close()
			}
			// The connection ends, without an answer to what was smuggled.
			rest, err := io.ReadAll(reader)
			if c.status != http.StatusOK && err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("the connection stays open: %v", err)
			}
			if strings.Contains(string(rest), "HTTP/1.1 ") {
				t.Errorf("a second answer: %q", rest)
			}
			p.stop()
			if err := receive(t, p.done, "the end"); err != nil {
				t.Error(err)
			}
			for _, got := range service.take() {
				if strings.Contains(got, "smuggled") || c.seen != "?" && got != c.seen {
					t.Errorf("the upstream got %q, want %q", got, c.seen)
				}
			}
		})
	}
}

// TestHTTP2WithinHTTP1: HTTP/2 cannot begin on a connection on which HTTP/1.1 was spoken.
func TestHTTP2WithinHTTP1(t *testing.T) {
	var service paths
	p := start(t, upstream(t, service.handle), nil)
	_, reader := p.raw(t, "GET / HTTP/1.1\r\nHost: x\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	for _, want := range []int{http.StatusOK, http.StatusHTTPVersionNotSupported} {
		if res := read(t, reader); res.StatusCode != want {
			t.Errorf("%s, want %d", res.Status, want)
		}
	}
	if rest, err := io.ReadAll(reader); strings.Contains(string(rest), "HTTP/") || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if seen := service.take(); len(seen) != 1 {
		t.Errorf("the upstream got %q", seen)
	}
}

// TestEarlyAnswerEndsTheConnection has an upstream that answers before it reads the body, and the body is malformed. What
// follows in the connection must not be taken for a request.
func TestEarlyAnswerEndsTheConnection(t *testing.T) {
	var service paths
	p := start(t, upstream(t, service.handle), nil)
	conn, reader := p.raw(t, "POST /early HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n")
	res := read(t, reader)
	if res.StatusCode != http.StatusOK || !res.Close {
		t.Fatalf("%s %v, want 200 and the connection closed", res.Status, res.Header)
	}
	_, err := io.WriteString(conn, "zz\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
	if err == nil {
		_, err = io.ReadAll(reader)
	}
	if err != nil && !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") && !strings.Contains(err.Error(), "pipe") {
		t.Errorf("the connection stays open: %v", err)
	}
	p.stop()
	if err := receive(t, p.done, "the end"); err != nil {
		t.Error(err)
	}
	for _, got := range service.take() {
		if strings.Contains(got, "smuggled") {
			t.Errorf("the upstream got %q", got)
		}
	}
	p.expectTotals(t, proxy.Totals{Allowed: 1})
}

// TestInformationalAnswersKeepNoConnection: the connection ends with the answer to a request in chunks, also after others such as
// 103.
func TestInformationalAnswersKeepNoConnection(t *testing.T) {
	for _, early := range []int{http.StatusContinue, http.StatusProcessing, http.StatusEarlyHints} {
		var service paths
		p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(early)
			w.WriteHeader(early)
			service.handle(w, r)
		}), nil)
		_, reader := p.raw(t, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"+
			"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n")
		for range 2 {
			if res := read(t, reader); res.StatusCode != early || len(res.Header["Connection"]) > 0 {
				t.Errorf("%s %v, want %d", res.Status, res.Header, early)
			}
		}
		if res := read(t, reader); res.StatusCode != http.StatusOK || !res.Close {
			t.Errorf("%d: %s %v, want 200 and the connection closed", early, res.Status, res.Header)
		}
		if rest, err := io.ReadAll(reader); len(rest) > 0 || err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%d: after the answer: %q, %v", early, rest, err)
		}
		if got := service.take(); len(got) != 1 || got[0] != "/ body" {
			t.Errorf("%d: the upstream got %q", early, got)
		}
	}
}

// TestOneAnswerInHTTP10: a client of HTTP/1.0 takes an informational answer for the answer.
func TestOneAnswerInHTTP10(t *testing.T) {
	p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		ok(w, r)
	}), nil)
	for _, c := range []struct {
		version string
		first   int
	}{{"HTTP/1.0", http.StatusOK}, {"HTTP/1.1", http.StatusEarlyHints}} {
		_, reader := p.raw(t, "GET / "+c.version+"\r\nHost: x\r\n\r\n")
		if res := read(t, reader); res.StatusCode != c.first {
			t.Errorf("%s: %s, want %d", c.version, res.Status, c.first)
		}
	}
}

// TestConnectionsAreUsedAgain makes sure that the care above does not cost honest clients their connections.
func TestConnectionsAreUsedAgain(t *testing.T) {
	var service paths
	p := start(t, upstream(t, service.handle), func(o *proxy.Options) { o.MaxBody, o.UpstreamTimeout = 4, patience })
	conn, reader := p.raw(t, "")
	for range 20 {
		_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"+
			"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		for range 2 {
			if res := read(t, reader); res.body != "ok" || res.Close {
				t.Fatalf("%q close=%v", res.body, res.Close)
			}
		}
	}
	p.expectTotals(t, proxy.Totals{Allowed: 40})
}
