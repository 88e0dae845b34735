package policy

import (
	"sync"
	"time"

	"github.com/weirhq/weir/internal/table"
)

// lockouts are the keys of a policy that were refused lately, and those that are locked out. Others have no entry, and cost
// nothing. An entry has a fixed size, whatever the numbers of the [Lockout] are.
type lockouts struct {
	seeds

	states *table.Table
	most   int // keys, while a set is loaded
	names  lockedNames
}

func (e *Engine) now() int64 { return e.clock.Now() }

// A state has these words. A time that there is none of is that at which the state was made.
const (
	lockedUntil = iota // until when the key is locked out
	lastRefusal
	lastWithin   // how long a refusal counted when it was noted
	refusalMarks // the refusals that count: see recentRefusals
)

const lockoutWords = refusalMarks + recentWords

const (
	lockoutShards  = 64
	defaultMaxKeys = 1_000_000
	lockoutLinger  = int64(10 * time.Second)
)

func newLockouts(maxKeys int) *lockouts {
	if maxKeys == 0 {
		maxKeys = defaultMaxKeys
	}
	return &lockouts{
		most:  maxKeys,
		seeds: newSeeds(),
		states: table.New(table.Options{
			Words: lockoutWords, MaxKeys: int64(maxKeys), Shards: lockoutShards, Linger: lockoutLinger,
			FreshAt: func(s []uint64, _ uint16) int64 { return freshLockout(s) },
		}),
	}
}

// freshLockout is when a state equals that of a key without one.
func freshLockout(s []uint64) int64 {
	if recentRefusals(s[refusalMarks:]).none() {
		return int64(s[lockedUntil])
	}
	return max(int64(s[lockedUntil]), int64(s[lastRefusal])+int64(s[lastWithin])+1)
}

// bound changes how many keys are remembered at a time.
func (l *lockouts) bound(maxKeys int) {
	if maxKeys != l.most {
		l.most = maxKeys
		l.states.Bound(int64(maxKeys))
	}
}

// until returns until when a key is locked out: for no longer than o says now, from the refusal on that has led to it. That is
// the last one, as those during a lockout are not noted.
func until(s []uint64, o *Lockout) int64 {
	return min(int64(s[lockedUntil]), int64(s[lastRefusal])+int64(o.For))
}

// rest returns for how long the key is still locked out.
func (l *lockouts) rest(key []byte, now int64, o *Lockout) time.Duration {
	if l.states.Len() == 0 {
		return 0
	}
	h := l.hash(key)
	shard := l.states.Lock(h)
	defer shard.Unlock()
	if slot := shard.Find(h); slot != nil {
		s := slot.State()
		s[lockedUntil] = uint64(until(s, o)) // which a longer one does not make longer again
		return time.Duration(max(int64(s[lockedUntil])-now, 0))
	}
	return 0
}

// look returns rest, and how many refusals of the key count towards a lockout.
func (l *lockouts) look(key []byte, now int64, o *Lockout) (rest time.Duration, recent int) {
	if l.states.Len() == 0 {
		return 0, 0
	}
	h := l.hash(key)
	shard := l.states.Lock(h)
	defer shard.Unlock()
	slot := shard.Find(h)
	if slot == nil {
		return 0, 0
	}
	s := slot.State()
	return time.Duration(max(until(s, o)-now, 0)), int(recentOf(s, now, o))
}

// recentOf returns how many refusals of a key count now.
func recentOf(s []uint64, now int64, o *Lockout) uint64 {
	if now-int64(s[lastRefusal]) > int64(o.Within) {
		return 0
	}
	return recentRefusals(s[refusalMarks:]).count(now, int64(o.Within))
}

// allowed forgets the refusals of a key where only those in a row count.
func (l *lockouts) allowed(key []byte, o *Lockout) {
	if !o.InARow || l.states.Len() == 0 {
		return
	}
	h := l.hash(key)
	shard := l.states.Lock(h)
	defer shard.Unlock()
	if slot := shard.Find(h); slot != nil {
		recentRefusals(slot.State()[refusalMarks:]).clear()
		shard.Due(h, freshLockout(slot.State()))
	}
}

// refused counts a refusal, and returns for how long it locks the key out, 0 if it does not. A key for which there is no
// room is not counted.
func (l *lockouts) refused(key []byte, now int64, o *Lockout) time.Duration {
	h := l.hash(key)
	for attempt := range mostReclaims {
		shard := l.states.Lock(h)
		slot := shard.Find(h)
		if slot == nil {
			if slot = shard.Add(h, 0, now); slot == nil {
				shard.Unlock()
				if attempt == mostReclaims-1 || !l.states.Reclaim(now) {
					return 0
				}
				continue
			}
			slot.State()[lockedUntil] = uint64(now)
		}
		s := slot.State()
		recent := recentRefusals(s[refusalMarks:])
		if now-int64(s[lastRefusal]) > int64(o.Within) {
			recent.clear()
		}
		recent.add(now, int64(o.Within))
		s[lockedUntil] = uint64(until(s, o))
		s[lastRefusal], s[lastWithin] = uint64(now), uint64(o.Within)
		locked := time.Duration(0)
		if recent.count(now, int64(o.Within)) >= uint64(o.Refusals) {
			recent.clear()
			s[lockedUntil] = uint64(now + int64(o.For))
			locked = o.For
		}
		shard.Due(h, freshLockout(s))
		shard.Unlock()
		if locked > 0 {
			l.names.note(key)
		}
		return locked
	}
	return 0
}

// foreseen returns what refused would if there is room for the key, and counts nothing.
func (l *lockouts) foreseen(key []byte, now int64, o *Lockout) time.Duration {
	if _, recent := l.look(key, now, o); recent+1 < o.Refusals {
		return 0
	}
	return o.For
}

// mostReclaims is how often a new key makes room that another key takes.
const mostReclaims = 4

// unlock ends the lockout of a key, and reports whether there was one.
func (l *lockouts) unlock(key []byte, now int64, o *Lockout) bool {
	h := l.hash(key)
	shard := l.states.Lock(h)
	defer shard.Unlock()
	slot := shard.Find(h)
	if slot == nil {
		return false
	}
	locked := until(slot.State(), o) > now
	shard.Remove(h)
	return locked
}

// locked returns how many keys are locked out.
func (l *lockouts) locked(now int64, o *Lockout) (n int64) {
	l.states.Each(func(_ table.Hash, slot table.Slot) bool {
		if until(slot.State(), o) > now {
			n++
		}
		return true
	})
	return n
}

// lockedNames are the names of the last keys that were locked out. Noting one allocates nothing once there are as many as may be.
type lockedNames struct {
	mu   sync.Mutex
	keys [][]byte
	next int // the one that is the oldest, when there are mostLockedNames
}

const (
	mostLockedNames   = 4096
	longestLockedName = 256
)

func (l *lockedNames) note(key []byte) {
	if len(key) > longestLockedName {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.keys) < mostLockedNames {
		l.keys = append(l.keys, append([]byte(nil), key...))
		return
	}
	l.keys[l.next] = append(l.keys[l.next][:0], key...)
	l.next = (l.next + 1) % mostLockedNames
}

// last are the names, each once, in no order.
func (l *lockedNames) last() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := make(map[string]bool, len(l.keys))
	all := make([]string, 0, len(l.keys))
	for _, key := range l.keys {
		if !seen[string(key)] {
			name := string(key)
			seen[name] = true
			all = append(all, name)
		}
	}
	return all
}
