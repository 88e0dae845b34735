package tiers

import (
	"cmp"
	"math"
	"slices"
)

// closest is the entry that serves want when no further one can be made. Those that are not looser than want in RPS and in
// Burst come first; among those, or if there are none among all, the one with the smallest |RPS - want.RPS| + |Burst -
// want.Burst|; then the one with the lowest RPS; then that with the lowest burst. No two entries are equal in all, so
// it depends on nothing else.
func closest(entries []*entry, want pair) *entry {
	return slices.MinFunc(entries, func(a, b *entry) int { return compareFor(want, a.pair, b.pair) })
}

// compareFor orders two pairs by how well they serve in place of want: see closest.
func compareFor(want, a, b pair) int {
	looser := func(p pair) int {
		if p.rps > want.rps || p.burst > want.burst {
			return 1
		}
		return 0
	}
	distance := func(p pair) float64 {
		return math.Abs(p.rps-want.rps) + math.Abs(float64(p.burst-want.burst))
	}
	return cmp.Or(
		cmp.Compare(looser(a), looser(b)), cmp.Compare(distance(a), distance(b)),
		cmp.Compare(a.rps, b.rps), cmp.Compare(a.burst, b.burst),
	)
}
