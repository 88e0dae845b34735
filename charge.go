package weir

import (
	"slices"

	"github.com/weirhq/weir/internal/table"
)

// chargeable is a limiter that can be charged together with others: a [Keyed] or a [KeyedConcurrency] whose keys are strings.
type chargeable interface {
	inner() *keyed // nil for a nil pointer
	hash(key string) table.Hash
	termsOf(key string) (t *terms, why Reason)
	offer(h table.Hash, key string)
	note(h table.Hash, key string)
}

// step is inside.Step.
func step() any { return chargings.Get() }

// TryAll implements TryAcquireAll and TryReserveAll of keyset, and ends the work.
func (c *charging) TryAll(leases []Lease, reserve bool) (all []Lease, binding int) {
	defer c.free()
	if !c.valid() {
		return refuseCharges(leases, c.parts, invalidLease), bindingOf(len(c.parts))
	}
	return c.charge(leases, reserve, true)
}

// PeekAll implements that of keyset, and ends the work.
func (c *charging) PeekAll(decisions []Decision) (all []Decision, binding int) {
	defer c.free()
	if !c.valid() {
		return refuseCharges(decisions, c.parts, func(d Decision, _ int64) Decision { return d }), bindingOf(len(c.parts))
	}
	for c.lock(); ; c.lock() {
		c.begin()
		state := c.look(-1)
		c.unlock()
		if state == lookedAgain {
			continue
		}
		if state == lookedRaised {
			for i := range c.parts {
				c.parts[i].decision = c.parts[i].peek()
			}
		}
		break
	}
	for i := range c.parts {
		decisions = append(decisions, c.parts[i].decision)
	}
	return decisions, c.binding()
}

func bindingOf(charges int) int {
	if charges == 0 {
		return -1
	}
	return 0
}

func invalidLease(d Decision, n int64) Lease { return Lease{decision: d, permits: n} }

// refuseCharges refuses charges that cannot be worked on.
func refuseCharges[A any](all []A, parts []chargePart, answer func(Decision, int64) A) []A {
	for i := range parts {
		d := Decision{Reason: ReasonInvalid, RetryAfter: Never}
		if k := parts[i].k; k != nil {
			d.Limit, d.Policy = k.base.permits, k.policy
		}
		all = append(all, answer(d, parts[i].n))
	}
	return all
}

// charge decides. Limits that refuse count it if the refusal is final.
func (c *charging) charge(leases []Lease, reserve, final bool) (all []Lease, binding int) {
	if len(c.parts) == 0 {
		return leases, -1
	}
	for {
		c.lock()
		c.begin()
		c.saved = c.saved[:0]
		state, roomless := c.take(reserve)
		c.unlock()
		switch state {
		case lookedRaised:
			if all, at, ok := c.chargeGates(leases, reserve, final); ok {
				return all, at
			}
			return c.oneByOne(leases, reserve, final)
		case lookedAgain:
			if roomless < 0 {
				continue
			}
			c.makeRoom(roomless)
		case lookedWell:
			if binding = c.binding(); c.parts[binding].decision.Allowed {
				return c.granted(leases, reserve), binding
			}
			return c.refused(leases, final), binding
		}
	}
}

// makeRoom prepares another attempt to add the key of a part.
func (c *charging) makeRoom(part int) {
	p := &c.parts[part]
	p.full = !p.k.makeRoom(&p.terms, p.now, p.attempts)
	p.attempts++
}

func (c *charging) granted(leases []Lease, reserve bool) []Lease {
	leases = slices.Grow(leases, len(c.parts))
	for i := range c.parts {
		p := &c.parts[i]
		leases = leases[:len(leases)+1]
		l := &leases[len(leases)-1]
		l.decision, l.permits, l.claim, l.generation = p.decision, p.n, nil, 0
		if p.n == 0 {
			continue
		}
		p.k.granted.Add()
		switch {
		case p.full:
			p.k.untracked.Add(1)
		case reserve || p.k.returns():
			l.claim, l.generation = newClaim(p.k, p.n, p.taking.mark)
			l.claim.key, l.claim.under = p.hash, p.taking.under
		}
		if p.added {
			p.of.offer(p.hash, p.key)
		}
	}
	return leases
}

func (c *charging) refused(leases []Lease, final bool) []Lease {
	for i := range c.parts {
		p := &c.parts[i]
		l := Lease{decision: p.decision}
		if !p.decision.Allowed {
			l.permits = p.n
			if p.n > 0 && final {
				p.k.refused.Add()
				p.of.note(p.hash, p.key)
			}
		}
		leases = append(leases, l)
	}
	return leases
}
