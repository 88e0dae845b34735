//go:build unix

package grpcloop

import (
	"io"
	"net"
	"syscall"
)

// socket reads a plain connection by itself, so that it needs a buffer only once there is something to read.
type socket struct {
	c   *conn
	raw syscall.RawConn

	err  error
	once func(fd uintptr) bool // made once, as each would be an allocation
}

// socketOf returns nil if the connection of c is no socket.
func socketOf(nc net.Conn, c *conn) *socket {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	s := &socket{c: c, raw: raw}
	s.once = s.read
	return s
}

// receive is [conn.receive].
func (s *socket) receive() error {
	if err := s.raw.Read(s.once); err != nil {
		return err
	}
	return s.err
}

// read reads once. It returns false to be called again when there is something to read.
func (s *socket) read(fd uintptr) bool {
	c := s.c
	c.work()
	for {
		n, err := syscall.Read(int(fd), c.space())
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			c.rest()
			return false
		case n == 0 && err == nil:
			err = io.EOF
		}
		s.err = err
		c.took(max(n, 0))
		return true
	}
}
