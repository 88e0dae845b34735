package table

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// lock is a mutex for what takes some 20 ns. It has a version, which is even while it is free and changes with each holder: a
// caller that finds the same one again knows that no other has held it in between. Taking it is one locked instruction of the
// processor, and giving it back an ordinary store; those of a sync.Mutex are two.
type lock struct {
	version atomic.Uint64
	waiting sync.Mutex // of the one that looks again and again: see wait
}

// tryFrom takes the lock if it is free and still has the version.
func (l *lock) tryFrom(version uint64) bool {
	return version&1 == 0 && l.version.CompareAndSwap(version, version+1)
}

func (l *lock) try() bool { return l.tryFrom(l.version.Load()) }

func (l *lock) lock() {
	if !l.try() {
		l.wait()
	}
}

func (l *lock) unlock() { release(&l.version, l.version.Load()+1) }

// wait locks what another caller holds, mostly for some 20 ns, and for as long as it takes to move a segment at most. One of
// those that wait longer looks again and again, and lets others run. The rest sleeps until that one has the lock.
func (l *lock) wait() {
	for range looks {
		if l.try() {
			return
		}
	}
	l.waiting.Lock()
	for !l.try() {
		runtime.Gosched()
	}
	l.waiting.Unlock()
}

// looks is how often a lock that is held is looked at before others may run: a microsecond or so.
const looks = 100
