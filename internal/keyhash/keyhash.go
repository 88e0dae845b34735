// Package keyhash hashes keys to 128 bits under secrets of the process, so that no client can look for keys that collide.
package keyhash

import "hash/maphash"

// seeds are those of maphash: of texts that the processor has no hash for.
var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// Comparable returns the hashes of a value that is equal to itself.
func Comparable[K comparable](key K) (a, b uint64) {
	return maphash.Comparable(seeds[0], key), maphash.Comparable(seeds[1], key)
}

// twice returns the hashes of a text of any length.
//
//go:noinline
func twice(key string) (a, b uint64) {
	return maphash.String(seeds[0], key), maphash.String(seeds[1], key)
}
