package table

import (
	"hash/maphash"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/race"
)

// fewer is n, or less under the race detector, which makes everything some ten times slower.
func fewer(n int) int {
	if race.Enabled {
		return n / 8
	}
	return n
}

// The states of these tests are one word, the time at which the key is fresh.
func freshAt(state []uint64, _ uint16) int64 { return int64(state[0]) }

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func hash(key uint64) Hash {
	return NewHash(maphash.Comparable(seeds[0], key), maphash.Comparable(seeds[1], key))
}

func (t *Table) put(h Hash, state uint64, tag uint16, now int64) bool {
	s := t.Lock(h)
	defer s.Unlock()
	slot := s.Find(h)
	if slot == nil {
		if slot = s.Add(h, tag, now); slot == nil {
			return false
		}
	}
	slot.State()[0] = state
	slot.SetTag(tag)
	s.Due(h, int64(state))
	return true
}

func (t *Table) get(h Hash) (state uint64, tag uint16, ok bool) {
	s := t.Lock(h)
	defer s.Unlock()
	slot := s.Find(h)
	if slot == nil {
		return 0, 0, false
	}
	return slot.State()[0], slot.Tag(), true
}

// check looks at what must hold of every table.
func check(t *testing.T, table *Table) {
	t.Helper()
	seen := map[Hash]bool{}
	table.Each(func(h Hash, _ Slot) bool {
		if seen[h] {
			t.Errorf("%v is there twice", h)
		}
		seen[h] = true
		return true
	})
	if int64(len(seen)) != table.Len() {
		t.Errorf("%d keys are there, but %d are counted", len(seen), table.Len())
	}
	alike := strings.HasSuffix(t.Name(), "one_segment") // hashes that no split tells apart
	for i := range table.shards {
		d := table.shards[i].dir.Load()
		for at := range d.segments {
			g := d.segments[at]
			if g.size > mostSlots && !alike || len(g.slots) != int(g.size)*table.stride || g.used > int(g.size-g.size/8) {
				t.Errorf("a segment holds %d keys in %d slots", g.used, g.size)
			}
		}
	}
}

// TestEachSeesWhoStays walks a table while others make it grow.
func TestEachSeesWhoStays(t *testing.T) {
	table := New(Options{Words: 1, Shards: 4, FreshAt: freshAt})
	const stay = 5000
	for key := range uint64(stay) {
		table.put(hash(key), 1<<62, 0, 0)
	}
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for key := uint64(stay); ; key++ {
			select {
			case <-stop:
				return
			default:
				table.put(hash(key), 1<<62, 0, 0)
			}
		}
	})
	for range 20 {
		seen := map[Hash]bool{}
		table.Each(func(h Hash, _ Slot) bool { seen[h] = true; return true })
		for key := range uint64(stay) {
			if !seen[hash(key)] {
				t.Fatalf("key %d was not seen", key)
			}
		}
	}
	close(stop)
	others.Wait()
	check(t, table)
}

func BenchmarkFind(b *testing.B) {
	const keys = 1 << 20
	table := New(Options{Words: 1, Shards: 64, FreshAt: freshAt})
	for key := range uint64(keys) {
		table.put(hash(key), 1<<62, 0, 0)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		h := hash(rng.Uint64N(keys))
		s := table.Lock(h)
		s.Find(h).State()[0]++
		s.Unlock()
	}
}

func BenchmarkAdd(b *testing.B) {
	var table *Table
	key := uint64(0)
	for b.Loop() {
		if key%(1<<20) == 0 {
			table = New(Options{Words: 1, Shards: 64, FreshAt: freshAt})
		}
		key++
		table.put(hash(key), 1<<62, 0, 0)
	}
}

// BenchmarkLongestStop reports how long the slowest of a million insertions takes.
func BenchmarkLongestStop(b *testing.B) {
	var longest time.Duration
	for b.Loop() {
		table := New(Options{Words: 1, Shards: 64, FreshAt: freshAt})
		longest = 0
		for key := range uint64(1 << 20) {
			before := time.Now()
			table.put(hash(key), 1<<62, 0, 0)
			longest = max(longest, time.Since(before))
		}
	}
	b.ReportMetric(float64(longest.Microseconds()), "us/longest")
}

// TestEmptyTables: a table without keys takes little, and its shards take memory when they have a first key, each for itself.
func TestEmptyTables(t *testing.T) {
	const tables, shards = 100, 256
	options := Options{
		Words: 2, Shards: shards, FreshAt: func([]uint64, uint16) int64 { return NotByItself },
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var all [tables]*Table
	for i := range all {
		all[i] = New(options)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (after.HeapAlloc - before.HeapAlloc) / tables; each > shards*160 {
		t.Errorf("%d bytes", each)
	}
	var callers sync.WaitGroup
	table := all[0]
	for i := range 4 {
		callers.Go(func() {
			for j := range uint64(shards) {
				h := Hash{a: j | uint64(i+1)<<32, b: uint64(i + 1)}
				s := table.Lock(h)
				if s.Find(h) != nil || s.Add(h, 0, 0) == nil || s.Find(h) == nil {
					t.Error("a key is not found where it was added")
				}
				s.Unlock()
				table.Sharpen(2)
				if j%64 == 0 {
					table.Bound(int64(1000 + j))
				}
			}
		})
	}
	callers.Wait()
	if table.Len() != 4*shards {
		t.Errorf("%d keys", table.Len())
	}
	empty := all[1]
	if empty.Bound(1); empty.NextFresh() != NotByItself || empty.empty.segments[0].due != NotByItself || empty.Full(0) {
		t.Error("something may be fresh in a table without keys")
	}
}
