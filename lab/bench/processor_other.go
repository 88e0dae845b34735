//go:build !linux

package bench

// processor is the number of the processor that the caller runs on, or -1 if it is not known, as here: then goroutines
// are not known to start on different ones, and the report says so.
func processor() int { return -1 }
