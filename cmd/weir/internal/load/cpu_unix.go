//go:build unix

package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is how much time of the processors the program has used. It is not known if it is not ok.
func cpuTime() (used time.Duration, ok bool) {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
