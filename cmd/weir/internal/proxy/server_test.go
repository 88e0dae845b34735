package proxy_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/weirhq/weir/cmd/weir/internal/proxy"
)

func TestShutdownFinishesWhatIsInFlight(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/socket" {
			socketEcho(w, r)
			return
		}
		close(arrived)
		<-release
		ok(w, r)
	}), func(o *proxy.Options) { o.Concurrency = 2 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	socket, _ := dial(ctx, t, p)
	roundTrip(ctx, t, socket, "hello")
	done := make(chan answer, 1)
	req := request(t, http.MethodGet, p.url, nil)
	go func() { done <- p.do(t, req) }()
	receive(t, arrived, "the request")

	p.stop()
	until(t, "new connections to be refused", func() bool {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.addr)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	roundTrip(ctx, t, socket, "still there")
	select {
	case err := <-p.done:
		t.Fatalf("Serve returned %v while a request was in flight", err)
	default:
	}
	close(release)
	if res := receive(t, done, "the answer"); res.StatusCode != http.StatusOK || res.body != "ok" {
		t.Errorf("%s %q", res.Status, res.body)
	}
	if err := receive(t, p.done, "Serve to return"); err != nil {
		t.Errorf("Serve returned %v", err)
	}
	if _, _, err := socket.Read(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("the WebSocket goes on: %v", err)
	}
	if st := p.Concurrency(); st.Remaining != 2 {
		t.Errorf("%d places are free, want 2", st.Remaining)
	}
	p.expectTotals(t, proxy.Totals{Allowed: 2})
}

func TestShutdownCutsWhatTakesTooLong(t *testing.T) {
	arrived := make(chan struct{}, 10)
	p := startFor(t, 50*time.Millisecond, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		if r.URL.Path == "/stream" {
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}), func(o *proxy.Options) {
		o.Concurrency, o.Queue = 2, 2
	})
	done := make(chan error, 3)
	send := func(method, path string, body io.Reader) {
		req := request(t, method, p.url+path, body)
		go func() {
			res, err := p.client.Do(req)
			if err == nil {
				_, err = io.ReadAll(res.Body)
				_ = res.Body.Close()
			}
			done <- err
		}()
	}
	send(http.MethodGet, "/", nil)
	send(http.MethodGet, "/stream", nil)
	receive(t, arrived, "a request")
	receive(t, arrived, "a request")
	// This one waits for a place, and the server does not see whether its client is still there.
	send(http.MethodPost, "/", strings.NewReader("body"))
	until(t, "a request to wait", func() bool { return p.Concurrency().Waiters == 1 })
	p.stop()
	if err := receive(t, p.done, "Serve to return"); err == nil || !strings.Contains(err.Error(), "--shutdown-timeout 50ms") {
		t.Errorf("Serve returned %v", err)
	}
	for range 3 {
		if receive(t, done, "a client") == nil {
			t.Error("a client believes that it has the whole response")
		}
	}
	until(t, "all places to be free", func() bool { st := p.Concurrency(); return st.Remaining == 2 && st.Waiters == 0 })
	p.expectTotals(t, proxy.Totals{Allowed: 2})
	if lines := p.log.with("level=WARN"); len(lines) != 0 {
		t.Errorf("the log says %s", p.log)
	}
}

// TestShutdownWithAClientThatDoesNotRead has an upgraded connection on which the proxy is stuck in writing.
func TestShutdownWithAClientThatDoesNotRead(t *testing.T) {
	var sent atomic.Int64
	p := start(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: flood\r\n\r\n")
		for err == nil {
			var n int
			n, err = conn.Write(make([]byte, 64<<10))
			sent.Add(int64(n))
		}
	}), func(o *proxy.Options) { o.Concurrency = 1 })
	_, reader := p.raw(t, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: flood\r\n\r\n")
	if res := read(t, reader); res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(res.Status)
	}
	last, unchanged := int64(0), 0
	until(t, "the buffers on the way to be full", func() bool {
		now := sent.Load()
		if unchanged++; now == 0 || now != last {
			last, unchanged = now, 0
		}
		return unchanged == 50
	})
	p.stop()
	if err := receive(t, p.done, "Serve to return"); err != nil {
		t.Errorf("Serve returned %v", err)
	}
	until(t, "the connection to be closed", func() bool { return p.Concurrency().Remaining == 1 })
}

