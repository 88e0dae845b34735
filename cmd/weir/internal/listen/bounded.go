package listen

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Bounded bounds how many connections a server has open at a time. When there are as many and one more comes, one that is not in
// use makes room: so nobody is locked out by clients that connect and send nothing, or that keep connections for requests which
// never come. Only while all of them are in use is the new one refused; the time limits of the server bound how long that
// lasts. The connections of one address are bounded in the same way, so that it cannot use up those of all. All methods are
// safe for concurrent use.
type Bounded struct {
	most, mostOfOne int
	log             *slog.Logger
	begun           time.Time

	mu     sync.Mutex
	open   int
	all    waiting
	owners map[netip.Prefix]*owner
	told   time.Time // when it was logged last that there are too many

	refused, evicted int64
}

// owner is an address that has connections.
type owner struct {
	network netip.Prefix
	open    int
	waiting waiting
}

// patience is how long a client that has asked nothing is not made to make room as long as another one is idle: longer
// than a client takes who has something to ask.
const patience = time.Second

// quietTime is how long nothing is logged of connections that were refused, after something was.
const quietTime = time.Minute

// NewBounded returns a bound of most connections, 1 at least, and of mostOfOne for each address, 0 for no such bound. An IPv6
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
		most: most, mostOfOne: min(mostOfOne, most), log: logger, begun: time.Now(), owners: make(map[netip.Prefix]*owner),
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

// Counts returns how many connections are open, how many had to make room, and how many were refused.
func (b *Bounded) Counts() (open int, evicted, refused int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open, b.evicted, b.refused
}

// Add gives a place to a connection that was accepted, nil if there is none: then it is to be closed. The connection that makes
// room for it is closed.
func (b *Bounded) Add(c net.Conn) *Seat {
	s := &Seat{conn: c, b: b, place: [2]int{-1, -1}}
	network := networkOf(c.RemoteAddr())
	b.mu.Lock()
	now := b.now()
	var leaving *Seat
	of := b.owners[network]
	ofOne := of != nil && of.open >= b.mostOfOne && b.mostOfOne < b.most
	if ofOne || b.open >= b.most {
		among := &b.all
		if ofOne { // then nobody else makes room
			among = &of.waiting
		}
		if leaving = among.longest(now); leaving == nil {
			b.refuse(c, ofOne) // unlocks
			return nil
		}
		b.evicted++
		leaving.leave()
	}
	b.seat(s, network, now)
	b.mu.Unlock()
	if leaving != nil {
		_ = leaving.conn.Close() // nobody is there to be told
	}
	return s
}

// seat gives a place to a connection of a network, behind all others on which nothing was asked yet. b.mu is held.
func (b *Bounded) seat(s *Seat, network netip.Prefix, now int64) {
	if network.IsValid() {
		of := b.owners[network]
		if of == nil {
			of = &owner{network: network, waiting: waiting{idle: idle{of: 1}}}
			b.owners[network] = of
		}
		of.open++
		s.owner = of
	}
	b.open++
	s.seated = true
	s.since.Store(now)
	s.fresh.Store(true)
	for i, in := range s.waiting() {
		if in != nil {
			s.first[i] = in.fresh.PushBack(s)
		}
	}
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
