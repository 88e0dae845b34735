package front

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// HTTPServer is the [Front] of clients that speak HTTP.
type HTTPServer struct {
	http    *http.Server
	drain   *drain
	idle    <-chan struct{}
	onDrain func()
}

// NewHTTPServer makes one that speaks TLS, unless certificates is nil.
func NewHTTPServer(h http.Handler, certificates *tls.Config, log *slog.Logger, onDrain func()) *HTTPServer {
	d := newDrain(h)
	s := &HTTPServer{http: newHTTPServer(EndOfChunks(d)), drain: d, onDrain: onDrain}
	s.http.TLSConfig = certificates
	CloseOnShutdown(s.http)
	s.http.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	return s
}

// Bound has a bound learn which connections of the server are idle. It is called before the server serves a listener of
// [Bounded.On].
func (s *HTTPServer) Bound(b *Bounded) { b.Watch(s.http) }

// Serve implements Front.
func (s *HTTPServer) Serve(l net.Listener) error {
	if s.http.TLSConfig != nil {
		return s.http.ServeTLS(l, "", "")
	}
	return s.http.Serve(l)
}

// Drain implements Front.
func (s *HTTPServer) Drain() (inFlight int64) {
	s.onDrain()
	// Connections end with the next answer, so that clients look for another server.
	s.http.SetKeepAlivesEnabled(false)
	inFlight, s.idle = s.drain.begin()
	return inFlight
}

// Shutdown implements Front. It goes on listening until the requests are answered that were in flight when the shutdown began.
func (s *HTTPServer) Shutdown(ctx context.Context) error {
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

// Bounds of what a client may send, and how slowly.
const (
	readHeaderTimeout = 10 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
)

func newHTTPServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
	}
}

// drain counts the requests in flight, to know when those that were there before the shutdown are answered.
type drain struct {
	handler http.Handler
	// state is the number of requests in flight, plus begun.
	state atomic.Int64
	idle  chan struct{}
	once  sync.Once
}

// begun in the state says that the shutdown has begun.
const begun = 1 << 62

func newDrain(h http.Handler) *drain { return &drain{handler: h, idle: make(chan struct{})} }

// ServeHTTP serves r, and counts it if the shutdown has not begun.
func (d *drain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	late := d.state.Add(1)&begun != 0
	if late {
		d.leave()
	} else {
		defer d.leave()
	}
	d.handler.ServeHTTP(w, r)
}

func (d *drain) leave() {
	if d.state.Add(-1) == begun {
		d.once.Do(func() { close(d.idle) })
	}
}

// begin begins the shutdown. It returns how many requests are in flight, and a channel that is closed when they are
// answered.
func (d *drain) begin() (inFlight int64, idle <-chan struct{}) {
	inFlight = d.state.Or(begun) &^ begun
	if inFlight == 0 {
		d.once.Do(func() { close(d.idle) })
	}
	return inFlight, d.idle
}

// CloseOnShutdown makes Shutdown close such connections. It sets the ConnState of s, and must be called before s serves.
func CloseOnShutdown(s *http.Server) {
	c := freshConnections{open: map[net.Conn]struct{}{}}
	s.ConnState = c.changed
	s.RegisterOnShutdown(c.close)
}

type freshConnections struct {
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

func (c *freshConnections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(c.open, conn)
	case c.closed:
		_ = conn.Close() // the client has gone
	default:
		c.open[conn] = struct{}{}
	}
}

func (c *freshConnections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for conn := range c.open {
		_ = conn.Close() // the client has gone
	}
}

// EndOfChunks makes a connection end with the answer to a request whose body came in chunks. The request may have said how long
// it is as well: net/http goes by the chunks and does not tell. A proxy that has passed it on and goes by the length takes what
// follows the chunks for a part of the body. An answer to that could reach another client (RFC 9112, 6.1).
func EndOfChunks(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TransferEncoding) > 0 { // never in HTTP/2
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