func TestListenerFails(t *testing.T) {
	p, err := proxy.New(options(t, "http://127.0.0.1:1", new(logLines)))
	if err != nil {
		t.Fatal(err)
	}
	ln := listen(t, "tcp", "127.0.0.1:0")
	_ = ln.Close()
	if err := p.Serve(ln); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Serve returned %v", err)
	}
}

// certificate is one for 127.0.0.1 and example.com, and the pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return server.TLS.Certificates[0], pool
}

func TestTLS(t *testing.T) {
	pair, pool := certificate(t)
	url, requests := recorder(t)
	p := start(t, url, func(o *proxy.Options) {
		o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		o.Engine = limit(t, 3)
	})
	for _, version := range []int{1, 2} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(version == 1)
		transport.Protocols.SetHTTP2(version == 2)
		t.Cleanup(transport.CloseIdleConnections)
		p.client.Transport = transport
		res := p.do(t, request(t, http.MethodPost, p.url, strings.NewReader("body")))
		if res.ProtoMajor != version || res.body != "ok" || res.Header.Get("Ratelimit") == "" {
			t.Errorf("%s %s %q %v", res.Proto, res.Status, res.body, res.Header)
		}
		got := receive(t, requests, "the request")
		if got.body != "body" || got.Header.Get("X-Forwarded-Proto") != "https" || got.ProtoMajor != 1 {
			t.Errorf("the upstream got %s %q %v", got.Proto, got.body, got.Header)
		}
	}
	if res := p.get(t, "/"); res.StatusCode != http.StatusOK {
		t.Errorf("%s", res.Status)
	}
	if res := p.get(t, "/"); res.StatusCode != http.StatusTooManyRequests || res.ProtoMajor != 2 {
		t.Errorf("%s %s, want 429", res.Proto, res.Status)
	}
	// A client that does not speak TLS gets an answer that says so, and does not flood the log.
	lines := func() int { return len(p.log.with("level=WARN")) }
	wrong := 0
	until(t, "most of these lines to be left out", func() bool {
		_, reader := p.raw(t, "GET / HTTP/1.0\r\n\r\n")
		_, _ = io.ReadAll(reader)
		wrong++
		return wrong-lines() >= 30
	})
	if lines() == 0 {
		t.Error("nothing is logged")
	}
}

// TestStreamsOverHTTP2 has bodies go both ways at once over HTTP/2, and one of them aborted.
func TestStreamsOverHTTP2(t *testing.T) {
	pair, pool := certificate(t)
	p := start(t, upstream(t, echo), func(o *proxy.Options) {
		o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		o.Concurrency, o.UpstreamTimeout = 2, patience
	})
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	p.client.Transport = transport
	reader, writer := io.Pipe()
	res, err := p.client.Do(request(t, http.MethodPost, p.url, reader))
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := io.WriteString(writer, "part"); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != "part" {
			t.Fatalf("%q %v", got, err)
		}
	}
	_ = res.Body.Close() // resets the stream
	until(t, "the place to be free", func() bool { return p.Concurrency().Remaining == 2 })
	p.expectTotals(t, proxy.Totals{Allowed: 1, Aborted: 1})
}

