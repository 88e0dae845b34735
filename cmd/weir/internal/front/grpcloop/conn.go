package grpcloop

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/front/room"
)

// conn is a connection.
type conn struct {
	s      *Server
	nc     net.Conn
	seat   *front.Seat
	owner  *owner
	tls    *tls.ConnectionState
	ctx    context.Context // of all calls, ends with the connection
	cancel context.CancelFunc

	// Of the goroutine that reads.
	in     []byte  // what was read and is not processed
	works  bool    // in has space for what is read; otherwise it has no more than it needs
	lent   *buffer // that of in, if it has one
	socket *socket // nil if it reads by a small buffer first
	first  []byte  // that
	more   bool    // the last read has filled its space, so that the next one need not wait
	part   part

	// The goroutine that reads holds mu while it processes what it has read; nothing waits for the network meanwhile.
	mu      sync.Mutex
	blocks  *blocks
	greeted bool // the client's SETTINGS have come
	agreed  bool // and it has acknowledged those of the server
	streams map[uint32]*stream
	fresh   fresh
	last    uint32 // the last stream that the client has opened
	taken   uint32 // the last one that was not ignored

	block     []byte // of a header that is continued
	continued uint32 // its stream
	frames9   int    // CONTINUATION frames of it
	ends      bool   // the header ends its stream

	unread      int   // bytes of DATA that the client has not been told of
	window      int64 // how much the client takes
	firstWindow int64 // of a new stream
	shrunk      bool  // the client has a smaller table of HPACK, which the next header block has to say that it keeps to
	blocked     int   // streams that have something to send
	greedy      bool  // and that is too much
	hurried     bool  // there may be streams that must not wait for long

	out     []byte  // what is to be written
	outLent *buffer // that of out, if it has one
	sending int     // bytes that are being written
	stuck   int     // the part of Unread of those and of out, as they are not taken
	writing bool    // a goroutine writes, others leave what they have in out
	closed  bool
	room    sync.Cond // out is short again, or the connection has closed

	used    bool // seat.Use was called for the calls of this read
	touched bool // a frame of a call was in this read
	budget  *weir.Limiter
	pinged  time.Time // when the client has pinged last
	strikes int       // how often too early
	replied bool      // something was sent since

	bytes int64 // its part of Unread
	clock clocks

	leaving leaving
	leftAt  time.Time // since when
}

// part is what has come of a frame while the rest is waited for. It is counted without the lock of the connection: a goroutine
// may hold that while it waits for the end of a read.
type part struct {
	bytes atomic.Int64
	over  atomic.Bool // that was too much
}

// leaving is how far the client was told to go away.
type leaving uint8

const (
	staying   leaving = iota
	announced         // it will be; calls that are on their way are still taken
	left              // later calls are not taken
)

// clocks are what the time limits of a connection go by. They are as fine as sweepEvery.
type clocks struct {
	heard, asked  bool // something was read, or a frame of a call, since the last sweep
	half, whole   bool // a frame or a header has come in part, and one to its end since the last sweep
	halfSince     time.Time
	read          time.Time
	busy          time.Time // when there was a call last
	probed        bool      // a PING is to be acknowledged
	writes, wrote uint64    // how many were begun, and until the last sweep
	writingSince  time.Time
	pumped        bool // a stream that waited for its window was sent something
	blockedSince  time.Time
	end           time.Time // when it is too old, never if zero
}

