// Package grpcloop serves gRPC over HTTP/2 for servers of short unary calls. One goroutine for each connection reads frames,
// decides calls where they were read, and writes the replies to all calls of a read at once. Calls that may wait have a
// goroutine each. Streams, and methods that the loop does not know, go to an http.Handler.
package grpcloop

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/front/room"
)

// Calls are the unary methods that the loop serves by itself. Its methods are called by several goroutines.
type Calls interface {
	// Method returns the number of a method, from 0 on, by its full name "/package.Service/Method".
	Method(name string) (number int, ok bool)
	// Waits reports whether a call may wait, for a store or another process. The answer may change at any time.
	Waits() bool
	// Answer appends the reply to the only message of a call. If the message did not arrive as it should, fault says why, and
	// request is empty. The error is that of the call: it has a status of gRPC, and what was appended is dropped. Answer must
	// not keep request.
	Answer(ctx context.Context, method int, request []byte, fault *FaultError, reply []byte) ([]byte, error)
}

// FaultError is what is wrong with the message of a call.
type FaultError struct{ Reason string }

// Error implements [error].
func (f *FaultError) Error() string { return f.Reason }

// Options are those of a [Server]. All are required, but TLS.
type Options struct {
	Calls Calls
	// Others serves all other calls, as [google.golang.org/grpc.Server.ServeHTTP] does.
	Others http.Handler
	// TLS makes the server speak TLS.
	TLS *tls.Config
	// IdleTimeout is how long a client may have no call in flight, and Age how long a connection may be open, before it is told
	// to go away; the age has a tenth more or less, by chance. 0 is forever.
	IdleTimeout, Age time.Duration
	// MaxStreams is how many calls of one connection may be in flight.
	MaxStreams int
	// MaxMessage is how many bytes the message of a unary call may have, and MaxOther a message of another call.
	MaxMessage, MaxOther int
	Log                  *slog.Logger
}

// Server serves connections.
type Server struct {
	o       Options
	Waiting Waiting
	Unread  Unread
	Streams Streams
	tls     *front.TLS // nil if it speaks none
	conns   *front.Conns[*conn]
	looked  sync.Once // the first listener is served

	mu     sync.Mutex
	owners map[netip.Prefix]*owner
}

// owner is an address that has connections. As of these, nine in ten of what all have are for one of them.
type owner struct {
	network netip.Prefix
	of      int // connections and streams, for which it is kept. s.mu guards it

	waiting, streams, unread atomic.Int64
	beginning                chan struct{} // has an item for each handler that is at its beginning
}

// mostBeginning is how many handlers of an owner may be at their beginning.
const mostBeginning = 32

// own is the owner of one thing more.
func (s *Server) own(network netip.Prefix) *owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[network]
	if o == nil {
		o = &owner{network: network, beginning: make(chan struct{}, mostBeginning)}
		s.owners[network] = o
	}
	o.of++
	return o
}

// disown is called when one of the things of an owner has ended.
func (s *Server) disown(o *owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.of--; o.of == 0 {
		delete(s.owners, o.network)
	}
}

// New makes a server.
func New(o Options) *Server {
	s := &Server{o: o, owners: make(map[netip.Prefix]*owner), conns: front.NewConns[*conn](o.Log), Waiting: Waiting{
		Few: 64, Max: 10_000, Patience: 10 * time.Second,
	}, Unread: Unread{Room: room.Room{Max: 64 << 20}, Own: 16 << 10, Patience: 30 * time.Second}, Streams: Streams{Max: 10_000}}
	if o.TLS != nil {
		s.tls = front.NewTLS(o.TLS)
		if config := s.tls.Config; !slices.Contains(config.NextProtos, http2.NextProtoTLS) {
			config.NextProtos = append(slices.Clone(config.NextProtos), http2.NextProtoTLS)
		}
	}
	return s
}

