package policy

import (
	"cmp"
	"hash/maphash"
	"iter"
	"slices"
	"strings"

	"github.com/weirhq/weir/internal/names"
	"github.com/weirhq/weir/internal/table"
)

// refusedKeys are the keys of a policy in a store that this process has refused most.
type refusedKeys struct {
	seeds [2]maphash.Seed
	names *names.Names[string]
}

const mostRefusedKeys = 256

func newRefusedKeys() *refusedKeys {
	return &refusedKeys{
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, names: names.New[string](mostRefusedKeys),
	}
}

func (r *refusedKeys) hash(key []byte) table.Hash {
	return table.NewHash(maphash.Bytes(r.seeds[0], key), maphash.Bytes(r.seeds[1], key))
}

// note counts a refusal. Keys that are too long to be remembered have no name.
func (r *refusedKeys) note(key []byte) {
	if len(key) <= longestLockedName {
		r.names.NoteCopy(r.hash(key), borrow(key), strings.Clone)
	}
}

// count is how often a key was refused since its name is kept.
func (r *refusedKeys) count(key string) uint64 {
	_, n, _ := r.names.Lookup(r.hash([]byte(key)))
	return n
}

// all walks through the names that are kept, in no order.
func (r *refusedKeys) all() iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		r.names.Each(func(_ table.Hash, key string, n uint64) bool { return yield(key, n) })
	}
}

// top are the n keys that were refused most.
func (r *refusedKeys) top(n int) []string {
	var all []KeyCount
	for key, count := range r.all() {
		all = append(all, KeyCount{key, count})
	}
	slices.SortFunc(all, func(a, b KeyCount) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key)) })
	keys := make([]string, 0, min(n, len(all)))
	for i := range all[:min(n, len(all))] {
		keys = append(keys, all[i].Key)
	}
	return keys
}
