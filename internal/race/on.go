//go:build race

// Package race has a constant for tests: whether the race detector is on. Under it a sync.Pool forgets at random, allocations
// cannot be counted and long histories take too long.
package race

// Enabled reports whether the race detector is on.
const Enabled = true
