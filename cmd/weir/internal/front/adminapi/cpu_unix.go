//go:build unix

package adminapi

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuSeconds is how much time of processors the program has used, -1 if the system does not tell.
func cpuSeconds() float64 {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return -1
	}
	return (time.Duration(used.Utime.Nano()) + time.Duration(used.Stime.Nano())).Seconds()
}