const (
	// greetTimeout is how long a client may take for the handshake of TLS and its first SETTINGS.
	greetTimeout = 10 * time.Second
	// keepalive is after how long of silence the client is asked whether it is there, and keepaliveTimeout how long it may take.
	keepalive        = time.Minute
	keepaliveTimeout = 20 * time.Second
	// writeTimeout is how long a client may take nothing of what it is sent.
	writeTimeout = 30 * time.Second
	// endTimeout is the same once the server ends, which waits for it.
	endTimeout = 2 * time.Second
	// leaveTimeout is how long calls are taken that are on their way, unless the client says that there are none.
	leaveTimeout = 5 * time.Second

	// bufferSize is that of buffers which connections have only while they read or write.
	bufferSize = 64 << 10
	// mostBuffers is how many of them there are. Connections that read or write while all are lent have less space: each
	// goroutine may be stopped at any time, by the collector above all, and then keeps what it has.
	mostBuffers = 512
	// leastSpace is how much more than it needs a connection has then.
	leastSpace = 2 << 10
	// firstBuffer is how much is read first of a connection that cannot be waited for without a buffer.
	firstBuffer = 2 << 10
	// turn is how much of a connection is processed at a time, before others have theirs: some 150 calls, or 0.15 ms.
	turn = 16 << 10
	// maxOut is how much may be kept of what is to be written before no more frames of the client are processed: a reply more
	// mostly fits into a buffer.
	maxOut = 56 << 10
)

type buffer [bufferSize]byte

var (
	buffers = sync.Pool{New: func() any { return new(buffer) }}
	lent    atomic.Int64 // how many are
)

// lend returns an empty slice with space for more than n bytes, and the buffer that it is of, nil if all are lent.
func lend(n int) ([]byte, *buffer) {
	if lent.Add(1) > mostBuffers {
		lent.Add(-1)
		return make([]byte, 0, n+leastSpace), nil
	}
	b := buffers.Get().(*buffer)
	return b[:0], b
}

// giveBack gives a buffer back, if there is one.
func giveBack(b *buffer) {
	if b != nil {
		lent.Add(-1)
		buffers.Put(b)
	}
}

