package fresh_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/fresh"
)

// TestShutdownDoesNotWaitForUnusedConnections has a client that connects and says nothing. Without this package a server
// waits five seconds for it.
func TestShutdownDoesNotWaitForUnusedConnections(t *testing.T) {
	accepted := make(chan struct{}, 2) // the connection is new, and closed
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.NotFoundHandler()}
	fresh.CloseOnShutdown(s)
	changed := s.ConnState
	s.ConnState = func(c net.Conn, state http.ConnState) {
		changed(c, state)
		accepted <- struct{}{}
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	<-accepted
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if err = s.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
		_ = s.Close()
	}
	if _, err = conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection answers %v, want EOF", err)
	}
	if err = <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
