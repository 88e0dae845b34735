package listen

import (
	"net"
	"net/http"
	"sync/atomic"
)

// On returns a listener whose connections count, until they are closed. Those for which there is no room are closed, unanswered.
// Several listeners may have one bound.
func (b *Bounded) On(l net.Listener) net.Listener { return boundedListener{l, b} }

// Watch has the bound learn from a server which of its connections are idle. It wraps the ConnState that the server has, and
// must be called before the server serves, with a listener of [Bounded.On].
func (b *Bounded) Watch(s *http.Server) {
	before := s.ConnState
	s.ConnState = func(c net.Conn, state http.ConnState) {
		changed(c, state)
		if before != nil {
			before(c, state)
		}
	}
}

// SeatOf is the place of a connection of a listener of [Bounded.On], or of one over it that tells its NetConn, as those of TLS
// do: nil if it is neither.
func SeatOf(c net.Conn) *Seat {
	if counted := countedOf(c); counted != nil {
		return counted.seat
	}
	return nil
}

func countedOf(c net.Conn) *boundedConn {
	if secure, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secure.NetConn()
	}
	counted, _ := c.(*boundedConn)
	return counted
}

type boundedListener struct {
	net.Listener

	b *Bounded
}

// boundedConn is a connection, and its place.
type boundedConn struct {
	net.Conn

	seat *Seat
	used atomic.Bool // by HTTP
}

// Accept implements net.Listener.
func (l boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if seat := l.b.Add(c); seat != nil {
			return &boundedConn{Conn: c, seat: seat}, nil
		}
		_ = c.Close() // nobody is there to be told
	}
}

// changed is told of the states of the connections of a server.
func changed(c net.Conn, state http.ConnState) {
	counted := countedOf(c)
	if counted == nil {
		return
	}
	switch state {
	case http.StateActive, http.StateHijacked:
		if !counted.used.Swap(true) {
			counted.seat.Use()
		}
	case http.StateIdle:
		if counted.used.Swap(false) {
			counted.seat.Rest()
		}
	case http.StateNew, http.StateClosed: // it waits since it was accepted; and its place is given back by Close
	}
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.seat.Leave()
	return c.Conn.Close()
}
