package listen

import (
	"container/list"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Bounded bounds how many connections an HTTP server has open at a time. When there are as many and one more comes, one on
// which no request is being answered makes room: so nobody is shut out by clients that connect and send nothing, or that keep
// connections for requests which never come. Only while a request is being read or answered on every one of them is the new
// one closed, unanswered; the timeouts of the server bound how long that lasts. The connections of one address are bounded in
// the same way, so that it cannot use up those of all. All methods are safe for concurrent use.
type Bounded struct {
	most, mostOfOne int
	log             *slog.Logger

	mu     sync.Mutex
	open   map[net.Conn]*boundedConn
	all    waiting
	owners map[netip.Prefix]*owner
	told   time.Time // when it was logged last that there are too many

	refused, evicted int64
}

// waiting are connections on which no request is being answered.
type waiting struct {
	fresh list.List // of those on which nothing was sent yet, the one that has waited longest in front
	idle  list.List // of those between two requests, likewise
}

// owner is an address that has connections.
type owner struct {
	network netip.Prefix
	open    int
	waiting waiting
}

// boundedConn is a connection, and where it waits.
type boundedConn struct {
	net.Conn

	b     *Bounded
	once  sync.Once
	owner *owner // nil if its address is not known
	// in are the list of all and that of its owner, nil while a request is being answered.
	in    [2]*list.List
	place [2]*list.Element
	since time.Time
}

// patience is how long a client that has sent nothing is not made to make room as long as another one is idle: longer
// than a client takes who has something to ask.
const patience = time.Second

// quietTime is how long nothing is logged of connections that were refused, after something was.
const quietTime = time.Minute

// NewBounded answers a bound of most connections, 1 at least, and of mostOfOne for each address, 0 for no such bound. An IPv6
// address counts with all of its /64. Logger is told at level Warn, at most once a minute, that connections are refused; nil is
// nobody.
func NewBounded(most, mostOfOne int, logger *slog.Logger) *Bounded {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	most = max(most, 1)
	if mostOfOne < 1 {
		mostOfOne = most
	}
	return &Bounded{
		most: most, mostOfOne: min(mostOfOne, most), log: logger, open: make(map[net.Conn]*boundedConn),
		owners: make(map[netip.Prefix]*owner),
	}
}

// OfOne is how many of most connections one address may have, if it is not said by asked: nine in ten, which leaves some to
// others and does not hold back a proxy in front.
func OfOne(most, asked int) int {
	if asked > 0 {
		return asked
	}
	const tenth = 10
	return most - most/tenth
}

// On answers a listener whose connections count. Several listeners may have one bound.
func (b *Bounded) On(l net.Listener) net.Listener { return boundedListener{l, b} }

// Watch has the bound learn from a server which of its connections are idle. It wraps the ConnState that the server has, and
// must be called before the server serves, with a listener of [Bounded.On].
func (b *Bounded) Watch(s *http.Server) {
	before := s.ConnState
	s.ConnState = func(c net.Conn, state http.ConnState) {
		b.changed(c, state)
		if before != nil {
			before(c, state)
		}
	}
}

// Counts answers how many connections are open, how many had to make room, and how many were refused.
func (b *Bounded) Counts() (open int, evicted, refused int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open), b.evicted, b.refused
}

type boundedListener struct {
	net.Listener

	b *Bounded
}

// Accept implements net.Listener.
func (l boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if counted := l.b.add(c); counted != nil {
			return counted, nil
		}
		_ = c.Close() // nobody is there to be told
	}
}

// add counts a connection, and answers nil if there is no room for it.
func (b *Bounded) add(c net.Conn) *boundedConn {
	counted := &boundedConn{Conn: c, b: b}
	network := networkOf(c.RemoteAddr())
	b.mu.Lock()
	var leaving *boundedConn
	of := b.owners[network]
	ofOne := of != nil && of.open >= b.mostOfOne && b.mostOfOne < b.most
	if ofOne || len(b.open) >= b.most {
		among := &b.all
		if ofOne { // then nobody else makes room
			among = &of.waiting
		}
		if leaving = among.longest(); leaving == nil {
			b.refuse(c, ofOne) // unlocks
			return nil
		}
		b.evicted++
		b.forget(leaving)
	}
	b.own(counted, network)
	b.open[c] = counted
	b.wait(counted, false)
	b.mu.Unlock()
	if leaving != nil {
		_ = leaving.Conn.Close() // nobody is there to be told
	}
	return counted
}

