// Package table keeps small states of fixed size for millions of keys, in memory that is bounded and holds no pointers.
package table

import (
	"math"
	"math/bits"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/weirhq/weir/internal/prefetch"
)

// Hash is the identity of a key: 111 bits of its seeded hash. Keys themselves are not kept.
//
// Two different keys share a state only if all 111 bits agree. For n keys the chance that any two do is below n^2 /
// 2^112: 1 in 10^19 for 10 million keys, 1 in 10^15 for a billion. The seeds are random and never leave the process, so
// an attacker cannot look for such keys (TestTenMillionKeysShareNothing).
type Hash struct {
	a uint64
	b uint64 // the lower 47 bits
}

// NewHash makes an identity of two independent hashes of a key, or of the halves of one.
func NewHash(a, b uint64) Hash {
	if a == 0 {
		a = 1 // 0 marks an empty slot
	}
	return Hash{a, b & identity}
}

const (
	tagBits      = 16
	identityBits = 47 // of the second word of a slot; one says that it is seized, and the others are the tag
	identity     = 1<<identityBits - 1
	overhead     = 2 // words of a slot besides the state

	// A segment is rebuilt when it is nearly full: see mostUsed and sizeFor. One that would become larger than mostSlots is
	// split. So no call ever moves more than mostSlots slots, which takes some 30 us (TestSegmentsStaySmall,
	// BenchmarkLongestStop).
	mostSlots = 2048

	// deepest is the most bits by which segments are told apart. Segments of 2^31 keys need 14.
	deepest = 20

	// mostScans is how many segments Reclaim searches at a time: some 25,000 keys, one segment under a lock at a time.
	mostScans = 16
)

// Always is the time of FreshAt for a state that may be forgotten at any time, and NotByItself for one that no time makes
// fresh.
const (
	Always      = math.MinInt64
	NotByItself = math.MaxInt64
)

// Options configure a [Table].
type Options struct {
	// Words is the size of a state, in words of 8 bytes.
	Words int
	// MaxKeys bounds how many keys are kept; 0 is no bound.
	MaxKeys int64
	// Shards is how many locks there are: a power of two.
	Shards int
	// Linger is for how long, in the units of now, a fresh key is kept while there is room, so that one that comes
	// again soon finds its place.
	Linger int64
	// FreshAt is the time from which on a state equals that of a key that has never been seen, if it is not changed. From then
	// on it may be forgotten. It is called under a lock and must not call the table.
	FreshAt func(state []uint64, tag uint16) int64
	// Forgotten, if it is not nil, is called with what was forgotten without having been removed. It is called under a lock and
	// must not call the table.
	Forgotten func(state []uint64, tag uint16)
}

// Table keeps a state of some words, and a tag of 16 bits, for each key. Keys are spread over shards, each with a lock
// of its own; a shard is a directory of segments, each an open hash table with linear probing in one slice without
// pointers. A segment grows, and forgets fresh keys, when a new key finds it nearly full, and by itself alone: there is
// no sweep and no moment at which the whole table stops (extendible hashing, Fagin et al. 1979).
//
// Only fresh keys are forgotten. Where the number of keys is bounded, each segment, and each shard, remembers a time
// before which nothing in it is fresh. So a new key that finds the table full of keys in use learns it from one word of
// each shard, and one that finds it full of fresh ones finds one of them. A key costs 30 to 36 bytes with a state of
// one word, 43 to 50 with one of two (TestBytesPerKey).
type Table struct {
	stride    int
	max       int64
	linger    int64
	freshAt   func(state []uint64, tag uint16) int64
	forgotten func(state []uint64, tag uint16)
	open      atomic.Bool // slots can be seized
	mask      uint64
	shards    []Shard
	empty     *directory     // that of all shards that have had no key: it is never written
	due       []atomic.Int64 // of each shard, a time before which nothing in it is fresh

	// What changes with new keys lies in a line of the cache of its own: calls for keys that are known read all the rest.
	_    [64]byte
	keys atomic.Int64
	hand atomic.Uint64 // where Reclaim begins
	_    [48]byte
}

