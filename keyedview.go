package weir

import (
	"fmt"
	"iter"
	"time"

	"github.com/weirhq/weir/internal/inside"
	"github.com/weirhq/weir/internal/table"
)

// Stats returns the counts of all keys together.
func (k *keys[K]) Stats() Stats {
	s := Stats{
		Limit: k.base.permits, Idle: inUse,
		// A caller that is about to find the table full is counted for a moment.
		Keys: min(k.states.Len(), k.highest.Load()), MaxKeys: int64(k.bounds.Load().MaxKeys),
		Untracked: k.untracked.Load(), Forgiven: k.forgiven.Load(),
		Granted: k.granted.Sum(), Refused: k.refused.Sum(), Overridden: k.overrides.Load(),
	}
	for i := range k.busy {
		shard := k.states.LockShard(i)
		s.Granted += shard.Tally[tallied(true)]
		s.Refused += shard.Tally[tallied(false)]
		shard.Unlock()
	}
	for _, g := range k.gates() {
		g.lock()
		s.Forgiven += g.forgiven
		s.Queued += g.queue.Permits()
		s.Waiters += g.queue.Len()
		g.unlock()
	}
	return s
}

// Close refuses all callers that wait and all that come later, with ReasonClosed. Leases may still be released.
// Closing twice is harmless. The error is always nil.
func (k *keys[K]) Close() error {
	k.shut()
	return nil
}

// operator has what package keyset lends to operators.
type operator[K comparable] struct{ *keys[K] }

func (k *keys[K]) operator() any { return operator[K]{k} }

// keysOf is inside.Keys.
func keysOf(limiter any) any {
	return limiter.(interface{ operator() any }).operator() //nolint:errcheck,forcetypeassert // it is one of ours
}

// All implements keyset.View.
func (k operator[K]) All() iter.Seq[inside.State[K, Limit]] {
	return func(yield func(inside.State[K, Limit]) bool) {
		var cursor table.Cursor
		var states []keyState
		for more := true; more; {
			states, more = k.look(&cursor, states[:0])
			for i := range states {
				if !yield(k.named(&states[i])) {
					return
				}
			}
		}
	}
}

// Names implements keyset.View.
func (k operator[K]) Names() iter.Seq2[K, uint64] {
	return func(yield func(K, uint64) bool) {
		k.names.Each(func(_ table.Hash, key K, refusals uint64) bool { return yield(key, refusals) })
	}
}

// State implements keyset.View.
func (k operator[K]) State(key K) (s inside.State[K, Limit], tracked bool) {
	of := keyState{hash: k.hash(key)}
	shard := k.states.Lock(of.hash)
	slot := shard.Find(of.hash)
	if tracked = slot != nil; tracked {
		k.lookAt(&of, slot, shard.Index(), k.now())
	}
	shard.Unlock()
	if !tracked {
		t, why := k.termsOf(key)
		if why == ReasonInvalid {
			t = k.base
		}
		of.held, of.decision = t.limit, k.decision(t, t.fresh(0))
	}
	s = k.named(&of)
	s.Key, s.Named = key, true
	return s, tracked
}

// LimitOf is the limit that a key is under: that of an override, or else the one that NewKeyedFunc's function returns for it,
// or that of the options. The call moves no key to another limit.
func (k *keys[K]) LimitOf(key K) Limit {
	if k.overrides.Load() > 0 {
		h := k.hash(key)
		if g := k.gateOf(h); g != nil {
			g.lock()
			held := g.terms.limit
			g.unlock()
			return held
		}
	}
	if t, why := k.termsOf(key); why == ReasonNone {
		return t.limit
	}
	return k.base.limit
}

// keyState is what the table knows of a key.
type keyState struct {
	hash     table.Hash
	gate     *keyGate // nil, or where the rest is
	held     Limit
	decision Decision
}

// lookAt reads the state in a slot, whose shard must be locked.
func (k *keyed) lookAt(s *keyState, slot table.Slot, shard int, now int64) {
	if slot.Tag() == raisedTag {
		s.gate = k.busy[shard][s.hash]
		return
	}
	t := k.termsWith(slot.Tag())
	s.held, s.decision = t.limit, k.decision(t, t.packed.peek(slot.State(), now, 0))
}

// look appends the states of some keys, and moves the cursor behind them.
func (k *keyed) look(c *table.Cursor, states []keyState) (_ []keyState, more bool) {
	now := k.now()
	shard := c.Shard()
	more = k.states.Next(c, func(h table.Hash, slot table.Slot) bool {
		states = append(states, keyState{hash: h})
		k.lookAt(&states[len(states)-1], slot, shard, now)
		return true
	})
	return states, more
}

// named makes a keyState one for the caller.
func (k *keys[K]) named(of *keyState) (s inside.State[K, Limit]) {
	s.ID = fmt.Sprintf("%016x", of.hash.Fingerprint())
	d := of.decision
	s.Held = of.held
	if g := of.gate; g != nil {
		g.lock()
		now := g.now()
		d = g.decision(g.gate.peek(now, 0))
		s.Held = g.terms.limit
		s.Queued, s.Waiters = g.queue.Permits(), g.queue.Len()
		if g.normal != nil {
			s.Overridden = time.Duration(max(g.until-now, 0))
		}
		g.unlock()
	}
	s.Limit, s.Remaining, s.ResetAfter, s.RetryAfter = d.Limit, d.Remaining, d.ResetAfter, d.RetryAfter
	s.Key, s.Refused, s.Named = k.names.Lookup(of.hash)
	return s
}
