package store

import (
	"fmt"

	"github.com/weirhq/weir"
)

// Consistency is how exactly processes that share a limit keep to it, and what a decision costs.
type Consistency uint8

const (
	// ConsistencyCoherent asks the store for every decision: exact, for a round trip each.
	ConsistencyCoherent Consistency = iota
	// ConsistencyLeased takes permits in blocks and spends them in memory: never above the limit, sometimes below. See [Leased].
	ConsistencyLeased
	// ConsistencyOptimistic decides in memory and tells the store afterwards: above the limit by a bounded number of permits,
	// never below. See [Optimistic].
	ConsistencyOptimistic
)

var consistencies = [...]string{"coherent", "leased", "optimistic"}

// String is the name that configurations use.
func (c Consistency) String() string {
	if int(c) < len(consistencies) {
		return consistencies[c]
	}
	return fmt.Sprintf("Consistency(%d)", uint8(c))
}

// MarshalText writes the name.
func (c Consistency) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the name.
func (c *Consistency) UnmarshalText(text []byte) error {
	for i, name := range consistencies {
		if string(text) == name {
			*c = Consistency(i)
			return nil
		}
	}
	return &weir.OptionError{Option: "consistency", Value: fmt.Sprintf("%.40q", text), Accepted: "coherent, leased or optimistic"}
}

// Fail is what is decided while a store is unavailable.
type Fail uint8

const (
	// FailClosed refuses, with weir.ReasonUnavailable.
	FailClosed Fail = iota
	// FailOpen allows.
	FailOpen
	// FailLocal goes on limiting in this process, to the limit divided by the number of live replicas.
	FailLocal
)

var fails = [...]string{"closed", "open", "local"}

// String is the name that configurations use.
func (f Fail) String() string {
	if int(f) < len(fails) {
		return fails[f]
	}
	return fmt.Sprintf("Fail(%d)", uint8(f))
}

// MarshalText writes the name.
func (f Fail) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads the name.
func (f *Fail) UnmarshalText(text []byte) error {
	for i, name := range fails {
		if string(text) == name {
			*f = Fail(i)
			return nil
		}
	}
	return &weir.OptionError{Option: "fail", Value: fmt.Sprintf("%.40q", text), Accepted: "closed, open or local"}
}
