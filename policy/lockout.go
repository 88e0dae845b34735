package policy

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/table"
)

// lockouts are the keys of a policy that were refused lately, and those that are shut out. Others have no entry, and cost
// nothing.
type lockouts struct {
	seeds  [2]maphash.Seed
	states *table.Table
	most   int // keys, while a set is loaded
	names  lockedNames
}

// lockoutClock is a clock that never goes backward: when the one behind it does, it goes on from there.
type lockoutClock struct {
	clock weir.Clock

	mu           sync.Mutex
	last, behind int64
}

// newLockoutClock answers nil for nil.
func newLockoutClock(c weir.Clock) *lockoutClock {
	if c == nil {
		return nil
	}
	return &lockoutClock{clock: c, last: c.Now()}
}

func (c *lockoutClock) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now() + c.behind
	if now < c.last {
		c.behind += c.last - now
		now = c.last
	}
	c.last = now
	return now
}

// A state has these words. A time that there is none of is that at which the state was made.
const (
	lockedUntil = iota // until when the key is shut out
	lastRefusal
	refusals   // in a row
	lastWithin // how long a refusal counted when it was noted

	lockoutWords
)

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
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		states: table.New(table.Options{
			Words: lockoutWords, MaxKeys: int64(maxKeys), Shards: lockoutShards, Linger: lockoutLinger,
			FreshAt: func(s []uint64, _ uint16) int64 { return freshLockout(s) },
		}),
	}
}

// freshLockout is when a state equals that of a key without one.
func freshLockout(s []uint64) int64 {
	if s[refusals] == 0 {
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

func (l *lockouts) hash(key []byte) table.Hash {
	return table.NewHash(maphash.Bytes(l.seeds[0], key), maphash.Bytes(l.seeds[1], key))
}

// rest is for how long the key is still shut out.
func (l *lockouts) rest(key []byte, now int64) time.Duration {
	if l.states.Len() == 0 {
		return 0
	}
	h := l.hash(key)
	shard := l.states.Lock(h)
	defer shard.Unlock()
	if slot := shard.Find(h); slot != nil {
		return time.Duration(max(int64(slot.State()[lockedUntil])-now, 0))
	}
	return 0
}

// look is rest, and how many refusals of the key are in a row and may count towards a lockout with the next one.
func (l *lockouts) look(key []byte, now int64, o *Lockout) (rest time.Duration, row int) {
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
	return time.Duration(max(int64(s[lockedUntil])-now, 0)), int(inRow(s, now, o)) - 1
}

// granted forgets the refusals of a key: they were not in a row.
func (l *lockouts) granted(key []byte) {
	if l.states.Len() == 0 {
		return
	}
	h := l.hash(key)
	shard := l.states.Lock(h)
	defer shard.Unlock()
	if slot := shard.Find(h); slot != nil {
		slot.State()[refusals] = 0
		shard.Due(h, freshLockout(slot.State()))
	}
}

// refused counts a refusal, and answers for how long it leads to a lockout, 0 if it does not. A key for which there is no
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
		s[refusals] = inRow(s, now, o)
		s[lastRefusal], s[lastWithin] = uint64(now), uint64(o.Within)
		locked := time.Duration(0)
		if s[refusals] >= uint64(o.Refusals) {
			s[refusals], s[lockedUntil] = 0, uint64(now+int64(o.For))
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

// inRow is how many refusals of a key are in a row with one that comes now.
func inRow(s []uint64, now int64, o *Lockout) uint64 {
	if s[refusals] > 0 && now-int64(s[lastRefusal]) <= int64(o.Within) {
		return s[refusals] + 1
	}
	return 1
}

// foreseen is what refused would answer if there is room for the key, and counts nothing.
func (l *lockouts) foreseen(key []byte, now int64, o *Lockout) time.Duration {
	row := uint64(1)
	if l.states.Len() > 0 {
		h := l.hash(key)
		shard := l.states.Lock(h)
		if slot := shard.Find(h); slot != nil {
			row = inRow(slot.State(), now, o)
		}
		shard.Unlock()
	}
	if row < uint64(o.Refusals) {
		return 0
	}
	return o.For
}

// mostReclaims is how often a new key makes room that somebody else takes.
const mostReclaims = 4

// unlock ends the lockout of a key, and answers whether there was one.
func (l *lockouts) unlock(key []byte, now int64) bool {
	h := l.hash(key)
	shard := l.states.Lock(h)
	defer shard.Unlock()
	slot := shard.Find(h)
	if slot == nil {
		return false
	}
	locked := int64(slot.State()[lockedUntil]) > now
	shard.Remove(h)
	return locked
}

// locked counts the keys that are shut out.
func (l *lockouts) locked(now int64) (n int64) {
	l.states.Each(func(_ table.Hash, slot table.Slot) bool {
		if int64(slot.State()[lockedUntil]) > now {
			n++
		}
		return true
	})
	return n
}
