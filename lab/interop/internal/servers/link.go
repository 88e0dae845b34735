//go:build linux

package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Cut is how a link is cut.
type Cut int

// What a link can be.
const (
	Whole  Cut = iota
	Reset      // connections are reset, and new ones too
	Silent     // nothing comes through until the link is whole: then all that was sent does
)

// Link is an address that leads to another one, and can be cut.
type Link struct {
	target   string
	listener net.Listener
	wait     sync.WaitGroup

	mu      sync.Mutex
	how     Cut
	closed  bool
	changed chan struct{} // closed when the link is cut or mended
	open    map[net.Conn]struct{}
}

// NewLink makes a link to an address. Close closes it.
func NewLink(ctx context.Context, target string) (*Link, error) {
	ctx = context.WithoutCancel(ctx)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("a link: %w", err)
	}
	l := &Link{target: target, listener: listener, changed: make(chan struct{}), open: make(map[net.Conn]struct{})}
	l.wait.Go(func() {
		for {
			c, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				l.wait.Go(func() { l.serve(ctx, c) })
			}
		}
	})
	return l, nil
}

// Address is where the link begins.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Set cuts the link, or mends it.
func (l *Link) Set(how Cut) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.how = how
	if how == Reset {
		for c := range l.open {
			reset(c)
		}
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// Close ends all connections.
func (l *Link) Close() {
	_ = l.listener.Close() // there is nothing else to do about it
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.Set(Reset)
	l.wait.Wait()
}

func (l *Link) serve(ctx context.Context, c net.Conn) {
	defer reset(c)
	if !l.enter(c) || !l.passable() {
		return
	}
	defer l.leave(c)
	server, err := (&net.Dialer{Timeout: time.Minute}).DialContext(ctx, "tcp", l.target)
	if err != nil {
		return
	}
	defer reset(server)
	if !l.enter(server) {
		return
	}
	defer l.leave(server)
	var back sync.WaitGroup
	back.Go(func() { l.pass(c, server) })
	l.pass(server, c)
	back.Wait()
}

// pass hands on what comes until either side has ended, and ends both.
func (l *Link) pass(to, from net.Conn) {
	defer reset(to)
	defer reset(from)
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if !l.passable() {
			return
		}
		if n > 0 {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *Link) enter(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.how == Reset || l.closed {
		return false
	}
	l.open[c] = struct{}{}
	return true
}

func (l *Link) leave(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}

// passable waits while the link is silent, and reports whether connections go on.
func (l *Link) passable() bool {
	for {
		l.mu.Lock()
		how, changed := l.how, l.changed
		l.mu.Unlock()
		if how != Silent {
			return how == Whole
		}
		<-changed
	}
}

// reset ends a connection at once.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // it is closed then as any other is
	}
	_ = c.Close()
}
