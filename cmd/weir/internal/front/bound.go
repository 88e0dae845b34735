package front

import (
	"container/list"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/cmd/weir/internal/front/room"
	"github.com/weirhq/weir/internal/heap"
)

// Bounded bounds how many connections a server has open at a time. When there are as many and one more comes, one that is not in
// use makes room: so clients that connect and send nothing, or that keep connections for requests which never come, lock out
// no other. Only while all of them are in use is the new one refused; the time limits of the server bound how long that
// lasts. The connections of one address are bounded in the same way, so that it cannot use up those of all. Connections with many
// requests at a time, as of HTTP/2, have as many more of them in all as there may be connections: see [Seat.Begin]. All methods
// are safe for concurrent use.
type Bounded struct {
	most, mostOfOne int
	log             *slog.Logger
	begun           time.Time

	mu     sync.Mutex
	open   int
	all    waiting
	owners map[netip.Prefix]*owner
	told   time.Time // when it was logged last that there are too many
	ended  bool      // a server shuts down: there is no place any more

	refused, evicted int64

	requests atomic.Int64 // beyond the first of each connection
	refusals atomic.Int64 // of such requests, while their clients do not take them
	excess   atomic.Int64 // how many such requests were refused
}

// owner is an address that has connections.
type owner struct {
	network  netip.Prefix
	open     int
	waiting  waiting
	requests atomic.Int64 // of those of all
}

// patience is how long a client that has asked nothing is not made to make room as long as another one is idle: longer
// than a client takes who has something to ask.
const patience = time.Second

// quietTime is how long nothing is logged of connections that were refused, after something was.
const quietTime = time.Minute

// NewBounded returns a bound of most connections, 1 at least, and of mostOfOne for each address, 0 for no such bound. An IPv6
// address counts with all of its /64. Logger logs at level Warn, at most once a minute, that connections are refused; it may be
// nil.
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

// OfOne is how many of most connections one address may have, if it is not said by asked: see [room.OfOne].
func OfOne(most, asked int) int {
	if asked > 0 {
		return asked
	}
	return int(room.OfOne(int64(most)))
}

// Counts returns how many connections are open, how many had to make room, and how many were refused.
func (b *Bounded) Counts() (open int, evicted, refused int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open, b.evicted, b.refused
}

// Tell adds the counts to the status of a front.
func (b *Bounded) Tell(status map[string]any) {
	open, evicted, refused := b.Counts()
	status["connections"], status["connections_evicted"], status["connections_refused"] = open, evicted, refused
}

// TellRequests is Tell for a front of HTTP, with how many requests were refused by [Seat.Begin].
func (b *Bounded) TellRequests(status map[string]any) {
	b.Tell(status)
	status["requests_refused"] = b.excess.Load()
}

