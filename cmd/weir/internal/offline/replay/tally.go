package replay

import (
	"cmp"
	"slices"
)

// tally counts how often something happened to keys, for a bounded number of them. Once it is full, a new key makes room by
// dropping the half with the lowest counts: then the counts are lower bounds.
type tally struct {
	room    int
	counts  map[string]*int64
	dropped bool
}

// add counts key once more.
func (t *tally) add(key []byte) {
	if n := t.counts[string(key)]; n != nil {
		*n++
		return
	}
	if len(t.counts) >= t.room {
		t.dropHalf()
	}
	if t.counts == nil {
		t.counts = make(map[string]*int64)
	}
	n := int64(1)
	t.counts[string(key)] = &n
}

func (t *tally) dropHalf() {
	t.dropped = true
	for _, k := range t.top(len(t.counts))[(len(t.counts)+1)/2:] {
		delete(t.counts, k.key)
	}
}

// keyCount is a key with its count.
type keyCount struct {
	key   string
	count int64
}

// top returns the n keys with the highest counts, the first the highest.
func (t *tally) top(n int) []keyCount {
	all := make([]keyCount, 0, len(t.counts))
	for key, count := range t.counts {
		all = append(all, keyCount{key, *count})
	}
	slices.SortFunc(all, func(a, b keyCount) int { return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.key, b.key)) })
	return all[:min(n, len(all))]
}
