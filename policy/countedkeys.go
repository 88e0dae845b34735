package policy

import (
	"cmp"
	"hash/maphash"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/weirhq/weir/internal/names"
	"github.com/weirhq/weir/internal/table"
)

// seeds make the hashes of keys.
type seeds [2]maphash.Seed

func newSeeds() seeds { return seeds{maphash.MakeSeed(), maphash.MakeSeed()} }

func (s *seeds) hash(key []byte) table.Hash {
	return table.NewHash(maphash.Bytes(s[0], key), maphash.Bytes(s[1], key))
}

// countedKeys are the keys of a policy that something happens to most, such as a refusal by this process.
type countedKeys struct {
	seeds

	names   *names.Names[string]
	longest int
}

const mostCountedKeys = 256

func newCountedKeys(longest int) *countedKeys {
	return &countedKeys{newSeeds(), names.New[string](mostCountedKeys), longest}
}

// note counts what happens to a key. Keys that are too long to be remembered have no name.
func (c *countedKeys) note(key []byte) {
	if len(key) <= c.longest {
		c.names.Note(c.hash(key), borrow(key), strings.Clone, rand.Uint64()) //nolint:gosec // no secret
	}
}

// count is how often it has happened to a key since its name is kept.
func (c *countedKeys) count(key string) uint64 {
	_, n, _ := c.names.Lookup(c.hash([]byte(key)))
	return n
}

// all walks through the names that are kept, in no order.
func (c *countedKeys) all() iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		c.names.Each(func(_ table.Hash, key string, n uint64) bool { return n == 0 || yield(key, n) })
	}
}

// top are the n keys that it has happened to most.
func (c *countedKeys) top(n int) []KeyCount {
	var all []KeyCount
	for key, count := range c.all() {
		all = append(all, KeyCount{key, count})
	}
	slices.SortFunc(all, func(a, b KeyCount) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key)) })
	return all[:min(n, len(all))]
}
