//go:build unix

package respapi

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// hasGone waits until the other side of a connection has gone away, and answers true; or until there is something to read or the
// deadline of reads passes. Nothing is read.
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
			n, _, err := syscall.Recvfrom(int(fd), next[:], syscall.MSG_PEEK)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if err == syscall.EAGAIN { //nolint:errorlint // it comes from the call itself
				return false
			}
			gone = n <= 0
			return true
		}
	})
	return gone && err == nil
}

// disarm makes a transport look at its deadline again, which somebody else has removed.
func disarm(via transport) {
	switch t := via.(type) {
	case *socket:
		t.armed = time.Time{}
	case *stream:
		t.armed = time.Time{}
	}
}
