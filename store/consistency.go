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
func (c Consistency) String() string { return nameOf(consistencies[:], c, "Consistency") }

// MarshalText writes the name.
func (c Consistency) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the name.
func (c *Consistency) UnmarshalText(text []byte) error {
	return findName(consistencies[:], c, text, "consistency", "coherent, leased or optimistic")
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
func (f Fail) String() string { return nameOf(fails[:], f, "Fail") }

// MarshalText writes the name.
func (f Fail) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads the name.
func (f *Fail) UnmarshalText(text []byte) error {
	return findName(fails[:], f, text, "fail", "closed, open or local")
}

// nameOf is the name of a constant, or its type and number if it has none.
func nameOf[C ~uint8](names []string, c C, kind string) string {
	if int(c) < len(names) {
		return names[c]
	}
	return fmt.Sprintf("%s(%d)", kind, uint8(c))
}

// findName makes c the constant of a name, or returns an error about the option, of which accepted are the names.
func findName[C ~uint8](names []string, c *C, text []byte, option, accepted string) error {
	for i, name := range names {
		if string(text) == name {
			*c = C(i)
			return nil
		}
	}
	return &weir.OptionError{Option: option, Value: fmt.Sprintf("%.40q", text), Accepted: accepted}
}