func newConn(s *Server, nc net.Conn) *conn {
	now := time.Now()
	c := &conn{
		s: s, nc: nc, seat: front.SeatOf(nc), owner: s.own(front.NetworkOf(nc.RemoteAddr())),
		streams: make(map[uint32]*stream), blocks: newBlocks(s.o.Calls),
		window: usualWindow, firstWindow: usualWindow,
		clock: clocks{read: now, busy: now, writingSince: now, blockedSince: now, halfSince: now},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.room.L = &c.mu
	if age := s.ageOf(); age > 0 {
		c.clock.end = now.Add(age)
	}
	return c
}

// serve serves the connection until it ends.
func (c *conn) serve() (again bool) {
	defer c.abort()
	defer c.recovered()
	if err := c.nc.SetDeadline(time.Now().Add(greetTimeout)); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(c.ctx, greetTimeout)
	secure, state, err := c.s.handshake(ctx, c.nc)
	cancel()
	if err != nil {
		return false
	}
	if secure != c.nc {
		c.mu.Lock()
		c.nc, c.tls = secure, state
		c.mu.Unlock()
	}
	_ = c.nc.SetWriteDeadline(time.Time{}) // a write tells if it has failed
	c.greet()
	c.read()
	return false
}

// recovered is to be deferred. It ends the connection if a call has panicked; the others go on.
func (c *conn) recovered() {
	if p := recover(); p != nil {
		c.s.o.Log.Error("a gRPC call has panicked", "client", c.nc.RemoteAddr().String(), "panic", p,
			"stack", string(debug.Stack()))
		c.abort()
	}
}

// greet sends the first SETTINGS.
func (c *conn) greet() {
	settings := []http2.Setting{
		{ID: http2.SettingMaxConcurrentStreams, Val: uint32(c.s.o.MaxStreams)},
		{ID: http2.SettingInitialWindowSize, Val: streamWindow},
		{ID: http2.SettingMaxHeaderListSize, Val: maxHeader},
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = appendFrame(c.out, 6*len(settings), http2.FrameSettings, 0, 0)
	for _, s := range settings {
		c.out = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(c.out, uint16(s.ID)), s.Val)
	}
	c.out = appendWindowUpdate(c.out, 0, connWindow-usualWindow)
	c.flush()
}

// read reads until the connection ends.
func (c *conn) read() {
	if c.socket = socketOf(c.nc, c); c.socket == nil {
		c.first = make([]byte, firstBuffer)
	}
	defer func() {
		giveBack(c.lent)
		c.keep(-c.part.bytes.Swap(0))
		c.in, c.lent = nil, nil
	}()
	preface := len(http2.ClientPreface)
	for {
		err := c.receive()
		if preface > 0 {
			m := min(preface, len(c.in))
			at := len(http2.ClientPreface) - preface
			if string(c.in[:m]) != http2.ClientPreface[at:at+m] {
				return
			}
			preface -= m
			c.in = c.in[:copy(c.in, c.in[m:])]
		}
		used, goOn := c.process(c.in)
		if !goOn || err != nil {
			return
		}
		c.in = c.in[:copy(c.in, c.in[used:])]
		if c.more { // reading it would not make this goroutine wait
			c.rest()
			runtime.Gosched()
		}
	}
}

// receive waits for bytes, which it adds to in.
func (c *conn) receive() (err error) {
	var n int
	switch {
	case c.socket != nil:
		return c.socket.receive()
	case c.more:
		c.work()
		n, err = c.nc.Read(c.space())
		c.took(n)
	default:
		c.rest()
		n, err = c.nc.Read(c.first)
		c.work()
		c.in = append(c.in, c.first[:n]...)
		c.more = n == len(c.first)
	}
	return err
}

// work takes a buffer for what is read.
func (c *conn) work() {
	if c.works {
		return
	}
	in := c.in
	c.works = true
	c.in, c.lent = lend(len(in))
	if c.in = append(c.in, in...); len(in) > 0 {
		c.keep(-c.part.bytes.Swap(0))
		c.part.over.Store(false)
	}
}

// space is where to read to in the buffer. In one of full size a frame that is not complete leaves enough.
func (c *conn) space() []byte {
	c.in = slices.Grow(c.in, leastSpace)
	return c.in[len(c.in):min(cap(c.in), len(c.in)+turn)]
}

// took adds what was read to the space.
func (c *conn) took(n int) {
	c.more = n == len(c.space())
	c.in = c.in[:len(c.in)+n]
}

// rest gives the buffer back before a wait. What has come of a frame is kept without it.
func (c *conn) rest() {
	if !c.works {
		return
	}
	in := []byte(nil)
	if n := len(c.in); n > 0 {
		in = append(in, c.in...)
		c.part.bytes.Store(int64(n))
		c.part.over.Store(!c.keep(int64(n)))
	}
	giveBack(c.lent)
	c.works, c.lent, c.in = false, nil, in
}

// process processes what was read, and writes the replies. It is false if the connection ends.
func (c *conn) process(in []byte) (used int, goOn bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for more := true; more; {
		if c.closed {
			return used, false
		}
		c.prepare()
		c.clock.heard = true
		n, failed := c.frames(in[used:])
		used += n
		more = len(c.out) > maxOut
		c.clock.half = c.continued != 0 || used < len(in) && !more
		c.clock.whole = c.clock.whole || c.continued == 0 && n > 0
		c.park()
		c.touch()
		if failed == nil && c.greedy {
			failed = flooded("too much is kept of headers, and of replies that are not taken")
		}
		if failed != nil {
			c.fail(failed)
			return used, false
		}
		c.flush()
		for len(c.out) > maxOut && !c.closed {
			c.room.Wait()
		}
		if c.closed || c.finished() {
			return used, false
		}
	}
	return used, true
}

// touch tells the seat of the connection what this read was about.
func (c *conn) touch() {
	switch {
	case c.used:
		c.seat.Rest()
	case c.touched:
		c.seat.Touch()
	}
	c.clock.asked = c.clock.asked || c.touched
	c.used, c.touched = false, false
}

// use tells the seat that a call is decided. It is false if the connection has had to make room.
func (c *conn) use() bool {
	if !c.used {
		c.used = c.seat.Use()
	}
	return c.used
}

// prepare gets a buffer ready for what is to be written, which [conn.flush] gives back. c.mu is held.
func (c *conn) prepare() {
	if c.out == nil {
		c.out, c.outLent = lend(0)
	}
}

// flush writes what there is to write, unless another goroutine does so already, which then writes that too. c.mu is held, and
// released meanwhile.
func (c *conn) flush() {
	if c.writing {
		return
	}
	for len(c.out) > 0 && !c.closed {
		b, of := c.out, c.outLent
		c.out, c.outLent, c.sending, c.writing = nil, nil, len(b), true
		c.clock.writes++
		c.mu.Unlock()
		_, err := c.nc.Write(b)
		c.mu.Lock()
		c.sending, c.writing = 0, false
		c.hold(-c.stuck)
		c.stuck = 0
		giveBack(of)
		c.room.Broadcast()
		if err != nil {
			c.close()
		}
	}
	giveBack(c.outLent)
	c.out, c.outLent = nil, nil
}

// flushSoon is flush, for a goroutine that must not wait for the network.
func (c *conn) flushSoon() {
	if len(c.out) == 0 || c.writing {
		return
	}
	go func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.flush()
		c.finished()
	}()
}

