package etcd

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// failing is a listener as that of etcd is: after an error it takes no connection any more.
type failing struct {
	net.Listener

	err error
}

func (l *failing) Accept() (net.Conn, error) { return nil, l.err }

// TestPeersAreAcceptedAfterAnError: where a connection cannot be taken, as there are too many open files, later ones are.
func TestPeersAreAcceptedAfterAnError(t *testing.T) {
	full := &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	first, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, begun := first.Addr().String(), 1
	listen := func() (net.Listener, error) {
		if begun++; begun == 2 { // it cannot for a moment
			return nil, full
		}
		return new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	}
	l := &peerListener{listen: listen, log: slog.New(slog.DiscardHandler), now: &failing{first, full}, done: make(chan struct{})}
	accepted := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_ = c.Close()
		}
		accepted <- err
	}()
	for {
		if c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address); err == nil {
			_ = c.Close()
		}
		select {
		case err := <-accepted:
			if err != nil || begun < 3 { // more, where something else had the port for a moment
				t.Errorf("after %d listeners: %v", begun, err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("closed: %v", err)
			}
			return
		case <-time.After(time.Millisecond): // it listens anew meanwhile
		}
	}
}
