package table

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"unsafe"
)

const (
	smallPage = 4 << 10 // where a large page has 2 MB; where small ones are larger, it may have 512 MB

	// heapChunk is in which pieces, aligned to their size, the runtime takes memory for its heap from the system.
	heapChunk = 4 << 20

	// leastLarge is how many words of slots are worth it. Smaller ones share the pages of the runtime with others.
	leastLarge = 1 << 10
)

// largePages are those chunks of the heap for which the system was asked for large pages.
var largePages = struct {
	wanted bool
	mu     sync.Mutex
	chunks map[uintptr]struct{}
}{
	wanted: wantsLarge(os.Getpagesize(), os.Getenv("GODEBUG")), chunks: map[uintptr]struct{}{},
}

// wantsLarge reports whether to ask for large pages: unless the program is told to do without, in the way of the runtime.
func wantsLarge(page int, godebug string) bool {
	wanted := page == smallPage
	for setting := range strings.SplitSeq(godebug, ",") {
		if value, ok := strings.CutPrefix(setting, "disablethp="); ok {
			wanted = wanted && value == "0"
		}
	}
	return wanted
}

// askForLarge asks the system to back the part of the heap in which the slots lie by large pages, before they are touched: a page
// is then missed once for 2 MB and not 512 times, and the processor finds more of the table without a look at the page tables.
// The system need not do it, and what else lies there is as good as before.
func askForLarge(slots []uint64) {
	if len(slots) < leastLarge || !largePages.wanted {
		return
	}
	first := uintptr(unsafe.Pointer(&slots[0])) //nolint:gosec // nothing is read through it
	last := first + uintptr(len(slots)-1)*wordBytes
	for chunk := first &^ (heapChunk - 1); chunk <= last; chunk += heapChunk {
		if firstAsked(chunk) {
			_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, chunk, heapChunk, syscall.MADV_HUGEPAGE)
		}
	}
}

const wordBytes = 8

func firstAsked(chunk uintptr) bool {
	largePages.mu.Lock()
	defer largePages.mu.Unlock()
	_, asked := largePages.chunks[chunk]
	largePages.chunks[chunk] = struct{}{}
	return !asked
}
