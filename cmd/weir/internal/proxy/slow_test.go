package proxy_test

import (
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirhq/weir/cmd/weir/internal/proxy"
)

// clientTimeout is that of the tests whose clients are too slow.
const clientTimeout = 500 * time.Millisecond

// oneAtATime are a proxy by HTTP/1.1 and one by HTTP/2 whose upstream gets one request at a time.
func oneAtATime(t *testing.T, to string, test func(t *testing.T, p *running)) {
	t.Helper()
	change := func(o *proxy.Options) { o.Concurrency, o.Queue, o.ClientTimeout = 1, 10, clientTimeout }
	t.Run("HTTP/1.1", func(t *testing.T) { test(t, start(t, to, change)) })
	t.Run("HTTP/2", func(t *testing.T) {
		pair, pool := certificate(t)
		p := start(t, to, func(o *proxy.Options) {
			change(o)
			o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
		})
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		p.client.Transport = transport
		test(t, p)
	})
}

// TestSilentClientHoldsNoPlace: a client that sends the beginning of a body and then nothing is refused, and others have its
// place.
func TestSilentClientHoldsNoPlace(t *testing.T) {
	to := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		ok(w, r)
	})
	oneAtATime(t, to, func(t *testing.T, p *running) {
		body, writer := io.Pipe()
		defer writer.Close()
		silent := make(chan answer, 1)
		req := request(t, http.MethodPost, p.url, body)
		go func() { _, _ = io.WriteString(writer, "x") }()
		go func() { silent <- p.do(t, req) }()
		until(t, "the place to be taken", func() bool { return p.Concurrency().Remaining == 0 })
		if res := p.get(t, "/"); res.StatusCode != http.StatusOK {
			t.Errorf("another client: %s", res.Status)
		}
		if res := receive(t, silent, "the answer"); res.StatusCode != http.StatusRequestTimeout {
			t.Errorf("the silent client: %s, want 408", res.Status)
		}
		p.expectTotals(t, proxy.Totals{Allowed: 2, Rejected: 1})
	})
}

// TestDeafClientHoldsNoPlace: a client that takes nothing of an answer is cut off, and others have its place.
func TestDeafClientHoldsNoPlace(t *testing.T) {
	to := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/endless" {
			_, _ = io.Copy(w, letters{})
			return
		}
		ok(w, r)
	})
	oneAtATime(t, to, func(t *testing.T, p *running) {
		res, err := p.client.Do(request(t, http.MethodGet, p.url+"/endless", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if other := p.get(t, "/"); other.StatusCode != http.StatusOK {
			t.Errorf("another client: %s", other.Status)
		}
		p.expectTotals(t, proxy.Totals{Allowed: 2, Aborted: 1})
	})
}

// TestDeafConnectionHoldsNoPlace: a client whose streams of HTTP/2 may get all there is, and which reads nothing from their
// connection, is cut off likewise.
func TestDeafConnectionHoldsNoPlace(t *testing.T) {
	to := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/endless" {
			_, _ = io.Copy(w, letters{})
			return
		}
		ok(w, r)
	})
	p := start(t, to, func(o *proxy.Options) { o.Concurrency, o.Queue, o.ClientTimeout = 1, 10, clientTimeout })
	conn, _ := p.raw(t, http2.ClientPreface)
	framer := http2.NewFramer(conn, nil)
	if err := errors.Join(
		framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: math.MaxInt32}),
		framer.WriteWindowUpdate(0, math.MaxInt32-1<<16),
		framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: 1, BlockFragment: fieldBlock(":method", "GET", ":scheme", "http", ":path", "/endless", ":authority", "x"),
			EndStream: true, EndHeaders: true,
		}),
	); err != nil {
		t.Fatal(err)
	}
	until(t, "the place to be taken", func() bool { return p.Concurrency().Remaining == 0 })
	if other := p.get(t, "/"); other.StatusCode != http.StatusOK {
		t.Errorf("another client: %s", other.Status)
	}
	p.expectTotals(t, proxy.Totals{Allowed: 2, Aborted: 1})
}

