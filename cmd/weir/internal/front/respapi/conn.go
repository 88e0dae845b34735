package respapi

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/front/room"
	"github.com/weirhq/weir/cmd/weir/internal/resp"
)

const (
	// bufferSize is how many bytes are read at once, and the room for replies to begin with.
	bufferSize = 16 << 10
	// pooledSize is how large a buffer for replies may have grown to be kept for others.
	pooledSize = 128 << 10
	// coalesced is how many bytes of replies are sent at the latest while more commands are waiting.
	coalesced = 64 << 10
	// mostAtEnd is how much of what has arrived is still answered when the server shuts down: more than a socket holds, so that
	// only a client that never stops is cut off.
	mostAtEnd = 8 << 20
	// lingering is how long the client has to close its side after the server has closed its own.
	lingering = 250 * time.Millisecond
	// mostLingering is how many bytes are thrown away meanwhile.
	mostLingering = 1 << 20
)

// work is what a connection needs only while it has something to do. Silent connections have none.
type work struct {
	in     []byte // what was received and is not answered
	grown  int    // how far in has grown beyond its usual size, which the server has to allow
	owed   int    // bytes of long replies that were not sent, which the server has to allow as well
	parser resp.Parser
	w      resp.Writer
}

var works = sync.Pool{New: func() any {
	k := &work{in: make([]byte, 0, bufferSize)}
	k.w.Reset(make([]byte, 0, bufferSize))
	return k
}}

// conn is the connection of one client.
type conn struct {
	*work // nil while the client is silent

	// What others may use, too.
	s       *Server
	id      int64
	plain   net.Conn
	created time.Time
	info    atomic.Pointer[clientInfo]
	seat    *front.Seat
	used    bool // of the seat

	nc  net.Conn // plain, or TLS over it
	via transport

	proto    int
	stranger bool // has not authenticated yet
	ending   bool // nothing more is answered
	held     bool // the transport, which waits for nothing else meanwhile: no command may wait
	wrong    int  // passwords
	mute     mute

	halfBy time.Time // when the command that has begun to arrive has to be complete; zero if none waits for its rest
	idleBy time.Time // when the next one has to come; zero if none is waited for, or for as long as it takes
	armed  time.Time // the deadline of reads that the transport has

	asked   bool          // something since the goroutine has begun, or renewBy was set
	renewBy time.Time     // see renew; zero if nothing was asked
	silence time.Duration // how long before renewBy it was set

	batch *batch // commands that are not answered yet; nil if there are none

	last     *command // the one before, as a client mostly repeats itself
	lastName [mostName]byte
	lastSize int
}

// mute is what CLIENT REPLY has said.
type mute struct {
	any            bool // one of the others
	off            bool
	skip, skipNext bool
}

// transport moves the bytes of a connection.
type transport interface {
	// receive waits for bytes and appends them to in, for which it takes work if there is none. It may have them answered, too.
	receive(c *conn) error
	// arrived is receive for what is there already. It returns how many bytes it was.
	arrived(c *conn) (int, error)
	// send sends all.
	send(c *conn, b []byte) error
}

// begin takes what is needed to work.
func (c *conn) begin() {
	if c.work == nil {
		c.work = works.Get().(*work)
		c.parser.Init(c.s.o.Bounds)
		c.parser.Stranger = c.stranger
		c.w.Proto = c.proto
	}
}

// rest gives back what is not needed while the client is silent.
func (c *conn) rest() {
	k := c.work
	if k == nil {
		return
	}
	c.work = nil
	if c.used {
		c.used = false
		c.seat.Rest()
	}
	if n := k.grown + k.owed; n > 0 {
		c.large().Free(int64(n))
	}
	if k.grown > 0 || k.owed > 0 || cap(k.w.Bytes()) > pooledSize {
		return
	}
	k.in = k.in[:0]
	k.w.Reset(k.w.Bytes())
	works.Put(k)
}

// idle reports whether no command has begun to arrive.
func (c *conn) idle() bool { return c.work == nil || len(c.in) == 0 }

// owes reports whether there are replies that were not sent.
func (c *conn) owes() bool { return c.work != nil && c.w.Len() > 0 }

// serve serves until the connection ends. If again is true, it is to go on in a new goroutine.
func (c *conn) serve() (again bool) {
	defer func() {
		if !again {
			c.close()
			c.seat.Leave()
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			c.s.log.Error("a RESP command has panicked", "client", c.plain.RemoteAddr().String(), "panic", p,
				"stack", string(debug.Stack()))
		}
	}()
	if c.via == nil {
		if err := c.open(); err != nil {
			c.lost(err)
			return false
		}
	}
	for !c.ending {
		if err := c.via.receive(c); err != nil {
			late := errors.Is(err, os.ErrDeadlineExceeded)
			if late && c.s.conns.Ending() {
				c.answerArrived()
				break
			}
			if late && !c.renewBy.IsZero() && c.armed.Equal(c.renewBy) {
				if c.renew() {
					return true
				}
				continue
			}
			c.lost(err)
			return false
		}
		if !c.answer() {
			return false
		}
	}
	c.linger()
	return false
}

