//go:build unix

package resp

import (
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// readable reports whether there is something to be read of a connection, or its end.
func readable(conn net.Conn) bool {
	s, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return true
	}
	var wait bool
	err = raw.Read(func(fd uintptr) bool {
		var buf [1]byte
		_, _, no := syscall.Recvfrom(int(fd), buf[:], syscall.MSG_PEEK)
		wait = no == syscall.EAGAIN || no == syscall.EINTR
		return true
	})
	return err != nil || !wait
}

const (
	// pollFor is how long a reply is polled for: somewhat longer than a server on the same machine takes.
	pollFor = 50 * time.Microsecond
	// yields is how often other goroutines may run between two looks. To look takes the lock of the socket, which the reply needs
	// too.
	yields = 4
	// maxSkips is how many replies at most are waited for without polling, after some were polled for in vain.
	maxSkips = 1023
)

// polling is whether a goroutine polls: not two at once, as the server may need the other processors.
var polling atomic.Bool //nolint:gochecknoglobals // the processors are those of the process

// poller reads from a connection without waiting. A goroutine that waits for a socket goes to sleep, and mostly its processor
// with it: to wake both takes longer than a server on the same machine takes to reply.
type poller struct {
	raw    syscall.RawConn // nil if it does not poll
	look   func(fd uintptr) bool
	skip   int // replies that are not polled for
	skips  int // how many they were the last time
	buf    []byte
	n      int
	err    error
	inTime bool
}

// of has it read from a connection, if that is a socket.
func (p *poller) of(conn net.Conn) {
	s, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := s.SyscallConn(); err == nil {
		p.raw, p.look = raw, p.lookFor
	}
}

// read reads what comes soon, and reports whether anything did, be it an error. It does not try if replies were slower of late.
func (p *poller) read(buf []byte) (n int, done bool, err error) {
	if p.raw == nil {
		return 0, false, nil
	}
	if p.skip > 0 {
		p.skip--
		return 0, false, nil
	}
	if !polling.CompareAndSwap(false, true) {
		return 0, false, nil
	}
	p.buf, p.n, p.err, p.inTime = buf, 0, nil, false
	err = p.raw.Read(p.look)
	polling.Store(false)
	p.buf = nil
	if err == nil {
		err = p.err
	}
	if !p.inTime && err == nil {
		p.skips = min(2*p.skips+1, maxSkips)
		p.skip = p.skips
		return 0, false, nil
	}
	p.skips = 0
	return p.n, true, err
}

// lookFor looks again and again whether there is something to read.
func (p *poller) lookFor(fd uintptr) bool {
	began := time.Now()
	for {
		for range yields {
			runtime.Gosched()
		}
		n, err := syscall.Read(int(fd), p.buf)
		if err != syscall.EAGAIN && err != syscall.EINTR {
			p.n, p.inTime = max(n, 0), true
			if err != nil {
				p.err = os.NewSyscallError("read", err)
			}
			return true
		}
		if time.Since(began) > pollFor {
			return true
		}
	}
}
