package names

import (
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/internal/table"
)

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func hash(key string) table.Hash {
	return table.NewHash(maphash.String(seeds[0], key), maphash.String(seeds[1], key))
}

// mates are n keys of the same set.
func mates(n *Names[string], count int) (keys []string) {
	for i := 0; len(keys) < count; i++ {
		if key := fmt.Sprint("mate ", i); n.set(hash(key)) == &n.sets[0] {
			keys = append(keys, key)
		}
	}
	return keys
}

var draws atomic.Uint64

func note(n *Names[string], key string) { n.Note(hash(key), key, nil, draws.Add(1)) }

func count(n *Names[string], key string) uint64 {
	name, refusals, ok := n.Lookup(hash(key))
	if ok != (name == key) || !ok && refusals > 0 {
		panic("a name of another key")
	}
	return refusals
}

func TestSizeIsRoundedUp(t *testing.T) {
	for _, c := range []struct{ size, want int }{{0, 4}, {1, 4}, {4, 4}, {5, 8}, {256, 256}, {257, 512}, {8192, 8192}} {
		if got := New[string](c.size).Len(); got != c.want {
			t.Errorf("size %d: room for %d, want %d", c.size, got, c.want)
		}
	}
}

func TestFewKeysAllHaveNames(t *testing.T) {
	n := New[string](4)
	for round := range uint64(5) {
		for _, key := range []string{"a", "b", "c", ""} {
			note(n, key)
			if got := count(n, key); got != round+1 {
				t.Errorf("%q is noted %d times, want %d", key, got, round+1)
			}
		}
	}
	if _, _, ok := n.Lookup(hash("d")); ok {
		t.Error("a key has a name that was never noted")
	}
	all := map[string]uint64{}
	n.Each(func(h table.Hash, key string, refusals uint64) bool {
		if h != hash(key) {
			t.Errorf("%q has the hash of another key", key)
		}
		all[key] = refusals
		return true
	})
	if len(all) != 4 || all["a"] != 5 {
		t.Errorf("%v", all)
	}
	calls := 0
	n.Each(func(table.Hash, string, uint64) bool { calls++; return false })
	if calls != 1 {
		t.Errorf("%d calls after false", calls)
	}
	n.Forget(hash("a"))
	n.Forget(hash("never"))
	if _, _, ok := n.Lookup(hash("a")); ok {
		t.Error("a is still there")
	}
}

// TestLeastGivesWay looks at each step of a full set.
func TestLeastGivesWay(t *testing.T) {
	n := New[string](4)
	n.sample = 1
	keys := mates(n, 6)
	for i, key := range keys[:4] {
		for range i + 2 { // 2, 3, 4, 5 times
			note(n, key)
		}
	}
	note(n, keys[4]) // takes one from the first
	note(n, keys[4]) // and the last one
	if count(n, keys[0]) != 2 || count(n, keys[4]) != 0 {
		t.Error("the place was taken too early, or what was taken off is not counted any more")
	}
	note(n, keys[4]) // and its place
	if count(n, keys[0]) != 0 || count(n, keys[4]) != 1 {
		t.Error("the place was not taken")
	}
	note(n, keys[5]) // which has but one
	note(n, keys[5])
	if count(n, keys[4]) != 0 || count(n, keys[5]) != 1 {
		t.Error("the newest is not the least")
	}
	for i, key := range keys[1:4] {
		if got := count(n, key); got != uint64(i+3) {
			t.Errorf("%q is noted %d times", key, got)
		}
	}
}

// TestFloodFlushesNoHeavyName sends many keys that come once, between those that come often.
func TestFloodFlushesNoHeavyName(t *testing.T) {
	const flood = 200_000
	n := New[string](256)
	var heavy []string
	mates := map[*set[string]]int{}
	for i := 0; len(heavy) < 10; i++ { // of which no set has too many
		key := fmt.Sprint("heavy ", i)
		if s := n.set(hash(key)); mates[s] < ways-1 {
			heavy = append(heavy, key)
			mates[s]++
		}
	}
	for i := range flood {
		note(n, fmt.Sprint("flood ", i))
		if i%4 == 0 {
			for _, key := range heavy {
				note(n, key)
			}
		}
	}
	for _, key := range heavy {
		if got := count(n, key); got < flood/4*9/10 {
			t.Errorf("%s was noted %d times of %d", key, got, flood/4)
		}
	}
}

// TestNoRefusalsAreLeftOut counts which refusals of a key are drawn while it takes its turns with others, as a client may choose: as
// many as by chance, and none is left out for long.
func TestNoRefusalsAreLeftOut(t *testing.T) {
	const refusals = 1 << 17
	n := New[string](4)
	for _, stride := range []uint64{1, 2, 3, 64, 89, 610, 4096, 75025, 1 << 32, 0x9E3779B97F4A7C15} {
		for i := range 20 {
			h := hash(fmt.Sprint(i))
			drawn, since, longest := 0, 0, 0
			for j := range uint64(refusals) {
				since++
				if n.drawn(h, j*stride) {
					drawn++
					longest, since = max(longest, since), 0
				}
			}
			const want = refusals / sample
			if drawn < want*8/10 || drawn > want*12/10 || max(longest, since) > 25*sample { // 9 deviations; once in 10^11
				t.Errorf("every %dth: %d of %d are drawn, want %d, and none of %d", stride, drawn, refusals, want, max(longest, since))
			}
		}
	}
}

