//go:build !linux

package table

// askForLarge does nothing where the system gives large pages unasked, or none.
func askForLarge([]uint64) {}