// TestSilentClientHoldsNoConnection: the connection of a client that was too slow ends, also where the server would read the rest
// of its body, and so does that of one that takes nothing of responses that the server has written.
func TestSilentClientHoldsNoConnection(t *testing.T) {
	p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/large" {
			_, _ = w.Write(make([]byte, 1<<16))
			return
		}
		ok(w, r)
	}), func(o *proxy.Options) { o.ClientTimeout = clientTimeout })
	_, reader := p.raw(t, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx")
	if res := read(t, reader); res.StatusCode != http.StatusRequestTimeout {
		t.Errorf("%s, want 408", res.Status)
	}
	if _, err := reader.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection of a silent client: %v", err)
	}
	deaf, _ := p.raw(t, "")
	var err error
	for err == nil {
		_, err = io.WriteString(deaf, strings.Repeat("GET /large HTTP/1.1\r\nHost: x\r\n\r\n", 100))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection of a client that takes nothing stays")
	}
	conn, reader := p.raw(t, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
	read(t, reader)
	<-time.After(2 * clientTimeout) // this is how long it is idle
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Error(err)
	}
	if res := read(t, reader); res.body != "ok" {
		t.Errorf("a connection that was idle: %s %s", res.Status, res.body)
	}
}

// TestSilentStreamGoesOn: once the upstream has answered, a client may be silent for longer, as that of a stream which waits.
func TestSilentStreamGoesOn(t *testing.T) {
	to := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(w, r.Body)
	})
	oneAtATime(t, to, func(t *testing.T, p *running) {
		body, writer := io.Pipe()
		res, err := p.client.Do(request(t, http.MethodPost, p.url, body))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		<-time.After(3 * clientTimeout) // this is how silent it is
		_, _ = io.WriteString(writer, "late")
		_ = writer.Close()
		if got, err := io.ReadAll(res.Body); string(got) != "late" || err != nil {
			t.Errorf("%q %v", got, err)
		}
	})
}

// TestSlowBodiesOfRefusedRequests: a client that does not send its body has the answer that does not depend on it, also where it
// has little patience, and loses its connection, so that it keeps none from others.
func TestSlowBodiesOfRefusedRequests(t *testing.T) {
	// Less than what is waited for the rest of a body, and enough for a busy machine: it is for the head and the answer, too.
	const patience = 250 * time.Millisecond
	arrived, release := make(chan struct{}), make(chan struct{})
	to := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-release
		ok(w, r)
	})
	crowd := start(t, to, func(o *proxy.Options) { o.Concurrency, o.ClientTimeout = 1, patience })
	crowd.raw(t, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	receive(t, arrived, "the first request")
	defer close(release)
	var clients sync.WaitGroup
	defer clients.Wait()
	limited := start(t, to, func(o *proxy.Options) { o.Engine, o.ClientTimeout = limit(t, 1), patience })
	limited.do(t, request(t, http.MethodTrace, limited.url, nil)) // uses up the limit
	free := start(t, to, func(o *proxy.Options) { o.MaxBody, o.ClientTimeout = 10, patience })
	for _, c := range []struct {
		p      *running
		method string
		status int
	}{
		{limited, http.MethodPost, http.StatusTooManyRequests},
		{crowd, http.MethodPost, http.StatusServiceUnavailable},
		{free, http.MethodPost, http.StatusRequestEntityTooLarge},
		{free, http.MethodTrace, http.StatusMethodNotAllowed},
	} {
		for _, framing := range []string{
			"Content-Length: 100\r\n\r\n", "Content-Length: 100\r\n\r\nx", "Expect: 100-continue\r\nContent-Length: 100\r\n\r\n",
			"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n",
		} {
			if c.status == http.StatusRequestEntityTooLarge && strings.Contains(framing, "chunked") {
				continue // how long it is cannot be known
			}
			clients.Go(func() {
				_, reader := c.p.raw(t, c.method+" / HTTP/1.1\r\nHost: x\r\n"+framing)
				if res := read(t, reader); res.StatusCode != c.status || !res.Close {
					t.Errorf("%d, %q: %s, close %t", c.status, framing, res.Status, res.Close)
				}
				if _, err := reader.ReadByte(); !errors.Is(err, io.EOF) {
					t.Errorf("%d, %q: after the answer: %v, want the end of the connection", c.status, framing, err)
				}
			})
		}
	}
}
