package policy

import (
	"time"

	"github.com/weirhq/weir/store"
)

// Consistency is where the limits of a policy are kept, and how exactly processes that share them keep to them.
type Consistency uint8

const (
	// ConsistencyLocal keeps them in this process: each process has limits of its own.
	ConsistencyLocal Consistency = iota
	// ConsistencyCoherent asks the store for every decision: see [store.ConsistencyCoherent].
	ConsistencyCoherent
	// ConsistencyLeased takes permits in blocks and spends them in memory, never above the limit: see
	// [store.ConsistencyLeased].
	ConsistencyLeased
	// ConsistencyOptimistic decides in memory and tells the store afterwards, above the limit by a bounded number of permits: see
	// [store.ConsistencyOptimistic].
	ConsistencyOptimistic

	consistencies
)

var consistencyNames = [consistencies]string{"local", "coherent", "leased", "optimistic"}

// Shared reports whether the limits are kept in a store.
func (c Consistency) Shared() bool { return c != ConsistencyLocal }

// Stored is what charges say of it to a store. ConsistencyLocal, which no store has to do with, is coherent.
func (c Consistency) Stored() store.Consistency {
	switch c {
	case ConsistencyLeased:
		return store.ConsistencyLeased
	case ConsistencyOptimistic:
		return store.ConsistencyOptimistic
	case ConsistencyLocal, ConsistencyCoherent, consistencies:
	}
	return store.ConsistencyCoherent
}

// String is "local", "coherent", "leased" or "optimistic".
func (c Consistency) String() string { return nameIn(consistencyNames[:], c, "Consistency") }

// MarshalText is String.
func (c Consistency) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (c *Consistency) UnmarshalText(text []byte) error {
	return findName(consistencyNames[:], c, text, "consistency")
}

// defaultHold is the Hold of a policy that does not say.
const defaultHold = time.Minute
