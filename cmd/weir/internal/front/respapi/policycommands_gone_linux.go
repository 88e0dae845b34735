package respapi

import "golang.org/x/sys/unix"

// tellsHalfClosed says that halfClosed does.
const tellsHalfClosed = true

// halfClosed reports whether the other side of a socket will send nothing more than what can be read already.
func halfClosed(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
}
