package front

import (
	"context"
	"crypto/tls"
	"log/slog"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// HTTP is a server of HTTP as all fronts have it: with TLS or without, a bound of its connections and of requests of HTTP/2, and
// connections that end with the answer to a request in chunks and, in a shutdown, at once where nothing was asked.
type HTTP struct {
	*http.Server

	bound *Bounded
	tls   *TLS // nil if it speaks none
}

// NewHTTP makes one of a server that has a handler and its own bounds and time limits. It speaks TLS unless certificates is nil,
// and any number of connections may be open if bound is nil.
func NewHTTP(s *http.Server, certificates *tls.Config, bound *Bounded, log *slog.Logger) *HTTP {
	s.Handler = eachInTurn(s.Handler)
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, seatKey{}, SeatOf(c))
	}
	h := &HTTP{Server: s, bound: bound}
	if certificates != nil {
		h.tls = NewTLS(certificates)
		s.TLSConfig = h.tls.Config
	}
	// Each handshake that fails is a line, and each connection of HTTP/2 with an error.
	s.ErrorLog = slog.NewLogLogger(FaultLog(log).Handler(), slog.LevelWarn)
	if bound == nil {
		h.bound = NewBounded(math.MaxInt, 0, log)
	}
	h.bound.Watch(s)
	return h
}

// Serve serves the clients of a listener until the server is shut down. Its time limits hold exactly: see deadlineConn.
func (h *HTTP) Serve(l net.Listener) error {
	l = h.bound.On(deadlineListener{l})
	if h.tls != nil {
		return h.ServeTLS(handshakeListener{l, h.tls}, "", "")
	}
	return h.Server.Serve(l)
}

// HTTPServer is the [Front] of clients that speak HTTP and are answered at once.
type HTTPServer struct {
	*HTTP

	drain *drain
	idle  <-chan struct{}
}

// NewHTTPServer makes one of a handler, with what [NewHTTP] needs.
func NewHTTPServer(h http.Handler, certificates *tls.Config, bound *Bounded, log *slog.Logger) *HTTPServer {
	d := newDrain(h)
	return &HTTPServer{HTTP: NewHTTP(&http.Server{
		Handler: d, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		HTTP2: &http.HTTP2Config{WriteByteTimeout: writeTimeout}, // the end of a stream waits behind what is not taken
	}, certificates, bound, log), drain: d}
}

// Drain implements Front.
func (s *HTTPServer) Drain() (inFlight int64) {
	// Connections end with the next answer, so that clients look for another server.
	s.SetKeepAlivesEnabled(false)
	inFlight, s.idle = s.drain.begin()
	return inFlight
}

// Shutdown implements Front. It goes on listening until the requests are answered that were in flight when the shutdown began.
func (s *HTTPServer) Shutdown(ctx context.Context) error {
	select {
	case <-s.idle:
	case <-ctx.Done():
	}
	err := s.Server.Shutdown(ctx)
	if err != nil {
		_ = s.Close() // its errors are those of connections that are cut off
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
	if r.ProtoMajor > 1 {
		_ = http.NewResponseController(w).Flush() // while its client does not take what is left, it is under way
	}
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

// seatKey is that of the [Seat] of a connection in the contexts of its requests.
type seatKey struct{}

func seatIn(r *http.Request) *Seat {
	seat, _ := r.Context().Value(seatKey{}).(*Seat)
	return seat
}

// Await is for a handler of HTTP/2 that has written no body and so cannot flush its answer, which would be two frames then. It
// waits while that would wait behind what the connection does not take, so that the request is under way.
func Await(r *http.Request) { seatIn(r).await() }

// eachInTurn makes a connection end with the answer to a request whose body came in chunks. The request may have said how long
// it is as well: net/http goes by the chunks and does not tell. A proxy that has passed it on and goes by the length takes what
// follows the chunks for a part of the body. An answer to that could reach another client (RFC 9112, 6.1). So does each of
// HTTP/1.0, in which net/http takes chunks for what follows a request without a body, and does not tell either.
//
// Of HTTP/2 it handles one request of each connection, and no more besides than [Seat.Begin] has room for: a client can open
// thousands by a few bytes each, and take none of the responses. One that is refused has no body to wait for. It gets 503 or, if
// too many of these wait for their clients, a reset of its stream, for which no handler waits.
func eachInTurn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor > 1 {
			seat := seatIn(r)
			if !seat.Begin() {
				if !seat.Refuse() {
					panic(http.ErrAbortHandler)
				}
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			defer seat.End()
		} else if len(r.TransferEncoding) > 0 || r.ProtoMinor == 0 {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}
