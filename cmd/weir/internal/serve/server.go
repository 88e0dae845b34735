package serve

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"

	"github.com/weirhq/weir/cmd/weir/internal/fresh"
	"github.com/weirhq/weir/cmd/weir/internal/listen"
)

// server is an HTTP server that ends gracefully: see [front].
type server struct {
	http    *http.Server
	drain   *drain
	idle    <-chan struct{}
	onDrain func()
}

// newServer makes one that speaks TLS, unless certificates is nil.
func newServer(h http.Handler, certificates *tls.Config, log *slog.Logger, onDrain func()) *server {
	d := newDrain(h)
	s := &server{http: newHTTPServer(listen.EndOfChunks(d)), drain: d, onDrain: onDrain}
	s.http.TLSConfig = certificates
	fresh.CloseOnShutdown(s.http)
	s.http.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	return s
}

// Serve implements front.
func (s *server) Serve(l net.Listener) error {
	if s.http.TLSConfig != nil {
		return s.http.ServeTLS(l, "", "")
	}
	return s.http.Serve(l)
}

// Drain implements front.
func (s *server) Drain() (inFlight int64) {
	s.onDrain()
	// Connections end with the next answer, so that clients look for another server.
	s.http.SetKeepAlivesEnabled(false)
	inFlight, s.idle = s.drain.begin()
	return inFlight
}

// Shutdown implements front. It goes on listening until the requests are answered that were in flight when the shutdown began.
func (s *server) Shutdown(ctx context.Context) error {
	select {
	case <-s.idle:
	case <-ctx.Done():
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close() // its errors are those of connections that are cut off
	}
	return err
}
