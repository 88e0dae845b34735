package weir

import (
	"slices"

	"github.com/weirhq/weir/internal/table"
)

// DebitAll implements that of keyset, and ends the work.
func (c *charging) DebitAll(decisions []Decision) (all []Decision, binding int) {
	defer c.free()
	if !c.valid() || !c.debitable() {
		return refuseCharges(decisions, c.parts, func(d Decision, _ int64) Decision { return d }), bindingOf(len(c.parts))
	}
	c.debit()
	decisions = slices.Grow(decisions, len(c.parts))
	for i := range c.parts {
		decisions = append(decisions, c.parts[i].decision)
	}
	return decisions, c.binding()
}

// debitable reports whether the permits of all parts come back with time.
func (c *charging) debitable() bool {
	for i := range c.parts {
		if p := &c.parts[i]; p.n > 0 && p.k.returns() {
			return false
		}
	}
	return true
}

// debit charges all parts whatever is left, counts it, and fills their decisions.
func (c *charging) debit() {
	for {
		c.lock()
		c.begin()
		state, roomless := c.debitSlots()
		if state == lookedWell {
			c.debited()
		}
		c.unlock()
		switch {
		case state == lookedWell:
			c.countDebits()
			return
		case roomless >= 0:
			c.makeRoom(roomless)
		case state == lookedAgain:
		case c.debitGates():
			return
		case len(c.parts) > 1:
			c.debitOneByOne()
			return
		}
	}
}

// debitSlots charges all parts whose states are in the table, or none of them. The shards must be locked.
func (c *charging) debitSlots() (state looked, roomless int) {
	c.saved = c.saved[:0]
	for i := range c.parts {
		p := &c.parts[i]
		p.took, p.added, p.forgiven = false, false, 0
		if p.gate != nil { // is charged once all others have been
			continue
		}
		slot := p.shard.Find(p.hash)
		if slot != nil && slot.Tag() == raisedTag {
			c.undo(i)
			return lookedRaised, -1
		}
		switch p.full = slot == nil && (p.full || p.why != ReasonNone); {
		case p.full:
			p.forgiven = p.n
		case slot == nil && p.n == 0: // has all permits
		case slot == nil:
			if slot = p.k.add(p.shard, p.hash, p.terms, p.now); slot == nil {
				c.undo(i)
				return lookedAgain, i
			}
			p.added = true
			p.debit(slot)
		case !p.holdOwn(slot):
			c.undo(i)
			return lookedAgain, -1
		case p.n > 0:
			p.saved = len(c.saved)
			c.saved = append(c.saved, slot.State()...)
			p.debit(slot)
		}
	}
	return lookedWell, -1
}

// holdOwn makes the state in a slot one that is held to the terms of a part; if they cannot be used, the part gets those of the
// state. It returns false if they have been retired, and the part got others in their place.
func (p *chargePart) holdOwn(slot table.Slot) bool {
	if p.why == ReasonNone {
		if p.k.adopt(p.shard, slot, p.hash, p.terms, p.now) {
			return true
		}
		if again := p.k.renew(p.terms); again != p.terms {
			p.terms = again
			return false
		}
	}
	p.terms = p.k.termsWith(slot.Tag())
	return p.k.adopt(p.shard, slot, p.hash, p.terms, p.now) // which they are
}

// debit charges the state in a slot, which is held to the terms of the part.
func (p *chargePart) debit(slot table.Slot) {
	p.forgiven = p.n - p.terms.packed.charge(slot.State(), p.now, p.n, p.k.debt(p.terms))
	p.shard.Due(p.hash, p.terms.packed.freshAt(slot.State()))
	p.took = true
}

// debited fills the decisions with what is left, as of the same moment for all. The shards, and the gates, must be locked.
func (c *charging) debited() {
	for i := range c.parts {
		p := &c.parts[i]
		if p.gate != nil {
			p.decision = p.gate.decision(p.gate.gate.peek(p.now, 0))
			continue
		}
		switch slot := p.shard.Find(p.hash); {
		case slot != nil:
			t := p.k.termsWith(slot.Tag()) // of the last part that has this key
			p.decision = p.k.decision(t, t.packed.peek(slot.State(), p.now, 0))
		case p.full && p.n > 0:
			p.decision = p.k.fullDecision(p.terms, p.now, 0)
		default:
			p.decision = p.k.decision(p.terms, p.terms.fresh(0))
		}
		p.refuseClosed()
	}
}

// countDebits counts what was charged and forgiven, and remembers the names of keys that are new.
func (c *charging) countDebits() {
	for i := range c.parts {
		p := &c.parts[i]
		if p.n == 0 {
			continue
		}
		p.k.forgive(p.forgiven)
		if !p.full {
			p.k.granted.Add()
		}
		if p.added {
			p.of.offer(p.hash, p.key)
		}
	}
}

// debitGates is debit where the states of some keys are in gates: see chargeGates. It returns false if they cannot be locked all
// together.
func (c *charging) debitGates() bool {
	for range mostGateAttempts {
		gates, distinct := c.findGates()
		if !distinct {
			break
		}
		if !c.enterGates(gates) {
			continue
		}
		c.lock()
		state, roomless := lookedAgain, -1
		if c.gatesStand() {
			c.begin()
			if state, roomless = c.debitSlots(); state == lookedWell {
				c.debitEntered()
				c.debited()
			}
		}
		c.unlock() // before the gates: see chargeGates
		for _, g := range gates {
			g.unlock()
		}
		if roomless >= 0 {
			c.makeRoom(roomless)
		}
		if state == lookedWell {
			c.countDebits()
			return true
		}
	}
	for i := range c.parts {
		c.parts[i].gate = nil
	}
	return false
}

// debitEntered charges the states in gates, which are locked.
func (c *charging) debitEntered() {
	for i := range c.parts {
		p := &c.parts[i]
		if p.gate == nil {
			continue
		}
		p.full, p.now = false, p.gate.now()
		if p.n > 0 {
			p.gate.debit(p.now, p.n)
		}
	}
}

// debit charges n permits at time now, under the lock: callers that wait do so for longer.
func (g *gate) debit(now, n int64) {
	g.touched, g.changed = now, now
	g.forgive(n - g.meter.charge(now, n, g.maxDebt))
	g.meter.replan()
}

// debitOneByOne is debit with one part after the other.
func (c *charging) debitOneByOne() {
	for i := range c.parts {
		one := chargings.Get().(*charging)
		one.parts, one.order = append(one.parts[:0], c.parts[i]), append(one.order[:0], 0)
		one.debit()
		c.parts[i] = one.parts[0]
		one.free()
	}
	for i := range c.parts { // those after a part may have had its key
		if p := &c.parts[i]; !p.full {
			p.decision = p.k.peek(p.hash, p.terms, 0)
		}
	}
}