// Shard is the part of a table that one lock guards. It fills two cache lines: what each call writes, and what they read. So a
// Touch finds its way while another processor writes.
type Shard struct {
	lock  lock
	place uint32 // where the last Find ended: at the key, or where it would be

	// Tally is for the owner of the table to count what it likes, under the lock.
	Tally [2]int64

	_ [24]byte

	table *Table
	dir   atomic.Pointer[directory]          // written under the lock, read by Touch without it, as is
	few   atomic.Pointer[[1 << fewBits]view] // of it; nil if there are more
	index uint16

	_ [32]byte
}

// show makes d the directory.
func (s *Shard) show(d *directory) {
	s.dir.Store(d)
	if s.few.Store(nil); len(d.views) == len(d.few) {
		s.few.Store(&d.few)
	}
}

// directory has the segments of a shard by the top bits of the hash, at least by two. A segment that has fewer of them in common
// stands in it several times.
type directory struct {
	few      [1 << fewBits]view // where the views lie if they are not more
	views    []view
	segments []*segment // at the same places
	shift    uint8      // 64 less the number of bits
}

const fewBits = 2

// view is what a Touch needs of a segment, which holds no lock. It may be of two segments while one replaces the other.
type view struct {
	slots atomic.Pointer[uint64]
	size  atomic.Uint64
}

// newDirectory returns an empty one for so many bits of the hash.
func newDirectory(depth uint8) *directory {
	d := &directory{shift: 64 - depth, segments: make([]*segment, 1<<depth)}
	if d.views = d.few[:]; depth > fewBits {
		d.views = make([]view, 1<<depth)
	}
	return d
}

// index is the place of a segment by the first hash of one of its keys. That a shift is less than 64 costs less than to look.
func (d *directory) index(a uint64) uint64 { return a >> (d.shift & 63) }

func (d *directory) of(a uint64) *segment { return d.segments[d.index(a)] }

// put makes g the segment of a place.
func (d *directory) put(at int, g *segment) {
	d.segments[at] = g
	d.views[at].slots.Store(&g.slots[0])
	d.views[at].size.Store(g.size)
}

// span is in how many places a segment stands.
func (d *directory) span(g *segment) int { return 1 << (64 - d.shift - g.depth) }

// next is a place in the directory behind those of the segment at this one.
func (d *directory) next(at int) (g *segment, next int) {
	g = d.segments[at]
	return g, at + d.span(g)
}

// segment is a part of a shard. Its size and where its slots are never change.
type segment struct {
	size  uint64
	slots []uint64
	used  int
	due   int64   // a time before which nothing in it is fresh
	dues  []int64 // the same of each block of slots
	hand  int     // the block in which forgetIn begins
	depth uint8   // how many top bits its keys have in common
}

// block is how many slots have a due of their own.
const (
	blockBits = 6
	block     = 1 << blockBits
)

// New returns an empty table.
func New(o Options) *Table {
	t := &Table{
		stride: o.Words + overhead, max: o.MaxKeys, linger: o.Linger, freshAt: o.FreshAt, forgotten: o.Forgotten,
		mask: uint64(o.Shards - 1), shards: make([]Shard, o.Shards), due: make([]atomic.Int64, o.Shards),
	}
	t.empty = t.directory(1)
	for i := range t.shards {
		t.due[i].Store(NotByItself)
		t.shards[i].table, t.shards[i].index = t, uint16(i)
		t.shards[i].show(t.empty)
	}
	return t
}

// directory returns one of a single segment.
func (t *Table) directory(size int) *directory {
	d, g := newDirectory(fewBits), t.segment(0, size)
	for at := range d.segments {
		d.put(at, g)
	}
	return d
}

func (t *Table) segment(depth uint8, size int) *segment {
	g := &segment{
		depth: depth, due: NotByItself, size: uint64(size), slots: make([]uint64, size*t.stride),
		dues: make([]int64, (size+block-1)/block),
	}
	for i := range g.dues {
		g.dues[i] = NotByItself
	}
	return g
}

// Len is how many keys are kept.
func (t *Table) Len() int64 { return t.keys.Load() }

// Lock returns the shard of the key, locked.
func (t *Table) Lock(h Hash) *Shard {
	s := &t.shards[h.a&t.mask]
	s.lock.lock()
	return s
}

// IndexOf is the index of the shard that Lock returns.
func (t *Table) IndexOf(h Hash) int { return int(h.a & t.mask) }

// LockShard returns the shard with this index, locked.
func (t *Table) LockShard(i int) *Shard {
	t.shards[i].lock.lock()
	return &t.shards[i]
}

