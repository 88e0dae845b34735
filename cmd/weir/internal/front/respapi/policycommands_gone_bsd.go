//go:build unix && !linux

package respapi

// tellsHalfClosed says that halfClosed does not.
const tellsHalfClosed = false

// halfClosed does not know.
func halfClosed(uintptr) bool { return false }
