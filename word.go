package weir

import (
	"runtime"
	"sync/atomic"
)

// word is a state that calls may change without the lock, until it is raised.
type word interface {
	raise() // moves the state into the meter; nothing changes without the lock until lower
	lower() // moves it back, if it fits
	counts() (granted, refused int64)
}

// Bit 0 of a word is clear while the state lies in it. Otherwise the word is one of these.
const (
	raised = 1 // the state is in the meter, under the lock
	held   = 3 // a step over several words is about to store the state: calls wait for it
)

// seize raises a word, and returns what it was; not ok if it is raised already.
func seize(w *atomic.Uint64) (old uint64, ok bool) {
	for {
		switch old = w.Load(); {
		case old == held:
			runtime.Gosched()
		case old&raised != 0:
			return 0, false
		case w.CompareAndSwap(old, raised):
			return old, true
		}
	}
}

// verdict is what a word says to a call that takes from it.
type verdict uint8

const (
	locked verdict = iota // ask under the lock
	short                 // there are not enough permits
	taken
)
