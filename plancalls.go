package weir

import "github.com/weirhq/weir/internal/table"

// Take implements that of keyset.Plan.
func (p *keyPlan) Take(key string, n int64) Decision {
	k := p.of
	if k == nil || k.returns() {
		return p.k.refuse(ReasonInvalid, n).decision
	}
	h := k.hash(key)
	d, added := k.takeUnder(h, p.current(), n)
	switch {
	case added:
		k.offer(h, key)
	case !d.Allowed && n > 0:
		k.note(h, key)
	}
	return d
}

// Peek implements that of keyset.Plan.
func (p *keyPlan) Peek(key string, n int64) Decision {
	k := p.of
	if k == nil || k.returns() {
		return p.k.refuse(ReasonInvalid, n).decision
	}
	return k.peek(k.hash(key), p.current(), n)
}

// Refund implements that of keyset.Plan.
func (p *keyPlan) Refund(key string, n int64) Decision {
	k := p.of
	if k == nil || k.returns() {
		return p.k.refuse(ReasonInvalid, n).decision
	}
	return k.refundUnder(k.hash(key), p.current(), n)
}

// takeUnder is try where nothing is reserved, for limits that differ from key to key.
func (k *keyed) takeUnder(h table.Hash, t *terms, n int64) (d Decision, added bool) {
	if n > 0 && t.wide.fits(n) && !k.closed.Load() {
		shard := k.states.Lock(h)
		slot := shard.Find(h)
		if slot != nil && slot.Tag() == t.tag && k.termsWith(t.tag) == t {
			now := k.now()
			if int64(slot.State()[0])-now < t.most {
				r := t.wide.take(slot.State(), now, n)
				shard.Tally[tallied(r.Allowed)]++
				shard.Unlock()
				return k.decision(t, r), false
			}
		}
		shard.Unlock()
	}
	l, added := k.try(h, t, n, false)
	return l.decision, added
}

// refundUnder implements Plan.Refund.
func (k *keyed) refundUnder(h table.Hash, t *terms, n int64) Decision {
	for {
		shard := k.states.Lock(h)
		slot := shard.Find(h)
		if slot != nil && slot.Tag() == raisedTag {
			g := k.busy[shard.Index()][h]
			shard.Unlock()
			if d, alive := g.refundUnder(t, n); alive {
				return d
			}
			continue
		}
		r := t.fresh(0)
		if slot != nil {
			now := k.now()
			if !k.adopt(shard, slot, h, t, now) { // t was retired: the next request will have its successor
				t = k.termsWith(slot.Tag())
			}
			if n > 0 {
				t.packed.refund(slot.State(), now, n)
				shard.Due(h, t.packed.freshAt(slot.State()))
			}
			r = t.packed.peek(slot.State(), now, 0)
		}
		d := k.decision(t, r)
		if k.closed.Load() {
			d.Allowed, d.Reason, d.RetryAfter = false, ReasonClosed, Never
		}
		shard.Unlock()
		return d
	}
}

// refundUnder is refund by a call under the terms t, which answers the state that follows.
func (g *keyGate) refundUnder(t *terms, n int64) (d Decision, alive bool) {
	now, alive := g.arrive(t, nil)
	if !alive {
		return d, false
	}
	defer g.unlock()
	if n > 0 {
		g.touched, g.changed = now, now
		g.meter.refund(now, n)
		g.meter.replan()
		if !g.closed {
			g.serve(now)
		}
	}
	return g.decision(g.gate.peek(now, 0)), true
}
