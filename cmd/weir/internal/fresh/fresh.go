// Package fresh closes the connections of an HTTP server on which nothing has been sent yet, when it shuts down. The
// server itself waits up to five seconds for each of them, although no request is in flight.
package fresh

import (
	"net"
	"net/http"
	"sync"
)

// CloseOnShutdown makes Shutdown close such connections. It sets the ConnState of s, and must be called before s serves.
func CloseOnShutdown(s *http.Server) {
	c := connections{open: map[net.Conn]struct{}{}}
	s.ConnState = c.changed
	s.RegisterOnShutdown(c.close)
}

type connections struct {
	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(c.open, conn)
	case c.closed:
		_ = conn.Close() // nobody is there to be told
	default:
		c.open[conn] = struct{}{}
	}
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for conn := range c.open {
		_ = conn.Close() // nobody is there to be told
	}
}
