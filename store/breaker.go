package store

import (
	"log/slog"
	"time"

	"github.com/weirhq/weir"
)

// BreakerOptions configure a [Breaker].
type BreakerOptions struct {
	// Failures is how many calls in a row must fail until the breaker opens: from 1 to 10^6. Default: 5.
	Failures int
	// Cooldown is how long the breaker stays open the first time: from 1 ms to 1 h. Default: 100 ms.
	Cooldown time.Duration
	// MaxCooldown is how long it stays open at most, after Cooldown has doubled as often as needed: from Cooldown to 1 h.
	// Default: 5 s, or Cooldown if that is longer.
	MaxCooldown time.Duration
	// Logger is told of each transition. Default: nil, nobody is.
	Logger *slog.Logger
	// Clock measures the cooldown. Default: nil, the monotonic clock of the process.
	Clock weir.Clock
}

// BreakerState is what a [Breaker] does with calls.
type BreakerState uint8

const (
	// BreakerClosed lets calls through.
	BreakerClosed BreakerState = iota
	// BreakerOpen fails calls at once.
	BreakerOpen
	// BreakerHalfOpen has let one call through, and fails others until that has an answer.
	BreakerHalfOpen
)

// BreakerStats tell what a [Breaker] does and did.
type BreakerStats struct {
	// State is what it does with calls.
	State BreakerState `json:"state"`
	// Since is when it came into that state, by the wall clock.
	Since time.Time `json:"since"`
	// Opened is how often it has opened: each outage counts once, however many probes failed.
	Opened uint64 `json:"opened"`
	// Asked is how many calls were let through, of which Failed had no answer.
	Asked  uint64 `json:"asked"`
	Failed uint64 `json:"failed"`
	// FastFailed is how many calls were failed without being let through.
	FastFailed uint64 `json:"fastFailed"`
}
