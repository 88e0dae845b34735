package proxy_test

import (
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/proxy"
)

func connect(t *testing.T, p *running) net.Conn {
	t.Helper()
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestProxyConnectionsAreBounded has clients that connect and send nothing make room for one that does, and connections that are in
// use, upgraded ones too, make none.
func TestProxyConnectionsAreBounded(t *testing.T) {
	arrived, finish := make(chan struct{}, 3), make(chan struct{})
	p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			arrived <- struct{}{}
			<-finish
		case "/upgrade":
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "echo")
			w.WriteHeader(http.StatusSwitchingProtocols)
			c, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.Copy(c, buffered)
			_ = c.Close()
		}
	}), func(o *proxy.Options) { o.Bound = front.NewBounded(3, 0, o.Logger) })
	for range 3 {
		connect(t, p)
	}
	leaves := func(path string) {
		t.Helper()
		_, reader := p.raw(t, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if a := read(t, reader); a.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", path, a.Status)
		}
		if _, err := reader.ReadByte(); !errors.Is(err, io.EOF) { // its place is free
			t.Errorf("%s: after the answer: %v", path, err)
		}
	}
	leaves("/with-silent-clients")
	upgraded := connect(t, p)
	if _, err := io.WriteString(upgraded, "GET /upgrade HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line := readSome(t, upgraded); !strings.HasPrefix(line, "HTTP/1.1 101 ") {
		t.Fatalf("the upgrade is answered by %q", line)
	}
	slow := []net.Conn{connect(t, p), connect(t, p)}
	for _, c := range slow {
		if _, err := io.WriteString(c, "GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		receive(t, arrived, "a request")
	}
	if n, err := connect(t, p).Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("there is room for a fourth connection")
	}
	if _, err := io.WriteString(upgraded, "still"); err != nil {
		t.Fatal(err)
	}
	if echo := readSome(t, upgraded); echo != "still" {
		t.Errorf("the upgraded connection says %q", echo)
	}
	close(finish)
	for _, c := range slow {
		if all, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 200 ") {
			t.Errorf("a request in flight was answered %q, %v", all, err)
		}
	}
	leaves("/afterwards")
	if len(p.log.with("connections are refused")) != 1 {
		t.Errorf("the log says %s", p.log)
	}
}

// TestProxyConnectionsOfOneAddress: what one address may have is less than all may.
func TestProxyConnectionsOfOneAddress(t *testing.T) {
	arrived, finish := make(chan struct{}, 2), make(chan struct{})
	defer close(finish)
	p := start(t, upstream(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-finish
	}), func(o *proxy.Options) { o.Bound = front.NewBounded(100, 2, o.Logger) })
	for range 2 {
		if _, err := io.WriteString(connect(t, p), "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		receive(t, arrived, "a request")
	}
	if n, err := connect(t, p).Read(make([]byte, 1)); n > 0 || err == nil {
		t.Error("there is room for a third connection of the address")
	}
}

// TestStreamsAreBounded has a client of HTTP/2 that is over its limit and takes no responses. Its requests are no more than connections
// may be, beyond one of each connection.
func TestStreamsAreBounded(t *testing.T) {
	p := start(t, upstream(t, ok), func(o *proxy.Options) {
		o.Engine, o.Bound = limit(t, 1), front.NewBounded(20, 10, o.Logger)
	})
	p.get(t, "/") // uses up the limit
	ask := func(streams int) (statuses []string) {
		t.Helper()
		conn, _ := p.raw(t, http2.ClientPreface)
		framer := http2.NewFramer(conn, conn)
		framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		for i := range streams {
			err = errors.Join(err, framer.WriteHeaders(http2.HeadersFrameParam{
				StreamID: uint32(2*i + 1), BlockFragment: fieldBlock(":method", "GET", ":scheme", "http", ":path", "/", ":authority", "x"),
				EndStream: true, EndHeaders: true,
			}))
		}
		for err == nil && len(statuses) < streams {
			var f http2.Frame
			if f, err = framer.ReadFrame(); err == nil {
				if h, ok := f.(*http2.MetaHeadersFrame); ok {
					statuses = append(statuses, h.PseudoValue("status"))
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return statuses
	}
	count := func(statuses []string) (refused int) {
		for _, status := range statuses {
			if status == "503" {
				refused++
			}
		}
		return refused
	}
	if got := ask(30); count(got) != 19 {
		t.Errorf("%d of %q, want 19 of 503", count(got), got)
	}
	if got := ask(3); count(got) != 2 {
		t.Errorf("another connection: %q, want 429 and 503 twice", got)
	}
	if res := p.get(t, "/"); res.StatusCode != http.StatusTooManyRequests {
		t.Errorf("HTTP/1.1: %s", res.Status)
	}
	if len(p.log.with("requests are refused")) != 1 {
		t.Errorf("the log says %s", p.log)
	}
}

// TestStreamsBehindWhatIsNotReadAreBounded has a client that reads nothing from its connection of HTTP/2. Its requests that are
// answered without a body are bounded likewise.
func TestStreamsBehindWhatIsNotReadAreBounded(t *testing.T) {
	came := make(chan struct{})
	p := start(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		close(came)
		_, _ = io.Copy(w, letters{})
	}), func(o *proxy.Options) { o.Engine, o.Bound = limit(t, 1), front.NewBounded(200, 100, o.Logger) })
	conn, _ := p.raw(t, http2.ClientPreface)
	framer := http2.NewFramer(conn, nil)
	err := errors.Join(
		conn.SetWriteDeadline(time.Now().Add(patience)),
		framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: math.MaxInt32}),
		framer.WriteWindowUpdate(0, math.MaxInt32-1<<16),
	)
	stream := uint32(1)
	ask := func(method string) {
		err = errors.Join(err, framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: stream, BlockFragment: fieldBlock(":method", method, ":scheme", "http", ":path", "/", ":authority", "x"),
			EndStream: true, EndHeaders: true,
		}))
		stream += 2
	}
	if ask(http.MethodGet); err != nil {
		t.Fatal(err)
	}
	<-came // so that no other request has its permit
	until(t, "requests to be refused", func() bool {
		ask(http.MethodHead)
		return err != nil || len(p.log.with("requests are refused")) > 0
	})
	if err != nil {
		t.Fatal(err)
	}
}

func readSome(t *testing.T, c net.Conn) string {
	t.Helper()
	b := make([]byte, 512)
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}
