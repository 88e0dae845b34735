package respapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
	"github.com/weirhq/weir/cmd/weir/internal/front/room"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/resp"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// Options configure a [Server].
type Options struct {
	// Limits are the policies of the WEIR commands. Required.
	Limits *live.Limits
	// Holds keep reservations. Required.
	Holds *holds.Holds
	// Password has to be given by AUTH or HELLO before anything else is answered. Default: "", none is needed.
	Password string
	// TLS makes the server speak TLS. Default: nil, it does not.
	TLS *tls.Config
	// MaxConnections is how many clients may be connected at the same time. When there are as many and one more comes, one of
	// which no command is being read or answered makes room: one that has sent none, or else the one that is silent for the
	// longest time. Default: 10,000.
	MaxConnections int
	// ConnectionsPerAddress is how many of them one address may have, or one /64 of IPv6. Default: 0, nine in ten.
	ConnectionsPerAddress int
	// IdleTimeout is how long a client may be silent between commands before its connection is closed. Default: 0, forever: a
	// silent connection costs little, a pool that finds its connections closed costs its users an error, and TCP finds out by
	// itself about clients that are gone.
	IdleTimeout time.Duration
	// ReadTimeout is how long a command may take from its first byte to its last, and a client to authenticate. Default: 30 s.
	ReadTimeout time.Duration
	// WriteTimeout is how long a client may take to read its replies when the network can hold no more of them. Default: 30 s.
	WriteTimeout time.Duration
	// Bounds are those of commands.
	Bounds resp.Limits
	// MaxLarge is how many bytes there may be of all commands together that are arriving and are longer than 16 KiB, and of long
	// replies that were not sent; one address, or a /64 of IPv6, has nine in ten of them at most. Default:
	// 64 MiB.
	MaxLarge int64
	// silence is how long a client has to be silent at first until its connection goes on with a new stack, and maxSilence how
	// long in the end: see [conn.renew]. Default: 25 ms and 30 s.
	silence, maxSilence time.Duration
	// MaxKeys is how many keys CL.THROTTLE keeps.
	MaxKeys int
	// Logger logs at level Warn the clients that are refused because there are too many or their password is wrong, at level
	// Debug the connections that are lost. Default: nothing is logged.
	Logger *slog.Logger
}

// setDefaults puts defaults in place of what is zero.
func (o *Options) setDefaults() {
	o.ReadTimeout, o.WriteTimeout = cmp.Or(o.ReadTimeout, 30*time.Second), cmp.Or(o.WriteTimeout, 30*time.Second)
	o.silence, o.maxSilence = cmp.Or(o.silence, 25*time.Millisecond), cmp.Or(o.maxSilence, 30*time.Second)
	o.MaxConnections, o.MaxLarge = cmp.Or(o.MaxConnections, 10_000), cmp.Or(o.MaxLarge, 64<<20)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Bounds = o.Bounds.WithDefaults()
}

// Server answers clients that speak the protocol of Redis. All methods are safe for concurrent use.
type Server struct {
	o        Options
	log      *slog.Logger
	commands *register
	throttle *throttle
	policies *policyCommands
	password [sha256.Size]byte
	started  time.Time
	bound    *front.Bounded
	tls      *front.TLS // nil if it speaks none
	batches  sync.Pool  // of *batch

	// ctx is that of all commands. It ends when the server cuts off what is left.
	ctx    context.Context
	cutOff context.CancelFunc

	conns    *front.Conns[*conn]
	refusing atomic.Int64 // clients that are told that there are too many
	draining atomic.Bool
	lastID   atomic.Int64
	large    room.Room // of long commands that are arriving, and of long replies that were not sent

	answered       atomic.Int64
	rejected       atomic.Int64
	protocolErrors atomic.Int64
	timedOut       atomic.Int64
	wrongPasswords atomic.Int64
	toldOfWrong    atomic.Int64 // when it was logged last that there are some, in seconds
}

