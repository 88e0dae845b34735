//go:build !amd64

package keyhash

// String returns the hashes of a text.
func String(key string) (a, b uint64) { return twice(key) }