// TestOldNameGivesWayInTheEnd has a name that was noted a hundred thousand times, and never again.
func TestOldNameGivesWayInTheEnd(t *testing.T) {
	n := New[string](4)
	n.sample = 1
	for _, key := range []string{"a", "b", "c", "d"} {
		for range 100_000 {
			note(n, key)
		}
	}
	noted := 0
	for ; count(n, "e") == 0 && noted < 10_000_000; noted++ {
		note(n, "e")
	}
	if noted < mostHeld || noted > ways*mostHeld {
		t.Errorf("it gave way after %d", noted)
	}
}

func TestOfferTakesOnlyFreePlaces(t *testing.T) {
	n := New[string](4)
	keys := mates(n, 6)
	for _, key := range keys[:5] {
		n.Offer(hash(key), key, strings.Clone)
	}
	for i, key := range keys[:5] {
		if _, refusals, ok := n.Lookup(hash(key)); ok != (i < 4) || refusals != 0 {
			t.Errorf("%q: %v, noted %d times", key, ok, refusals)
		}
	}
	note(n, keys[0])
	note(n, keys[5]) // takes the place of one that was never noted
	if count(n, keys[0]) != 1 || count(n, keys[5]) != 1 {
		t.Error("who is noted does not come before who is offered")
	}
	n.Offer(hash(keys[0]), keys[0], nil)
	if count(n, keys[0]) != 1 {
		t.Error("an offer counts")
	}
}

// TestCloneIsCalledForWhatIsKept counts the copies.
func TestCloneIsCalledForWhatIsKept(t *testing.T) {
	n := New[string](4)
	copies := 0
	clone := func(s string) string { copies++; return strings.ToUpper(s) }
	for _, key := range []string{"a", "b", "c", "d"} {
		for range 10 {
			n.Note(hash(key), key, clone, 0)
		}
	}
	n.Note(hash("e"), "e", clone, 0)
	if key, _, _ := n.Lookup(hash("a")); copies != 4 || key != "A" {
		t.Errorf("%d copies, %q is kept", copies, key)
	}
}

// TestPlacesArePlacedSlowly has keys that each want a place, in one second and the next.
func TestPlacesArePlacedSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New[string](8192)
		placed := func() (names int) {
			n.Each(func(table.Hash, string, uint64) bool { names++; return true })
			return names
		}
		for second := range 3 {
			for i := range 3000 {
				note(n, fmt.Sprint(second, " ", i))
			}
			if got, want := placed(), (second+1)*mostPlaced; got > want || got < want*95/100 { // some displace others
				t.Errorf("%d names after %d s, want nearly %d", got, second, want)
			}
			time.Sleep(time.Second)
			synctest.Wait() // for the timer of the same moment
		}
	})
}

func TestNotingAllocatesNothing(t *testing.T) {
	n := New[string](4)
	for range 100 {
		for _, key := range []string{"a", "b", "c", "d"} {
			note(n, key)
		}
	}
	if got := testing.AllocsPerRun(100, func() { note(n, "a") }); got != 0 {
		t.Errorf("%v allocations for a name that is kept", got)
	}
	if got := testing.AllocsPerRun(50, func() { note(n, "e") }); got != 0 {
		t.Errorf("%v allocations for a name that finds no place", got)
	}
}

// TestNotesUnderContention has goroutines note the same keys and others at once: no key has two places, and no count of a name that
// stays is lost.
func TestNotesUnderContention(t *testing.T) {
	const each = 20_000
	n := New[string](16)
	for i := range 4 {
		note(n, fmt.Sprint("heavy ", i))
	}
	var all, reader sync.WaitGroup
	var done atomic.Bool
	reader.Go(func() {
		for !done.Load() {
			seen := map[*name[string]]bool{}
			for i := range n.sets {
				hashes := map[table.Hash]bool{}
				for j := range n.sets[i].names {
					e := n.sets[i].names[j].Load()
					if e == nil {
						continue
					}
					if e.held() > mostHeld || seen[e] {
						t.Error("a count below zero, or a name in two places")
					}
					seen[e] = true
					hashes[e.hash] = true
				}
			}
		}
	})
	for g := range 4 {
		all.Go(func() {
			for i := range each {
				note(n, fmt.Sprint("heavy ", i%4))
				if i%16 == 0 {
					note(n, fmt.Sprint("light ", g, i))
				}
			}
		})
	}
	all.Wait()
	done.Store(true)
	reader.Wait()
	for i := range 4 {
		if got := count(n, fmt.Sprint("heavy ", i)); got != each+1 {
			t.Errorf("heavy %d was noted %d times, want %d", i, got, each+1)
		}
	}
	hashes := map[table.Hash]int{}
	n.Each(func(h table.Hash, _ string, _ uint64) bool { hashes[h]++; return true })
	for h, places := range hashes {
		if places > 1 {
			t.Errorf("%v has %d places", h, places)
		}
	}
}

func BenchmarkNote(b *testing.B) {
	b.Run("kept", func(b *testing.B) {
		n := New[string](256)
		h := hash("a")
		b.ReportAllocs()
		for b.Loop() {
			n.Note(h, "a", nil, 0)
		}
	})
	b.Run("flood", func(b *testing.B) {
		n := New[string](256)
		keys := make([]table.Hash, 1<<16)
		for i := range keys {
			keys[i] = hash(fmt.Sprint(i))
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			n.Note(keys[i%len(keys)], "flood", nil, uint64(i))
			i++
		}
	})
}
