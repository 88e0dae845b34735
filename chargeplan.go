package weir

import (
	"math"
	"sync/atomic"
)

// Plan is a limit that a Keyed has checked, for [Charge.Plan], and for keys that bring their limit with each request: see
// [Plan.TakeBytes].
type Plan struct {
	k     *keyed
	of    *Keyed[string] // nil if keys are no strings
	terms atomic.Pointer[terms]
}

// Plan checks a limit that keys can be held to by a [Charge]: it takes effect at once and keeps the state, as described at
// [NewKeyedFunc], which k must have been made by. The zero Limit is that of the options. The error is an *[OptionError], or
// [ErrTableFull] if keys have 65,534 other limits.
func (k *Keyed[K]) Plan(l Limit) (*Plan, error) {
	if k.limitOf == nil {
		return nil, &OptionError{"Keyed.Plan", l.String(), "called on a limiter that NewKeyedFunc has made"}
	}
	p := &Plan{k: &k.keyed}
	p.of, _ = any(k).(*Keyed[string])
	if l == (Limit{}) || l == k.base.limit {
		p.terms.Store(k.base)
		return p, nil
	}
	t, why := k.plans.intern(l)
	if why == ReasonTableFull {
		t, why = k.untag(l)
	}
	switch why {
	case ReasonNone:
	case ReasonTableFull:
		return nil, ErrTableFull
	default:
		_, err := k.alike("Limit", l)
		return nil, err
	}
	p.terms.Store(t)
	return p, nil
}

// Replaces says that from now on p stands where old stood, a plan of the same limiter. A key that is held to old until its next
// request, which is then under p, has regained permits at the rate of old until now, and at that of p since. Otherwise a key
// changes at its next request only (TestPlansThatReplaceOthers). If p had been replaced itself, that is forgotten; with an
// old of nil, nothing else is done.
func (p *Plan) Replaces(old *Plan) {
	to := p.terms.Load()
	to.next.Store(nil)
	if old == nil || old.k != p.k {
		return
	}
	if from := old.terms.Load(); from != to {
		from.next.Store(&succession{to, p.k.now()})
	}
}

// Follows makes old, a plan of the same limiter, the same limit as p: requests that still bring it, and have not begun to wait,
// are held to p. It is for a caller that makes other plans apply to callers that wait, which would undo that otherwise.
func (p *Plan) Follows(old *Plan) {
	if old.k == p.k {
		old.terms.Store(p.terms.Load())
	}
}

// succession is what terms were replaced by, and when.
type succession struct {
	by *terms
	at int64
}

// mostSuccessions is how many limits, one after the other, a key that is not used is led through.
const mostSuccessions = 8

// carry makes a state that is held to old one that is held to t.
func (k *keyed) carry(state []uint64, old, t *terms, now int64) {
	var steps [mostSuccessions]*succession
	n, from, last := 0, old, int64(math.MinInt64)
	for from != t && n < len(steps) {
		s := from.next.Load()
		if s == nil || s.at > now || s.at < last {
			break
		}
		steps[n], from, last = s, s.by, s.at
		n++
	}
	if from != t {
		t.packed.carry(old.packed, state, now) // a caller has chosen another limit for this key
		return
	}
	for _, s := range steps[:n] {
		s.by.packed.carry(old.packed, state, s.at)
		old = s.by
	}
}

// Limit is the limit of the plan.
func (p *Plan) Limit() Limit { return p.terms.Load().limit }

// current is the terms of the plan, which may have been retired while no key had them.
func (p *Plan) current() *terms {
	t := p.terms.Load()
	if again := p.k.renew(t); again != t {
		p.terms.Store(again)
		return again
	}
	return t
}
