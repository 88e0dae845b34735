package weir

import "github.com/weirhq/weir/internal/table"

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
