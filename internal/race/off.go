//go:build !race

// Package race has a constant for tests: whether the race detector is on.
package race

// Enabled reports whether the race detector is on.
const Enabled = false
