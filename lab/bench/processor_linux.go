package bench

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// processor is the number of the processor that the caller runs on, or -1 if it is not known.
func processor() int {
	var n uint32
	//nolint:gosec // the kernel writes one word, which n is
	if _, _, e := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&n)), 0, 0); e != 0 {
		return -1
	}
	return int(n)
}