// New makes a server that does not listen yet.
func New(o Options) (*Server, error) {
	o.setDefaults()
	s := &Server{
		o: o, log: o.Logger, password: sha256.Sum256([]byte(o.Password)), started: time.Now(),
		conns: front.NewConns[*conn](o.Logger),
		bound: front.NewBounded(o.MaxConnections, front.OfOne(o.MaxConnections, o.ConnectionsPerAddress), o.Logger),
	}
	s.large.Max = o.MaxLarge
	if o.TLS != nil {
		s.tls = front.NewTLS(o.TLS)
	}
	s.batches.New = func() any { return new(batch) }
	s.ctx, s.cutOff = context.WithCancel(context.Background())
	var err error
	if s.throttle, err = newThrottle(o); err != nil {
		return nil, err
	}
	s.policies = newPolicyCommands(o)
	s.commands, err = newRegister(connectionCommands{}, serverCommands{}, s.throttle, s.policies)
	return s, err
}

// Serve serves the clients of a listener, which it closes, until [Server.Shutdown]: then it returns nil.
func (s *Server) Serve(l net.Listener) error { return s.conns.Serve(l, s.accept) }

// accept begins to serve a client.
func (s *Server) accept(nc net.Conn) {
	c := &conn{
		s: s, plain: nc, nc: nc, id: s.lastID.Add(1), created: time.Now(), proto: resp.RESP2, stranger: s.o.Password != "",
		seat: s.bound.Add(nc),
	}
	c.info.Store(&nameless)
	serve := c.serve
	if c.seat == nil {
		serve = c.refuse
	}
	if !s.conns.Add(c, serve) {
		c.seat.Leave()
		_ = nc.Close()
	}
}

// mostRefusing is how many clients are told at the same time why they are not served. Others find the connection closed.
const mostRefusing = 64

// refuse tells a client that there are too many.
func (c *conn) refuse() (again bool) {
	defer c.close()
	c.s.rejected.Add(1)
	defer c.s.refusing.Add(-1)
	if c.s.refusing.Add(1) > mostRefusing || c.s.o.TLS != nil {
		return false
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(lingering))
	if _, err := c.nc.Write([]byte("-ERR max number of clients reached\r\n")); err == nil {
		c.linger()
	}
	return false
}

// clients are the connections.
func (s *Server) clients() []*conn { return s.conns.Append(nil) }

// Shutdown ends the server: it accepts no more clients, answers the commands that it has received in full, and closes the
// connections. If ctx ends before, those that are left are cut off, and its error is returned.
func (s *Server) Shutdown(ctx context.Context) error {
	s.draining.Store(true)
	s.policies.waiting.End()
	defer s.cutOff()
	left, err := s.conns.Shutdown(ctx,
		func(c *conn) { _ = c.plain.SetReadDeadline(longAgo) }, // those that wait for commands stop
		func(c *conn) {
			s.cutOff()
			_ = c.plain.Close()
		})
	if err != nil {
		return fmt.Errorf("weir: %s cut off: %w", terminal.Plural(left, "RESP connection was", "RESP connections were"), err)
	}
	return nil
}

// Drain tells that the server will shut down soon. Everything is still answered; INFO and [Server.Status] say so. Commands in
// flight are not counted.
func (s *Server) Drain() (inFlight int64) {
	s.draining.Store(true)
	return 0
}

// Status tells of the server, for people.
func (s *Server) Status() map[string]any {
	status := map[string]any{
		"connections_total": s.lastID.Load(), "commands": s.answered.Load(),
		"rejected": s.rejected.Load(), "protocol_errors": s.protocolErrors.Load(), "timeouts": s.timedOut.Load(),
		"wrong_passwords": s.wrongPasswords.Load(),
		"draining":        s.draining.Load(),
	}
	s.bound.Tell(status)
	s.throttle.status(status)
	return status
}