// fail tells the client why the connection ends, and ends it.
func (c *conn) fail(why *failure) {
	if why.log {
		c.s.logCutOff(c.nc.RemoteAddr(), why.text)
	}
	c.appendGoAway(c.taken, why.code, why.text)
	_ = c.nc.SetWriteDeadline(time.Now().Add(time.Second)) // if it cannot be set the connection has gone
	c.flush()
	c.close()
}

func (c *conn) appendGoAway(last uint32, code http2.ErrCode, text string) {
	c.out = appendFrame(c.out, 8+len(text), http2.FrameGoAway, 0, 0)
	c.out = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(c.out, last), uint32(code))
	c.out = append(c.out, text...)
}

// close closes the connection, and ends what is left of its calls. c.mu is held.
func (c *conn) close() {
	if c.closed {
		return
	}
	c.closed = true
	c.cancel()
	for _, s := range c.streams {
		c.drop(s)
	}
	c.fresh = fresh{}
	c.hold(-len(c.block))
	giveBack(c.outLent)
	c.block, c.out, c.outLent = nil, nil, nil
	c.room.Broadcast()
	_ = c.nc.Close() // the client has gone, or has to
	c.s.disown(c.owner)
}

// abort closes the connection.
func (c *conn) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.close()
}

// Frames that cost the server more than the client, and that no client needs to send often: floodRate is far above that, and far
// below what a hostile client reaches.
const (
	floodRate  = 2_000 // a second
	floodBurst = 10_000
)

// streamsOfFrame is for how many streams a frame counts once more that has the server look at all of them: that takes as long as
// another frame.
const streamsOfFrame = 16

// mayFlood counts such a frame.
func (c *conn) mayFlood() *failure { return c.spend(1) }

// mayLook counts such a frame for which the server looks at all streams.
func (c *conn) mayLook() *failure { return c.spend(1 + int64(len(c.streams)/streamsOfFrame)) }

func (c *conn) spend(n int64) *failure {
	if c.budget == nil {
		var err error
		if c.budget, err = weir.New(weir.TokenBucket(weir.PerSecond(floodRate), floodBurst), weir.Options{}); err != nil {
			return flooded(err.Error())
		}
	}
	if !c.budget.Take(n).Allowed {
		return flooded("too many frames that ask nothing")
	}
	return nil
}

// leavePing is acknowledged when the client has read that it is to go away.
var leavePing = [8]byte{'w', 'e', 'i', 'r', 'l', 'e', 'f', 't'}

// leave tells the client to go away, as it has to do sooner or later.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.announce(time.Now())
	c.flushSoon()
}

