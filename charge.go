package weir

import (
	"context"
	"slices"

	"github.com/weirhq/weir/internal/table"
)

// Charge is a part of a request that asks several limits as one: N permits of Key from Limiter.
type Charge struct {
	// Limiter has the limit: a [Keyed] or a [KeyedConcurrency] whose keys are strings. Required.
	Limiter Chargeable
	// Key is whose permits they are.
	Key string
	// N is how many permits are asked for: see [Limiter] for 0, and for more than the limit. A negative N refuses the
	// request with ReasonInvalid.
	N int64
	// Plan is the limit that the key is held to, one of Limiter. Default: nil, the one that Limiter has for the key.
	Plan *Plan
}

// Chargeable is a limiter that can be charged together with others: a [Keyed] or a [KeyedConcurrency] whose keys are strings.
type Chargeable interface {
	Limit() Limit
	LimitOf(key string) Limit
	Peek(key string, n int64) Decision

	inner() *keyed // nil for a nil pointer
	hash(key string) table.Hash
	termsOf(key string) (t *terms, why Reason)
	offer(h table.Hash, key string)
	note(h table.Hash, key string)
}

// MostCharges is how many charges a request may have.
const MostCharges = 64

// TryAcquireAll takes the permits of all charges or of none, and never waits. It appends a lease for each of them to leases,
// and returns the place among them of the one that binds: if the request is refused, among the limits that refuse the one with
// the longest RetryAfter; if it is granted, the one with the fewest permits left; -1 if there are no charges. The request is
// granted if leases[binding] is, counted from where the first was appended.
//
// It is one atomic step over all limits: no other request sees a limit charged that another limit then refuses
// (TestChargesAreOneStep), also where a caller waits for a key, or its limit is overridden (TestChargesWithGatesAreOneStep). If
// the request is refused, no lease holds anything, and each decision is what its limit alone would have answered, Remaining
// being what is left now.
//
// The same key of the same limiter may stand in several charges. A request of more than MostCharges is refused with
// ReasonInvalid. Nothing is allocated if leases has room.
func TryAcquireAll(leases []Lease, charges ...Charge) (all []Lease, binding int) {
	return chargeAll(leases, charges, false)
}

// TryReserveAll is TryAcquireAll with costs that are settled later: each lease must end in Commit or Cancel.
func TryReserveAll(leases []Lease, charges ...Charge) (all []Lease, binding int) {
	return chargeAll(leases, charges, true)
}

// PeekAll returns what TryAcquireAll would, and takes nothing. Remaining is what is left now.
func PeekAll(decisions []Decision, charges ...Charge) (all []Decision, binding int) {
	c := newCharging(charges)
	if c == nil {
		return refuseCharges(decisions, charges, func(d Decision, _ int64) Decision { return d }), bindingOf(len(charges))
	}
	defer c.free()
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

// AcquireAll is TryAcquireAll for a caller that is ready to wait in the queues of the limits, which it does one after the
// other, holding what it has already got, and giving it back if a later one refuses. The order of the limits and their keys
// is the same for all callers, so that no two wait for what the other one holds (TestAcquireAllInAnyOrder). The error is that
// of [Limiter].Acquire: nil if and only if all permits were granted, and otherwise a *[RefusedError] with the
// decision that binds, or that of ctx. Where a limit that refuses has no queue it matches [ErrNoQueue].
func AcquireAll(ctx context.Context, leases []Lease, charges ...Charge) (all []Lease, binding int, err error) {
	return waitAll(ctx, leases, charges, false)
}

// ReserveAll is AcquireAll with costs that are settled later, like TryReserveAll.
func ReserveAll(ctx context.Context, leases []Lease, charges ...Charge) (all []Lease, binding int, err error) {
	return waitAll(ctx, leases, charges, true)
}

func bindingOf(charges int) int {
	if charges == 0 {
		return -1
	}
	return 0
}

// innerOf is the limiter of a charge, nil if there is none.
func innerOf(c *Charge) *keyed {
	if c.Limiter == nil {
		return nil
	}
	return c.Limiter.inner()
}

func invalidLease(d Decision, n int64) Lease { return Lease{decision: d, permits: n} }

// refuseCharges refuses charges that cannot be worked on.
func refuseCharges[A any](all []A, charges []Charge, answer func(Decision, int64) A) []A {
	for i := range charges {
		d := Decision{Reason: ReasonInvalid, RetryAfter: Never}
		if k := innerOf(&charges[i]); k != nil {
			d.Limit, d.Policy = k.base.permits, k.policy
		}
		all = append(all, answer(d, charges[i].N))
	}
	return all
}

func chargeAll(leases []Lease, charges []Charge, reserve bool) (all []Lease, binding int) {
	c := newCharging(charges)
	if c == nil {
		return refuseCharges(leases, charges, invalidLease), bindingOf(len(charges))
	}
	defer c.free()
	return c.charge(leases, reserve, true)
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
