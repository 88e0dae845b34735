package replay

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir"
)

// keyTable counts for a bounded number of keys. Once it is full, a new key makes room by dropping the half with the lowest
// weights, and of those with equal ones the keys that were seen last: then the counts are lower bounds.
type keyTable[V any] struct {
	room    int
	weight  func(*V) int64
	keys    map[string]*keyCounts[V]
	seen    int64
	dropped bool // some keys have been left out or dropped
}

// keyCounts is what is counted for a key.
type keyCounts[V any] struct {
	key    string
	order  int64 // in which keys were first seen
	counts V
}

// of is what is counted for a key. It is nil if there is no room for the key, and it makes none.
func (t *keyTable[V]) of(key []byte, makesRoom bool) *V {
	if k := t.keys[string(key)]; k != nil {
		return &k.counts
	}
	if len(t.keys) >= t.room {
		t.dropped = true
		if !makesRoom {
			return nil
		}
		for _, k := range t.sorted(func(a, b *keyCounts[V]) int {
			return cmp.Or(cmp.Compare(t.weight(&b.counts), t.weight(&a.counts)), cmp.Compare(a.order, b.order))
		})[len(t.keys)/2:] {
			delete(t.keys, k.key)
		}
	}
	if t.keys == nil {
		t.keys = make(map[string]*keyCounts[V])
	}
	t.seen++
	k := &keyCounts[V]{key: string(key), order: t.seen}
	t.keys[k.key] = k
	return &k.counts
}

func (t *keyTable[V]) sorted(compare func(a, b *keyCounts[V]) int) []*keyCounts[V] {
	return slices.SortedFunc(maps.Values(t.keys), compare)
}

// tally counts how often something happened to keys.
type tally struct{ keyTable[int64] }

// newTally returns one for each of so many policies.
func newTally(policies int) tally {
	return tally{keyTable[int64]{room: keysOf(policies), weight: func(n *int64) int64 { return *n }}}
}

// add counts key once more.
func (t *tally) add(key []byte) { *t.of(key, true)++ }

// top returns the n keys with the highest counts, the first the highest.
func (t *tally) top(n int) []*keyCounts[int64] {
	all := t.sorted(func(a, b *keyCounts[int64]) int {
		return cmp.Or(cmp.Compare(b.counts, a.counts), cmp.Compare(a.key, b.key))
	})
	return all[:min(n, len(all))]
}

// keyStats is what is counted for a key of a limit.
type keyStats struct {
	requests int64
	refused  int64
	// firstRefused and lastRefused are in nanoseconds since 1970.
	firstRefused, lastRefused int64
	worstWait                 time.Duration
	// peak is the most requests in one window.
	window, inWindow, peak int64
}

// count counts a request that was decided at a time in nanoseconds since 1970.
func (k *keyStats) count(now int64, d weir.Decision, window time.Duration) {
	k.requests++
	if w := now / int64(window); w != k.window {
		k.window, k.inWindow = w, 0
	}
	k.inWindow++
	k.peak = max(k.peak, k.inWindow)
	if d.Allowed {
		return
	}
	if k.refused == 0 {
		k.firstRefused = now
	}
	k.refused++
	k.lastRefused = now
	k.worstWait = max(k.worstWait, d.RetryAfter)
}

// limitKeys are the keys of a limit. Only one that is refused makes room for itself.
type limitKeys struct {
	keyTable[keyStats]

	window time.Duration
	full   int64 // requests that were refused as there was no room for their key
}

// newLimitKeys returns a table for so many keys of a limit. Peaks are counted in its period, so that the two can be compared, but
// no less than the second to which most logs are exact.
func newLimitKeys(room int, r weir.Rate) *limitKeys {
	refused := func(k *keyStats) int64 { return k.refused }
	return &limitKeys{keyTable: keyTable[keyStats]{room: room, weight: refused}, window: max(r.Period, time.Second)}
}

// take counts what was decided on a request with a key.
func (t *limitKeys) take(key []byte, now int64, d weir.Decision) {
	if d.Reason == weir.ReasonTableFull {
		t.full++
	}
	if k := t.of(key, !d.Allowed); k != nil {
		k.count(now, d, t.window)
	}
}

// top returns the n keys with the most refusals, of those with equally many the ones with more requests, and how many keys
// were refused at all.
func (t *limitKeys) top(n int) (top []*keyCounts[keyStats], refused int) {
	all := t.sorted(func(a, b *keyCounts[keyStats]) int {
		x, y := &a.counts, &b.counts
		return cmp.Or(cmp.Compare(y.refused, x.refused), cmp.Compare(y.requests, x.requests), cmp.Compare(a.key, b.key))
	})
	if refused = slices.IndexFunc(all, func(k *keyCounts[keyStats]) bool { return k.counts.refused == 0 }); refused < 0 {
		refused = len(all)
	}
	return all[:min(n, refused)], refused
}
