package bench

import (
	"runtime"
	"strings"
)

// countTimers counts the timers that are made while f runs, by profiling every allocation.
func countTimers(f func() error) (int, error) {
	rate := runtime.MemProfileRate
	runtime.MemProfileRate = 1
	before := timersMade()
	err := f()
	after := timersMade()
	runtime.MemProfileRate = rate
	return int(after - before), err
}

// timersMade is how many timers were allocated while every allocation was profiled.
func timersMade() (n int64) {
	// Allocations appear in the profile after the second collection that follows them.
	runtime.GC()
	runtime.GC()
	var records []runtime.MemProfileRecord
	for size := 1000; ; size *= 2 {
		records = make([]runtime.MemProfileRecord, size)
		if found, ok := runtime.MemProfile(records, true); ok {
			records = records[:found]
			break
		}
	}
	for i := range records {
		if isTimer(records[i].Stack()) {
			n += records[i].AllocObjects
		}
	}
	return n
}

// isTimer reports whether what was allocated is a timer, not the channel that goes with it or the room to keep it in.
func isTimer(stack []uintptr) bool {
	frames := runtime.CallersFrames(stack)
	for {
		frame, more := frames.Next()
		switch {
		case frame.Function == "time.newTimer":
			return true
		case !more, frame.Function != "runtime.newobject" && !strings.HasPrefix(frame.Function, "runtime.mallocgc"):
			return false
		}
	}
}
