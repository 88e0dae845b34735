package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/fresh"
)

// server is an HTTP server that ends gracefully.
type server struct {
	http    *http.Server
	drain   *drain
	log     *slog.Logger
	delay   time.Duration
	timeout time.Duration
	onEnd   func() // called when the delay has passed; nil for nothing
}

func newServer(h http.Handler, log *slog.Logger, delay, timeout time.Duration) *server {
	d := newDrain(h)
	s := &server{http: newHTTPServer(d), drain: d, log: log, delay: delay, timeout: timeout}
	fresh.CloseOnShutdown(s.http)
	s.http.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	return s
}

// serve serves l until ctx ends, and then shuts down: it calls onShutdown, goes on listening until the delay has passed
// and the requests that were in flight are answered, of which it ends those that wait for permits by onEnd, and then ends
// when all others are. What takes longer than the timeout after the delay is cut off, which is an error.
func (s *server) serve(ctx context.Context, l net.Listener, onShutdown func()) error {
	failed := make(chan error, 1)
	go func() { failed <- s.http.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("weir: serving %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	onShutdown()
	// Connections end with the next answer, so that clients look for another server.
	s.http.SetKeepAlivesEnabled(false)
	inFlight, idle := s.drain.begin()
	s.log.Info("stopping", "in_flight", inFlight, "delay", s.delay.String(), "timeout", s.timeout.String())

	<-time.After(s.delay)
	if s.onEnd != nil {
		s.onEnd()
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
	defer cancel()
	select {
	case <-idle:
	case <-bounded.Done():
	}
	if s.http.Shutdown(bounded) != nil {
		_ = s.http.Close() // its errors are those of connections that are cut off
		return fmt.Errorf("weir: requests in flight were cut off, as they took longer than --shutdown-timeout %v", s.timeout)
	}
	return nil
}
