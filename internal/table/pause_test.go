package table

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

// TestCallsTouchFewSlots counts the states that single calls look at, under one lock and in all, at the worst: when a table is full
// of keys in use which have all been expected to be fresh by now.
func TestCallsTouchFewSlots(t *testing.T) {
	const lastKey = 400_000
	keys := uint64(fewer(lastKey))
	looked := 0
	table := New(Options{Words: 1, Shards: 8, MaxKeys: int64(keys), FreshAt: func(state []uint64, _ uint16) int64 {
		looked++
		return int64(state[0])
	}})
	worst := map[string]int{}
	call := func(name string, f func()) {
		looked = 0
		f()
		worst[name] = max(worst[name], looked)
	}
	for key := range keys {
		call("Add with room", func() { table.put(hash(key), 100, 0, 0) })
	}
	for key := range keys { // used again, without a word to the table
		s := table.Lock(hash(key))
		s.Find(hash(key)).State()[0] = 1 << 40
		s.Unlock()
	}
	for key := range uint64(200) {
		call("Add to a full table", func() { table.put(hash(lastKey+key), 1<<40, 0, 1000) })
		call("Reclaim", func() { table.Reclaim(1000) })
	}
	call("Sharpen", func() { table.Sharpen(1) })
	var c Cursor
	for more := true; more; {
		call("Next", func() {
			more = table.Next(&c, func(Hash, Slot) bool { looked++; return true })
		})
	}
	t.Logf("%d keys, most slots looked at in one call: %v", keys, worst)
	for name, most := range map[string]int{
		"Add with room": mostSlots, "Add to a full table": mostScans * mostSlots, "Reclaim": mostScans * mostSlots,
		"Sharpen": mostSlots, "Next": mostSlots,
	} {
		if worst[name] > most {
			t.Errorf("%s looks at %d slots, want %d at most", name, worst[name], most)
		}
	}
	if table.Len() != int64(keys) {
		t.Errorf("%d keys, want %d", table.Len(), keys)
	}
}

// TestRefusalsSettle sends new keys to a full table whose keys were all used again: searching it ends after one look at each of
// its segments.
func TestRefusalsSettle(t *testing.T) {
	const keys = 50_000
	looked := 0
	table := New(Options{Words: 1, Shards: 4, MaxKeys: keys, FreshAt: func(state []uint64, _ uint16) int64 {
		looked++
		return int64(state[0])
	}})
	for key := range uint64(keys) {
		table.put(hash(key), 100, 0, 0)
	}
	for key := range uint64(keys) {
		s := table.Lock(hash(key))
		s.Find(hash(key)).State()[0] = 1 << 40
		s.Unlock()
	}
	looked = 0
	for key := range uint64(10_000) {
		if table.put(hash(keys+key), 1<<40, 0, 1000) || table.Reclaim(1000) {
			t.Fatal("a key in use was forgotten")
		}
	}
	if looked > 2*keys {
		t.Errorf("10,000 refusals looked at %d slots of %d keys", looked, keys)
	}
}

// TestManyAtOnce has several goroutines walk through a table, thin it out, bound it, reclaim and sharpen while others fill it. Keys that stay
// are seen by every walk exactly once.
func TestManyAtOnce(t *testing.T) {
	const stay = 3000
	var now, forgotten atomic.Int64
	table := New(Options{
		Words: 1, Shards: 4, MaxKeys: 20_000, Linger: 5, FreshAt: freshAt,
		Forgotten: func(state []uint64, _ uint16) {
			if state[0] == 1<<62 {
				t.Error("a key in use was forgotten")
			}
			forgotten.Add(1)
		},
	})
	for key := range uint64(stay) {
		table.put(hash(key), 1<<62, 1, 0)
	}
	var all sync.WaitGroup
	rounds := fewer(40_000)
	for worker := range uint64(3) {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(worker, 3))
			for range rounds {
				key, at := stay+rng.Uint64N(100_000), now.Add(1)
				h := hash(key)
				switch rng.IntN(8) {
				case 0:
					s := table.Lock(h)
					s.Remove(h)
					s.Unlock()
				case 1:
					table.Reclaim(at)
				case 2:
					if rng.IntN(100) == 0 {
						table.Sharpen(3)
					}
				default:
					table.put(h, uint64(at)+rng.Uint64N(3000), 0, at)
				}
			}
		})
	}
	all.Go(func() {
		for i := range 50 {
			table.Bound(int64(i%3) * 10_000)
			table.NextFresh()
		}
		table.Bound(20_000)
	})
	for walker := range uint64(2) {
		all.Go(func() {
			for range fewer(60) + 3 {
				seen := map[Hash]int{}
				var c Cursor
				for table.Next(&c, func(h Hash, slot Slot) bool {
					if slot.Tag() == 1 {
						seen[h]++
						return true
					}
					return walker == 0 || slot.State()[0]%64 > 0
				}) {
					now.Add(1)
				}
				for key := range uint64(stay) {
					if n := seen[hash(key)]; n != 1 {
						t.Errorf("key %d was seen %d times", key, n)
						return
					}
				}
				if len(seen) != stay {
					t.Errorf("%d keys were seen, want %d", len(seen), stay)
				}
			}
		})
	}
	all.Wait()
	check(t, table)
	for key := range uint64(stay) {
		if state, tag, ok := table.get(hash(key)); !ok || state != 1<<62 || tag != 1 {
			t.Fatalf("key %d is %d %d %v", key, state, tag, ok)
		}
	}
	if forgotten.Load() == 0 {
		t.Error("nothing was forgotten")
	}
}

// TestSegmentsGrow looks at the sizes of segments, each of which is full when it is replaced by one of the next size, or by two.
func TestSegmentsGrow(t *testing.T) {
	for index := range uint16(2) {
		s := Shard{index: index}
		for size := s.sizeFor(0); size <= mostSlots; {
			full := mostUsed(uint64(size))
			next := s.sizeFor(full)
			if full >= size || next <= size || size >= 64 && next > size*3/2 {
				t.Errorf("%d keys fill %d slots, and move to %d", full, size, next)
			}
			if next > mostSlots && s.sizeFor(full/2)*2 != next {
				t.Errorf("%d keys in %d slots move to twice %d slots, want %d in all", full, size, s.sizeFor(full/2), next)
			}
			size = next
		}
		for keys := range mostSlots {
			if size := s.sizeFor(keys); keys >= mostUsed(uint64(size)) {
				t.Errorf("%d keys move to %d slots, which they fill", keys, size)
			}
		}
	}
}
