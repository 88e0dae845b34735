package table

import (
	"math/rand/v2"
	"testing"
)

// TestTurnsAreNoOtherCaller has a caller touch keys and find them one after the other, some of them several times, while another
// caller locks shards and adds keys. It finds each where it is, and learns which shards the other caller has locked.
func TestTurnsAreNoOtherCaller(t *testing.T) {
	for _, shards := range []int{1, 4, 256, 1024} {
		random := rand.New(rand.NewPCG(5, uint64(shards)))
		table := New(Options{Words: 1, Shards: shards, FreshAt: freshAt})
		var own Turns
		keys := uint64(10 * shards)
		alones := 0
		for range fewer(3000) {
			hashes := make([]Hash, 64)
			spots := make([]Spot, len(hashes))
			others := map[uint16]bool{}
			for i := range hashes {
				hashes[i] = hash(random.Uint64N(keys))
				spots[i] = table.Touch(hashes[i])
			}
			keys++
			own.Begin()
			for i, h := range hashes {
				if random.IntN(8) == 0 {
					s := table.Lock(hash(random.Uint64N(keys)))
					others[s.index] = true
					s.Unlock()
				}
				s, slot, alone := own.Find(&spots[i], h)
				again := s.Find(h)
				if (slot == nil) != (again == nil) || slot != nil && &slot[0] != &again[0] {
					t.Fatalf("%d shards: found at %p, is at %p", shards, slot, again)
				}
				if want := !others[s.index] && int(s.index) < len(own.turns); alone != want {
					t.Fatalf("%d shards: alone %v, want %v", shards, alone, want)
				}
				if alone {
					alones++
				}
				s.Unlock()
				if slot == nil {
					table.put(h, 0, 0, 0)
					others[s.index] = true
				}
			}
		}
		if alones == 0 {
			t.Errorf("%d shards: never alone", shards)
		}
	}
}

// TestTurnsAreOfOneTable has a caller find keys of two tables, whose shards have the same numbers, while another caller locks those
// of the second as often as the first caller has locked those of the first.
func TestTurnsAreOfOneTable(t *testing.T) {
	var own Turns
	h := hash(1)
	for turns := range 4 {
		one, two := New(Options{Words: 1, Shards: 1, FreshAt: freshAt}), New(Options{Words: 1, Shards: 1, FreshAt: freshAt})
		own.Begin()
		first, second := one.Touch(h), two.Touch(h)
		for range turns {
			s, _, _ := own.Find(&first, h)
			s.Unlock()
			two.Lock(h).Unlock()
		}
		s, _, alone := own.Find(&second, h)
		if s.Unlock(); alone != (turns == 0) {
			t.Errorf("after %d turns of another caller: alone %v", turns, alone)
		}
	}
}
