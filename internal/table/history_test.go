//go:build !race

package table

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// spreads are hashes of small numbers, most of which a seeded hash never makes: those of one shard, of one segment, with one home,
// with a home at the end of every segment, or that differ in their last bits alone.
var spreads = []struct {
	name string
	hash func(key uint64) Hash
}{
	{"seeded", hash},
	{"one shard", func(key uint64) Hash { h := hash(key); h.a &^= 0xff; return NewHash(h.a, h.b) }},
	{"one home", func(key uint64) Hash { return NewHash(key<<48|key>>16, 5) }},
	{"one segment", func(key uint64) Hash { return NewHash(key+1, key*0x9E3779B97F4A7C15) }},
	{"last home", func(key uint64) Hash { return NewHash(key*0x9E3779B97F4A7C15, math.MaxUint64-key%3) }},
	{"homes in order", func(key uint64) Hash { return NewHash(key%7<<61|key, key<<36) }},
}

// modeled is a table beside what it should hold.
type modeled struct {
	t      *testing.T
	table  *Table
	hash   func(key uint64) Hash
	max    int64
	linger int64
	now    int64
	want   map[uint64]entry
	keys   map[Hash]uint64
	spots  map[uint64]Spot // of keys that were touched some time ago

	walk   Cursor
	seen   map[uint64]bool
	stayed map[uint64]bool // since the walk began
}

// newModeled returns an empty table with so many shards.
func newModeled(t *testing.T, spread func(uint64) Hash, shards int, most, linger int64) *modeled {
	m := &modeled{
		t: t, hash: spread, max: most, linger: linger,
		want: map[uint64]entry{}, keys: map[Hash]uint64{}, seen: map[uint64]bool{}, stayed: map[uint64]bool{},
		spots: map[uint64]Spot{},
	}
	m.table = New(Options{
		Words: 2, MaxKeys: most, Shards: shards, Linger: linger, FreshAt: freshAt, Forgotten: m.forgotten,
	})
	return m
}

func (m *modeled) key(n uint64) (h Hash) {
	h = m.hash(n)
	m.keys[h] = n
	return h
}

// forgotten finds the key by the second word of its state, and wants it to be fresh.
func (m *modeled) forgotten(state []uint64, tag uint16) {
	key := state[1]
	e, known := m.want[key]
	if !known || e != (entry{state[0], tag}) {
		m.t.Fatalf("forgotten is %d %d, which is %+v (%v)", state, tag, e, known)
	}
	if int64(e.state) > m.now {
		m.t.Fatalf("key %d is forgotten at %d, though it is fresh from %d on", key, m.now, e.state)
	}
	m.drop(key)
}

func (m *modeled) drop(key uint64) {
	delete(m.want, key)
	delete(m.stayed, key)
}

// touch remembers where a key was at this time, or forgets it again.
func (m *modeled) touch(key uint64) {
	if _, known := m.spots[key]; known {
		delete(m.spots, key)
	} else {
		m.spots[key] = m.table.Touch(m.key(key))
	}
}

// find locks the shard of a key, and looks it up where it was touched, some time ago perhaps.
func (m *modeled) find(key uint64, h Hash) (*Shard, Slot) {
	spot, earlier := m.spots[key]
	if !earlier {
		spot = m.table.Touch(h)
	}
	delete(m.spots, key)
	s, alone := spot.Lock(h)
	slot := spot.Find(h)
	if again := s.Find(h); (slot == nil) != (again == nil) || slot != nil && &slot[0] != &again[0] {
		m.t.Fatalf("key %d is at %p where it was touched, and at %p", key, slot, again)
	}
	if !alone && !earlier {
		m.t.Fatalf("key %d was locked by another caller, but there is none", key)
	}
	return s, slot
}

func (m *modeled) put(key uint64, e entry) {
	h := m.key(key)
	s, slot := m.find(key, h)
	defer s.Unlock()
	old, known := m.want[key]
	if (slot != nil) != known {
		m.t.Fatalf("key %d is there: %v, want %v", key, slot != nil, known)
	}
	if slot == nil {
		if slot = m.add(s, h, e.tag); slot == nil {
			return
		}
		slot.State()[1] = key
	} else if slot.State()[0] != old.state || slot.State()[1] != key || slot.Tag() != old.tag {
		m.t.Fatalf("key %d is %v, want %+v", key, slot, old)
	}
	slot.State()[0] = e.state
	slot.SetTag(e.tag)
	if !known || e.state < old.state {
		s.Due(h, int64(e.state))
	}
	m.want[key] = e
}

// add adds a key to a locked shard, or returns nil if there is no room.
func (m *modeled) add(s *Shard, h Hash, tag uint16) Slot {
	slot := s.Add(h, tag, m.now)
	if slot == nil && (m.max == 0 || int64(len(m.want)) < m.max) {
		m.t.Fatalf("a table with %d of %d keys is full", len(m.want), m.max)
	}
	if slot != nil && (slot.State()[0] != 0 || slot.State()[1] != 0 || slot.Tag() != tag) {
		m.t.Fatalf("a new state is %v", slot)
	}
	return slot
}

