// Package names keeps the names of those keys of a table that are refused most, as the table itself keeps only hashes.
package names

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/internal/table"
)

// MaxLength is how many bytes a text may have to be kept as a name. Callers see to it: long keys would fill the memory.
const MaxLength = 256

const (
	ways = 4

	// mostPlaced is how many names are placed before none is for a second: each is an allocation, and a client that rotates keys
	// must not cause one for every refusal.
	mostPlaced = 1024

	// mostHeld is how many times others must have missed their place in a set until a name gives way that is not noted
	// any more, whatever it was noted before.
	mostHeld = 1 << 16
)

// Names is a record of the names of some keys: of those that are noted often. It is divided into small sets. A key that is noted
// and has no place in its set takes a free one; if there is none, it takes one count from the name with the least, or its
// place when that has none left. So a name stays that is noted more often than the keys that others make up for this set are,
// each of which wears off but an eighth of a count (Misra and Gries 1982, by the set, and eight counts by one key in 64).
//
// Noting a key whose name is kept takes no lock and allocates nothing. Placing a name allocates once. After 1024 of them none is
// placed for a second. What wants a place then, or at the same moment as another, goes without until it is noted again.
type Names[K any] struct {
	sets   []set[K]
	sample uint32
	spent  atomic.Bool // as many were placed as may be, less than a second ago
	mu     sync.Mutex
	placed int // since spent was false, or in the beginning
}

// set fills a cache line. Of each name it knows 32 bits of the hash, so that a key that has none here is told by that line
// alone: 0 if there is no name. The lowest bit is set once the key was noted.
type set[K any] struct {
	names [ways]atomic.Pointer[name[K]]
	known [ways]atomic.Uint32
	_     [16]byte
}

type name[K any] struct {
	hash  table.Hash
	key   K
	noted atomic.Uint64
	lost  atomic.Uint64 // what others took off
}

// held is the count of the name.
func (e *name[K]) held() uint64 {
	lost := e.lost.Load() // first, as it never exceeds what is noted by then
	return min(e.noted.Load()-lost, mostHeld)
}

// New returns an empty record with room for size names, rounded up to a power of two, at least 4.
func New[K any](size int) *Names[K] {
	sets := 1
	for sets*ways < size {
		sets *= 2
	}
	return &Names[K]{sets: make([]set[K], sets), sample: sample}
}

// Len is how many names there is room for.
func (n *Names[K]) Len() int { return len(n.sets) * ways }

func (n *Names[K]) set(h table.Hash) *set[K] {
	return &n.sets[h.Fingerprint()>>32&uint64(len(n.sets)-1)]
}

func (s *set[K]) find(h table.Hash) *name[K] {
	known := knownBy(h)
	for i := range s.known {
		if s.known[i].Load()|notedBit != known|notedBit {
			continue
		}
		if e := s.names[i].Load(); e != nil && e.hash == h {
			return e
		}
	}
	return nil
}

const notedBit = 1

// knownBy is not 0, and has no notedBit.
func knownBy(h table.Hash) uint32 {
	return uint32(h.Fingerprint())&^notedBit | 2
}

// note counts a refusal of e, which has its place here.
func (s *set[K]) note(e *name[K]) {
	if e.noted.Add(1) > 1 {
		return
	}
	for i := range s.names {
		if s.names[i].Load() == e {
			s.known[i].CompareAndSwap(knownBy(e.hash), knownBy(e.hash)|notedBit)
		}
	}
}

// store puts a name, or nil, in its place.
func (s *set[K]) store(way int, e *name[K]) {
	s.known[way].Store(0)
	s.names[way].Store(e)
	if e == nil {
		return
	}
	known := knownBy(e.hash)
	if e.noted.Load() > 0 {
		known |= notedBit
	}
	s.known[way].Store(known)
}

// sample is of how many refusals of keys without a name one, as drawn, takes from the others, where no place is free, and wear
// of how many refusals it takes one count off: one by one, processors that refuse many keys would wait for each other's lines.
// Both are powers of two.
const (
	sample = 64
	wear   = 8
)

