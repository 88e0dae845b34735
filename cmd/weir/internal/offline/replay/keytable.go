package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirhq/weir"
)

// keyStats is what is counted for a key.
type keyStats struct {
	key      string
	order    int64 // in which keys were first seen
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

// keyTable holds the statistics of a bounded number of keys. Once it is full, keys that are never refused are not added;
// one that is refused makes room by dropping the half with the fewest refusals, and of those with equally many the ones
// that were seen last.
type keyTable struct {
	stats   map[string]*keyStats
	room    int
	window  time.Duration
	seen    int64
	full    int64 // requests that were refused as there was no room for their key
	dropped bool  // some keys have been left out or dropped
}

// newKeyTable returns a table for so many keys of a limit. Peaks are counted in its period, so that the two can be compared, but
// no less than the second to which most logs are exact.
func newKeyTable(room int, r weir.Rate) *keyTable {
	return &keyTable{stats: make(map[string]*keyStats), room: room, window: max(r.Period, time.Second)}
}

// take counts what was decided on a request with a key.
func (t *keyTable) take(key []byte, now int64, d weir.Decision) {
	if d.Reason == weir.ReasonTableFull {
		t.full++
	}
	k := t.stats[string(key)]
	if k == nil {
		k = t.add(string(key), !d.Allowed)
	}
	if k != nil {
		k.count(now, d, t.window)
	}
}

// add returns new statistics of key, or nil if there is no room for it.
func (t *keyTable) add(key string, refused bool) *keyStats {
	if len(t.stats) >= t.room {
		t.dropped = true
		if !refused {
			return nil
		}
		t.dropHalf()
	}
	t.seen++
	k := &keyStats{key: key, order: t.seen, window: -1}
	t.stats[key] = k
	return k
}

func (t *keyTable) dropHalf() {
	all := make([]*keyStats, 0, len(t.stats))
	for _, k := range t.stats {
		all = append(all, k)
	}
	slices.SortFunc(all, func(a, b *keyStats) int {
		return cmp.Or(cmp.Compare(b.refused, a.refused), cmp.Compare(a.order, b.order))
	})
	for _, k := range all[len(all)/2:] {
		delete(t.stats, k.key)
	}
}

// top returns the n keys with the most refusals, of those with equally many the ones with more requests, and how many keys
// were refused at all.
func (t *keyTable) top(n int) (top []*keyStats, refused int) {
	for _, k := range t.stats {
		if k.refused > 0 {
			top = append(top, k)
		}
	}
	slices.SortFunc(top, func(a, b *keyStats) int {
		return cmp.Or(cmp.Compare(b.refused, a.refused), cmp.Compare(b.requests, a.requests), cmp.Compare(a.key, b.key))
	})
	return top[:min(n, len(top))], len(top)
}
