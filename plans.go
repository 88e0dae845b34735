package weir

import (
	"math"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/internal/inside"
)

// plans are the limits of the keys of a Keyed, each under a tag that its keys refer to.
type plans struct {
	keyed *keyed
	byTag []atomic.Pointer[plansPage] // there are thousands of limiters with a few limits

	mu      sync.RWMutex
	byLimit map[Limit]*terms
	invalid map[Limit]struct{} // some that were refused, so that they need not be checked again
	free    []uint16
	next    int // the lowest tag that was never used
	swept   int // how many limits there may be before the next sweep

	idle atomic.Int64 // how many limits have lost their last key, or had none yet, since the last sweep
}

// plansPage are the limits of tags in a row.
type plansPage [1 << pageBits]atomic.Pointer[terms]

const (
	pageBits    = 8
	firstSweep  = 1024
	mostInvalid = 256
)

func (p *plans) init(k *keyed) {
	p.keyed = k
	p.byTag = make([]atomic.Pointer[plansPage], raisedTag>>pageBits+1)
	p.byLimit = map[Limit]*terms{k.base.limit: k.base}
	p.invalid = map[Limit]struct{}{}
	p.next, p.swept = baseTag+1, firstSweep
}

// intern returns the terms of a limit. They can be used if the reason is ReasonNone only, and are nil if it is ReasonInvalid.
func (p *plans) intern(l Limit) (*terms, Reason) {
	p.mu.RLock()
	t := p.byLimit[l]
	_, invalid := p.invalid[l]
	p.mu.RUnlock()
	if t != nil {
		return t, ReasonNone
	}
	if invalid {
		return nil, ReasonInvalid
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if other := p.byLimit[l]; other != nil {
		return other, ReasonNone
	}
	t, err := p.keyed.alike("", l)
	if err != nil {
		if len(p.invalid) >= mostInvalid {
			clear(p.invalid)
		}
		p.invalid[l] = struct{}{}
		return nil, ReasonInvalid
	}
	if len(p.byLimit) >= p.swept || len(p.free) == 0 && p.next == raisedTag && p.idle.Load() > 0 {
		p.sweep()
	}
	switch {
	case len(p.free) > 0:
		t.tag = p.free[len(p.free)-1]
		p.free = p.free[:len(p.free)-1]
	case p.next < raisedTag:
		t.tag = uint16(p.next)
		p.next++
	default:
		t.tag = raisedTag // no state can be held to it
		t.users.Store(evicted)
		return t, ReasonTableFull
	}
	t.idle = &p.idle
	p.idle.Add(1)
	page := p.byTag[t.tag>>pageBits].Load()
	if page == nil {
		page = new(plansPage)
		p.byTag[t.tag>>pageBits].Store(page)
	}
	page[t.tag%(1<<pageBits)].Store(t)
	p.byLimit[l] = t
	return t, ReasonNone
}

// sweep forgets the limits that no key has. It is called once for each doubling of their number, so that a new limit costs
// the looking at two others.
func (p *plans) sweep() {
	p.idle.Store(0)
	for l, t := range p.byLimit {
		if t.tag != baseTag && t.users.CompareAndSwap(0, evicted) {
			delete(p.byLimit, l)
			p.free = append(p.free, t.tag)
		}
	}
	p.swept = max(firstSweep, 2*len(p.byLimit))
}

// intern is that of the plans. If keys have too many other limits, it forgets keys that are fresh until one of them was the last
// that had its limit.
func (k *keyed) intern(l Limit) (t *terms, why Reason) {
	t, why = k.plans.intern(l)
	for range mostReclaims {
		if why != ReasonTableFull {
			break
		}
		forgotten := 0
		for now := k.now(); forgotten < keysAtATime && k.states.Reclaim(now); {
			forgotten++
		}
		if forgotten == 0 {
			break
		}
		t, why = k.plans.intern(l)
	}
	return t, why
}

// keysAtATime is how many keys give way for another limit, so that the next ones need not look at all limits again.
const keysAtATime = 64

// evicted are the users of terms whose tag may be given to others.
const evicted = -1 << 40

// untagged reports whether there was no tag for t, as keys have too many other limits.
func (t *terms) untagged() bool { return t.tag == raisedTag }

// enter counts a key that begins to be held to t. It returns false if t was evicted meanwhile.
func (t *terms) enter() bool {
	if t.tag == baseTag {
		return true
	}
	for {
		users := t.users.Load()
		if users < 0 {
			return false
		}
		if t.users.CompareAndSwap(users, users+1) {
			return true
		}
	}
}

// leave is the opposite of enter.
func (t *terms) leave() {
	if t.tag != baseTag && t.users.Add(-1) == 0 {
		t.idle.Add(1)
	}
}

// renew returns terms that can be used in place of t, which may have been evicted since they were interned.
func (k *keyed) renew(t *terms) *terms {
	if t.users.Load() < 0 {
		if again, why := k.plans.intern(t.limit); why == ReasonNone {
			return again
		}
	}
	return t
}

// alike compiles a limit that states of base can be carried to.
func (k *keyed) alike(of string, l Limit) (*terms, error) {
	t, err := k.compile(of, l, false)
	if err != nil {
		return nil, err
	}
	base := k.base.limit
	if l.algorithm != base.algorithm {
		return nil, &OptionError{
			of + ".Algorithm", l.algorithm.String(), base.algorithm.String() + ", as for all keys",
		}
	}
	if l.algorithm == AlgorithmSlidingWindow && l.segments != base.segments {
		return nil, &OptionError{
			of + ".Segments", strconv.Itoa(l.segments), strconv.Itoa(base.segments) + ", as for all keys",
		}
	}
	return t, nil
}

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
