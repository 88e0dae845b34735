// Package raw has what package weir lends to the packages of this repository that build on its inside.
package raw

// Keyed makes a limiter for keys of any limit, also one whose permits come back when they are released, which rules charge
// together with others. It is a func(weir.Limit, weir.KeyedOptions, func(string) weir.Limit) (*weir.Keyed[string], error), set by
// package weir.
var Keyed any //nolint:gochecknoglobals // set once, before anything uses it