func TestHTTPSUpstream(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/base/socket" {
			socketEcho(w, r)
			return
		}
		w.Header().Set("X-Proto", r.Proto)
		w.Header().Set("X-Host", r.Host)
		ok(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())

	p := start(t, server.URL+"/base", func(o *proxy.Options) { o.UpstreamRoots = roots })
	req := request(t, http.MethodGet, p.url, nil)
	req.Host = "public.test"
	if res := p.do(t, req); res.body != "ok" || res.Header.Get("X-Proto") != "HTTP/2.0" || res.Header.Get("X-Host") != "public.test" {
		t.Errorf("%s %v", res.Status, res.Header)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	socket, _ := dial(ctx, t, p)
	roundTrip(ctx, t, socket, "over HTTP/1.1")
	_ = socket.Close(websocket.StatusNormalClosure, "")

	// An upstream with a certificate that no authority has signed is not used.
	p = start(t, server.URL, nil)
	if res := p.get(t, "/"); res.StatusCode != http.StatusBadGateway {
		t.Errorf("%s, want 502", res.Status)
	}
	if lines := p.log.with("certificate"); len(lines) != 1 {
		t.Errorf("the log says %s", p.log)
	}
}

func TestUnixSocketUpstream(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.sock")
	ln := listen(t, "unix", path)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/socket" {
			socketEcho(w, r)
			return
		}
		_, _ = io.WriteString(w, r.Host+" "+r.RequestURI)
	}))
	_ = server.Listener.Close()
	server.Listener = ln
	server.Start()
	defer server.Close()
	p := start(t, "unix://"+path, nil)
	req := request(t, http.MethodGet, p.url+"/a?b", nil)
	req.Host = "public.test"
	if res := p.do(t, req); res.body != "public.test /a?b" {
		t.Errorf("%s %q", res.Status, res.body)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	socket, _ := dial(ctx, t, p)
	roundTrip(ctx, t, socket, "over a Unix socket")
}

// TestConnectionsToTheUpstreamAreUsedAgain counts the connections that many requests at a time need.
func TestConnectionsToTheUpstreamAreUsedAgain(t *testing.T) {
	const rounds, parallel, kept = 5, 64, 4 * time.Second // as long as the proxy keeps idle connections
	opened := make(chan struct{}, 10_000)
	arrived, release := make(chan struct{}, parallel), make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-release
		ok(w, r)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened <- struct{}{}
		}
	}
	server.Start()
	defer server.Close()
	p := start(t, server.URL, nil)
	p.client.Transport = &http.Transport{MaxIdleConnsPerHost: parallel}
	most, idle := 2*parallel, time.Now()
	for range rounds {
		done := make(chan error, parallel)
		for range parallel {
			req := request(t, http.MethodGet, p.url, nil)
			go func() {
				res, err := p.client.Do(req)
				if err == nil {
					_, err = io.ReadAll(res.Body)
					_ = res.Body.Close()
				}
				done <- err
			}()
		}
		for range parallel {
			receive(t, arrived, "a request")
		}
		if time.Since(idle) >= kept {
			most += parallel // the machine has stood still
		}
		idle = time.Now()
		for range parallel {
			release <- struct{}{}
		}
		for range parallel {
			if err := receive(t, done, "an answer"); err != nil {
				t.Error(err)
			}
		}
	}
	// A connection that becomes idle just after its request is needed may cost another one.
	if n := len(opened); n < parallel || n > most {
		t.Errorf("%d connections for %d requests, %d at a time", n, rounds*parallel, parallel)
	}
}

func TestRequestsAreLoggedIfAskedFor(t *testing.T) {
	p := start(t, upstream(t, ok), func(o *proxy.Options) { o.Engine, o.LogRequests = limit(t, 1), true })
	p.get(t, "/a?secret")
	p.get(t, "/b")
	until(t, "the lines", func() bool { return len(p.log.with("msg=request")) == 2 })
	lines := p.log.with("msg=request")
	for i, want := range [][]string{
		{"client=127.0.0.1", "method=GET", "path=/a ", "status=200", "bytes=2", "duration_ms=", "outcome=forwarded"},
		{"path=/b", "status=429", "outcome=refused"},
	} {
		for _, part := range want {
			if !strings.Contains(lines[i], part) {
				t.Errorf("%q lacks %q", lines[i], part)
			}
		}
	}
	if strings.Contains(p.log.String(), "secret") {
		t.Error("the query is in the log")
	}
}