// renew is called when renewBy has passed. It reports whether nothing was asked meanwhile: then the connection is to go on in a
// new goroutine.
//
// Stacks grow with the first command, and twice what they have is much for a connection that only waits. A collection makes no
// stack smaller of which more than a quarter is used, which is less than a wait needs. A client that asks often would have its
// stack grow again and again: so the time in which it has to be silent doubles each time that it has passed, until it is long.
func (c *conn) renew() bool {
	if c.asked {
		c.renewLater()
		return false
	}
	c.renewBy = time.Time{}
	_ = c.arm(c.waitBy()) // reads tell if it has failed; the new stack would grow by it
	return true
}

// renewLater sets renewBy.
func (c *conn) renewLater() {
	c.asked = false
	c.silence = min(max(2*c.silence, c.s.o.silence), c.s.o.maxSilence)
	c.renewBy = time.Now().Add(c.silence)
}

// close closes the connection and gives back what it has.
func (c *conn) close() {
	_ = c.nc.Close()
	if c.work != nil {
		c.in = c.in[:0]
		c.w.Truncate(0)
		c.rest()
	}
}

// use makes the connection one that does not make room for others until it is silent again. It reports false if it has made room
// already. A client without the password can always be made to make room.
func (c *conn) use() bool {
	if c.used || c.stranger {
		return true
	}
	c.used = c.seat.Use()
	return c.used
}

// answer returns all commands that are complete, and sends the replies unless more may have arrived than there was room for. It
// is false if the connection is lost. While the transport is held it stops at a command that may wait.
func (c *conn) answer() bool {
	if !c.use() {
		return false
	}
	c.asked, c.idleBy = true, time.Time{}
	full := len(c.in) == cap(c.in)
	read, commands := 0, int64(0)
	for !c.ending {
		in := c.in[read:]
		if n := c.again(in); n > 0 {
			read += n
			commands++
			continue
		}
		if c.held && len(in) > 0 && in[0] != '*' { // to find a line changes it
			break
		}
		args, n, err := c.parser.Next(in)
		if err != nil {
			c.decide()
			c.w.Error(err.Error())
			c.s.protocolErrors.Add(1)
			c.ending = true
			break
		}
		if n == 0 {
			break
		}
		if len(args) > 0 {
			if !c.execute(args, in[:n], n < len(in)) {
				break
			}
			commands++
		}
		read += n
		if c.w.Len() >= coalesced && !c.flush() {
			return false
		}
	}
	c.decide()
	if read > 0 {
		c.s.answered.Add(commands)
		c.halfBy = time.Time{}
		c.in = c.in[:copy(c.in, c.in[read:])]
	}
	if full && !c.ending && !c.held {
		return c.grow()
	}
	return c.flush()
}

// large is the client's share of the memory for long commands and replies.
func (c *conn) large() room.Share { return c.s.large.Of(c.address()) }

// grow makes room for a command that is longer than the buffer. The replies before it can wait for it only if there is room.
func (c *conn) grow() bool {
	if len(c.in) < cap(c.in) {
		return true
	}
	if !c.flush() {
		return false
	}
	if !c.large().Take(int64(cap(c.in))) {
		c.w.Error("ERR too many long commands are arriving at the same time")
		c.s.rejected.Add(1)
		c.ending = true
		return c.flush()
	}
	c.grown += cap(c.in)
	longer := make([]byte, len(c.in), 2*cap(c.in))
	copy(longer, c.in)
	c.in = longer
	return true
}

// mayOwe reports whether the server allows a reply of n bytes, however slowly the client reads it. If not, it has answered so.
func (c *conn) mayOwe(n int) bool {
	if n <= coalesced {
		return true
	}
	if !c.large().Take(int64(n)) {
		c.w.Error("ERR the reply would be too long while others are read: ask again, or for less")
		return false
	}
	c.owed += n
	return true
}

// flush sends the replies.
func (c *conn) flush() bool {
	b := c.w.Bytes()
	if len(b) == 0 && c.owed == 0 {
		return true
	}
	err := c.via.send(c, b)
	if c.owed > 0 {
		c.large().Free(int64(c.owed))
		c.owed = 0
	}
	if cap(b) > pooledSize {
		b = make([]byte, 0, bufferSize)
	}
	c.w.Reset(b)
	if err != nil {
		c.lost(err)
	}
	return err == nil
}

// answerArrived returns what has arrived before the server shuts down.
func (c *conn) answerArrived() {
	for sum := 0; sum < mostAtEnd && !c.ending; {
		n, err := c.via.arrived(c)
		if n > 0 && !c.answer() || n == 0 || err != nil {
			break
		}
		sum += n
	}
	if c.work != nil {
		c.flush()
	}
}

