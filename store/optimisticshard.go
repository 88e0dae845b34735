package store

import (
	"hash/maphash"
	"strings"
	"sync"
)

const (
	mostShards   = 64 // as many as a set of them has bits
	leastInShard = 64
)

// optimisticShard is a part of the keys of an [Optimistic].
type optimisticShard struct {
	lock sync.Mutex
	keys map[memoryKey]*optimisticKey
	ring []*optimisticKey // all keys
	hand int              // where in the ring the next look is
	// passing is how many calls about keys that are not kept are under way. These keys are not added meanwhile, as what is
	// granted from memory must be known to the calls that ask the store.
	passing map[memoryKey]int
	queue   []*optimisticKey // those of which the store must be told, the oldest first
	first   int              // where the queue begins

	_ [64]byte // neighbors do not share a cache line
}

// place is the shard of a key.
func (o *Optimistic) place(policy, key string) int {
	const odd = 0x9e3779b97f4a7c15
	h := maphash.String(o.seed, policy)*odd ^ maphash.String(o.seed, key)
	return int(h % uint64(len(o.shards)))
}

// add begins to keep a key, or returns nil if it must not or if there is no room.
func (o *Optimistic) add(s *optimisticShard, policy, key string) *optimisticKey {
	if s.passing[memoryKey{policy, key}] > 0 {
		return nil
	}
	const looks = 32
	for i := 0; i < looks && len(s.keys) >= o.most; i++ {
		k := s.ring[s.turn()]
		if k.idle() && (!k.used || i >= len(s.ring)) {
			s.forget(k)
		}
		k.used = false
	}
	if len(s.keys) >= o.most {
		return nil
	}
	at := memoryKey{strings.Clone(policy), strings.Clone(key)}
	k := &optimisticKey{key: at, shard: s, slot: len(s.ring), used: true}
	s.keys[at], s.ring = k, append(s.ring, k)
	return k
}

// turn moves the hand by one and returns where it was.
func (s *optimisticShard) turn() int {
	if s.hand >= len(s.ring) {
		s.hand = 0
	}
	at := s.hand
	s.hand++
	return at
}

// forget drops a key.
func (s *optimisticShard) forget(k *optimisticKey) {
	last := len(s.ring) - 1
	s.ring[k.slot] = s.ring[last]
	s.ring[k.slot].slot = k.slot
	s.ring[last] = nil
	s.ring = s.ring[:last]
	delete(s.keys, k.key)
}

// sweep forgets keys that nobody has asked for lately. It looks at a bounded number of them.
func (o *Optimistic) sweep(s *optimisticShard) {
	const looks = 1024
	now := o.now()
	s.lock.Lock()
	defer s.lock.Unlock()
	for range min(looks, len(s.ring)) {
		if len(s.ring) == 0 {
			return
		}
		k := s.ring[s.turn()]
		if !k.used && k.idle() && now-k.at > o.keep && !k.refusing(now) {
			s.forget(k)
		}
		k.used = false
	}
}

// queue has the store told about a key in an interval.
func (o *Optimistic) queue(k *optimisticKey, now int64) {
	if !k.urgent && k.flight == nil && k.drift >= leastUrgent && k.telling(false) > k.drift-k.drift/4 {
		select {
		case o.urgent <- k:
			k.urgent = true
		default: // it has to wait for the interval
		}
	}
	if k.queued || k.owed == 0 {
		return
	}
	k.queued, k.dirty = true, now
	s := k.shard
	if len(s.queue) == cap(s.queue) && s.first > len(s.queue)/2 {
		n := copy(s.queue, s.queue[s.first:])
		clear(s.queue[n:])
		s.queue, s.first = s.queue[:n], 0
	}
	s.queue = append(s.queue, k)
	o.waiting.Add(1)
}

// unqueue takes the first of the queue that has been there since before a time, or returns nil.
func (o *Optimistic) unqueue(s *optimisticShard, since int64) *optimisticKey {
	if s.first == len(s.queue) || s.queue[s.first].dirty >= since {
		return nil
	}
	k := s.queue[s.first]
	s.queue[s.first] = nil
	if s.first++; s.first == len(s.queue) {
		s.queue, s.first = s.queue[:0], 0
	}
	k.queued = false
	o.waiting.Add(-1)
	return k
}

// Len is how many keys are remembered.
func (o *Optimistic) Len() int {
	n := 0
	for i := range o.shards {
		s := &o.shards[i]
		s.lock.Lock()
		n += len(s.keys)
		s.lock.Unlock()
	}
	return n
}