// Note counts one more refusal of the key with this hash. It keeps clone(key) if it keeps the key, which is then called once: a
// key must share no memory with what is large, or is going to change. A nil clone keeps key as it is.
//
// Draw is by what it is decided whether a key without a name takes from the others: any number that differs from one refusal of
// the key to the next one, such as a count. As the hash is mixed in, which clients do not know, they cannot choose refusals that
// are not drawn.
func (n *Names[K]) Note(h table.Hash, key K, clone func(K) K, draw uint64) {
	s, known := n.set(h), knownBy(h)|notedBit
	// Without a loop, as this is most of what a refusal costs while there are many keys.
	a, b, c, d := s.known[0].Load(), s.known[1].Load(), s.known[2].Load(), s.known[3].Load()
	if a|notedBit == known || b|notedBit == known || c|notedBit == known || d|notedBit == known {
		if e := s.find(h); e != nil {
			s.note(e)
			return
		}
	}
	// If all were noted, there is no place that is free, or of a name that was never noted.
	if full := a&b&c&d&notedBit != 0; !full && n.spent.Load() || full && !n.drawn(h, draw) {
		return
	}
	n.displace(s, h, key, clone)
}

// drawn reports for one refusal in n.sample that it is in the sample.
func (n *Names[K]) drawn(h table.Hash, draw uint64) bool {
	const odd = 0x9E3779B97F4A7C15
	x := (h.Fingerprint() ^ draw) * odd
	x = (x ^ x>>32) * odd
	return uint32(x>>32)&(n.sample-1) == 0
}

// displace places the name of a key that has none, or takes from the name in its set that has the least count.
//
//go:noinline
func (n *Names[K]) displace(s *set[K], h table.Hash, key K, clone func(K) K) {
	place, least := s.place(int(h.Fingerprint() % ways))
	if least == 0 {
		n.put(s, place, h, key, clone, 1)
		return
	}
	if e := s.names[place].Load(); e != nil {
		lost := e.lost.Load()
		if noted := e.noted.Load(); noted > lost {
			// If another call takes some off at this moment, that is enough.
			taken := max(uint64(n.sample/wear), 1)
			e.lost.CompareAndSwap(lost, min(max(lost, noted-min(noted, mostHeld))+taken, noted))
		}
	}
}

// Offer keeps clone(key) if there is a free place for it, without counting a refusal, so that while there are few keys
// all of them have names. The first key that is noted may take the place.
func (n *Names[K]) Offer(h table.Hash, key K, clone func(K) K) {
	s := n.set(h)
	for i := range s.known {
		if s.known[i].Load() == 0 {
			n.put(s, i, h, key, clone, 0)
			return
		}
	}
}

// place is the way of the name with the least count, which is 0 for a free one. Of several it is the first one from the given
// way on, so that not always the same one has to make room.
func (s *set[K]) place(from int) (way int, least uint64) {
	least = ^uint64(0)
	for j := range s.names {
		i := (from + j) % ways
		e := s.names[i].Load()
		if e == nil {
			return i, 0
		}
		if held := e.held(); held < least {
			way, least = i, held
		}
	}
	return way, least
}

func (n *Names[K]) put(s *set[K], way int, h table.Hash, key K, clone func(K) K, noted uint64) {
	if n.spent.Load() || !n.mu.TryLock() {
		return
	}
	defer n.mu.Unlock()
	if n.spent.Load() || s.find(h) != nil {
		return
	}
	if n.placed++; n.placed == mostPlaced {
		// A timer, so that refusals meanwhile need not read the clock.
		n.placed = 0
		n.spent.Store(true)
		time.AfterFunc(time.Second, func() { n.spent.Store(false) })
	}
	if clone != nil {
		key = clone(key)
	}
	e := &name[K]{hash: h, key: key}
	e.noted.Store(noted)
	s.store(way, e)
}

// Lookup returns the name of the key with this hash, and how often it was noted since the name is kept.
func (n *Names[K]) Lookup(h table.Hash) (key K, refusals uint64, ok bool) {
	if e := n.set(h).find(h); e != nil {
		return e.key, e.noted.Load(), true
	}
	return key, 0, false
}

// Forget removes the name of the key with this hash.
func (n *Names[K]) Forget(h table.Hash) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.set(h)
	for i := range s.names {
		if e := s.names[i].Load(); e != nil && e.hash == h {
			s.store(i, nil)
		}
	}
}

// Each calls f for every name that is kept, in no order, until it returns false.
func (n *Names[K]) Each(f func(h table.Hash, key K, refusals uint64) bool) {
	for i := range n.sets {
		for j := range n.sets[i].names {
			if e := n.sets[i].names[j].Load(); e != nil && !f(e.hash, e.key, e.noted.Load()) {
				return
			}
		}
	}
}
