package weir

import (
	"math"
	"sync/atomic"

	"github.com/weirhq/weir/internal/inside"
)

// keyPlan is what is in a keyset.Plan: a limit that a limiter for keys has checked.
type keyPlan struct {
	k     *keyed
	of    *keys[string] // nil if keys are no strings
	terms atomic.Pointer[terms]
}

// Plan implements that of keyset.View, and returns a *keyPlan.
func (k operator[K]) Plan(l Limit) (any, error) {
	if k.limitOf == nil {
		return nil, &OptionError{"Plan", l.String(), "called on a limiter that NewKeyedFunc has made"}
	}
	p := &keyPlan{k: &k.keyed}
	p.of, _ = any(k.keys).(*keys[string])
	if l == (Limit{}) || l == k.base.limit {
		p.terms.Store(k.base)
		return p, nil
	}
	t, why := k.intern(l)
	switch why {
	case ReasonNone:
	case ReasonTableFull:
		return nil, inside.ErrTableFull
	default:
		_, err := k.alike("Limit", l)
		return nil, err
	}
	p.terms.Store(t)
	return p, nil
}

// Replaces implements that of keyset.Plan. Old is a *keyPlan or nil.
func (p *keyPlan) Replaces(replaced any) {
	old, _ := replaced.(*keyPlan)
	to := p.terms.Load()
	to.next.Store(nil)
	if old == nil || old.k != p.k {
		return
	}
	if from := old.terms.Load(); from != to {
		from.next.Store(&succession{to, p.k.now()})
	}
}

// Follows implements that of keyset.Plan.
func (p *keyPlan) Follows(followed any) {
	old := followed.(*keyPlan) //nolint:errcheck,forcetypeassert // keyset has no other
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
		t.law.Carry(state, old.law, state, now) // a caller has chosen another limit for this key
		return
	}
	for _, s := range steps[:n] {
		s.by.law.Carry(state, old.law, state, s.at)
		old = s.by
	}
}

// cell makes c that of a key under this plan. It returns false if the limiter has no such keys.
func (p *keyPlan) cell(c *cell, key string) bool {
	if p.of == nil || p.k.returns() {
		return false
	}
	c.k, c.hash, c.terms = p.k, p.of.hash(key), p.current()
	return true
}

// Take implements that of keyset.Plan.
func (p *keyPlan) Take(key string, n int64) (d Decision) {
	var c cell
	if !p.cell(&c, key) {
		return p.k.invalid()
	}
	p.of.try(&c, &d, key, n, false)
	return d
}

// Peek implements that of keyset.Plan.
func (p *keyPlan) Peek(key string, n int64) (d Decision) {
	var c cell
	if !p.cell(&c, key) {
		return p.k.invalid()
	}
	c.ask(&d, n)
	return d
}

// Refund implements that of keyset.Plan.
func (p *keyPlan) Refund(key string, n int64) (d Decision) {
	var c cell
	if !p.cell(&c, key) {
		return p.k.invalid()
	}
	c.enter()
	if n > 0 {
		c.refund(n)
	}
	c.peek(&d, 0)
	c.unlock()
	return d
}

// Limit implements that of keyset.Plan.
func (p *keyPlan) Limit() Limit { return p.terms.Load().limit }

// current is the terms of the plan, which may have been evicted while no key had them.
func (p *keyPlan) current() *terms {
	t := p.terms.Load()
	if again := p.k.renew(t); again != t {
		p.terms.Store(again)
		return again
	}
	return t
}
