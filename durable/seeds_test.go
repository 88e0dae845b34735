package durable_test

import (
	"flag"
	"iter"
	"math/rand/v2"
	"testing"

	"github.com/weirhq/weir/internal/race"
)

// seeded is the history to be played again: what a failure is named after.
var seeded = flag.Uint64("history", 0, "the seed of a history to be played alone")

// seeds are those of so many histories, or of few where each takes longer, or the one to be played alone.
func seeds(rounds, few int) iter.Seq[uint64] {
	base := rand.Uint64()
	switch {
	case *seeded != 0:
		base, rounds = *seeded, 1
	case testing.Short() || race.Enabled:
		rounds = few
	}
	return func(yield func(uint64) bool) {
		for i := range rounds {
			if !yield(base + uint64(i)) {
				return
			}
		}
	}
}
