package respapi

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tellWhatIsLeft has reads of a socket tell whether they have left nothing, and reports whether they will.
func tellWhatIsLeft(fd uintptr) bool {
	return tellsEnd() && unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_INQ, 1) == nil
}

// tellsEnd reports whether the system counts the end of a stream as something that is left. Linux does; what stands in for it may
// not.
var tellsEnd = sync.OnceValue(func() (tells bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return false
	}
	defer l.Close() //nolint:errcheck // nothing is lost
	far, err := new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		return false
	}
	defer far.Close() //nolint:errcheck // nothing is lost
	near, err := l.Accept()
	if err != nil {
		return false
	}
	defer near.Close()                            //nolint:errcheck // nothing is lost
	raw, err := near.(syscall.Conn).SyscallConn() //nolint:errcheck,forcetypeassert // it is a net.TCPConn
	if err != nil {
		return false
	}
	if _, err = far.Write([]byte{0}); err != nil {
		return false
	}
	if err = far.(*net.TCPConn).CloseWrite(); err != nil { //nolint:errcheck,forcetypeassert // it was dialed as one
		return false
	}
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		if n, wrong := unix.Poll(p, int(time.Second/time.Millisecond)); n != 1 || wrong != nil {
			return
		}
		if unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_INQ, 1) != nil {
			return
		}
		n, left, wrong := readWith(fd, make([]byte, 2)) //nolint:mnd // one more than there is
		tells = n == 1 && left > 0 && wrong == nil
	})
	return tells && err == nil
})

// readNow reads what has arrived. The socket does not block, so the call takes microseconds, and the scheduler is not told of it:
// its monitor would else wake up every 20 µs to see whether others need the processor, which took a tenth of a busy one. It
// returns whether it is known that it has left nothing.
func readNow(fd uintptr, b []byte) (n int, empty bool, err error) {
	n, left, err := readWith(fd, b)
	return n, left == 0, err
}

// readWith reads, and returns how many bytes are left, -1 if the system does not tell.
func readWith(fd uintptr, b []byte) (n, left int, err error) {
	var told struct {
		unix.Cmsghdr

		left int32
		_    [16]byte // there may be more
	}
	part := unix.Iovec{Base: unsafe.SliceData(b)} //nolint:gosec // the system knows how much there is
	part.SetLen(len(b))
	message := unix.Msghdr{Iov: &part, Control: (*byte)(unsafe.Pointer(&told))} //nolint:gosec // and how large this is
	message.SetIovlen(1)
	message.SetControllen(int(unsafe.Sizeof(told)))
	got, _, errno := syscall.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&message)), 0) //nolint:gosec // see above
	if errno != 0 {
		return 0, -1, errno
	}
	if message.Controllen == 0 || told.Level != unix.IPPROTO_TCP || told.Type != unix.TCP_INQ {
		return int(got), -1, nil
	}
	return int(got), int(told.left), nil
}

// writeNow is readNow for a write. What it writes is bounded by the caller, as nothing else runs on the processor meanwhile.
func writeNow(fd uintptr, b []byte) (int, error) {
	start := unsafe.Pointer(unsafe.SliceData(b)) //nolint:gosec // the system knows how much there is
	n, _, errno := syscall.RawSyscall(unix.SYS_WRITE, fd, uintptr(start), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
