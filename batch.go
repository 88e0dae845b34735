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
	var c call
	for i := range calls {
		of := &calls[i]
		if plan := of.Plan.(*keyPlan); plan != p { //nolint:errcheck,forcetypeassert // as above
			p, c.k, c.terms = plan, plan.k, plan.current()
		}
		c.hash, c.spot, c.now = b.keys[i].hash, b.keys[i].spot, now
		switch {
		case of.N < 0 || p.of == nil || p.k.returns():
			*of.Decision = p.k.invalid()
		case c.isPlain(of.N) && p.of.takeTouched(&c, of.Key, of.N, of.Decision, &b.turns) != locked:
		default:
			rare := cell{call: c}
			rare.now = p.k.now()
			p.of.noted(&rare, of.Decision, of.Key, of.N, rare.tryAt(of.Decision, of.N, false))
		}
	}
}
