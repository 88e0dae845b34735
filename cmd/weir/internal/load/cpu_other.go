//go:build !unix

package load

import "time"

// cpuTime is how much time of the processors the program has used, which is not known here.
func cpuTime() (used time.Duration, ok bool) { return 0, false }
