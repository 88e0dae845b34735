package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/weirhq/weir/cmd/weir/internal/proxy"
)

// socketEcho is an upstream that answers each message of a WebSocket with the same.
func socketEcho(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	for {
		kind, message, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		if conn.Write(r.Context(), kind, message) != nil {
			return
		}
	}
}

// dial opens a WebSocket through the proxy, and returns the header of the response.
func dial(ctx context.Context, t *testing.T, p *running) (*websocket.Conn, http.Header) {
	t.Helper()
	//nolint:bodyclose // the connection has taken the body
	conn, res, err := websocket.Dial(ctx, p.url+"/socket", &websocket.DialOptions{HTTPClient: p.client})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn, res.Header
}

func roundTrip(ctx context.Context, t *testing.T, conn *websocket.Conn, text string) {
	t.Helper()
	if err := conn.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
	if _, got, err := conn.Read(ctx); err != nil || string(got) != text {
		t.Fatalf("%q %v, want %q", got, err, text)
	}
}

func TestWebSocketsPassWhileNewOnesAreRefused(t *testing.T) {
	p := start(t, upstream(t, socketEcho), func(o *proxy.Options) { o.Engine, o.Concurrency = limit(t, 2), 2 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var conns []*websocket.Conn
	for range 2 {
		conn, header := dial(ctx, t, p)
		if header.Get("Ratelimit") == "" {
			t.Errorf("no RateLimit in %v", header)
		}
		conns = append(conns, conn)
	}
	const handshake = "GET /socket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
	_, reader := p.raw(t, handshake)
	if res := read(t, reader); res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the third WebSocket: %s, want 429", res.Status)
	}
	for i, conn := range conns {
		for j := range 10 {
			roundTrip(ctx, t, conn, fmt.Sprintf("message %d of %d: %s", j, i, strings.Repeat("x", 1000*j)))
		}
	}
	if got := p.Concurrency().Remaining; got != 0 {
		t.Errorf("%d places are free while two WebSockets are open", got)
	}
	if err := conns[0].Close(websocket.StatusNormalClosure, "done"); err != nil {
		t.Error(err)
	}
	_ = conns[1].CloseNow() // the other just goes away
	until(t, "both places to be free", func() bool { return p.Concurrency().Remaining == 2 })
	p.expectTotals(t, proxy.Totals{Allowed: 2, Refused: 1})
}

func TestUpstreamEndsAWebSocket(t *testing.T) {
	p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err == nil {
			_ = conn.CloseNow()
		}
	}), func(o *proxy.Options) { o.Concurrency = 1 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, _ := dial(ctx, t, p)
	if _, _, err := conn.Read(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("the WebSocket goes on: %v", err)
	}
	_ = conn.CloseNow()
	until(t, "the place to be free", func() bool { return p.Concurrency().Remaining == 1 })
}

// switching is an upstream that switches protocols with this response and then echoes.
func switching(response string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, response)
		_, _ = io.Copy(conn, buffered)
	}
}

func TestOtherProtocolsPass(t *testing.T) {
	p := start(t, upstream(t, switching("HTTP/1.1 101 Switching Protocols\r\nConnection: keep-alive, Upgrade\r\n"+
		"Upgrade: Rot13/1\r\nX-Own: 1\r\n\r\nearly ")), nil)
	// The first bytes come together with the request.
	conn, reader := p.raw(t, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: rot13/1\r\n\r\nfirst ")
	res := read(t, reader)
	if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != "Rot13/1" ||
		res.Header.Get("X-Own") != "1" || res.Header.Get("Ratelimit") == "" {
		t.Fatalf("%s %v", res.Status, res.Header)
	}
	_, _ = io.WriteString(conn, "second")
	got := make([]byte, len("early first second"))
	if _, err := io.ReadFull(reader, got); err != nil || string(got) != "early first second" {
		t.Fatalf("%q %v", got, err)
	}
	// What is still on its way arrives after one side has ended.
	half, ok := conn.(interface{ CloseWrite() error })
	if !ok {
		t.Fatalf("%T has no CloseWrite", conn)
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(reader); len(rest) > 0 || err != nil {
		t.Errorf("%q %v", rest, err)
	}
	p.expectTotals(t, proxy.Totals{Allowed: 1})
}

func TestUpgradesToHTTPAreNotPassedOn(t *testing.T) {
	got := make(chan http.Header, 10)
	p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header
		ok(w, r)
	}), nil)
	for _, protocol := range []string{"h2c", "H2C", "websocket, h2c", "TLS/1.0", "HTTP/2.0"} {
		_, reader := p.raw(t, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "+protocol+
			"\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n")
		if res := read(t, reader); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, want 200", protocol, res.Status)
		}
		if h := receive(t, got, "the request"); h.Get("Upgrade")+h.Get("Connection")+h.Get("HTTP2-Settings") != "" {
			t.Errorf("%s: the upstream got %v", protocol, h)
		}
	}
}

func TestSwitchesThatNobodyAskedFor(t *testing.T) {
	for _, c := range []struct{ request, response string }{
		{"", "Connection: Upgrade\r\nUpgrade: websocket\r\n"},
		{"", ""},
		{"Connection: Upgrade\r\nUpgrade: websocket\r\n", "Connection: Upgrade\r\nUpgrade: other\r\n"},
		{"Connection: Upgrade\r\nUpgrade: websocket\r\n", "Upgrade: websocket\r\n"},
		{"Connection: Upgrade\r\nUpgrade: websocket\r\n", ""},
		{"Upgrade: websocket\r\n", "Connection: Upgrade\r\nUpgrade: websocket\r\n"},
	} {
		closed := make(chan struct{})
		p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
			switching("HTTP/1.1 101 Switching Protocols\r\n"+c.response+"\r\n")(w, r)
			close(closed)
		}), func(o *proxy.Options) { o.Concurrency = 1 })
		_, reader := p.raw(t, "GET / HTTP/1.1\r\nHost: x\r\n"+c.request+"\r\n")
		res := read(t, reader)
		if res.StatusCode != http.StatusBadGateway {
			t.Errorf("%q answered with %q: %s, want 502", c.request, c.response, res.Status)
		}
		receive(t, closed, "the connection to the upstream to be closed")
	}
	p := start(t, upstream(t, ok), nil)
	_, reader := p.raw(t, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: a\x80b\r\n\r\n")
	if res := read(t, reader); res.StatusCode != http.StatusBadRequest {
		t.Errorf("an upgrade that does not print: %s, want 400", res.Status)
	}
}