// Index is which of the shards it is, from 0 on.
func (s *Shard) Index() int { return int(s.index) }

// Unlock unlocks the shard.
func (s *Shard) Unlock() { s.lock.unlock() }

// Slot is where a key is kept. It is valid until the shard is unlocked or a key is added to it.
type Slot []uint64

// State is the state of the key, which may be changed in place.
func (s Slot) State() []uint64 { return s[overhead:] }

// Tag is the tag of the key.
func (s Slot) Tag() uint16 { return uint16(atomic.LoadUint64(&s[1]) >> (64 - tagBits)) }

// SetTag changes the tag.
func (s Slot) SetTag(tag uint16) {
	for {
		if w := settle(&s[1]); atomic.CompareAndSwapUint64(&s[1], w, w&identity|uint64(tag)<<(64-tagBits)) {
			return
		}
	}
}

func (s *Shard) segmentOf(h Hash) *segment { return s.dir.Load().of(h.a) }

// home is the slot at which the search for a key begins, of whose second hash b has the lower 47 bits.
func (g *segment) home(b uint64) uint64 { return homeIn(g.size, b) }

func homeIn(size, b uint64) uint64 {
	hi, _ := bits.Mul64(b<<(64-identityBits), size)
	return hi
}

func (g *segment) slot(i uint64, stride int) Slot {
	at := int(i) * stride
	return Slot(g.slots[at : at+stride : at+stride])
}

// Spot is where the search for a key begins, as it was when Touch was called.
type Spot struct {
	shard   *Shard
	slots   *uint64 // the first word of the segment
	place   place
	version uint64 // of the lock
}

// place is where the search begins in a segment, and the size of that in the upper half: of five fields, a Spot would not be kept
// in registers.
type place uint64

func placeIn(size, home uint64) place { return place(size<<32 | home) }

// Touch has the processor load where the search for h begins, and takes no lock. Callers that decide on several keys touch all of
// them first: then the memory answers for all at once, and not for one after the other.
func (t *Table) Touch(h Hash) Spot {
	s := &t.shards[h.a&t.mask]
	version := s.lock.version.Load() // first: if it is the same later, so is the rest
	var v *view
	if few := s.few.Load(); few != nil {
		v = &few[h.a>>(64-fewBits)]
	} else {
		d := s.dir.Load()
		v = &d.views[d.index(h.a)]
	}
	slots, size := v.slots.Load(), v.size.Load()
	home := homeIn(size, h.b)
	prefetch.Lines(uintptr(unsafe.Pointer(slots)) + uintptr(home)*uintptr(t.stride)*8) //nolint:gosec // an address
	return Spot{s, slots, placeIn(size, home), version}
}

// Lock returns the shard of h, which was touched, locked. It reports whether no other caller can have used the key since.
func (p *Spot) Lock(h Hash) (s *Shard, alone bool) {
	if p.shard.lock.tryFrom(p.version) {
		return p.shard, !p.shard.table.open.Load()
	}
	p.relock(h)
	return p.shard, false
}

//go:noinline
func (p *Spot) relock(h Hash) {
	p.shard.lock.lock()
	p.Renew(h)
}

// Renew makes p what Touch would return now. The shard of h must be locked.
func (p *Spot) Renew(h Hash) {
	g := p.shard.segmentOf(h)
	p.slots, p.place = &g.slots[0], placeIn(g.size, g.home(h.b))
}

// Find is that of the shard of h, which Lock has locked.
func (p *Spot) Find(h Hash) Slot {
	s := p.shard
	slots := unsafe.Slice(p.slots, int(p.place>>32)*s.table.stride) //nolint:gosec // both are of one segment under the lock
	return s.findFrom(slots, uint64(uint32(p.place)), h)
}

// Find returns the slot of the key, or nil.
func (s *Shard) Find(h Hash) Slot {
	g := s.segmentOf(h)
	return s.findFrom(g.slots, g.home(h.b), h)
}

func (s *Shard) findFrom(slots []uint64, home uint64, h Hash) Slot {
	stride := uint64(s.table.stride)
	for i, at := home, home*stride; ; {
		switch a := slots[at]; a {
		case h.a:
			if w := atomic.LoadUint64(&slots[at+1]); w&identity == h.b {
				if w&busy != 0 {
					settle(&slots[at+1])
				}
				s.place = uint32(i)
				return Slot(slots[at : at+stride : at+stride])
			}
		case 0:
			s.place = uint32(i)
			return nil
		}
		i++
		if at += stride; at == uint64(len(slots)) {
			i, at = 0, 0
		}
	}
}

