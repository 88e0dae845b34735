//go:build unix

package respapi

import (
	"errors"
	"net"
	"syscall"
)

// hasGone waits until the other side of a connection has gone away, and returns true, or until the deadline of reads passes.
// Nothing is read. Where the system does not tell what comes behind what has not been read, it may give up when there is
// something.
func hasGone(nc net.Conn) (gone bool) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	var next [1]byte
	err = raw.Read(func(fd uintptr) bool {
		for {
			n, _, wrong := syscall.Recvfrom(int(fd), next[:], syscall.MSG_PEEK)
			if errors.Is(wrong, syscall.EINTR) {
				continue
			}
			if errors.Is(wrong, syscall.EAGAIN) {
				return false
			}
			gone = n <= 0 || halfClosed(fd)
			return gone || !tellsHalfClosed // it is called again when something happens
		}
	})
	return gone && err == nil
}