// Serve serves the clients of a listener, which it closes, until Shutdown: then it returns nil.
func (s *Server) Serve(l net.Listener) error {
	s.looked.Do(func() { go s.sweep() })
	return s.conns.Serve(l, func(nc net.Conn) {
		if c := newConn(s, nc); !s.conns.Add(c, c.serve) {
			_ = nc.Close() // nothing was asked
		}
	})
}

// sweepEvery is how often connections are looked at for time limits, which are longer by as much.
const sweepEvery = 250 * time.Millisecond

// sweep looks at all connections now and then, until the server has ended: one timer serves all.
func (s *Server) sweep() {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	var conns []*conn
	for {
		select {
		case <-ticker.C:
		case <-s.conns.Over():
			return
		}
		conns = s.conns.Append(conns[:0])
		now := time.Now()
		for _, c := range conns {
			c.sweep(now)
		}
		clear(conns)
	}
}

// Shutdown accepts no more connections, tells clients to go away, and returns when all calls have been answered. What is left
// when ctx ends is cut off, and its error is returned.
func (s *Server) Shutdown(ctx context.Context) error {
	_, err := s.conns.Shutdown(ctx, (*conn).leave, (*conn).abort)
	return err
}

// ageOf is how long a connection may be open, 0 for ever.
func (s *Server) ageOf() time.Duration {
	if s.o.Age <= 0 {
		return 0
	}
	tenth := s.o.Age / 10
	return s.o.Age - tenth + rand.N(2*tenth+1) //nolint:gosec // it spreads the ends of connections, and keeps no secret
}

// Waiting bounds the calls whose message has not come yet. It comes with the header of the call as a rule; but a client can begin
// calls and never say what it wants.
type Waiting struct {
	Few      int64 // calls that may wait as long as they like
	Max      int64 // beyond that they are refused, and beyond nine in ten of it those of one address
	Patience time.Duration

	n atomic.Int64
}

// Calls returns how many calls wait.
func (w *Waiting) Calls() int64 { return w.n.Load() }

// Streams bounds the calls that [Options.Others] serves. Each costs a few goroutines for as long as its client likes.
type Streams struct {
	Max int64 // more are refused, and more than nine in ten of it of one address

	n atomic.Int64
}

// Unread bounds what is kept of frames, headers and messages that are not complete, of messages that are not processed, of calls
// that are not answered and their headers, and of replies that clients do not take.
type Unread struct {
	room.Room // of all connections together, and nine in ten of it for those of one address

	Own      int64         // bytes that a connection may have whatever there is of others
	Patience time.Duration // from the first byte of a message, a header or a frame to its last

	cut  atomic.Uint64
	told atomic.Int64 // when it was logged last that a connection was cut off, in seconds
}

// CutOff returns how many connections were closed for what their clients did.
func (u *Unread) CutOff() uint64 { return u.cut.Load() }

// logCutOff logs that a connection is cut off, at most once a minute.
func (s *Server) logCutOff(client net.Addr, why string) {
	n := s.Unread.cut.Add(1)
	now, last := time.Now().Unix(), s.Unread.told.Load()
	if now-last >= 60 && s.Unread.told.CompareAndSwap(last, now) {
		s.o.Log.Warn("a gRPC client was cut off", "reason", why, "client", client.String(), "cut_off_in_all", n)
	}
}

var errNoALPN = errors.New("weir: the client does not offer h2")

// handshake is that of TLS, if the server speaks it.
func (s *Server) handshake(ctx context.Context, nc net.Conn) (net.Conn, *tls.ConnectionState, error) {
	if s.tls == nil {
		return nc, nil, nil
	}
	secure, err := s.tls.Handshake(ctx, nc)
	if err != nil {
		return nil, nil, err
	}
	state := secure.ConnectionState()
	if state.NegotiatedProtocol != http2.NextProtoTLS {
		return nil, nil, errNoALPN
	}
	return secure, &state, nil
}