func (m *modeled) remove(key uint64) {
	h := m.key(key)
	s := m.table.Lock(h)
	defer s.Unlock()
	_, known := m.want[key]
	if s.Remove(h) != known {
		m.t.Fatalf("key %d was there: %v, want %v", key, !known, known)
	}
	m.drop(key)
}

// reclaim wants a fresh key to be found if there is one; no table here has so many segments that one call may miss it.
func (m *modeled) reclaim() {
	fresh := 0
	for _, e := range m.want {
		if int64(e.state) <= m.now {
			fresh++
		}
	}
	if m.max > 0 && m.table.Reclaim(m.now) != (fresh > 0) {
		m.t.Fatalf("of %d keys %d are fresh, Reclaim says otherwise", len(m.want), fresh)
	}
}

// next goes on with the walk, or begins another. It removes keys on the way if thin is not 0.
func (m *modeled) next(thin uint64) {
	if len(m.seen) == 0 && len(m.stayed) == 0 {
		m.walk = Cursor{}
		for key := range m.want {
			m.stayed[key] = true
		}
	}
	more := m.table.Next(&m.walk, func(h Hash, slot Slot) bool {
		key, e := m.keys[h], m.want[m.keys[h]]
		if slot.State()[1] != key || slot.State()[0] != e.state || slot.Tag() != e.tag {
			m.t.Fatalf("a walk sees %v for key %d, want %+v", slot, key, e)
		}
		if m.seen[key] {
			m.t.Fatalf("a walk sees key %d twice", key)
		}
		m.seen[key] = true
		if thin != 0 && key%thin == 0 {
			m.drop(key)
			return false
		}
		return true
	})
	if !more {
		for key := range m.stayed {
			if !m.seen[key] {
				m.t.Fatalf("a walk has not seen key %d", key)
			}
		}
		clear(m.seen)
		clear(m.stayed)
	}
}

func (m *modeled) bound(most int64) {
	m.max = most
	m.table.Bound(most)
}

// agrees looks at everything.
func (m *modeled) agrees() {
	m.t.Helper()
	if m.table.Len() != int64(len(m.want)) {
		m.t.Fatalf("%d keys are counted, want %d", m.table.Len(), len(m.want))
	}
	first := int64(NotByItself)
	for key, e := range m.want {
		state, tag, ok := m.table.get(m.key(key))
		if !ok || state != e.state || tag != e.tag {
			m.t.Fatalf("key %d is %d %d %v, want %+v", key, state, tag, ok, e)
		}
		first = min(first, int64(e.state))
	}
	if next := m.table.NextFresh(); m.max > 0 && next > first {
		m.t.Fatalf("the next fresh key is announced for %d, but one is fresh at %d", next, first)
	}
}

// step does one of all things with a key. r are random bits.
func (m *modeled) step(kind byte, key, r uint64) {
	switch kind % 16 {
	case 0, 1, 2, 3, 4:
		m.put(key, entry{uint64(m.now) + r%1000, uint16(r)})
	case 5:
		m.put(key, entry{uint64(m.now) + 1 + r%1000*1000, uint16(r)})
	case 6:
		m.put(key, entry{NotByItself, math.MaxUint16})
	case 7:
		m.put(key, entry{uint64(m.now - min(m.now, int64(r%100))), uint16(r)})
	case 8, 9:
		m.remove(key)
	case 10:
		m.now += int64(r % 50)
		m.touch(key)
	case 11:
		m.reclaim()
	case 12:
		m.next(0)
	case 13:
		m.next(r%20 + 2)
	case 14:
		if r%64 == 0 {
			m.bound([]int64{0, 1, 20, 300, 5000}[r/64%5])
		}
		m.table.Sharpen(int(r % 5))
	case 15:
		if r%64 == 0 {
			m.now += int64(r % 100_000)
		}
	}
}

// TestRandomHistories compares tables of all sizes with a map.
func TestRandomHistories(t *testing.T) {
	for _, spread := range spreads {
		t.Run(spread.name, func(t *testing.T) {
			for history := range uint64(12) {
				rng := rand.New(rand.NewPCG(history, 7))
				m := newModeled(t, spread.hash, 1<<(history%4), []int64{0, 1, 10, 300, 4000, 20_000}[history%6], int64(history%2*100))
				space := []uint64{3, 30, 500, 5000, 30_000, 100_000}[rng.IntN(6)]
				for range 24_000 {
					m.step(byte(rng.Uint32()), rng.Uint64N(space), rng.Uint64())
				}
				m.agrees()
			}
		})
	}
}

// FuzzHistories does what it is told, 4 bytes for each step.
func FuzzHistories(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 0, 2, 2, 3, 8, 1, 0, 0, 12, 0, 0, 0, 10, 0, 40, 0, 11, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 4 {
			return
		}
		m := newModeled(t, spreads[int(data[0])%len(spreads)].hash, 1<<(data[1]%3), int64(data[2]), int64(data[3]))
		for data = data[4:]; len(data) >= 4; data = data[4:] {
			m.step(data[0], uint64(data[1]), uint64(binary.LittleEndian.Uint16(data[2:])))
		}
		m.agrees()
	})
}
