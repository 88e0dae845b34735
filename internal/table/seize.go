package table

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// A slot can be seized: then its state is changed by a caller that holds no lock of the shard, and writes nothing that callers
// for other keys read. This is how it and the lock of the shard keep apart (Dekker):
//
//   - Seize marks the slot as busy, and then looks whether the shard has been locked since the key was touched. If so it leaves.
//   - A caller that has locked the shard looks whether a slot is busy, and waits until it is not, before it uses the state.
//   - One that empties a slot, or puts a key into it, marks it as busy itself, as Leave writes the second word. SetTag swaps that
//     word, and where all of a segment is moved away only the first one is written.

// busy is the bit of the second word of a slot that is seized.
const busy = 1 << identityBits

// Open lets slots be seized, from now on.
func (t *Table) Open() {
	if t.open.Load() {
		return
	}
	for i := range t.shards {
		t.shards[i].lock.lock()
	}
	t.open.Store(true)
	for i := range t.shards {
		t.shards[i].Unlock()
	}
}

// Seize returns the slot of h, which was touched, seized, with its tag. It must be left by Leave. It returns nil if the shard
// must be locked: the key is not there, another caller has locked the shard since, or uses the slot for long. The table must be
// open.
func (p *Spot) Seize(h Hash) (slot Slot, tag uint16) {
	s := p.shard
	if p.version&1 != 0 || s.lock.version.Load() != p.version { // otherwise the place is of one segment
		return nil, 0
	}
	stride := uint64(s.table.stride)
	slots := unsafe.Slice(p.slots, int(uint64(p.place>>32)*stride)) //nolint:gosec // as the version is the same
	at := uint64(uint32(p.place)) * stride
	w := atomic.LoadUint64(&slots[at+1])
	for a := atomic.LoadUint64(&slots[at]); a != h.a || w&identity != h.b; a = atomic.LoadUint64(&slots[at]) {
		if a == 0 {
			return nil, 0
		}
		if at += stride; at == uint64(len(slots)) {
			at = 0
		}
		w = atomic.LoadUint64(&slots[at+1])
	}
	word := &slots[at+1]
	if w &^= busy; !atomic.CompareAndSwapUint64(word, w, w|busy) && !retry(word, w) {
		return nil, 0
	}
	if s.lock.version.Load() != p.version {
		leave(word, w)
		return nil, 0
	}
	return Slot(slots[at : at+stride : at+stride]), uint16(w >> (64 - tagBits))
}

// retry seizes a slot that another caller has seized, mostly for some 20 ns. It returns false if it takes longer, or the slot
// is another key's.
//
//go:noinline
func retry(word *uint64, w uint64) bool {
	for range looks {
		if atomic.LoadUint64(word) == w && atomic.CompareAndSwapUint64(word, w, w|busy) {
			return true
		}
	}
	return false
}

// Leave ends Seize.
func (s Slot) Leave() { leave(&s[1], atomic.LoadUint64(&s[1])) }

func leave(word *uint64, w uint64) {
	release((*atomic.Uint64)(unsafe.Pointer(word)), w&^busy) //nolint:gosec // it is one word
}

// settle waits until a slot is not busy, and returns its second word. The shard must be locked, so that it cannot be seized
// afterwards.
func settle(word *uint64) (w uint64) {
	for n := 0; ; n++ {
		if w = atomic.LoadUint64(word); w&busy == 0 {
			return w
		}
		if n >= looks {
			runtime.Gosched()
		}
	}
}

// Settle waits until the slot of h is not seized. The shard of h must be locked, and p renewed. Callers that read a clock before
// they find the key call it first.
func (p *Spot) Settle(h Hash) {
	if p.shard.table.open.Load() {
		p.Find(h)
	}
}

// own marks a slot as busy that is to be moved or emptied, and returns its second word. The shard must be locked.
func (t *Table) own(word *uint64) (w uint64) {
	for {
		if w = settle(word); !t.open.Load() || atomic.CompareAndSwapUint64(word, w, w|busy) {
			return w
		}
	}
}

// set makes the first two words of a slot what they shall be, and ends own.
func (s Slot) set(a, w uint64) {
	release((*atomic.Uint64)(unsafe.Pointer(&s[0])), a) //nolint:gosec // it is one word
	release((*atomic.Uint64)(unsafe.Pointer(&s[1])), w) //nolint:gosec // and so is this
}
