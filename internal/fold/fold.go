// Package fold bounds how many names metrics have: the first ones stay, and all others are one. The counts of these others
// together only grow, although reloads move names between those that stay and the others.
package fold

import "sync"

// Items fold what T has of each of many names. Its methods are safe for concurrent use.
type Items[T any] struct {
	// Most is how many names stay, and Other the name of the others together: an item of this name is one of them.
	Most  int
	Other string
	// Name is that of an item.
	Name func(item *T) string
	// Counts are all that an item counts, of each item the same ones in the same order: what only grows, unless an item of the
	// name begins anew.
	Counts func(item *T) []*uint64
	// Add adds what there is now of an item to a sum: what Counts does not answer.
	Add func(sum, item *T)

	lock   sync.Mutex
	last   map[string][]uint64 // what the items had counted when they were last folded
	others []uint64            // what was counted by others
}

// Fold reads items, and returns those that stay, and the others as one behind them, if there are some, with the name of each.
// The items are read by one caller at a time, in the order in which they are folded.
func (f *Items[T]) Fold(read func() []T) (folded []T, names []string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	items := read()
	last := make(map[string][]uint64, len(items))
	var sum T
	some := false
	for i := range items {
		item := &items[i]
		name := f.Name(item)
		counts := values(f.Counts(item))
		if name != f.Other && len(names) < f.Most {
			folded, names = append(folded, *item), append(names, name)
		} else {
			f.Add(&sum, item)
			f.count(counts, f.last[name])
			some = true
		}
		last[name] = counts
	}
	f.last = last
	if some {
		for i, to := range f.Counts(&sum) {
			*to = f.others[i]
		}
		folded, names = append(folded, sum), append(names, f.Other)
	}
	return folded, names
}

// count adds to the others what one of them has counted since it was last folded, as one of them or not.
func (f *Items[T]) count(now, before []uint64) {
	if f.others == nil {
		f.others = make([]uint64, len(now))
	}
	for i, n := range now {
		if i < len(before) && before[i] <= n {
			n -= before[i]
		}
		f.others[i] += n
	}
}

func values(of []*uint64) []uint64 {
	all := make([]uint64, len(of))
	for i, at := range of {
		all[i] = *at
	}
	return all
}
