//go:build unix

package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the CPU time that the process has used, in user mode and in the kernel.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
