package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/dispatch"
	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/tiers"
)

const (
	longestLine     = 512
	mostConnections = 1000
	idleTimeout     = 5 * time.Minute
	writeTimeout    = 10 * time.Second
	acceptPause     = 50 * time.Millisecond
)

// message is a line that was read.
type message struct {
	op       opcode
	argument string
}

// conn is a connection. It keeps its peer, so that what the dispatcher knows of it goes with it.
type conn struct {
	net.Conn

	peer *dispatch.Peer
}

// reply writes one line.
func (c *conn) reply(format string, args ...any) error {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c, format+"\n", args...)
	return err
}

// server holds the limits and the connections.
type server struct {
	tiers      *tiers.Tiers
	guard      *guard.Guard
	dispatcher *dispatch.Dispatcher[*conn, message]

	mu      sync.Mutex
	closing bool
	conns   map[*conn]struct{}
	active  sync.WaitGroup
}

func newServer(clock weir.Clock, logger *slog.Logger) (*server, error) {
	o := guard.DefaultOptions()
	o.CapacityTokens, o.RefillTokensPerSecond = 20, 10
	o.MaxSoftViolations, o.HardLockout = 5, 10*time.Second
	o.Clock, o.Logger = clock, logger

	s := &server{conns: map[*conn]struct{}{}}
	var err error
	if s.tiers, err = tiers.New(tiers.Options{Guard: &o}); err != nil {
		return nil, err
	}
	if s.guard, err = guard.New(o); err != nil {
		return nil, err
	}
	s.dispatcher, err = dispatch.New(dispatch.Options[*conn, message]{
		Guard:  s.guard,
		Tiers:  s.tiers,
		Op:     func(m message) uint64 { return uint64(m.op) },
		Peer:   func(c *conn) *dispatch.Peer { return c.peer },
		Notify: notify,
		Clock:  clock,
	})
	if err != nil {
		return nil, err
	}
	for op, handler := range map[opcode]dispatch.Handler[*conn, message]{
		opPing: ping, opLogin: login, opSearch: search, opQuit: quit,
	} {
		if err := s.dispatcher.Handle(uint64(op), limits[op], handler); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *server) close() {
	_ = s.tiers.Close() // is always nil
	_ = s.guard.Close()
}

func notify(_ context.Context, c *conn, n dispatch.Notice) error {
	d := n.Decision
	if d.RetryAfter == weir.Never {
		return c.reply("REFUSED %v: %v", opcode(n.Op), d.Reason)
	}
	ms := (d.RetryAfter + time.Millisecond - 1) / time.Millisecond // rounded up: no client shall come too early
	return c.reply("REFUSED %v: %v, retry after %d ms", opcode(n.Op), d.Reason, ms)
}

func ping(_ context.Context, c *conn, _ message) error { return c.reply("PONG") }

func login(_ context.Context, c *conn, m message) error {
	if m.argument == "" {
		return c.reply("ERROR LOGIN needs a name")
	}
	return c.reply("OK welcome %s", m.argument)
}

var library = []string{"dam", "lock", "reservoir", "river", "sluice", "weir", "weirdness"}

func search(_ context.Context, c *conn, m message) error {
	var found []string
	for _, word := range library {
		if strings.Contains(word, strings.ToLower(m.argument)) {
			found = append(found, word)
		}
	}
	return c.reply("OK %d results: %s", len(found), strings.Join(found, ", "))
}

var errQuit = errors.New("the client quits")

func quit(context.Context, *conn, message) error { return errQuit }

// serve serves connections until ctx ends, and then until what has been read is answered. It closes the listener.
func (s *server) serve(ctx context.Context, listener net.Listener) error {
	end := sync.OnceFunc(func() { s.shutdown(listener) }) // the second of two waits for the first
	stop := context.AfterFunc(ctx, end)
	defer s.active.Wait()
	defer end() // also if the listener fails, or is faster than what ctx calls
	defer stop()
	for {
		accepted, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = accepted.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // such as too many open files, which passes
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
			continue
		}
		c := &conn{Conn: accepted, peer: dispatch.NewPeer(accepted.RemoteAddr())}
		if !s.add(c) {
			_ = c.Close()
			continue
		}
		s.active.Go(func() {
			defer s.remove(c)
			s.converse(ctx, c)
		})
	}
}

// shutdown accepts no more connections, and reads no more from those that are there.
func (s *server) shutdown(listener net.Listener) {
	_ = listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for c := range s.conns {
		_ = c.SetReadDeadline(time.Now())
	}
}

// add keeps a connection, unless there are too many or the server ends.
func (s *server) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || len(s.conns) >= mostConnections {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *server) remove(c *conn) {
	_ = c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// await sets how long the next line may take to come. It is not ok if the server ends.
func (s *server) await(c *conn) (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closing && c.SetReadDeadline(time.Now().Add(idleTimeout)) == nil
}

// converse dispatches the lines of a connection until it ends, one after the other.
func (s *server) converse(ctx context.Context, c *conn) {
	lines := bufio.NewReaderSize(c, longestLine)
	for s.await(c) {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			_ = c.reply("ERROR a line has at most %d bytes", longestLine)
			return
		case err != nil && (!errors.Is(err, io.EOF) || len(line) == 0):
			return
		}
		command, argument, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		err = s.dispatcher.Dispatch(ctx, c, message{parseOpcode(command), strings.TrimSpace(argument)})
		if errors.Is(err, dispatch.ErrUnknownOp) {
			err = c.reply("ERROR unknown command")
		}
		if err != nil {
			return
		}
	}
}