// own says whose a connection is.
func (b *Bounded) own(c *boundedConn, network netip.Prefix) {
	if !network.IsValid() {
		return
	}
	of := b.owners[network]
	if of == nil {
		of = &owner{network: network}
		b.owners[network] = of
	}
	of.open++
	c.owner = of
}

// networkOf is what an address counts as, the zero prefix if it is not known.
func networkOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	const network = 64
	address := tcp.AddrPort().Addr().Unmap().WithZone("")
	p, err := address.Prefix(min(network, address.BitLen()))
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// refuse counts a connection for which there is no room, unlocks b.mu, and tells of it if that is due.
func (b *Bounded) refuse(c net.Conn, ofOne bool) {
	b.refused++
	due := time.Since(b.told) >= quietTime
	if due {
		b.told = time.Now()
	}
	b.mu.Unlock()
	switch {
	case due && ofOne:
		b.log.Warn("connections of an address are refused: it has as many open as one may have, and all of them in use",
			"connections", b.mostOfOne, "client", c.RemoteAddr().String(), "address", c.LocalAddr().String())
	case due:
		b.log.Warn("connections are refused: as many as may be are open, and all of them in use",
			"connections", b.most, "address", c.LocalAddr().String())
	}
}

// longest is the connection that makes room: one that has had the time to send something and did not; or else the one
// that is idle for the longest time; or else the one that was opened first. It is nil if all are in use.
func (w *waiting) longest() *boundedConn {
	first := front(&w.fresh)
	if first != nil && time.Since(first.since) >= patience {
		return first
	}
	if idle := front(&w.idle); idle != nil {
		return idle
	}
	return first
}

func front(l *list.List) *boundedConn {
	if l.Len() == 0 {
		return nil
	}
	c, _ := l.Front().Value.(*boundedConn)
	return c
}

// wait moves a connection to the end of the lists where it waits now, out of those where it was.
func (b *Bounded) wait(c *boundedConn, idle bool) {
	b.use(c)
	c.since = time.Now()
	c.waitIn(0, &b.all, idle)
	if c.owner != nil {
		c.waitIn(1, &c.owner.waiting, idle)
	}
}

func (c *boundedConn) waitIn(i int, w *waiting, idle bool) {
	c.in[i] = &w.fresh
	if idle {
		c.in[i] = &w.idle
	}
	c.place[i] = c.in[i].PushBack(c)
}

// use takes a connection out of the lists where it is.
func (b *Bounded) use(c *boundedConn) {
	for i, in := range c.in {
		if in != nil {
			in.Remove(c.place[i])
			c.in[i], c.place[i] = nil, nil
		}
	}
}

func (b *Bounded) forget(c *boundedConn) {
	b.use(c)
	delete(b.open, c.Conn)
	if of := c.owner; of != nil {
		if of.open--; of.open == 0 {
			delete(b.owners, of.network)
		}
	}
}

// changed is told of the states of the connections of a server.
func (b *Bounded) changed(c net.Conn, state http.ConnState) {
	if secure, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secure.NetConn() // of TLS
	}
	counted, ok := c.(*boundedConn)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open[counted.Conn] != counted { // it has made room already
		return
	}
	switch state {
	case http.StateActive, http.StateHijacked:
		b.use(counted)
	case http.StateIdle:
		b.wait(counted, true)
	case http.StateNew, http.StateClosed: // it waits since it was accepted; and is forgotten by Close
	}
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.once.Do(func() {
		c.b.mu.Lock()
		defer c.b.mu.Unlock()
		if c.b.open[c.Conn] == c {
			c.b.forget(c)
		}
	})
	return c.Conn.Close()
}