// Add makes room for the key that Find has just not found, with a state of zeros, and forgets one of its segment that is fresh at
// time now if it must. It returns nil if the table is full and none was found: see Reclaim. Once the state has been written, Due
// must be called.
func (s *Shard) Add(h Hash, tag uint16, now int64) Slot {
	t := s.table
	if s.dir.Load() == t.empty {
		s.show(t.directory(s.sizeFor(0)))
		s.place = uint32(s.segmentOf(h).home(h.b))
	}
	g := s.segmentOf(h)
	i := uint64(s.place)
	if t.keys.Add(1) > t.max && t.max > 0 {
		if slot := s.replaceOnTheWay(g, h, tag, now); slot != nil {
			return slot
		}
		// In its own segment first: then none grows because keys come where others go.
		if g.due > now || !s.forgetIn(g, now) {
			t.keys.Add(-1)
			return nil
		}
		i = g.home(h.b) // what is behind the one that was forgotten has moved
	}
	for g.used >= mostUsed(g.size) {
		s.rebuild(g, now, h)
		g = s.segmentOf(h)
		i = g.home(h.b)
	}
	for g.slots[int(i)*t.stride] != 0 {
		if i++; i == g.size {
			i = 0
		}
	}
	s.place = uint32(i)
	g.used++
	slot := g.slot(i, t.stride)
	t.own(&slot[1])
	slot.set(h.a, h.b|uint64(tag)<<(64-tagBits))
	return slot
}

// replaceOnTheWay puts a new key in the place of one that is fresh, if there is one where a search for the new one comes by.
func (s *Shard) replaceOnTheWay(g *segment, h Hash, tag uint16, now int64) Slot {
	t := s.table
	if g.due > now {
		return nil
	}
	for i := g.home(h.b); ; {
		slot := g.slot(i, t.stride)
		if slot[0] == 0 {
			return nil
		}
		if g.dues[i>>blockBits] <= now {
			if settle(&slot[1]); t.freshAt(slot.State(), slot.Tag()) <= now {
				t.own(&slot[1])
				s.forget(slot)
				t.keys.Add(-1)
				clear(slot.State())
				slot.set(h.a, h.b|uint64(tag)<<(64-tagBits))
				s.place = uint32(i)
				return slot
			}
		}
		if i++; i == g.size {
			i = 0
		}
	}
}

// Remove forgets the key, if it is kept.
func (s *Shard) Remove(h Hash) bool {
	g, stride := s.segmentOf(h), s.table.stride
	for i := g.home(h.b); ; {
		slot := g.slot(i, stride)
		if slot[0] == h.a && atomic.LoadUint64(&slot[1])&identity == h.b {
			s.table.remove(g, i)
			s.table.keys.Add(-1)
			return true
		}
		if slot[0] == 0 {
			return false
		}
		if i++; i == g.size {
			i = 0
		}
	}
}

// remove empties slot i and moves those behind it up, so that no search ends too early.
func (t *Table) remove(g *segment, i uint64) {
	stride, hole := t.stride, i
	t.own(&g.slot(hole, stride)[1])
	for {
		if i++; i == g.size {
			i = 0
		}
		slot := g.slot(i, stride)
		if slot[0] == 0 {
			break
		}
		// A key may move into the hole unless its home lies behind it.
		home := g.home(atomic.LoadUint64(&slot[1]) & identity)
		if distance(home, i, g.size) >= distance(hole, i, g.size) {
			w, to := t.own(&slot[1]), g.slot(hole, stride)
			copy(to.State(), slot.State())
			to.set(slot[0], w)
			if from, to := i>>blockBits, hole>>blockBits; from != to {
				g.dues[to] = min(g.dues[to], g.dues[from])
			}
			hole = i
		}
	}
	clear(g.slot(hole, stride).State())
	g.slot(hole, stride).set(0, 0)
	g.used--
}

// distance is how far to is behind from, going round.
func distance(from, to, size uint64) uint64 {
	if to >= from {
		return to - from
	}
	return to + size - from
}

