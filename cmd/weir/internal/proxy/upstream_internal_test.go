package proxy

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
}

func newPipes() *pipes {
	done := make(chan struct{})
	return &pipes{conns: make(chan net.Conn), done: done, close: sync.OnceFunc(func() { close(done) })}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close()
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }

// dyingConn loses all that is written once it is dead, as where the machine at its other end has lost its power.
type dyingConn struct {
	net.Conn

	dead atomic.Bool
}

func (c *dyingConn) Write(b []byte) (int, error) {
	if c.dead.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// TestDeadConnectionsAreGivenUp: requests that come one after the other do not go the way of a dead connection of HTTP/2 for
// ever.
func TestDeadConnectionsAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := newPipes()
		server := &httptest.Server{Listener: listener, EnableHTTP2: true, Config: &http.Server{
			ReadHeaderTimeout: time.Minute,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, r.Proto)
			}),
		}}
		server.StartTLS()
		defer server.Close()
		u, wrong := ParseUpstream("https://example.com")
		if wrong != nil {
			t.Fatal(wrong)
		}
		roots := x509.NewCertPool()
		roots.AddCert(server.Certificate())
		upstream := newTransport(u, time.Second, roots)
		defer upstream.CloseIdleConnections()
		var conns []*dyingConn
		upstream.any.DialContext = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			conns = append(conns, &dyingConn{Conn: ours})
			listener.conns <- theirs
			return conns[len(conns)-1], nil
		}
		get := func() (string, error) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/", http.NoBody)
			if err != nil {
				return "", err
			}
			res, err := upstream.RoundTrip(r)
			if err != nil {
				return "", err
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			return string(text), err
		}
		if got, err := get(); got != "HTTP/2.0" || err != nil {
			t.Fatalf("%q, %v, want HTTP/2.0", got, err)
		}
		conns[0].dead.Store(true)
		start := time.Now()
		for _, err := get(); err != nil; _, err = get() { // each takes a second
			if took := time.Since(start); took > time.Minute {
				t.Fatalf("after %v: %v", took, err)
			}
		}
		if took := time.Since(start); took < pingAfter || took > pingAfter+pingTimeout+2*time.Second {
			t.Errorf("the dead connection was given up after %v", took)
		}
	})
}

// TestCallsAreNotPinged: servers of gRPC end connections that ask for signs of life while nothing is said.
func TestCallsAreNotPinged(t *testing.T) {
	all := newTransport(Upstream{URL: &url.URL{Scheme: schemeHTTPS, Host: "a"}}, 0, nil)
	if all.calls.HTTP2 != nil || !all.calls.Protocols.HTTP2() || all.any.HTTP2.SendPingTimeout == 0 || !all.any.Protocols.HTTP2() {
		t.Errorf("%+v and %+v", all.calls.HTTP2, all.any.HTTP2)
	}
	for _, c := range []struct {
		method, field, value string
		want                 *http.Transport
	}{
		{http.MethodPost, "Content-Type", "application/grpc", all.calls},
		{http.MethodPost, "Content-Type", "application/grpc+proto", all.calls},
		{http.MethodGet, "Content-Type", "application/grpc", all.any},
		{http.MethodPost, "Content-Type", "application/grpc-web", all.any},
		{http.MethodPost, "Content-Type", "application/json", all.any},
		{http.MethodGet, "Upgrade", "websocket", all.upgrades},
	} {
		r := httptest.NewRequestWithContext(t.Context(), c.method, "/", http.NoBody)
		r.Header.Set(c.field, c.value)
		if all.of(r) != c.want {
			t.Errorf("%+v", c)
		}
	}
}
