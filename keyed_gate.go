package weir

import (
	"errors"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/inside"
	"github.com/weirhq/weir/internal/table"
)

// keyGate holds the state of a key while a caller waits for it, or while its limit is overridden. Its slot in the table is
// raised meanwhile, and is what keeps the key from being forgotten.
//
// Locks are taken in this order: of a gate, then of a shard.
type keyGate struct {
	gate

	gone   bool        // the state is back in the table
	normal *terms      // what the limit was before it was overridden; nil if it is not
	until  int64       // the end of the override
	end    func() bool // stops the timer at its end
}

// raise moves the state of the slot, which stays locked, into a gate.
func (c *cell) raise() {
	k, t := c.k, c.held()
	g := new(keyGate)
	g.keyed, g.key, g.terms = k, c.hash, t
	g.returned = k.returns()
	// The options were checked.
	b := k.bounds.Load()
	_ = g.init(gateOptions{
		policy: k.policy, limit: t.permits, queueLimit: b.QueueLimit, newest: b.NewestFirst, maxDebt: b.MaxDebt,
	})
	g.meter.apply(t.law)
	copy(g.meter.state, c.slot.State())
	g.clock = k.clock
	g.owner, g.word = k, g
	c.slot.SetTag(raisedTag)
	i := c.shard.Index()
	if k.busy[i] == nil {
		k.busy[i] = make(map[table.Hash]*keyGate)
	}
	k.busy[i][c.hash] = g
}

// raise implements word: the state is never anywhere else while the gate lives.
func (g *keyGate) raise() {}

// lower implements word: it moves the state back, if no caller waits and the limit is the normal one.
func (g *keyGate) lower() {
	if g.gone || g.normal != nil {
		return
	}
	k := g.keyed
	shard := k.states.Lock(g.key)
	slot := shard.Find(g.key)
	copy(slot.State(), g.meter.state)
	slot.SetTag(g.terms.tag)
	shard.Due(g.key, g.terms.law.FreshAt(slot.State()))
	if i := shard.Index(); len(k.busy[i]) == 1 {
		k.busy[i] = nil // a map keeps the memory of those that have gone
	} else {
		delete(k.busy[i], g.key)
	}
	shard.Unlock()
	g.gone = true
	k.forgive(g.forgiven)
}

// counts implements word.
func (g *keyGate) counts() (granted, refused int64) { return 0, 0 }

// arrive locks the gate for a call under the terms t, or under those that a plan has by then if there is one, and returns the
// time. It is not alive if the state has left it.
func (g *keyGate) arrive(t *terms, plan *keyPlan) (now int64, alive bool) {
	now = g.enter()
	if plan != nil {
		t = plan.terms.Load()
	}
	if g.gone {
		g.unlock()
		return now, false
	}
	if g.normal != nil {
		if now < g.until {
			if t != nil && t != g.normal && t.enter() {
				g.normal.leave()
				g.normal = t
			}
			return now, true
		}
		g.endOverride(now)
	}
	if t != nil && t != g.terms && t.enter() {
		old := g.terms
		g.hold(t, now)
		old.leave()
	}
	return now, true
}

// hold makes t the limit, and serves callers that wait for permits that this makes available.
func (g *keyGate) hold(t *terms, now int64) {
	g.meter.carry(t.law, now)
	g.terms = t
	g.keyed.movesOf(g.key).Add(1)
	g.limit.Store(t.permits)
	g.maxDebt = g.keyed.debt(t)
	for w := g.queue.Oldest(); w != nil; {
		next := w.Newer()
		if w.Permits > t.permits {
			g.answer(w, g.meter.peek(now, w.Permits), ReasonNever)
		}
		w = next
	}
	g.cameBack(now)
}

// cameBack serves callers that wait, when permits have come in another way than by time.
func (g *gate) cameBack(now int64) {
	g.touched, g.changed = now, now
	g.meter.replan()
	if !g.closed {
		g.serve(now)
	}
}

// debit charges n permits at time now, under the lock: callers that wait do so for longer.
func (g *gate) debit(now, n int64) {
	g.touched, g.changed = now, now
	g.forgive(n - g.meter.charge(now, n, g.maxDebt))
	g.meter.replan()
}

// mostOverrides is how many keys can be overridden at a time.
const mostOverrides = 1 << 16

// ErrClosed is returned by calls that change a limiter that has been closed.
var ErrClosed = errors.New("weir: the limiter is closed")

// Override implements keyset.View.
func (k operator[K]) Override(key K, limit Limit, d time.Duration) error {
	t, err := k.alike("Override.limit", limit)
	if err != nil {
		return err
	}
	if d < 1 || d > algo.MaxPeriod {
		return &OptionError{"Override.d", d.String(), "from 1ns to 87840h (3660 days)"}
	}
	var c cell
	k.cell(&c, key)
	if err := c.lockGate(); err != nil {
		return err
	}
	defer c.unlock()
	return c.gate.override(t, c.now, d)
}

// Restore implements keyset.View.
func (k operator[K]) Restore(key K) bool {
	c := cell{k: &k.keyed, hash: k.hash(key)}
	c.lock(nil)
	defer c.unlock()
	if c.gate == nil || c.gate.normal == nil {
		return false
	}
	c.gate.endOverride(c.now)
	return true
}

// lockGate is lock that moves the state into a gate if it is in none.
func (c *cell) lockGate() error {
	if c.full || c.terms == nil { // the limit that was chosen for the key cannot be used
		c.terms, c.full = c.k.base, false
	}
	t, own := c.terms, c.terms
	if t == c.k.base {
		own = nil // that of the state may be a Plan
	}
	for attempt := 0; ; attempt++ {
		c.terms = own
		c.enter()
		switch {
		case c.gate != nil:
			return nil
		case c.k.closed.Load():
			c.unlock()
			return ErrClosed
		case c.slot == nil:
			c.terms = t
			c.add()
		}
		tracked := c.slot != nil
		if tracked {
			c.raise()
		}
		c.unlock()
		if !tracked && !c.makeRoom(attempt) {
			return inside.ErrTableFull
		}
	}
}

// override holds the state to t for d from now on.
func (g *keyGate) override(t *terms, now int64, d time.Duration) error {
	if g.closed {
		return ErrClosed
	}
	k := g.keyed
	if g.normal == nil {
		if k.overrides.Add(1) > mostOverrides {
			k.overrides.Add(-1)
			return inside.ErrTooManyOverrides
		}
		g.normal = g.terms
	} else {
		g.end()
	}
	g.until = clock.After(now, d)
	g.hold(t, now)
	expire := func() {
		if _, alive := g.arrive(nil, nil); alive {
			g.unlock()
		}
	}
	if g.clock != nil {
		g.end = g.clock.At(g.until, expire)
	} else {
		g.end = time.AfterFunc(d, expire).Stop
	}
	return nil
}

// endOverride goes back to the normal limit.
func (g *keyGate) endOverride(now int64) {
	g.end()
	normal := g.normal
	g.normal = nil
	g.keyed.overrides.Add(-1)
	g.hold(normal, now)
}
