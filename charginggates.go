package weir

import (
	"cmp"
	"slices"
)

// mostGateAttempts is how often the gates of a request are looked up before its limits are asked one after the other: they come
// and go while others wait.
const mostGateAttempts = 16

// chargeGates is charge where the states of some keys are in gates, which it locks first, in the order of their numbers. It
// is not ok if they cannot be locked all together.
func (c *charging) chargeGates(leases []Lease, reserve, final bool) (all []Lease, binding int, ok bool) {
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
			state, roomless = c.takeWithGates(reserve)
		}
		c.unlock() // before the gates, which may want to put their states back
		for _, g := range gates {
			g.unlock()
		}
		if roomless >= 0 {
			c.makeRoom(roomless)
		}
		if state != lookedWell {
			continue
		}
		if binding = c.binding(); c.parts[binding].decision.Allowed {
			return c.granted(leases, reserve), binding, true
		}
		return c.refused(leases, final), binding, true
	}
	for i := range c.parts {
		c.parts[i].gate = nil
	}
	return leases, -1, false
}

// findGates looks up in which gates states are. They are not distinct if two charges are for one of them.
func (c *charging) findGates() (gates []*keyGate, distinct bool) {
	c.lock()
	defer c.unlock()
	gates, distinct = c.gates[:0], true
	for i := range c.parts {
		p := &c.parts[i]
		p.gate = nil
		if slot := p.shard.Find(p.hash); slot != nil && slot.Tag() == raisedTag {
			p.gate = p.k.busy[p.shard.Index()][p.hash]
			distinct = distinct && !slices.Contains(gates, p.gate)
			gates = append(gates, p.gate)
		}
	}
	slices.SortFunc(gates, func(a, b *keyGate) int { return cmp.Compare(a.id, b.id) })
	c.gates = gates
	return gates, distinct
}

// enterGates locks the gates, unless a state has left one.
func (c *charging) enterGates(gates []*keyGate) bool {
	for n, g := range gates {
		i := slices.IndexFunc(c.parts, func(p chargePart) bool { return p.gate == g })
		p := &c.parts[i]
		t, plan := p.terms, p.plan
		if p.why != ReasonNone {
			t, plan = nil, nil
		}
		if _, alive := g.arrive(t, plan); !alive {
			for _, locked := range gates[:n] {
				locked.unlock()
			}
			return false
		}
	}
	return true
}

// gatesStand reports whether states are still where they were found.
func (c *charging) gatesStand() bool {
	for i := range c.parts {
		p := &c.parts[i]
		slot := p.shard.Find(p.hash)
		if raised := slot != nil && slot.Tag() == raisedTag; raised != (p.gate != nil) {
			return false
		}
	}
	return true
}

// takeWithGates is take with all gates locked as well. Those are charged once all others have been.
func (c *charging) takeWithGates(reserve bool) (state looked, roomless int) {
	c.begin()
	c.saved = c.saved[:0]
	for i := range c.parts {
		if p := &c.parts[i]; p.gate != nil {
			p.now, p.full, p.added = p.gate.now(), false, false
			p.decision = p.gate.decision(p.gate.gate.peek(p.now, p.n))
		}
	}
	if state, roomless = c.take(reserve); state != lookedWell || !c.parts[c.binding()].decision.Allowed {
		return state, roomless
	}
	for i := range c.parts {
		if p := &c.parts[i]; p.gate != nil {
			r, reason := p.gate.take(p.now, p.n) // as it was just asked, under the same lock
			p.decision = p.gate.decision(r, reason)
			p.taking = taking{r.Mark, p.gate.under()}
		}
	}
	return state, roomless
}

// peek returns what the limit of a part says, wherever the state is.
func (p *chargePart) peek() Decision {
	if p.why != ReasonNone {
		p.now = p.k.now()
		p.noRoom()
		return p.decision
	}
	return p.k.peek(p.hash, p.terms, p.n)
}
