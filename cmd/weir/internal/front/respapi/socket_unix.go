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
	c     *conn
	raw   syscall.RawConn
	armed time.Time // the deadline of reads

	yields int8 // how often in a row it has let others go first, or minus how many reads it will not
	pause  int8 // how many reads it did not after the last time that it was in vain

	// What the functions below are given and what they return. They are made once, as each would be an allocation.
	wait    bool // for the other side, or answer blocked
	blocked bool
	waited  bool // a read has found nothing
	n       int
	err     error
	out     []byte

	readOnce  func(fd uintptr) bool
	writeOnce func(fd uintptr) bool
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
	s.readOnce, s.writeOnce = s.tryRead, s.tryWrite
	c.via = s
	return true
}

// tryRead reads once, and reports whether it is done: otherwise it is called again when there is something to read.
func (s *socket) tryRead(fd uintptr) bool {
	c := s.c
	c.begin()
	for {
		s.n, s.err = readNow(fd, c.in[len(c.in):cap(c.in)])
		if !errors.Is(s.err, syscall.EINTR) {
			break
		}
	}
	if s.err == nil {
		s.blocked = false
		c.in = c.in[:len(c.in)+s.n]
		return true
	}
	s.n = 0
	if s.blocked = s.err == syscall.EAGAIN; !s.blocked { //nolint:errorlint // it comes from the call itself
		return true
	}
	s.err, s.waited = nil, true
	if len(c.in) == 0 && c.w.Len() == 0 {
		c.rest()
	}
	return !s.wait
}

func (s *socket) tryWrite(fd uintptr) bool {
	for {
		s.n, s.err = writeNow(fd, s.out[:min(len(s.out), coalesced)])
		if !errors.Is(s.err, syscall.EINTR) {
			break
		}
	}
	if s.err == nil {
		s.blocked = false
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
	if by := c.readBy(); by != s.armed {
		if err := s.arm(by); err != nil {
			return err
		}
	}
	yielded := s.yield(c)
	s.wait, s.waited = !c.startsWaiting() && !c.owes(), false
	if err := s.raw.Read(s.readOnce); err != nil {
		return err
	}
	switch {
	case !yielded:
	case s.waited:
		s.pause = min(2*s.pause+1, mostPause)
		s.yields = -s.pause
	default:
		s.pause = 0
	}
	if s.blocked {
		return s.waitFor(c)
	}
	return s.outcome()
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

// waitFor is receive when nothing has arrived.
func (s *socket) waitFor(c *conn) error {
	if c.owes() && !c.flush() {
		return errFlushed
	}
	if by := c.waitBy(); by != s.armed {
		if err := s.arm(by); err != nil {
			return err
		}
	}
	s.wait = true // flush has changed it
	if err := s.raw.Read(s.readOnce); err != nil {
		return err
	}
	return s.outcome()
}

// outcome is that of a read.
func (s *socket) outcome() error {
	if s.err == nil && s.n == 0 {
		return io.EOF
	}
	return s.err
}

func (s *socket) arm(by time.Time) error {
	s.armed = by
	return s.c.setReadDeadline(by)
}

func (s *socket) arrived(*conn) (int, error) {
	s.wait = false
	// Unlike Read, Control does not mind that the deadline has passed.
	if err := s.raw.Control(func(fd uintptr) { s.tryRead(fd) }); err != nil {
		return 0, err
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
