//go:build unix

package bench

import "golang.org/x/sys/unix"

// offHeap returns memory that the collector does not know, so that what a measurement keeps there is neither counted nor
// scanned with the limiter that is measured.
func offHeap(size int) (memory []byte, free func()) {
	memory = must(unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE))
	return memory, func() { _ = unix.Munmap(memory) }
}

// pageFaults is how often the process was given a page of memory so far.
func pageFaults() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return int64(u.Minflt) //nolint:unconvert // it is narrower on some systems
}