// announce is leave. c.mu is held.
func (c *conn) announce(now time.Time) {
	if c.leaving != staying || c.closed {
		return
	}
	if !c.greeted { // nothing was asked
		c.close()
		return
	}
	c.leaving, c.leftAt = announced, now
	c.appendGoAway(maxWindow, http2.ErrCodeNo, "")
	c.out = append(appendFrame(c.out, len(leavePing), http2.FramePing, 0, 0), leavePing[:]...)
}

// goAway tells the client that later calls are not taken.
func (c *conn) goAway() {
	c.leaving = left
	c.appendGoAway(c.taken, http2.ErrCodeNo, "")
}

// finished reports whether the client was told to go, and nothing is left to be done for it. Then the connection is closed.
func (c *conn) finished() bool {
	if c.leaving != left || len(c.streams) > 0 || c.fresh.id != 0 || len(c.out) > 0 || c.writing {
		return false
	}
	c.close()
	return true
}

// sweep looks at the time limits.
func (c *conn) sweep(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	k := &c.clock
	if k.heard {
		k.heard, k.probed, k.read = false, false, now
	}
	if k.asked || len(c.streams) > 0 || !c.greeted {
		k.asked, k.busy = false, now
	}
	if c.late(now) {
		c.s.logCutOff(c.nc.RemoteAddr(), "it takes too long to send messages or to take replies")
		c.close()
		return
	}
	silence := now.Sub(k.read)
	switch {
	case silence > keepalive+keepaliveTimeout:
		c.close()
		return
	case silence > keepalive && !k.probed && c.greeted:
		k.probed = true
		c.out = append(appendFrame(c.out, 8, http2.FramePing, 0, 0), make([]byte, 8)...)
	}
	idle := c.s.o.IdleTimeout > 0 && now.Sub(k.busy) >= c.s.o.IdleTimeout
	if old := !k.end.IsZero() && now.After(k.end); c.greeted && (idle || old) {
		c.announce(now)
	}
	if c.leaving == announced && now.Sub(c.leftAt) > leaveTimeout {
		c.goAway()
	}
	c.refuseLate(now)
	if !c.finished() {
		c.flushSoon()
	}
}

// late reports whether the client takes too long.
func (c *conn) late(now time.Time) bool {
	k := &c.clock
	if !c.writing || k.writes != k.wrote {
		k.wrote, k.writingSince = k.writes, now
	} else {
		n := c.sending + len(c.out) - c.stuck
		c.stuck += n
		c.greedy = !c.hold(n) || c.greedy
	}
	if c.part.over.Load() && c.bytes+c.part.bytes.Load() > c.s.Unread.Own {
		c.greedy = true
	}
	if c.blocked == 0 || k.pumped {
		k.pumped, k.blockedSince = false, now
	}
	if !k.half || k.whole {
		k.whole, k.halfSince = false, now
	}
	patience := writeTimeout
	if c.s.conns.Ending() {
		patience = endTimeout
	}
	if now.Sub(k.writingSince) > patience || now.Sub(k.blockedSince) > patience ||
		now.Sub(k.halfSince) > c.s.Unread.Patience || c.greedy {
		return true
	}
	if c.bytes == 0 {
		return false
	}
	for _, s := range c.streams {
		if !s.begun.IsZero() && now.Sub(s.begun) > c.s.Unread.Patience {
			return true
		}
	}
	return false
}

// hold counts bytes that are kept, or are not any more. It is false if there are too many. c.mu is held.
func (c *conn) hold(n int) bool {
	if n == 0 {
		return true
	}
	c.bytes += int64(n)
	return c.keep(int64(n)) || c.bytes <= c.s.Unread.Own
}

// keep is hold for bytes that are not of c.bytes. It reports whether neither all clients nor those of the same address have too
// many.
func (c *conn) keep(n int64) bool {
	u := &c.s.Unread
	own := c.owner.unread.Add(n)
	return u.Add(n) && own <= room.OfOne(u.Max)
}

var errClosed = errors.New("weir: the connection is closed")
