//go:build race

// Package race says to tests whether the race detector is on: under it a sync.Pool forgets at random, allocations cannot be
// counted and long histories take too long.
package race

// Enabled reports whether the race detector is on.
const Enabled = true
