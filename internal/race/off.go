//go:build !race

// Package race says to tests whether the race detector is on.
package race

// Enabled reports whether the race detector is on.
const Enabled = false
