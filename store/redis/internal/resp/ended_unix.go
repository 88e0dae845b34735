//go:build unix

package resp

import (
	"net"
	"syscall"
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
