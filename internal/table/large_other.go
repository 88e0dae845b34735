//go:build !linux

package table

// askForLarge does nothing where the system has no large pages, or decides about them by itself.
func askForLarge([]uint64) {}