// Due says that the state of the key that was just found or added becomes fresh at time at: for one that was added, or
// whose state was changed so that it becomes fresh earlier than before.
func (s *Shard) Due(h Hash, at int64) {
	t := s.table
	if t.max <= 0 {
		return
	}
	g := s.segmentOf(h)
	if due := &g.dues[s.place>>blockBits]; at < *due {
		*due = at
	}
	if at < g.due {
		g.due = at
		if due := &t.due[s.index]; at < due.Load() {
			due.Store(at)
		}
	}
}

// NextFresh is a time before which no key becomes fresh unless a call makes it so.
func (t *Table) NextFresh() int64 {
	first := int64(NotByItself)
	for i := range t.due {
		first = min(first, t.due[i].Load())
	}
	return first
}

// Full reports whether there is no room for a new key at time now, and no key is fresh that could be forgotten for it. It may be
// wrong where a key was to be fresh by now and was used since, as long as no caller has looked for one to forget.
func (t *Table) Full(now int64) bool {
	return t.max > 0 && t.keys.Load() >= t.max && t.NextFresh() > now
}

// Reclaim forgets a key that is fresh at time now, whichever it finds, and reports whether it found one. No shard may be locked
// by the caller. It finds one if there is one, unless it has searched mostScans segments in vain before, which holds up only the
// caller.
func (t *Table) Reclaim(now int64) bool {
	first := t.hand.Load()
	scans := 0
	for i := range uint64(len(t.shards)) {
		at := (first + i) & t.mask
		for t.due[at].Load() <= now && scans < mostScans {
			s := &t.shards[at]
			s.lock.lock()
			found, searched := s.forgetOne(now)
			s.Unlock()
			if found {
				t.hand.Store(at)
				return true
			}
			if scans++; !searched {
				break
			}
		}
	}
	t.hand.Store(first + 1)
	return false
}

// forgetOne forgets a key of the shard that is fresh. It searches one segment at most, and reports whether it did: only
// if not, the shard has none.
func (s *Shard) forgetOne(now int64) (found, searched bool) {
	least := int64(NotByItself)
	d := s.dir.Load()
	for at := 0; at < len(d.segments); {
		var g *segment
		g, at = d.next(at)
		if g.due <= now {
			if searched {
				return false, true
			}
			if s.forgetIn(g, now) {
				return true, true
			}
			searched = true
		}
		least = min(least, g.due)
	}
	s.table.due[s.index].Store(least)
	return false, false
}

// forgetIn forgets a key of the segment that is fresh, or learns when the first will be. It begins where the last one was
// found, and looks only at blocks in which one can be.
func (s *Shard) forgetIn(g *segment, now int64) bool {
	for range g.dues {
		if g.dues[g.hand] <= now && s.forgetInBlock(g, g.hand, now) {
			return true
		}
		if g.hand++; g.hand == len(g.dues) {
			g.hand = 0
		}
	}
	g.due = slices.Min(g.dues)
	return false
}

func (s *Shard) forgetInBlock(g *segment, at int, now int64) bool {
	t := s.table
	least := int64(NotByItself)
	first := uint64(at) << blockBits
	for i := first; i < min(first+block, g.size); i++ {
		slot := g.slot(i, t.stride)
		if slot[0] == 0 {
			continue
		}
		settle(&slot[1])
		freshAt := t.freshAt(slot.State(), slot.Tag())
		if freshAt <= now {
			s.forget(slot)
			t.remove(g, i)
			t.keys.Add(-1)
			return true
		}
		least = min(least, freshAt)
	}
	g.dues[at] = least
	return false
}

func (s *Shard) forget(slot Slot) {
	if s.table.forgotten != nil {
		s.table.forgotten(slot.State(), slot.Tag())
	}
}

// rebuild forgets what has been fresh for long enough in g, in which h belongs, and makes it as large as the rest needs, or
// splits it.
func (s *Shard) rebuild(g *segment, now int64, h Hash) {
	t := s.table
	if t.max <= 0 || g.due <= now-t.linger {
		s.sift(g, now)
	}
	size := s.sizeFor(g.used)
	if size > mostSlots && g.depth < deepest {
		s.split(g, h)
		return
	}
	replacement := t.segment(g.depth, size)
	g.moveTo(replacement, replacement, 0, t.stride)
	s.replace(g, h.a, replacement, replacement)
}

