// Package inside has what package weir lends to the packages of this repository that build on its inside. Package weir sets the
// variables before anything else of a program runs. They are of type any, as their types have types of package weir in them,
// which imports this package.
package inside

import (
	"errors"
	"sync/atomic"
	"time"
)

// Keyed makes a limiter for keys of any limit, also one whose permits come back when they are released, which rules charge
// together with others. It is a func(weir.Limit, weir.KeyedOptions, func(string) weir.Limit) (*weir.Keyed[string], error).
var Keyed any //nolint:gochecknoglobals // set once, before anything uses it

// Observe has the leases of a limiter observed, which must be done before it is used, and returns the time of its clock. It is a
// func(*weir.Concurrency, Observer) (now int64).
var Observe any //nolint:gochecknoglobals // as above

// Ignore is a func(weir.Lease): it ends a lease like its Release, and an observer learns nothing from it.
var Ignore any //nolint:gochecknoglobals // as above

// Keys returns the keys of a *weir.Keyed[K] or a *weir.KeyedConcurrency[K] for package keyset, whose type keys says what they
// are.
var Keys func(limiter any) any //nolint:gochecknoglobals // as above

// CheckBounds is a func(weir.KeyedOptions) error: it checks those options that can be changed while a limiter works.
var CheckBounds any //nolint:gochecknoglobals // as above

// Step returns the memory of one step after the other over several limits for package keyset, whose type step says what it is.
var Step func() any //nolint:gochecknoglobals // as above

// Batch returns the memory of calls on several keys that are decided together for package keyset, whose type batch says what it
// is.
var Batch func() any //nolint:gochecknoglobals // as above

// Law is how a limit counts, with windows that begin at multiples of their length since 1970. It is a
// func(weir.Limit) (algo.Law, error).
var Law any //nolint:gochecknoglobals // as above

// Members returns the limiters of a chain, in its order; ok is false for all that is no chain. It is a
// func(limiter any) (members []weir.Acquirer, ok bool).
var Members any //nolint:gochecknoglobals // as above

// MostCharges is how many charges a step may have.
const MostCharges = 64

// Call is a call of a keyset.Batch, D being weir.Decision.
type Call[D any] struct {
	Plan     any // of package weir
	Key      string
	N        int64
	Decision *D
}

// Observer learns from the leases of a limiter. Times are those of its clock, in nanoseconds.
type Observer interface {
	// Leased is called for every lease before the caller has it, with how many permits are out.
	Leased(out int64)
	// Ended is called when a lease has ended, unless it was canceled or ignored: when it began, when it ended, and whether it was
	// dropped.
	Ended(since, now int64, dropped bool)
}

// State is keyset.State, L being weir.Limit.
type State[K comparable, L any] struct {
	Key              K
	Named            bool
	ID               string
	Limit, Remaining int64
	ResetAfter       time.Duration
	RetryAfter       time.Duration
	Held             L
	Queued           int64
	Waiters          int
	Refused          uint64
	Overridden       time.Duration
}

// The errors of keyset.
var (
	ErrTableFull        = errors.New("weir: no room for another key: raise MaxKeys")
	ErrTooManyOverrides = errors.New("weir: 65536 keys are overridden already: restore some")
)

// Made is what packages of this repository make of a limit, each in its own place: once, when it is first needed. See
// limits.Made.
type Made [makers]atomic.Value

// The places in a Made.
const (
	MadeByStore = iota
	MadeByRedis
	MadeByEnvoy

	makers
)

// MadeOf is a func(weir.Limit) *Made.
var MadeOf any //nolint:gochecknoglobals // set once, before anything uses it
