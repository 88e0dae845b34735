//go:build !race

package grpcloop_test

import (
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirhq/weir/cmd/weir/internal/front/fronttest"
)

// memory is what the process has in use.
func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// TestRepliesOfOneReadAreBounded: a client whose calls of a few bytes have long replies, and that takes none, has no more kept for
// it than others.
func TestRepliesOfOneReadAreBounded(t *testing.T) {
	pipes := fronttest.Pipes()
	serve(t, optionsOf(t, newEchoes(false)), pipes)
	const clients, calls = 20, 100
	text := strings.Repeat("\"", 3900) // which is three times as long in the reply, and a byte in all calls but the first
	before := memory()
	for range clients {
		nc, err := pipes.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p := newPeer(t, nc)
		p.greet()
		for i := range uint32(calls) { // the first of which has all of the text
			p.headers(2*i+1, p.headOf(":method", "POST", ":scheme", "http", ":path", "/", "content-type", text), true)
		}
		go func() { p.send() }()
		for { // the replies to all of a read are made before the first is sent
			f, err := p.r.ReadFrame()
			p.must(err)
			if h, ok := f.(*http2.HeadersFrame); ok && h.StreamID == 3 {
				break
			}
		}
	}
	each := (memory() - before) / clients
	t.Logf("%d bytes for each", each)
	if each > 800<<10 {
		t.Errorf("%d bytes are kept for a client that takes no replies", each)
	}
}

// TestIdleConnectionsAreSmall: ten thousand clients that have asked once and keep their connections cost little, whatever they
// have asked.
func TestIdleConnectionsAreSmall(t *testing.T) {
	for name, fields := range map[string][]string{"a short header": nil, "a header of many fields": manyFields} {
		t.Run(name, func(t *testing.T) { idleConnections(t, fields) })
	}
}

func idleConnections(t *testing.T, fields []string) {
	t.Helper()
	pipes := fronttest.Pipes()
	serve(t, optionsOf(t, newEchoes(false)), pipes)
	const clients = 10_000
	p := newPeer(t, nopConn{}).greet()
	p.headers(1, p.head(echoMethod, fields...), false)
	p.must(p.w.WriteData(1, true, message("hello")))
	sent := p.out.Bytes()
	before := memory()
	conns, in := make([]net.Conn, clients), make([]byte, 1<<10)
	for i := range conns {
		nc, err := pipes.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = nc
		go func() { _, _ = nc.Write(sent) }()
		got := 0
		for want := 12; got < want || in[got-1] != '0'; { // the status of the call comes last
			n, err := nc.Read(in[got:])
			if got += n; err != nil {
				t.Fatal(err)
			}
		}
	}
	<-time.After(time.Second) // what is not used for so long is let go
	each := (memory() - before) / clients
	t.Logf("%d bytes for each", each)
	if each > 24<<10 {
		t.Errorf("an idle connection has %d bytes", each)
	}
	for _, nc := range conns {
		_ = nc.Close()
	}
}
