//go:build unix

package resp

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// pair is a connection to a server, and the server's end of it.
func pair(t *testing.T) (*Conn, net.Conn) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	own, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := newConn(own)
	c.poller.of(own) // on a machine of one processor too
	t.Cleanup(func() {
		c.Close()
		_ = other.Close()
	})
	return c, other
}

// ask sends a command, whose reply must not come before.
func ask(t *testing.T, c *Conn, until time.Time) {
	t.Helper()
	c.Command("PING")
	if err := c.Send(until); err != nil {
		t.Fatal(err)
	}
}

func later() time.Time { return time.Now().Add(time.Minute) }

// TestReplyIsPolledFor has replies that are there at once read by polling, whole and in parts.
func TestReplyIsPolledFor(t *testing.T) {
	c, server := pair(t)
	for i := range 100 {
		c.poller.skip = 0 // the machine may be busy
		ask(t, c, later())
		parts := []string{"$4\r\npo", "ng\r\n"}
		if i%2 == 0 {
			parts = []string{"$4\r\npong\r\n"}
		}
		go func() {
			for _, part := range parts {
				_, _ = io.WriteString(server, part)
			}
		}()
		r, err := c.ReceiveSoon()
		if text, _ := r.Text(); text != "pong" || err != nil {
			t.Fatalf("reply %d is %q, %v", i, text, err)
		}
		if polling.Load() {
			t.Fatal("polling goes on after the reply")
		}
	}
}

// TestSlowRepliesArePolledForLess has polling end in vain: ever more replies are waited for without it, until one comes soon again.
func TestSlowRepliesArePolledForLess(t *testing.T) {
	c, server := pair(t)
	p := &c.poller
	buf := make([]byte, 16)
	vainly := func() {
		t.Helper()
		if n, done, err := p.read(buf); n != 0 || done || err != nil {
			t.Fatalf("without a reply: %d, %v, %v", n, done, err)
		}
	}
	for want := 1; want <= maxSkips; want = 2*want + 1 {
		vainly()
		if p.skip != want {
			t.Fatalf("%d replies are not polled for, want %d", p.skip, want)
		}
		for range want {
			vainly()
		}
	}
	polling.Store(true)
	vainly()
	polling.Store(false)
	if p.skip != 0 {
		t.Fatal("while another goroutine polls, it was tried")
	}
	vainly()
	if p.skip != maxSkips {
		t.Fatalf("%d replies are not polled for, want %d", p.skip, maxSkips)
	}
	if _, err := io.WriteString(server, "pong"); err != nil {
		t.Fatal(err)
	}
	for done := false; !done; { // until it has arrived
		p.skip = 0
		_, done, _ = p.read(buf)
	}
	if vainly(); p.skip != 1 {
		t.Fatalf("after a reply that came soon, %d are not polled for", p.skip)
	}
}

// TestPollingEnds has a deadline pass, and the server go away, while nothing is there to read.
func TestPollingEnds(t *testing.T) {
	c, server := pair(t)
	ask(t, c, time.Now().Add(time.Millisecond))
	if _, err := c.ReceiveSoon(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("after the deadline: %v", err)
	}
	_ = server.Close()
	c.poller.skip = 0
	c.Wait(later())
	if _, err := c.ReceiveSoon(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("after the server has gone: %v", err)
	}
}
