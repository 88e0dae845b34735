//go:build linux

package servers_test

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/weirhq/weir/lab/interop/internal/servers"
)

// echo is a server that answers what it is sent.
func echo(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c) // until the other side has enough
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// says sends a letter, and reports whether it comes back in time.
func says(c net.Conn, within time.Duration) error {
	_ = c.SetDeadline(time.Now().Add(within))
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

// TestLink: a link hands on what comes, holds it back while it is silent, and resets all while it is cut.
func TestLink(t *testing.T) {
	t.Parallel()
	l, err := servers.NewLink(t.Context(), echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := dial(t, l.Address())
	if err := says(c, time.Minute); err != nil {
		t.Fatal(err)
	}
	l.Set(servers.Silent)
	if err := says(c, 50*time.Millisecond); err == nil {
		t.Error("a silent link has answered")
	}
	l.Set(servers.Whole)
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("what was held back did not come: %v", err)
	}
	l.Set(servers.Reset)
	if err := says(c, time.Minute); err == nil {
		t.Error("a connection that was reset goes on")
	}
	var d net.Dialer
	if c, err := d.DialContext(t.Context(), "tcp", l.Address()); err == nil { // or it is reset before that is known
		defer c.Close()
		if says(c, time.Minute) == nil {
			t.Error("a link that is cut takes connections")
		}
	}
	l.Set(servers.Whole)
	if err := says(dial(t, l.Address()), time.Minute); err != nil {
		t.Error(err)
	}
}
