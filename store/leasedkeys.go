package store

import (
	"hash/maphash"
	"strings"
	"sync"
)

const (
	leasedShards = 64
	// keysPerShard is from how many keys on a table is cut into shards.
	keysPerShard = 64
)

// leasedShard is a part of the keys of a Leased, and the lock of all that is kept for them.
type leasedShard struct {
	lock   sync.Mutex
	closed bool
	count  int
	most   int
	// evicted is when keys that are forgotten were used last.
	evicted int64
	keys    map[uint64]*leasedKey // by hash; those of equal hashes form a chain

	_ [64]byte // keeps two locks from sharing a cache line
}

// leasedKey is what is kept for a key of a policy.
type leasedKey struct {
	policy, key string
	hash        uint64
	next        *leasedKey // of the same hash
	plan        *leasePlan

	// blocks have permits left, the oldest first; past have none, but may be given some back.
	blocks, past []leasedBlock
	// forgotten is until when blocks were spent that are not kept any more.
	forgotten int64

	// spent is how many permits were granted since the time since; before, in as long a time until then.
	spent, before, since int64
	used                 int64 // when permits were granted last
	low                  int64 // with no more left than that, a block is asked for in advance; -1 for never
	lentAt, lentN        int64 // when the last block came, and of how many permits

	seen  int64 // what the inner store had left when it was asked last
	reset int64 // when it will have all of them

	refusal  leasedRefusal
	aheadAt  int64 // no block is asked for in advance before
	inFlight bool  // a Lend is under way
	sentAt   int64 // when it was sent
	trip     int64 // how long the last one took
	epoch    int64 // counts what makes the answer to a Lend that is under way worthless
	looked   int64 // when the sweeper will look at it; 0 if it will not

	first, last *leasedWaiter
	queued      int64 // permits that those who wait ask for; less than nothing if they are too many to count
	asked       bool  // by a request that is decided on: its other keys must not take the place
}

func newLeasedShards(maxKeys int) []leasedShard {
	count := 1
	if maxKeys >= leasedShards*keysPerShard {
		count = leasedShards
	}
	shards := make([]leasedShard, count)
	for i := range shards {
		shards[i].most = maxKeys / count
		shards[i].evicted = -never
		shards[i].keys = make(map[uint64]*leasedKey)
	}
	return shards
}

// hashOf is the hash of a key of a policy.
func (l *Leased) hashOf(policy, key string) uint64 {
	const odd = 0x9e3779b97f4a7c15
	return maphash.String(l.seed, key) ^ maphash.String(l.seed, policy)*odd
}

// shardAt is the place of the shard of a hash.
func (l *Leased) shardAt(hash uint64) int { return int(hash>>32) & (len(l.shards) - 1) }

// find is what is kept for a key, or nil. The shard must be locked.
func (s *leasedShard) find(hash uint64, policy, key string) *leasedKey {
	e := s.keys[hash]
	for e != nil && (e.key != key || e.policy != policy) {
		e = e.next
	}
	return e
}

// add keeps a key that is not kept yet, or returns nil if there is no room. The shard must be locked.
func (s *leasedShard) add(hash uint64, policy, key string, p *leasePlan, now int64) *leasedKey {
	if s.closed {
		return nil
	}
	s.reclaim(now)
	if s.count >= s.most {
		return nil
	}
	e := &leasedKey{
		policy: strings.Clone(policy), key: strings.Clone(key), hash: hash, plan: p, seen: p.most, since: now, used: now,
		forgotten: s.evicted, low: -1, lentAt: now, reset: now, aheadAt: now, next: s.keys[hash],
	}
	s.keys[hash] = e
	s.count++
	return e
}

// reclaim looks at a few keys, and forgets those that were not used for long; if there is no room, also one of the others, that
// which was not used for longest. Nothing is on loan to a key that is forgotten. Maps begin anywhere when they are ranged over.
func (s *leasedShard) reclaim(now int64) {
	few := 3
	if s.count >= s.most {
		few = 16
	}
	var oldest *leasedKey
	for _, e := range s.keys {
		if e.idle() && (oldest == nil || e.used < oldest.used) {
			oldest = e
		}
		if few--; few == 0 {
			break
		}
	}
	if oldest != nil && (s.count >= s.most || now-oldest.used > 2*oldest.plan.longest) {
		s.forget(oldest)
	}
}

// idle reports whether nothing is lost if the key is forgotten.
func (e *leasedKey) idle() bool {
	return len(e.blocks) == 0 && !e.inFlight && e.first == nil && e.looked == 0 && !e.asked
}

// forget drops a key. The shard must be locked.
func (s *leasedShard) forget(e *leasedKey) {
	if s.keys[e.hash] == e {
		if s.keys[e.hash] = e.next; e.next == nil {
			delete(s.keys, e.hash)
		}
	} else {
		at := s.keys[e.hash]
		for at.next != e {
			at = at.next
		}
		at.next = e.next
	}
	s.count--
	s.evicted = max(s.evicted, e.used)
}

// all calls f for each key. The shard must be locked; f must not add or drop keys.
func (s *leasedShard) all(f func(e *leasedKey)) {
	for _, e := range s.keys {
		for ; e != nil; e = e.next {
			f(e)
		}
	}
}
