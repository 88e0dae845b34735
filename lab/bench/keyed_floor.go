package bench

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"
)

// bareTable is the least that keeps a state for each key: one array of pairs of a hash and a state, half of it empty,
// made once for as many keys as will come. It knows a key by 64 bits of a hash, has no lock, forgets nothing, limits
// nothing and counts what each key has asked for. Two keys share a state once in some 10^7 tables of a million keys.
type bareTable struct {
	seed  maphash.Seed
	slots []bareSlot
}

type bareSlot struct{ hash, state atomic.Uint64 }

func newBareTable(keys int) *bareTable {
	return &bareTable{maphash.MakeSeed(), make([]bareSlot, 2*keys)}
}

// find returns the slot of the key, which is made if there is none.
func (t *bareTable) find(key string) *bareSlot {
	h := maphash.String(t.seed, key) | 1
	at, _ := bits.Mul64(h, uint64(len(t.slots)))
	for {
		slot := &t.slots[at]
		switch slot.hash.Load() {
		case h:
			return slot
		case 0:
			if slot.hash.CompareAndSwap(0, h) {
				return slot
			}
			continue
		}
		if at++; at == uint64(len(t.slots)) {
			at = 0
		}
	}
}

func (s *bareSlot) count() {
	for {
		old := s.state.Load()
		if s.state.CompareAndSwap(old, old+1) {
			return
		}
	}
}

// limiter is the table without a clock.
func (t *bareTable) limiter() keyedLimiter {
	return keyedLimiter{
		ask: func(keys []string) (granted int) {
			for _, key := range keys {
				t.find(key).count()
				granted++
			}
			return granted
		},
		allow: func(key string) bool { t.find(key).count(); return true },
	}
}

// timed is the table with one reading of the clock for each call, when the slot was found: the swap depends on it.
func (t *bareTable) timed() keyedLimiter {
	return keyedLimiter{
		ask: func(keys []string) (granted int) {
			for _, key := range keys {
				slot := t.find(key)
				now := uint64(time.Since(epoch))
				for {
					old := slot.state.Load()
					if slot.state.CompareAndSwap(old, max(old+1, now)) {
						break
					}
				}
				granted++
			}
			return granted
		},
		allow: func(key string) bool { t.find(key).count(); return true },
	}
}

// The names of the floors of keyed limiters.
const (
	byTable      = "bare table"
	byTableClock = "table+clock"
	tableCall    = "hash, find, CompareAndSwap"
	clockCall    = "hash, find, time.Since(epoch), CompareAndSwap"
)
