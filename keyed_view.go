package weir

import (
	"fmt"
	"iter"
	"math"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/inside"
	"github.com/weirhq/weir/internal/table"
)

// Stats returns the counts of all keys together.
func (k *keys[K]) Stats() Stats {
	s := Stats{
		Limit: k.base.permits, Idle: inUse,
		// A caller that is about to find the table full is counted for a moment.
		Keys: min(k.states.Len(), k.highest.Load()), MaxKeys: int64(k.bounds.Load().MaxKeys),
		Untracked: k.untracked.Load(), Forgiven: k.forgiven.Load(),
		Allowed: k.allowed.Sum(), Refused: k.refused.Sum(), Overridden: k.overrides.Load(),
	}
	for i := range k.busy {
		shard := k.states.LockShard(i)
		s.Allowed += shard.Tally[tallied(true)]
		s.Refused += shard.Tally[tallied(false)]
		shard.Unlock()
	}
	for _, g := range k.gates() {
		g.lock()
		s.Forgiven += min(g.forgiven, math.MaxInt64-s.Forgiven)
		s.Queued += g.queue.Permits()
		s.Waiters += g.queue.Len()
		g.unlock()
	}
	return s
}

// Close refuses all callers that wait and all that come later, with ReasonClosed. Leases may still be released.
// Closing twice is harmless. The error is always nil.
func (k *keys[K]) Close() error {
	k.shut()
	return nil
}

// operator has what package keyset lends to operators, and nothing else: each package that has a limiter for keys compiles all
// methods of this type, which would be those of keys once more if they were embedded.
type operator[K comparable] struct{ of *keys[K] }

func (k *keys[K]) operator() any { return &operator[K]{k} }

// keysOf is inside.Keys.
func keysOf(limiter any) any {
	return limiter.(interface{ operator() any }).operator() //nolint:errcheck,forcetypeassert // it is one of ours
}

// All implements keyset.View.
func (k *operator[K]) All() iter.Seq[inside.State[K, Limit]] {
	return func(yield func(inside.State[K, Limit]) bool) {
		var cursor table.Cursor
		var states []keyState
		for more := true; more; {
			states, more = k.of.look(&cursor, states[:0])
			for i := range states {
				if !yield(k.of.named(&states[i])) {
					return
				}
			}
		}
	}
}

// Names implements keyset.View.
func (k *operator[K]) Names() iter.Seq2[K, uint64] {
	return func(yield func(K, uint64) bool) {
		k.of.names.Each(func(_ table.Hash, key K, refusals uint64) bool { return yield(key, refusals) })
	}
}

// State implements keyset.View.
func (k *operator[K]) State(key K) (s inside.State[K, Limit], tracked bool) {
	var chosen cell
	if k.of.call(&chosen.call, key); chosen.terms == nil {
		chosen.terms = k.of.base
	}
	c := cell{call: call{k: &k.of.keyed, hash: chosen.hash}} // which stays under its own limit
	c.enter()
	if tracked = c.slot != nil; !tracked {
		c.terms = chosen.terms
	}
	of := c.look()
	c.unlock()
	s = k.of.named(&of)
	s.Key, s.Named = key, true
	return s, tracked
}

// LimitOf is the limit that a key is under: that of an override, or else the one that NewKeyedFunc's function returns for it,
// or that of the options. The call moves no key to another limit.
func (k *keys[K]) LimitOf(key K) Limit {
	if k.overrides.Load() > 0 {
		c := cell{call: call{k: &k.keyed, hash: k.hash(key)}}
		c.enter()
		inGate := c.gate != nil
		if inGate {
			c.terms = c.gate.terms
		}
		c.unlock()
		if inGate {
			return c.terms.limit
		}
	}
	var c cell
	if k.call(&c.call, key); c.full || c.terms == nil {
		return k.base.limit
	}
	return c.terms.limit
}

// keyState is what is known of a key besides its name.
type keyState struct {
	hash       table.Hash
	inGate     bool // the rest is not known yet
	held       Limit
	decision   Decision
	queued     int64
	waiters    int
	overridden time.Duration
}

// look returns what is known of the key. The cell must be locked.
func (c *cell) look() keyState {
	s := keyState{hash: c.hash}
	g := c.gate
	if g == nil {
		c.foresee(&s.decision, 0)
		s.held = c.terms.limit
		return s
	}
	c.peek(&s.decision, 0)
	s.held, s.queued, s.waiters = g.terms.limit, g.queue.Permits(), g.queue.Len()
	if g.normal != nil {
		s.overridden = time.Duration(max(g.until-c.now, 0))
	}
	return s
}

