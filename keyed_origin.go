package weir

import (
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/internal/table"
)

// under is what permits of a key were taken under: a limit, and how often states have moved to another one, and keys have been
// reset, by then.
type under struct {
	terms  *terms
	moves  uint32
	resets uint64
}

// moves counts how often states of keys were carried to another limit. A few keys share a count: who finds that it has moved
// does not know whether it was for the own key, and gives back what is right in either case.
type moves [256]atomic.Uint32

func (k *keyed) movesOf(h table.Hash) *atomic.Uint32 {
	return &k.moves[h.Fingerprint()%uint64(len(k.moves))]
}

// under is what permits that are taken now are taken under. The state of the key must be locked.
func (k *keyed) under(h table.Hash, t *terms) under {
	return under{t, k.movesOf(h).Load(), k.resets.count.Load()}
}

// mostResets is how many resets are remembered at least.
const mostResets = 1 << 15

// resets remembers which keys were reset lately: permits that were taken before must not come back once more.
type resets struct {
	count atomic.Uint64
	mu    sync.Mutex
	// Which of all resets was the last one of a key: of those since the first that is remembered, and of those since another one.
	earlier, later map[table.Hash]uint64
	first, second  uint64
}

// note is called for a key that is reset, under the lock of its state.
func (r *resets) note(h table.Hash) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.count.Load() + 1
	if r.later == nil || len(r.later) >= mostResets {
		r.earlier, r.first = r.later, r.second
		r.later, r.second = make(map[table.Hash]uint64), n
	}
	r.later[h] = n
	r.count.Store(n)
}

// since reports whether a key was reset after so many resets of all keys, or may have been, as that is not remembered any more.
func (r *resets) since(h table.Hash, count uint64) bool {
	if r.count.Load() == count { // nearly always
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return count+1 < r.first || r.earlier[h] > count || r.later[h] > count
}

func (g *gate) under() under {
	if g.keyed == nil {
		return under{}
	}
	return g.keyed.under(g.key, g.terms)
}

// learn keeps what all limits that there have ever been have in common.
func (k *keyed) learn(t *terms) {
	for {
		old := k.fastest.Load()
		if old != nil && !faster(t.limit.rate, old.limit.rate) || k.fastest.CompareAndSwap(old, t) {
			break
		}
	}
	if base := k.base; base != nil && (t.limit.rate.Period != base.limit.rate.Period || t.limit.calendar != base.limit.calendar) {
		k.mixed.Store(true)
	}
}

func faster(a, b Rate) bool {
	hiA, loA := bits.Mul64(uint64(a.Permits), uint64(b.Period))
	hiB, loB := bits.Mul64(uint64(b.Permits), uint64(a.Period))
	return hiA > hiB || hiA == hiB && loA > loB
}

// giveBack cancels n permits, of a claim, in a state that is held to t.
//
// If the state was held to another limit meanwhile, it is not known how many of them have been regained. A bucket then
// gives back what is missing even if they were regained at the fastest rate that there has ever been. Windows give
// them back if all limits have the same windows, or if the one that they were taken under has those of t.
//
// What was taken before the key was reset has come back then.
func (k *keyed) giveBack(state []uint64, t *terms, now, n int64, c *claim) {
	if k.resets.since(c.key, c.under.resets) {
		return
	}
	moved := k.movesOf(c.key).Load() - c.under.moves
	same := moved == 0 && c.under.terms == t
	switch {
	case same || k.returns():
		t.law.Cancel(state, now, n, c.mark)
	case k.base.limit.algorithm == AlgorithmTokenBucket:
		t.law.CancelAcross(k.fastest.Load().law, state, now, n, c.mark)
	case !k.mixed.Load() || moved <= 1 && c.under.terms != t:
		t.law.CancelAcross(c.under.terms.law, state, now, n, c.mark)
	}
}
