//go:build unix

package respapi

import (
	"errors"
	"io"
	"runtime"
	"syscall"
	"time"
)

// socket reads and writes a plain connection by itself, so that it needs a buffer only once there is something to read, and a
// deadline only once it has to wait.
type socket struct {
	c   *conn
	raw syscall.RawConn

	tells bool // the system reports whether a read has left nothing
	empty bool // the last read has, and the client has sent nothing else that a wait would not be told of
	wrote bool // since the last read

	yielded bool // since the last read
	yields  int8 // how often in a row it has let others go first, or minus how many reads it will not
	pause   int8 // how many reads it did not after the last time that it was in vain

	// What the functions below are given and what they return. They are made once, as each would be an allocation.
	wait    bool // for the client to read, or answer blocked
	blocked bool
	n       int
	err     error
	out     []byte

	exchangeOnce func(fd uintptr) bool
	writeOnce    func(fd uintptr) bool
}

// openSocket makes a connection one of these. It is false if it is no socket.
func openSocket(c *conn) bool {
	sc, ok := c.nc.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	s := &socket{c: c, raw: raw}
	s.exchangeOnce, s.writeOnce = s.exchange, s.tryWrite
	_ = raw.Control(func(fd uintptr) { s.tells = tellWhatIsLeft(fd) })
	c.via = s
	return true
}

// exchange reads once, and mostly has answered what it has read when it returns. It returns false to be called again when there
// is something to read.
//
// A wait ends at once if something has arrived since the wait before has ended or [syscall.RawConn.Read] was called. So it may
// follow a read that has left nothing, without one more that finds nothing: what has arrived before that read, was read. Only of
// an end of the connection the wait may have been told together with what was read. [tellWhatIsLeft] counts the end of what a
// client sends as something that is left; after a connection was reset, no reply can be sent.
func (s *socket) exchange(fd uintptr) bool {
	c := s.c
	s.read(fd)
	if s.err == syscall.EAGAIN { //nolint:errorlint // it comes from the call itself
		return !s.settle()
	}
	if s.err == nil && s.n == 0 {
		s.err = io.EOF
	}
	if s.err != nil || !s.empty {
		return true
	}
	c.held = true
	ok := c.answer()
	c.held = false
	if !ok {
		s.err = errLost
		return true
	}
	if c.ending || !c.idle() || c.owes() || !s.wrote {
		return true
	}
	s.yielded = s.yield(c)
	return s.yielded || !s.settle()
}

// read reads once.
func (s *socket) read(fd uintptr) {
	c := s.c
	c.begin()
	for {
		s.n, s.empty, s.err = readNow(fd, c.in[len(c.in):cap(c.in)])
		if !errors.Is(s.err, syscall.EINTR) {
			break
		}
	}
	s.empty, s.wrote = s.empty && s.tells, false
	if s.err != nil {
		s.n = 0
	}
	c.in = c.in[:len(c.in)+s.n]
	if s.yielded {
		s.yielded = false
		s.yields, s.pause = s.learned()
	}
}

// settle gets the connection ready to wait. It is false if it cannot.
func (s *socket) settle() bool {
	c := s.c
	s.err = nil
	if c.owes() && !c.flush() {
		s.err = errLost
		return false
	}
	if c.idle() {
		c.rest()
	}
	s.err = c.arm(c.waitBy())
	return s.err == nil
}

func (s *socket) tryWrite(fd uintptr) bool {
	for {
		s.n, s.err = writeNow(fd, s.out[:min(len(s.out), coalesced)])
		if !errors.Is(s.err, syscall.EINTR) {
			break
		}
	}
	if s.err == nil {
		s.blocked, s.wrote = false, true
		return true
	}
	s.n = 0
	if s.blocked = s.err == syscall.EAGAIN; !s.blocked { //nolint:errorlint // it comes from the call itself
		return true
	}
	s.err = nil
	return !s.wait
}

func (s *socket) receive(c *conn) error {
	if err := c.arm(c.readBy()); err != nil {
		return err
	}
	s.yielded = s.yielded || s.yield(c)
	if err := s.raw.Read(s.exchangeOnce); err != nil {
		return err
	}
	return s.err
}

const (
	// mostYields is how often in a row a connection lets others go first. As the poller is only asked once none can go on, those
	// that wait for it do so for as many rounds.
	mostYields = 4
	// mostPause is how many reads follow before it does so again, if it was in vain time after time.
	mostPause = 63
)

// yield lets other connections go first that can go on, and reports whether it did. On a busy server the client has mostly sent
// more by then: a read that finds nothing and a wait for the poller are saved. On one that is not busy it is in vain, and becomes
// rare.
func (s *socket) yield(c *conn) bool {
	switch {
	case c.work == nil || c.owes(): // it has waited, or replies do
		return false
	case s.yields < 0:
		s.yields++
		return false
	case s.yields == mostYields:
		s.yields = 0
		return false
	}
	s.yields++
	runtime.Gosched()
	return true
}

// learned is how often it yields from now on, as a read after it has found something or has not.
func (s *socket) learned() (yields, pause int8) {
	if s.n > 0 {
		return s.yields, 0
	}
	pause = min(2*s.pause+1, mostPause)
	return -pause, pause
}

func (s *socket) arrived(*conn) (int, error) {
	// Unlike Read, Control does not mind that the deadline has passed.
	if err := s.raw.Control(s.read); err != nil {
		return 0, err
	}
	if s.err == syscall.EAGAIN { //nolint:errorlint // it comes from the call itself
		return 0, nil
	}
	return s.n, s.err
}

func (s *socket) send(c *conn, b []byte) error {
	s.out, s.wait = b, false
	defer func() { s.out = nil }()
	for len(s.out) > 0 {
		if err := s.raw.Write(s.writeOnce); err != nil {
			return err
		}
		if s.err != nil {
			return s.err
		}
		s.out = s.out[s.n:]
		if s.blocked && !s.wait { // for all that is left together
			if err := c.nc.SetWriteDeadline(time.Now().Add(c.s.o.WriteTimeout)); err != nil {
				return err
			}
			s.wait = true
		}
	}
	if s.wait {
		return c.nc.SetWriteDeadline(time.Time{})
	}
	return nil
}