// Add gives a place to a connection that was accepted, nil if there is none: then it is to be closed. The connection that makes
// room for it is closed.
func (b *Bounded) Add(c net.Conn) *Seat {
	s := &Seat{conn: c, b: b, place: [2]int{-1, -1}, writing: make(chan struct{}, 1)}
	network := NetworkOf(c.RemoteAddr())
	b.mu.Lock()
	if b.ended {
		b.mu.Unlock()
		return nil
	}
	now := b.now()
	var leaving *Seat
	of := b.owners[network]
	ofOne := of != nil && of.open >= b.mostOfOne && b.mostOfOne < b.most
	if ofOne || b.open >= b.most {
		among := &b.all
		if ofOne { // then no other one makes room
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
		_ = leaving.conn.Close() // the client has gone
	}
	return s
}

// seat gives a place to a connection of a network, behind all others on which nothing was asked yet. b.mu is held.
func (b *Bounded) seat(s *Seat, network netip.Prefix, now int64) {
	if network.IsValid() {
		of := b.owners[network]
		if of == nil {
			of = &owner{network: network}
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

// NetworkOf is what an address counts as: itself, or a /64 of IPv6; the zero prefix if it is not known.
func NetworkOf(a net.Addr) netip.Prefix { return clientip.Prefixes{}.Mask(addressOf(a)) }

// addressOf is the address, the zero Addr if it is not known.
func addressOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return tcp.AddrPort().Addr()
}

// refuse counts a connection for which there is no room, unlocks b.mu, and tells of it if that is due.
func (b *Bounded) refuse(c net.Conn, ofOne bool) {
	b.refused++
	due := b.due()
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

// due reports whether it is to be logged that there are too many, which it was not for some time. b.mu is held.
func (b *Bounded) due() bool {
	due := time.Since(b.told) >= quietTime
	if due {
		b.told = time.Now()
	}
	return due
}

// Seat is the place of a connection among those of a [Bounded]. The server of the connection says when it is in use: while it
// is, it does not make room for others. At first nothing was asked on it, and it is not in use. All methods are safe for
// concurrent use; there must be no more calls of [Seat.Rest] than there were of [Seat.Use]. They cost little, and take a lock
// only where another connection has looked for room meanwhile. Those of a nil Seat do nothing.
type Seat struct {
	conn  net.Conn
	b     *Bounded
	owner *owner // nil if the address is not known

	requests atomic.Int64  // between Begin and End
	writing  chan struct{} // full while something is written

	uses  atomic.Int64 // how many are going on; far below 0 when it has made room
	since atomic.Int64 // when it began to wait, as a time of b
	// fresh says that nothing was asked on it yet. parked says that it was in use when it was seen last, so that it is nowhere
	// among those that wait, and has to be put there again.
	fresh, parked atomic.Bool

	// The rest is guarded by b.mu.
	seated bool
	key    int64            // the since by which it has its places
	first  [2]*list.Element // its places among those on which nothing was asked: of all, and of its owner
	place  [2]int           // its places among the idle ones, -1 if it is none of them
}

// gone is what uses have when it cannot be used any more.
const gone = math.MinInt64 / 2

// Use says that something is being asked or answered on the connection from now on, until [Seat.Rest]. It is false if the
// connection has made room already: then it is closed, and it is no use to answer.
func (s *Seat) Use() bool {
	if s == nil {
		return true
	}
	if s.uses.Add(1) <= 0 {
		return false
	}
	if s.fresh.Load() {
		s.b.mu.Lock()
		s.begin()
		s.b.mu.Unlock()
	}
	return true
}

// Rest says that what [Seat.Use] has begun is at its end.
func (s *Seat) Rest() {
	if s == nil {
		return
	}
	s.since.Store(s.b.now())
	if s.uses.Add(-1) == 0 && s.parked.Load() {
		s.b.mu.Lock()
		s.wait()
		s.b.mu.Unlock()
	}
}

// Touch says that something was asked on the connection, of which it is not known how long it lasts.
func (s *Seat) Touch() {
	switch {
	case s == nil:
	case s.fresh.Load():
		s.Use()
		s.Rest()
	default:
		s.since.Store(s.b.now())
	}
}

// Begin begins one of several requests of the connection, until [Seat.End], which is to be called if it is true. It is false if
// there are too many: there is room for one of each connection, and for as many more as there may be connections, of all together
// and of those of one address.
func (s *Seat) Begin() bool {
	if s == nil || s.requests.Add(1) == 1 {
		return true
	}
	b, own := s.b, int64(0)
	all := b.requests.Add(1)
	if s.owner != nil {
		own = s.owner.requests.Add(1)
	}
	if all <= int64(b.most) && own <= int64(b.mostOfOne) {
		return true
	}
	s.End()
	b.excess.Add(1)
	b.mu.Lock()
	due := b.due()
	b.mu.Unlock()
	if due {
		b.log.Warn("requests are refused: their connections have as many as may be",
			"of_all", b.most, "of_an_address", b.mostOfOne, "client", s.conn.RemoteAddr().String())
	}
	return false
}

// Refuse waits until something can be written to the connection: then the client can be told that [Seat.Begin] was false. It is
// false, and the client is not to be told, if as many wait already as there may be connections.
func (s *Seat) Refuse() bool {
	refusals := &s.b.refusals
	defer refusals.Add(-1)
	if refusals.Add(1) > int64(s.b.most) {
		return false
	}
	s.await()
	return true
}

// await waits while something is written to the connection: as long as its client does not take that, or until the connection
// ends.
func (s *Seat) await() {
	if s != nil {
		s.writing <- struct{}{}
		<-s.writing
	}
}

// End ends what [Seat.Begin] has begun.
func (s *Seat) End() {
	if s == nil || s.requests.Add(-1) == 0 {
		return
	}
	s.b.requests.Add(-1)
	if s.owner != nil {
		s.owner.requests.Add(-1)
	}
}

// Waits reports whether nothing is being asked or answered on the connection, so that it may have to make room.
func (s *Seat) Waits() bool { return s != nil && s.uses.Load() == 0 }

// Leave gives the place back, when the connection is closed. Nothing is left to do for a second call.
func (s *Seat) Leave() {
	if s == nil {
		return
	}
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.leave()
}

// begin notes that something is asked for the first time. b.mu is held.
func (s *Seat) begin() {
	if !s.seated || !s.fresh.Load() {
		return
	}
	for i, in := range s.waiting() {
		if in != nil {
			in.fresh.Remove(s.first[i])
			s.first[i] = nil
		}
	}
	s.fresh.Store(false)
	s.parked.Store(true)
}

// wait puts it among those that are idle, if it is. b.mu is held.
func (s *Seat) wait() {
	if !s.seated || !s.parked.Load() || s.uses.Load() != 0 {
		return
	}
	s.parked.Store(false)
	s.key = s.since.Load()
	for i, in := range s.waiting() {
		if in != nil {
			in.idle.Push(idle{s, i})
		}
	}
}

// park takes it out of those that are idle, as it is in use. b.mu is held.
func (s *Seat) park() {
	for i, in := range s.waiting() {
		if in != nil {
			in.idle.Remove(s.place[i])
		}
	}
	s.parked.Store(true)
	s.wait() // if its use has ended meanwhile, before that could be seen
}

// moved gives it the place of its time, if that is another one. b.mu is held.
func (s *Seat) moved() bool {
	since := s.since.Load()
	if since <= s.key {
		return false
	}
	s.key = since
	for i, in := range s.waiting() {
		if in != nil {
			in.idle.Fix(s.place[i])
		}
	}
	return true
}

// claim makes sure that it is not used any more, unless it is in use.
func (s *Seat) claim() bool { return s.uses.CompareAndSwap(0, gone) }

// leave takes it out of everywhere. b.mu is held.
func (s *Seat) leave() {
	if !s.seated {
		return
	}
	s.seated = false
	s.b.open--
	for i, in := range s.waiting() {
		switch {
		case in == nil:
		case s.first[i] != nil:
			in.fresh.Remove(s.first[i])
			s.first[i] = nil
		case s.place[i] >= 0:
			in.idle.Remove(s.place[i])
		}
	}
	if of := s.owner; of != nil {
		if of.open--; of.open == 0 {
			delete(s.b.owners, of.network)
		}
	}
}

// waiting are where it can be among those that wait: all, and those of its owner if that is known.
func (s *Seat) waiting() [2]*waiting {
	if s.owner == nil {
		return [2]*waiting{&s.b.all, nil}
	}
	return [2]*waiting{&s.b.all, &s.owner.waiting}
}

// waiting are connections that are not in use.
type waiting struct {
	fresh list.List // of those on which nothing was asked yet, the one that has waited longest in front
	idle  heap.Heap[idle]
}

// longest is the connection that makes room, which cannot be used any more: one on which something could have been asked in the
// time that it had, and was not; or else the one that is idle for the longest time; or else the one that was opened first. It is
// nil if all are in use.
func (w *waiting) longest(now int64) *Seat {
	if s := w.freshBefore(now - int64(patience)); s != nil {
		return s
	}
	for len(w.idle) > 0 {
		switch s := w.idle[0].Seat; {
		case s.uses.Load() > 0:
			s.park()
		case !s.moved() && s.claim():
			return s
		}
	}
	return w.freshBefore(now)
}

// freshBefore is the connection that was opened first, if it was until some time, and nothing was asked on it.
func (w *waiting) freshBefore(until int64) *Seat {
	for {
		front := w.fresh.Front()
		if front == nil {
			return nil
		}
		s, _ := front.Value.(*Seat)
		switch {
		case s.since.Load() > until:
			return nil
		case s.claim():
			return s
		}
		s.begin() // another connection is about to do so
	}
}

// idle is a connection by the time since when it is idle, as far as that was seen: it may be in use again, or have been.
type idle struct {
	*Seat

	of int // the index of its place
}

// Before implements [heap.Item]: the one that is idle for longer comes first.
func (i idle) Before(other idle) bool { return i.key < other.key }

// Placed implements [heap.Item].
func (i idle) Placed(at int) { i.place[i.of] = at }

// now is the time of b, in nanoseconds.
func (b *Bounded) now() int64 { return int64(time.Since(b.begun)) }

// On returns a listener whose connections count, until they are closed. Those for which there is no room are closed, unanswered.
// Several listeners may have one bound.
func (b *Bounded) On(l net.Listener) net.Listener { return boundedListener{l, b} }

// Watch has the bound learn from a server which of its connections are idle, and the server close in its shutdown those on which
// nothing was asked, for which it would wait. It must be called before the server serves, with a listener of [Bounded.On].
func (b *Bounded) Watch(s *http.Server) {
	s.ConnState = changed
	s.RegisterOnShutdown(b.end)
}

// end closes the connections on which nothing was asked yet, and gives no place to others any more.
func (b *Bounded) end() {
	var leaving []net.Conn
	b.mu.Lock()
	b.ended = true
	for s := b.all.freshBefore(math.MaxInt64); s != nil; s = b.all.freshBefore(math.MaxInt64) {
		s.leave()
		leaving = append(leaving, s.conn)
	}
	b.mu.Unlock()
	for _, c := range leaving {
		_ = c.Close() // the client has gone
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
	for {
		over, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			counted, _ := c.(*boundedConn)
			return counted
		}
		c = over.NetConn()
	}
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

// SyscallConn implements [syscall.Conn], for a connection that is one.
func (c *boundedConn) SyscallConn() (syscall.RawConn, error) {
	if sc, ok := c.Conn.(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return nil, errors.ErrUnsupported
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
		_ = c.Close() // the client has gone
	}
}

// changed is called with the states of the connections of a server.
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

// Write implements net.Conn.
func (c *boundedConn) Write(b []byte) (int, error) {
	c.seat.writing <- struct{}{}
	defer func() { <-c.seat.writing }()
	return c.Conn.Write(b) //nolint:wrapcheck // it is that of the connection
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	c.seat.Leave()
	return c.Conn.Close()
}
