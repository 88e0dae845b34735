package respapi

import (
	"syscall"
	"unsafe"
)

// readNow reads what has arrived. The socket does not block, so the call takes microseconds, and the scheduler is not told of it:
// its monitor would else wake up every 20 µs to see whether others need the processor, which took a tenth of a busy one.
func readNow(fd uintptr, b []byte) (int, error) { return socketCall(syscall.SYS_READ, fd, b) }

// writeNow is readNow for a write. What it writes is bounded by the caller, as nothing else runs on the processor meanwhile.
func writeNow(fd uintptr, b []byte) (int, error) { return socketCall(syscall.SYS_WRITE, fd, b) }

func socketCall(trap, fd uintptr, b []byte) (int, error) {
	start := unsafe.Pointer(unsafe.SliceData(b)) //nolint:gosec // the system knows how much there is
	n, _, errno := syscall.RawSyscall(trap, fd, uintptr(start), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