// linger tells the client that nothing more will come, and gives it a moment to read what has: if the connection were closed
// while something of the client is unread, the replies on their way would be lost.
func (c *conn) linger() {
	if c.work != nil && c.grown > 0 { // others need it more
		c.large().Free(int64(c.grown))
		c.grown, c.in = 0, make([]byte, 0, bufferSize)
	}
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	c.begin()
	space := c.in[:cap(c.in)]
	_ = c.nc.SetReadDeadline(time.Now().Add(lingering))
	for sum := 0; sum < mostLingering; {
		n, err := c.nc.Read(space)
		if err != nil {
			return
		}
		sum += n
	}
}

// lost notes why a connection has ended before its time.
func (c *conn) lost(err error) {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, errLost):
		return
	case errors.Is(err, os.ErrDeadlineExceeded) && !c.s.conns.Ending():
		c.s.timedOut.Add(1)
	}
	if !c.s.log.Enabled(c.s.ctx, slog.LevelDebug) {
		return
	}
	c.s.log.Debug("a RESP connection was lost", "client", c.nc.RemoteAddr().String(), "error", err)
}

// readBy is until when bytes have to come, as far as that is settled already: zero if there is no such time.
func (c *conn) readBy() time.Time {
	by := earlier(c.halfBy, c.renewBy)
	if c.stranger {
		by = earlier(by, c.created.Add(c.s.o.ReadTimeout))
	}
	return by
}

// earlier returns the earlier of two times, of which those that are zero never come.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// waitBy is until when bytes have to come if the client is waited for from now on.
func (c *conn) waitBy() time.Time {
	if c.asked && c.renewBy.IsZero() {
		c.renewLater()
	}
	if !c.idle() {
		if c.halfBy.IsZero() {
			c.halfBy = time.Now().Add(c.s.o.ReadTimeout)
		}
		return c.readBy()
	}
	if c.s.o.IdleTimeout > 0 && c.idleBy.IsZero() {
		c.idleBy = time.Now().Add(c.s.o.IdleTimeout)
	}
	return earlier(c.readBy(), c.idleBy)
}

// arm sets the deadline of reads, unless the server shuts down.
func (c *conn) arm(by time.Time) error {
	if by.Equal(c.armed) {
		return nil
	}
	return c.rearm(by)
}

// rearm is arm where the transport may have another deadline than it was given.
func (c *conn) rearm(by time.Time) error {
	c.armed = by
	err := c.nc.SetReadDeadline(by)
	if c.s.conns.Ending() {
		err = c.nc.SetReadDeadline(longAgo)
	}
	return err
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// execute replies to one command, whose bytes are in, at once or in a batch with others if more has arrived. It is false if the
// command may wait, and must not now.
func (c *conn) execute(args [][]byte, in []byte, more bool) bool {
	w := &c.w
	cmd := c.command(args[0])
	if cmd != nil && cmd.plan != nil && (more || c.batch != nil) && c.gather(cmd, args, in) {
		return true
	}
	if c.held && (cmd == nil || cmd.flags&fast == 0) {
		return false
	}
	c.decide()
	start := w.Len()
	switch {
	case c.stranger && (cmd == nil || cmd.flags&noAuth == 0):
		if c.foreign(args[0]) {
			return true
		}
		w.Error("NOAUTH Authentication required.")
	case cmd == nil:
		if c.foreign(args[0]) {
			return true
		}
		unknown(w, args)
	case !takes(cmd.arity, len(args)):
		if cmd.arityError != "" {
			w.Error(cmd.arityError)
		} else {
			wrongArity(w, cmd.name)
		}
	default:
		cmd.run(c, w, args)
	}
	if c.mute.any {
		c.muted(start)
	}
	return true
}

// command returns the command of a name, or nil. It looks first whether it is the one before.
func (c *conn) command(name []byte) *command {
	cmd := c.last
	if cmd == nil || !bytes.Equal(name, c.lastName[:c.lastSize]) {
		if cmd = c.s.commands.find(name); cmd != nil {
			c.last, c.lastSize = cmd, copy(c.lastName[:], name)
		}
	}
	return cmd
}

// muted forgets a reply that the client does not want.
func (c *conn) muted(start int) {
	m := &c.mute
	if m.off || m.skip {
		c.w.Truncate(start)
	}
	m.skip, m.skipNext = m.skipNext, false
	m.any = m.off || m.skip
}

// foreign ends the connection of a client that speaks HTTP: a page may have made a browser send it, and its next lines could be
// commands.
func (c *conn) foreign(name []byte) bool {
	if !equalFold(name, "post") && !equalFold(name, "host:") {
		return false
	}
	c.s.protocolErrors.Add(1)
	c.ending = true
	return true
}
