package ratelimitconfig

import (
	"github.com/weirhq/weir"
)

// Entry is an entry of a descriptor.
type Entry struct{ Key, Value string }

// Override is the limit that a descriptor brings itself. The zero Override is none.
type Override struct {
	RequestsPerUnit uint32
	Unit            Unit
}

// Outcome is what was found for a descriptor.
type Outcome uint8

const (
	// None says that no limit holds for the descriptor: it passes.
	None Outcome = iota
	// Unlimited says that a limit holds which admits everything.
	Unlimited
	// Limited says that a limit holds, which is counted.
	Limited
	// Replaced says that a limit would hold which another descriptor of the request replaces: it passes, and is not counted.
	Replaced
)

// Match is what was found for a descriptor. It can be used again, which saves memory; the zero Match is ready.
type Match struct {
	// Outcome says whether a limit holds.
	Outcome Outcome
	// Limit is the limit, nil if Outcome is None. That of an override has only Domain, Policy, PolicyBytes, RequestsPerUnit, Unit
	// and Counted; it is valid until the Match is used again.
	Limit *Limit
	// Key is what the descriptor is counted under in the policy of Limit, valid until the Match is used again. Cost is how many
	// permits it takes: the hits, but more than there ever are if the limit is 0 per unit.
	Key  []byte
	Cost int64
	// Brought is the limit that the request brings with it, and Overrides whether it does: then the policy must be asked with it.
	Brought   weir.Limit
	Overrides bool

	override Limit
}

// Match finds the limit of a descriptor. hits is how many hits it counts, from 0 to 10^15. It allocates nothing but Key, once.
func (c *Config) Match(m *Match, domain string, entries []Entry, override Override, hits int64) {
	*m = Match{Key: m.Key[:0], Cost: hits}
}

// Replace makes those matches of one request Replaced whose limits have a name that another of its limits replaces. Those that are
// Unlimited replace others, and are not replaced themselves.
func Replace(matches []Match) {}
