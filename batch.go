package weir

import (
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/inside"
	"github.com/weirhq/weir/internal/table"
)

// batch is the memory of calls that are decided each alone, one after the other: see keyset.Batch.
type batch struct {
	keys  [inside.MostCharges]touchedKey
	turns table.Turns
}

type touchedKey struct {
	hash table.Hash
	spot table.Spot
}

// newBatch is inside.Batch.
func newBatch() any { return new(batch) }

// Take implements that of keyset. The plans are *keyPlan.
func (b *batch) Take(calls []inside.Call[Decision]) {
	for i := range calls {
		b.keys[i].hash = hashOf(calls[i].Key)
	}
	for i := range calls {
		p, key := calls[i].Plan.(*keyPlan), &b.keys[i] //nolint:errcheck,forcetypeassert // keyset has no other
		key.spot = p.k.states.Touch(key.hash)
	}
	now := clock.Now()
	b.turns.Begin()
	var p *keyPlan
	var t *terms
	plain := false
	for i := range calls {
		of, key := &calls[i], &b.keys[i]
		if plan := of.Plan.(*keyPlan); plan != p { //nolint:errcheck,forcetypeassert // as above
			p, t = plan, plan.current()
			plain = p.of != nil && t.table != nil && p.k.clock == nil
		}
		n, d := of.N, of.Decision
		if !plain || uint64(n-1) >= uint64(t.permits) || p.k.closed.Load() {
			now = p.takeRare(t, of, key, now)
			continue
		}
		shard, slot, alone := b.turns.Find(&key.spot, key.hash)
		if slot == nil || slot.Tag() != t.tag || t.users.Load() < 0 {
			shard.Unlock()
			now = p.takeRare(t, of, key, now)
			continue
		}
		state := slot.State()
		allowed, remaining, retryAfter, resetAfter := t.table.Decide(state, now, n, true)
		if at := now; !allowed {
			if !alone {
				at = clock.Now()
				allowed, remaining, retryAfter, resetAfter = t.table.Decide(state, at, n, true)
			}
			if !allowed && t.elsewhere(state, at) {
				shard.Unlock()
				now = p.takeRare(t, of, key, now)
				continue
			}
		}
		tally := &shard.Tally[tallied(allowed)]
		*tally++
		draw := uint64(*tally)
		shard.Unlock()
		d.Allowed, d.Reason, d.Limit, d.Policy = allowed, ReasonNone, t.permits, p.k.policy
		d.Remaining, d.RetryAfter, d.ResetAfter = remaining, retryAfter, resetAfter
		if !allowed {
			d.Reason = ReasonLimited
			p.of.noteDrawn(key.hash, of.Key, draw)
		}
	}
}

// takeRare decides a call that is not plain, or on a key that is new, or under another limit. Now is what the process clock has
// shown since the key was touched. It returns what that has shown last: the next call may be for the same key, of which less than
// there is would remain at an earlier time.
func (p *keyPlan) takeRare(t *terms, of *inside.Call[Decision], key *touchedKey, now int64) int64 {
	if of.N < 0 || p.of == nil || p.k.returns() {
		*of.Decision = p.k.invalid()
		return now
	}
	c := call{k: p.k, hash: key.hash, terms: t, now: now, spot: key.spot}
	if c.isPlain(of.N) && p.of.takeTouched(&c, of.Key, of.N, of.Decision) != locked {
		return c.now
	}
	rare := cell{call: c}
	rare.now = p.k.now()
	p.of.noted(&rare, of.Decision, of.Key, of.N, rare.tryAt(of.Decision, of.N, false))
	if p.k.clock != nil {
		return now // of another clock
	}
	return max(now, rare.now)
}
