package front_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front"
)

// pipes is a listener whose connections are in memory, so that time can be virtual.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func newPipes() *pipes { return &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// client is the other end of a connection.
type client struct {
	net.Conn

	read *bufio.Reader
}

func (p *pipes) dial() *client { return p.dialFrom("") }

// dialFrom is dial of a client that has an address.
func (p *pipes) dialFrom(address string) *client {
	ours, theirs := net.Pipe()
	p.accepted <- from{theirs, address}
	synctest.Wait()
	return &client{ours, bufio.NewReader(ours)}
}

// from is a connection whose other end has an address, unless that is "".
type from struct {
	net.Conn

	address string
}

func (f from) RemoteAddr() net.Addr {
	if f.address == "" {
		return f.Conn.RemoteAddr()
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(f.address), 4711))
}

// ask sends a request and returns the first line of the response, or "closed".
func (c *client) ask(path string) string {
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: weir\r\n\r\n", path); err != nil {
		return "closed"
	}
	return c.answer()
}

func (c *client) answer() string {
	response, err := http.ReadResponse(c.read, nil)
	if err != nil {
		return "closed"
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.Status
}

// lost reports whether the server has closed the connection.
func (c *client) lost() bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Nanosecond))
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	_, err := c.Read(make([]byte, 1))
	return err == io.EOF //nolint:errorlint // a pipe answers it as it is
}

// bounded is a server that has no more than most connections, in virtual time. Requests for /held are answered when held is
// closed.
func bounded(t *testing.T, most, mostOfOne int, logged io.Writer) (p *pipes, b *front.Bounded, held chan struct{}) {
	t.Helper()
	p, held = newPipes(), make(chan struct{})
	b = front.NewBounded(most, mostOfOne, slog.New(slog.NewTextHandler(logged, nil)))
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/held" {
				<-held
			}
		}),
	}
	b.Watch(server)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(b.On(p)) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return p, b, held
}

func counts(t *testing.T, b *front.Bounded, open int, evicted, refused int64) {
	t.Helper()
	synctest.Wait()
	if o, e, r := b.Counts(); o != open || e != evicted || r != refused {
		t.Errorf("%d open, %d evicted, %d refused, want %d, %d, %d", o, e, r, open, evicted, refused)
	}
}

// TestBoundedSilentClientsMakeRoom: clients that connect and send nothing keep no other client out.
func TestBoundedSilentClientsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, _ := bounded(t, 3, 0, io.Discard)
		customer := p.dial()
		if got := customer.ask("/"); got != "200 OK" {
			t.Error(got)
		}
		synctest.Wait() // until the server knows that it is idle
		silent := []*client{p.dial(), p.dial()}
		time.Sleep(time.Second) // virtual: those two have had the time to send something
		later := p.dial()
		if got := later.ask("/"); got != "200 OK" {
			t.Errorf("a newcomer: %s", got)
		}
		if !silent[0].lost() || silent[1].lost() || customer.lost() {
			t.Error("not the one that was silent for the longest time has made room")
		}
		counts(t, b, 3, 1, 0)
		if got := customer.ask("/"); got != "200 OK" {
			t.Errorf("the first customer: %s", got)
		}
		for range 100 {
			p.dial()
		}
		counts(t, b, 3, 101, 0)
	})
}

// TestBoundedIdleBeforeFresh: a client that has only just connected stays, if another one is idle.
func TestBoundedIdleBeforeFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, _ := bounded(t, 3, 0, io.Discard)
		first, second := p.dial(), p.dial()
		for _, c := range []*client{first, second, first} { // so that second is idle for longer
			c.ask("/")
			synctest.Wait()
			time.Sleep(time.Nanosecond) // virtual
		}
		fresh := p.dial()
		newcomer := p.dial()
		if got := fresh.ask("/"); got != "200 OK" || first.lost() || !second.lost() {
			t.Errorf("%s, or not the longest idle one has made room", got)
		}
		if got := newcomer.ask("/"); got != "200 OK" {
			t.Error(got)
		}
		counts(t, b, 3, 1, 0)
	})
}

