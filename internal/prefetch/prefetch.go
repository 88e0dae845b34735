//go:build amd64 || arm64

// Package prefetch has the processor load memory before it is needed.
package prefetch

// Lines has the processor begin to load the cache line of an address, and the next one. It reads nothing: others may write there
// meanwhile, and the address may be any. A load in Go would have to be an atomic one, and holds up what comes after it: batches
// of 64 take 15 percent longer then.
func Lines(first uintptr)
