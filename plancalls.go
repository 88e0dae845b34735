package weir

import "github.com/weirhq/weir/internal/table"

// TakeBytes takes n permits of key under this plan if they are available and no caller waits for them. It is for keys that bring
// their limit with each request: what [Keyed.Take] does, with the plan in the place of the limit that NewKeyedFunc's function
// would choose, and without a copy of key. If the key was held to another plan, it is held to this one from now on, at
// whatever time: permits that are available stay so, up to the new limit, and are never scaled. While the key has an
// override, that decides, and this plan is the one that the key goes back to.
//
// Nothing is allocated, unless a key is seen for the first time. The plan must be one of a Keyed[string]; with others, with
// AlgorithmConcurrency, and with a negative n, the answer is a refusal with ReasonInvalid. See [Limiter] for n = 0 and for more
// than the limit. A plan that no key was held to, and whose place other limits got, is renewed; if that is not possible,
// because keys have 65,534 other limits, the key is treated like a new one that finds the table full.
func (p *Plan) TakeBytes(key []byte, n int64) Decision {
	k := p.of
	if k == nil || k.returns() {
		return p.k.refuse(ReasonInvalid, n).decision
	}
	name := borrowed(key)
	h := k.hash(name)
	d, added := k.takeUnder(h, p.current(), n)
	switch {
	case added:
		k.offer(h, name)
	case !d.Allowed && n > 0:
		k.note(h, name)
	}
	return d
}

// PeekBytes returns what TakeBytes would, and takes nothing, as [Keyed.Peek] does. Remaining is what is left now. A key that
// was held to another plan is held to this one from now on, as by TakeBytes. It does not tell whether a new key would find
// room.
func (p *Plan) PeekBytes(key []byte, n int64) Decision {
	k := p.of
	if k == nil || k.returns() {
		return p.k.refuse(ReasonInvalid, n).decision
	}
	return k.peek(k.hash(borrowed(key)), p.current(), n)
}

// RefundBytes gives key n permits back whatever their origin, at most until all that this plan allows are available, and
// serves callers that wait for them. It returns what PeekBytes(key, 0) would right after it, as one step: no caller can take in
// between what the answer still counts. An n below 1 gives nothing back. A key that was held to another plan is held to this
// one from now on, before it gets its permits, as by TakeBytes; one that has never been seen stays unknown, as it has all
// permits. See TakeBytes for what is refused with ReasonInvalid.
func (p *Plan) RefundBytes(key []byte, n int64) Decision {
	k := p.of
	if k == nil || k.returns() {
		return p.k.refuse(ReasonInvalid, n).decision
	}
	return k.refundUnder(k.hash(borrowed(key)), p.current(), n)
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

// refundUnder implements Plan.RefundBytes.
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
