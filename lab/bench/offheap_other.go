//go:build !unix

package bench

// offHeap returns memory of the heap, where it is not known how to get other.
func offHeap(size int) (memory []byte, free func()) { return make([]byte, size), func() {} }

// pageFaults is not known.
func pageFaults() int64 { return 0 }
