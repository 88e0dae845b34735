// Package raw has what package weir lends to the packages of this repository that build on its inside.
package raw

// Keyed makes a limiter for keys of any limit, also one whose permits come back when they are released, which rules charge
// together with others. It is a func(weir.Limit, weir.KeyedOptions, func(string) weir.Limit) (*weir.Keyed[string], error), set by
// package weir.
var Keyed any //nolint:gochecknoglobals // set once, before anything uses it

// Observe has the leases of a limiter observed, which must be done before it is used, and returns the time of its clock. It is a
// func(*weir.Concurrency, Observer) (now int64), set by package weir.
var Observe any //nolint:gochecknoglobals // as above

// Observer learns from the leases of a limiter. Times are those of its clock, in nanoseconds.
type Observer interface {
	// Granted is called for every lease before the caller has it, with how many permits are out.
	Granted(out int64)
	// Ended is called when a lease has ended, unless it was canceled: when it was granted, when it ended, and whether it was
	// dropped.
	Ended(since, now int64, dropped bool)
}