// look appends the states of some keys, and moves the cursor behind them.
func (k *keyed) look(cursor *table.Cursor, states []keyState) (_ []keyState, more bool) {
	now := k.now()
	more = k.states.Next(cursor, func(h table.Hash, slot table.Slot) bool {
		c := cell{call: call{k: k, hash: h, now: now}, slot: slot}
		if c.inGate() {
			states = append(states, keyState{hash: h, inGate: true})
			return true
		}
		c.terms = c.held()
		states = append(states, c.look())
		return true
	})
	for i := range states {
		if !states[i].inGate {
			continue
		}
		c := cell{call: call{k: k, hash: states[i].hash}} // a gate is locked before its shard
		if c.enter(); c.terms == nil {
			c.terms = k.base // it has been forgotten since
		}
		states[i] = c.look()
		c.unlock()
	}
	return states, more
}

// named makes a keyState one for the caller.
func (k *keys[K]) named(of *keyState) (s inside.State[K, Limit]) {
	d := &of.decision
	s.ID = fmt.Sprintf("%016x", of.hash.Fingerprint())
	s.Held, s.Queued, s.Waiters, s.Overridden = of.held, of.queued, of.waiters, of.overridden
	s.Limit, s.Remaining, s.ResetAfter, s.RetryAfter = d.Limit, d.Remaining, d.ResetAfter, d.RetryAfter
	s.Key, s.Refused, s.Named = k.names.Lookup(of.hash)
	return s
}

// Bounds implements keyset.View.
func (k *operator[K]) Bounds() KeyedOptions { return *k.of.bounds.Load() }

// SetBounds implements keyset.View.
func (k *operator[K]) SetBounds(o KeyedOptions) error {
	if err := o.checkBounds("Bounds"); err != nil {
		return err
	}
	if o.MaxDebt != 0 && k.of.returns() {
		return noDebtAtOnce("Bounds.MaxDebt", o.MaxDebt)
	}
	k.of.setBounds(&o)
	return nil
}

// Override implements keyset.View.
func (k *operator[K]) Override(key K, limit Limit, d time.Duration) error {
	t, err := k.of.alike("Override.limit", limit)
	if err != nil {
		return err
	}
	if d < 1 || d > algo.MaxPeriod {
		return &OptionError{"Override.d", d.String(), "from 1ns to 87840h (3660 days)"}
	}
	var c cell
	k.of.call(&c.call, key)
	if err := c.lockGate(); err != nil {
		return err
	}
	defer c.unlock()
	return c.gate.override(t, c.now, d)
}

// Restore implements keyset.View.
func (k *operator[K]) Restore(key K) bool {
	c := cell{call: call{k: &k.of.keyed, hash: k.of.hash(key)}}
	c.lock(nil)
	defer c.unlock()
	if c.gate == nil || c.gate.normal == nil {
		return false
	}
	c.gate.endOverride(c.now)
	return true
}

// keyPlan is what is in a keyset.Plan: a limit that a limiter for keys has checked.
type keyPlan struct {
	k     *keyed
	of    *keys[string] // nil if keys are no strings
	terms atomic.Pointer[terms]
}

// Plan implements that of keyset.View, and returns a *keyPlan.
func (k *operator[K]) Plan(l Limit) (any, error) {
	if k.of.limitOf == nil {
		return nil, &OptionError{"Plan", l.String(), "called on a limiter that NewKeyedFunc has made"}
	}
	p := &keyPlan{k: &k.of.keyed}
	p.of, _ = any(k.of).(*keys[string])
	if l == (Limit{}) || l == k.of.base.limit {
		p.terms.Store(k.of.base)
		return p, nil
	}
	t, why := k.of.intern(l)
	switch why {
	case ReasonNone:
	case ReasonTableFull:
		return nil, inside.ErrTableFull
	default:
		_, err := k.of.alike("Limit", l)
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

// call makes c one on a key under this plan. It returns false if the limiter has no such keys.
func (p *keyPlan) call(c *call, key string) bool {
	if p.of == nil || p.k.returns() {
		return false
	}
	c.k, c.hash, c.terms = p.k, p.of.hash(key), p.current()
	return true
}

// Take implements that of keyset.Plan.
func (p *keyPlan) Take(key string, n int64) (d Decision) {
	var c call
	if !p.call(&c, key) {
		return p.k.invalid()
	}
	if p.of.takePlain(&c, key, n, &d) == locked {
		d = p.of.takeLocked(&c, key, n)
	}
	return d
}

// Peek implements that of keyset.Plan.
func (p *keyPlan) Peek(key string, n int64) (d Decision) {
	var c cell
	if !p.call(&c.call, key) {
		return p.k.invalid()
	}
	c.ask(&d, n)
	return d
}

// Refund implements that of keyset.Plan.
func (p *keyPlan) Refund(key string, n int64) (d Decision) {
	var c cell
	if !p.call(&c.call, key) {
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

// latest is where the terms of the plan stand, nil if there is no plan.
func (p *keyPlan) latest() *atomic.Pointer[terms] {
	if p == nil {
		return nil
	}
	return &p.terms
}