// TestBoundedRefusesWhenAllAreInUse: requests that are being answered are not cut off.
func TestBoundedRefusesWhenAllAreInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		p, b, held := bounded(t, 2, 0, &logged)
		answers := make(chan string, 2)
		for range 2 {
			go func(c *client) { answers <- c.ask("/held") }(p.dial())
		}
		synctest.Wait()
		for range 5 {
			if c := p.dial(); !c.lost() {
				t.Error("more connections than there may be")
			}
		}
		counts(t, b, 2, 0, 5)
		close(held)
		for range 2 {
			if got := <-answers; got != "200 OK" {
				t.Errorf("a request in flight: %s", got)
			}
		}
		synctest.Wait()
		if got := p.dial().ask("/"); got != "200 OK" {
			t.Errorf("after that: %s", got)
		}
		if n := strings.Count(logged.String(), "connections are refused"); n != 1 {
			t.Errorf("logged %d times in a minute:\n%s", n, logged.String())
		}
	})
}

// TestBoundedConnectionsOfOneAddress: an address that uses all of its connections keeps out only itself; its own idle ones make
// room for it. A client that has one IPv6 address has all of its network.
func TestBoundedConnectionsOfOneAddress(t *testing.T) {
	for name, c := range map[string]struct {
		own   func(i int) string
		other string
	}{
		"IPv4":        {func(int) string { return "192.0.2.1" }, "192.0.2.2"},
		"IPv4 in two": {func(i int) string { return []string{"192.0.2.1", "::ffff:192.0.2.1"}[i%2] }, "::ffff:192.0.2.2"},
		"IPv6":        {func(i int) string { return fmt.Sprintf("2001:db8:0:1::%x", i+1) }, "2001:db8:0:2::1"},
		"IPv6, zones": {func(i int) string { return fmt.Sprintf("fe80::1%%eth%d", i) }, "192.0.2.1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var logged bytes.Buffer
			p, b, held := bounded(t, 5, 3, &logged)
			answers := make(chan string, 3)
			idle := p.dialFrom(c.own(0))
			if got := idle.ask("/"); got != "200 OK" {
				t.Errorf("%s: %s", name, got)
			}
			for i := range 3 { // the last one takes the place of the idle one
				go func(c *client) { answers <- c.ask("/held") }(p.dialFrom(c.own(i)))
				synctest.Wait()
			}
			if !idle.lost() {
				t.Errorf("%s: an idle connection of its own makes no room", name)
			}
			for i := range 20 {
				if !p.dialFrom(c.own(i)).lost() {
					t.Errorf("%s: connection %d: more than an address may have", name, i)
				}
			}
			counts(t, b, 3, 1, 20)
			for range 2 {
				if got := p.dialFrom(c.other).ask("/"); got != "200 OK" {
					t.Errorf("%s: another client: %s", name, got)
				}
			}
			if n := strings.Count(logged.String(), "connections of an address are refused"); n != 1 {
				t.Errorf("%s: logged %d times in a minute:\n%s", name, n, logged.String())
			}
			close(held)
			for range 3 {
				if got := <-answers; got != "200 OK" {
					t.Errorf("%s: a request in flight: %s", name, got)
				}
			}
			synctest.Wait()
			if got := p.dialFrom(c.own(9)).ask("/"); got != "200 OK" {
				t.Errorf("%s: after that: %s", name, got)
			}
		})
	}
}

// TestBoundedForgetsWhatIsClosed: connections that end make room, and one that is closed twice does so once.
func TestBoundedForgetsWhatIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, _ := bounded(t, 0, 0, io.Discard) // which is 1
		for range 10 {
			c := p.dial()
			if got := c.ask("/"); got != "200 OK" {
				t.Error(got)
			}
			_ = c.Close()
			_ = c.Close()
			counts(t, b, 0, 0, 0)
		}
	})
}

// TestBoundedBelowTLS: the connections of TLS are those that the bound has counted.
func TestBoundedBelowTLS(t *testing.T) {
	b := front.NewBounded(1, 0, nil)
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := b.On(l)
	defer listener.Close()
	server := new(http.Server)
	b.Watch(server)
	dialed, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer dialed.Close()
	c, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	server.ConnState(wrapped{c}, http.StateActive)
	other, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		if c, err := listener.Accept(); err == nil {
			t.Error("a second connection was accepted")
			_ = c.Close()
		}
	}()
	if _, err := other.Read(make([]byte, 1)); err == nil { // until it is closed
		t.Error("a second connection was answered")
	}
	if open, evicted, refused := b.Counts(); open != 1 || evicted != 0 || refused != 1 {
		t.Errorf("%d open, %d evicted, %d refused", open, evicted, refused)
	}
	_ = listener.Close()
	<-accepted
}

// wrapped is what *tls.Conn is here.
type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }
