package adminapi

import (
	"os"
	"runtime"
	"runtime/metrics"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

// process is what the program uses.
func process() operator.Process {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(heap)
	return operator.Process{
		Goroutines: runtime.NumGoroutine(), HeapBytes: heap[0].Value.Uint64(), OpenFiles: openFiles(), CPUSeconds: cpuSeconds(),
	}
}

// openFiles is how many files are open, -1 if the system does not tell.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return len(entries) - 1 // the directory itself
}
