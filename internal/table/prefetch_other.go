//go:build !amd64 && !arm64

package table

// prefetch does nothing where there is no instruction for it here: each slot is loaded when it is looked at.
func prefetch(*uint64) {}
