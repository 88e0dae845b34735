//go:build !amd64 || race

package table

import "sync/atomic"

// release stores a version after all that was stored before.
func release(version *atomic.Uint64, v uint64) { version.Store(v) }