// sift forgets what has been fresh for long enough in g, and leaves holes.
func (s *Shard) sift(g *segment, now int64) {
	t := s.table
	kept := 0
	for at := range g.dues {
		least := int64(NotByItself)
		first := uint64(at) << blockBits
		for i := first; i < min(first+block, g.size); i++ {
			slot := g.slot(i, t.stride)
			if slot[0] == 0 {
				continue
			}
			settle(&slot[1])
			freshAt := t.freshAt(slot.State(), slot.Tag())
			if freshAt <= now-t.linger {
				s.forget(slot)
				atomic.StoreUint64(&slot[0], 0)
				continue
			}
			least = min(least, freshAt)
			kept++
		}
		g.dues[at] = least
	}
	t.keys.Add(int64(kept - g.used))
	g.used = kept
}

// mostUsed is how many slots of a segment of this size are used at most: 86 percent of a large one.
func mostUsed(size uint64) int { return int(size - size/8 - size/64) }

// sizeFor is the size of a new segment of so many keys: 8, 12, 16, 24, 32, ... in half of the shards, and 10, 14, 20, 28, 40, ...
// in the others. It is at most 66 percent full, so that a segment is moved twice until it has twice as many keys
// (TestSegmentsGrow). Its slots fill what the allocator sets aside for them (TestBytesPerKey). Were the sizes the same in all
// shards, all segments would grow at the same time, and all have room for half as many keys again then.
func (s *Shard) sizeFor(keys int) int {
	one, other := 8, 12
	if s.index&1 != 0 {
		one, other = 10, 14
	}
	for {
		switch {
		case keys <= one*21/32:
			return one
		case keys <= other*21/32:
			return other
		}
		one, other = 2*one, 2*other
	}
}

// split replaces g, in which h belongs, by two segments, by the next bit of the hash.
func (s *Shard) split(g *segment, h Hash) {
	if d := s.dir.Load(); d.span(g) == 1 {
		s.show(d.doubled())
	}
	t := s.table
	shift := 63 - g.depth
	ones := 0 // this also loads the slots
	for at := 0; at < len(g.slots); at += t.stride {
		ones += int(g.slots[at] >> shift & 1)
	}
	low := t.segment(g.depth+1, s.sizeFor(g.used-ones))
	high := t.segment(g.depth+1, s.sizeFor(ones))
	g.moveTo(low, high, shift, t.stride)
	s.replace(g, h.a, low, high)
}

// doubled is the directory with one more bit.
func (d *directory) doubled() *directory {
	twice := newDirectory(65 - d.shift)
	for i, g := range d.segments {
		twice.put(2*i, g)
		twice.put(2*i+1, g)
	}
	return twice
}

// replace puts low and high where g was in the directory, of which a is the top bits of some hash.
func (s *Shard) replace(g *segment, a uint64, low, high *segment) {
	d := s.dir.Load()
	n := d.span(g)
	first := int(d.index(a)) &^ (n - 1)
	for i := range n {
		if i < n/2 || n == 1 {
			d.put(first+i, low)
		} else {
			d.put(first+i, high)
		}
	}
}

// moveTo adds copies of the slots to low, or, if the bit of its hash at shift is set, to high, which may be the same.
func (g *segment) moveTo(low, high *segment, shift uint8, stride int) {
	halves := [2]*segment{low, high} // which one it is cannot be predicted: so it is no branch
	for at, due := range g.dues {
		from := g.slots[at*block*stride:]
		from = from[:min(block*stride, len(from))]
		for ; len(from) >= stride; from = from[stride:] {
			if from[0] == 0 {
				continue
			}
			half := halves[from[0]>>(shift&63)&1]
			w := settle(&from[1])
			i := half.home(w)
			to := half.slots[int(i)*stride:]
			for to[0] != 0 {
				if i++; i == half.size {
					i, to = 0, half.slots
				} else {
					to = to[stride:]
				}
			}
			to[0], to[1] = from[0], w
			for j := overhead; j < stride; j++ { // faster than copy
				to[j] = from[j]
			}
			half.dues[i>>blockBits] = min(half.dues[i>>blockBits], due)
			half.used++
		}
	}
	low.due, high.due = slices.Min(low.dues), slices.Min(high.dues)
}
