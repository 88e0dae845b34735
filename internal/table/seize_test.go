package table

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// seizeTable is one whose states are the time at which the key is fresh, a count, the key itself, and its tag.
type seizeTable struct {
	*Table

	now             atomic.Int64
	counted, ledger atomic.Uint64 // all counts, and those of keys that are not there any more
	seized          atomic.Uint64
}

func newSeizeTable(o Options) *seizeTable {
	t := new(seizeTable)
	o.Words, o.FreshAt = 4, freshAt
	o.Forgotten = func(state []uint64, _ uint16) { t.ledger.Add(state[1]) }
	t.Table = New(o)
	t.Open()
	return t
}

// count counts for a key of which a caller has the state, and for no other.
func (t *seizeTable) count(test *testing.T, state []uint64, key uint64, pause bool) {
	before := state[1]
	if state[2] != key {
		test.Errorf("the state of key %d was found for key %d", state[2], key)
	}
	if pause {
		runtime.Gosched()
	}
	if state[1] != before {
		test.Error("two callers have had the same state")
	}
	state[1] = before + 1
	t.counted.Add(1)
}

// locked counts for a key under the lock of its shard, which gets the key a place if it has none.
func (t *seizeTable) locked(test *testing.T, h Hash, key uint64, random *rand.Rand) {
	s := t.Lock(h)
	defer s.Unlock()
	slot := s.Find(h)
	if slot == nil {
		if slot = s.Add(h, 5, t.now.Load()); slot == nil {
			return
		}
		state := slot.State()
		state[0], state[2], state[3] = uint64(t.now.Load())+random.Uint64N(2000), key, 5
		s.Due(h, int64(state[0]))
	}
	t.count(test, slot.State(), key, random.IntN(100) == 0)
	if random.IntN(2) == 0 {
		tag := uint16(random.Uint32())
		slot.SetTag(tag)
		slot.State()[3] = uint64(tag)
	}
}

// TestSeizeContention has callers that seize slots, beside others that lock shards, and add, move, forget and remove keys. Each state
// is one caller's at a time, it is that of its key, and no count is lost.
func TestSeizeContention(t *testing.T) {
	for _, o := range []Options{{Shards: 1}, {Shards: 4}, {Shards: 2, MaxKeys: 300}} {
		table := newSeizeTable(o)
		const keys = 500
		var group sync.WaitGroup
		for g := range 4 {
			random := rand.New(rand.NewPCG(9, uint64(g)))
			group.Go(func() {
				var spots [16]Spot
				var of [16]uint64
				for range fewer(40_000) {
					for i := range spots {
						of[i] = random.Uint64N(1 + random.Uint64N(keys))
						spots[i] = table.Touch(hash(of[i]))
					}
					for i := range spots {
						slot, tag := spots[i].Seize(hash(of[i]))
						if slot == nil {
							table.locked(t, hash(of[i]), of[i], random)
							continue
						}
						if want := slot.State()[3]; uint64(tag) != want || slot.Tag() != tag {
							t.Errorf("the tag is %d or %d, want %d", tag, slot.Tag(), want)
						}
						table.count(t, slot.State(), of[i], random.IntN(10) == 0)
						slot.Leave()
						table.seized.Add(1)
					}
				}
			})
		}
		group.Go(func() {
			random := rand.New(rand.NewPCG(10, 1))
			for round := range fewer(100_000) {
				key, now := random.Uint64N(keys), table.now.Add(1)
				switch h := hash(key); random.IntN(40) {
				case 0:
					s := table.Lock(h)
					if slot := s.Find(h); slot != nil {
						table.ledger.Add(slot.State()[1])
						s.Remove(h)
					}
					s.Unlock()
				case 1:
					table.Reclaim(now)
				case 2:
					table.Sharpen(2)
				case 3:
					c := table.StartAt(random.IntN(table.Shards()))
					table.Next(&c, func(_ Hash, slot Slot) bool {
						if round%2 == 0 || random.IntN(20) > 0 {
							return true
						}
						table.ledger.Add(slot.State()[1])
						return false
					})
				case 4, 5, 6, 7, 8, 9:
					table.locked(t, h, key, random)
				case 10, 11, 12:
					key = keys + random.Uint64N(20_000)
					table.locked(t, hash(key), key, random)
				default:
					runtime.Gosched()
				}
			}
		})
		group.Wait()
		left := uint64(0)
		table.Each(func(_ Hash, slot Slot) bool {
			left += slot.State()[1]
			return true
		})
		if all := table.counted.Load(); left+table.ledger.Load() != all || table.seized.Load() < all/1000 {
			t.Errorf("%+v: %d counts are there, and %d were forgotten, of %d; %d were seized", o, left, table.ledger.Load(), all, table.seized.Load())
		}
		check(t, table.Table)
	}
}

// TestSeizeAfterALock: a slot is not seized if the shard was locked since the key was touched, is locked, or was when it was touched;
// if the key is not there; or if another caller has it for long.
func TestSeizeAfterALock(t *testing.T) {
	table := newSeizeTable(Options{Shards: 1})
	table.put(hash(1), 7, 3, 0)
	spot := table.Touch(hash(1))
	slot, tag := spot.Seize(hash(1))
	if slot == nil || tag != 3 || slot.State()[0] != 7 {
		t.Fatal(slot, tag)
	}
	if again, _ := spot.Seize(hash(1)); again != nil {
		t.Error("it was seized twice")
	}
	slot.Leave()
	if slot, _ = spot.Seize(hash(1)); slot == nil {
		t.Fatal("it was not left")
	}
	slot.Leave()
	none := table.Touch(hash(2))
	if slot, _ := none.Seize(hash(2)); slot != nil {
		t.Error("a key that is not there")
	}
	s := table.Lock(hash(1))
	during := table.Touch(hash(1))
	for _, spot := range []Spot{spot, during} {
		if slot, _ := spot.Seize(hash(1)); slot != nil {
			t.Error("seized while the shard is locked")
		}
	}
	s.Unlock()
	for _, spot := range []Spot{spot, during} {
		if slot, _ := spot.Seize(hash(1)); slot != nil {
			t.Error("seized after the shard was locked")
		}
	}
	if _, tag, ok := table.get(hash(1)); !ok || tag != 3 {
		t.Error("it was not left as it was")
	}
}
