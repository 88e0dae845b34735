//go:build !unix

package bench

import "time"

// cpuTime is the CPU time that the process has used, which is not measured here.
func cpuTime() time.Duration { return 0 }
