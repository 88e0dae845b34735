//go:build !race

package table

import (
	"math/rand/v2"
	"runtime"
	"testing"
)

type entry struct {
	state uint64
	tag   uint16
}

// TestEqualsMap compares random histories with a map. Hashes that agree in most bits make long runs of slots.
func TestEqualsMap(t *testing.T) {
	for _, spread := range []struct {
		name string
		hash func(key uint64) Hash
	}{
		{"seeded", hash},
		{"crowded", func(key uint64) Hash { return NewHash(key<<56|key>>4, key%3<<40|key) }},
		{"one segment", func(key uint64) Hash { return NewHash(key+1, key<<36) }},
	} {
		t.Run(spread.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			table := New(Options{Words: 1, Shards: 4, FreshAt: freshAt})
			want := map[uint64]entry{}
			for step := range 400_000 {
				now := int64(step)
				key := rng.Uint64N(uint64(step/20 + 10))
				h := spread.hash(key)
				switch rng.IntN(8) {
				case 0:
					s := table.Lock(h)
					_, known := want[key]
					if s.Remove(h) && !known {
						t.Fatalf("step %d: removed a key that was not there", step)
					}
					s.Unlock()
					delete(want, key)
				case 1, 2, 3:
					e := entry{uint64(now) + rng.Uint64N(100_000) + 1, uint16(rng.Uint32())}
					if !table.put(h, e.state, e.tag, now) {
						t.Fatalf("step %d: an unbounded table is full", step)
					}
					want[key] = e
				default:
					state, tag, ok := table.get(h)
					e, known := want[key]
					if ok && (!known || state != e.state || tag != e.tag) {
						t.Fatalf("step %d: key %d is %d/%d, want %+v", step, key, state, tag, e)
					}
					if !ok && known && e.state > uint64(now) {
						t.Fatalf("step %d: key %d is forgotten before it is fresh", step, key)
					}
				}
			}
			check(t, table)
		})
	}
}

// TestSegmentsStaySmall fills a table and looks at what a call may have to move.
func TestSegmentsStaySmall(t *testing.T) {
	table := New(Options{Words: 1, Shards: 2, FreshAt: freshAt})
	for key := range uint64(200_000) {
		table.put(hash(key), 1<<62, 0, 0)
	}
	if table.Len() != 200_000 {
		t.Errorf("%d keys", table.Len())
	}
	check(t, table)
}

// TestBoundHolds sends ever new keys to a table that is full of keys in use: none of those is forgotten, no new one gets in, and
// memory does not grow. When they are fresh, new ones take their places.
func TestBoundHolds(t *testing.T) {
	const bound = 10_000
	table := New(Options{Words: 1, Shards: 4, MaxKeys: bound, FreshAt: freshAt})
	for key := range uint64(bound) {
		if !table.put(hash(key), 1000+key%500, 7, 0) {
			t.Fatalf("key %d does not get in", key)
		}
	}
	for key := range uint64(1_000_000) {
		if table.put(hash(bound+key), 5000, 0, 999) {
			t.Fatalf("key %d got into a full table", key)
		}
	}
	for key := range uint64(bound) {
		if state, tag, ok := table.get(hash(key)); !ok || state != 1000+key%500 || tag != 7 {
			t.Fatalf("key %d was changed", key)
		}
	}
	entered := 0
	for key := range uint64(1_000_000) {
		if table.put(hash(bound+key), 5000, 0, 2000) {
			entered++
		}
	}
	if entered < bound || table.Len() > bound {
		t.Errorf("%d entered, %d are there", entered, table.Len())
	}
	check(t, table)
}

// TestTenMillionKeysShareNothing gives each of ten million keys a state of its own.
func TestTenMillionKeysShareNothing(t *testing.T) {
	keys := uint64(10_000_000)
	if testing.Short() {
		keys = 300_000
	}
	table := New(Options{Words: 1, Shards: 64, FreshAt: freshAt})
	for key := range keys {
		s := table.Lock(hash(key))
		if s.Find(hash(key)) != nil {
			t.Fatalf("key %d is there before it came", key)
		}
		s.Add(hash(key), uint16(key), 0).State()[0] = key | 1<<62
		s.Unlock()
	}
	for key := range keys {
		if state, tag, ok := table.get(hash(key)); !ok || state != key|1<<62 || uint64(tag) != key&0xffff {
			t.Fatalf("key %d has the state %d, tag %d", key, state, tag)
		}
	}
}

// TestBytesPerKey measures the memory of tables of many sizes. No collector has to walk it.
func TestBytesPerKey(t *testing.T) {
	sizes := []int{1_000_000, 300_000, 400_000, 500_000, 700_000}
	for _, c := range []struct {
		words       int
		least, most float64
	}{{1, 24, 40}, {2, 32, 48}} {
		for _, keys := range sizes {
			before := heap()
			table := New(Options{Words: c.words, Shards: 64, FreshAt: freshAt})
			for key := range uint64(keys) {
				table.put(hash(key), 1<<62, 0, 0)
			}
			perKey := float64(heap()-before) / float64(keys)
			t.Logf("%d words, %d keys: %.1f bytes a key", c.words, keys, perKey)
			if perKey < c.least || perKey > c.most {
				t.Errorf("%d words, %d keys: %.1f bytes a key, want %.0f to %.0f", c.words, keys, perKey, c.least, c.most)
			}
			runtime.KeepAlive(table)
		}
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
