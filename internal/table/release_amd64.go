//go:build !race

package table

import (
	"sync/atomic"
	"unsafe"
)

// release stores a version after all that was stored and loaded before, as any store does on this processor. That of sync/atomic
// is an exchange, which holds up what comes after it as well: 4 ns in each call. It is not inlined, so that the compiler moves
// nothing over it.
//
//go:noinline
func release(version *atomic.Uint64, v uint64) {
	*(*uint64)(unsafe.Pointer(version)) = v //nolint:gosec // it is one word
}
