package weir

import (
	"context"

	"github.com/weirhq/weir/internal/table"
)

// keyGate holds the state of a key while somebody waits for it, or while its limit is overridden. Its slot in the table is
// raised meanwhile, and is what keeps the key from being forgotten.
//
// Locks are taken in this order: of a gate, then of a shard.
type keyGate struct {
	gate

	hash   table.Hash
	gone   bool        // the state is back in the table
	normal *terms      // what the limit was before it was overridden; nil if it is not
	until  int64       // the end of the override
	end    func() bool // stops the timer at its end
}

// raise moves the state of a slot into a gate. The shard must be locked.
func (k *keyed) raise(shard *table.Shard, slot table.Slot, h table.Hash, now int64) *keyGate {
	t := k.termsWith(slot.Tag())
	g := &keyGate{hash: h}
	g.keyed, g.terms = k, t
	g.returned = k.returns()
	// The options were checked.
	_ = g.init(t.packed.meter(slot.State(), now), gateOptions{
		policy: k.policy, limit: t.permits, queueLimit: k.queueLimit, order: k.order, maxDebt: k.maxDebt,
	})
	g.clock = k.clock
	g.owner, g.word = g, g
	slot.SetTag(raisedTag)
	i := shard.Index()
	if k.busy[i] == nil {
		k.busy[i] = make(map[table.Hash]*keyGate)
	}
	k.busy[i][h] = g
	return g
}

// raise implements word: the state is never anywhere else while the gate lives.
func (g *keyGate) raise() {}

// lower implements word: it moves the state back, if nobody waits and the limit is the normal one.
func (g *keyGate) lower() {
	if g.gone || g.normal != nil {
		return
	}
	k := g.keyed
	shard := k.states.Lock(g.hash)
	slot := shard.Find(g.hash)
	g.terms.packed.keep(g.meter, slot.State())
	slot.SetTag(g.terms.tag)
	shard.Due(g.hash, g.terms.packed.freshAt(slot.State()))
	delete(k.busy[shard.Index()], g.hash)
	shard.Unlock()
	g.gone = true
	k.forgive(g.forgiven)
}

// counts implements word.
func (g *keyGate) counts() (granted, refused int64) { return 0, 0 }

// arrive locks the gate for a call under the terms t, and answers the time. It is not alive if the state has left it.
func (g *keyGate) arrive(t *terms) (now int64, alive bool) {
	now = g.enter()
	if g.gone {
		g.unlock()
		return now, false
	}
	if g.normal != nil {
		if now < g.until {
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

// hold makes t the limit, and serves those who wait for permits that this makes available.
func (g *keyGate) hold(t *terms, now int64) {
	g.meter = t.packed.carryMeter(g.terms.packed, g.meter, now)
	g.terms = t
	g.limit.Store(t.permits)
	g.maxDebt = g.keyed.debt(t)
	g.touched, g.changed = now, now
	for w := g.queue.Oldest(); w != nil; {
		next := w.Newer()
		if w.Permits > t.permits {
			g.answer(w, g.meter.peek(now, w.Permits), ReasonNever)
		}
		w = next
	}
	g.meter.replan()
	if !g.closed {
		g.serve(now)
	}
}

func (g *keyGate) try(t *terms, n int64, reserve bool) (l Lease, alive bool) {
	now, alive := g.arrive(t)
	if !alive {
		return l, false
	}
	defer g.unlock()
	r, reason := g.take(now, n)
	g.count(n, reason == ReasonNone)
	return g.lease(n, r, reason, reserve, g.terms), true
}

func (g *keyGate) acquire(ctx context.Context, t *terms, n int64, reserve bool) (l Lease, alive bool, err error) {
	now, alive := g.arrive(t)
	if !alive {
		return l, false, nil
	}
	l, err = g.acquireEntered(ctx, now, n, reserve)
	return l, true, err
}

func (g *keyGate) peek(t *terms, n int64) (d Decision, alive bool) {
	now, alive := g.arrive(t)
	if !alive {
		return d, false
	}
	defer g.unlock()
	return g.decision(g.gate.peek(now, n)), true
}

func (g *keyGate) refund(n int64) (alive bool) {
	now, alive := g.arrive(nil)
	if !alive {
		return false
	}
	defer g.unlock()
	g.touched, g.changed = now, now
	g.meter.refund(now, n)
	g.meter.replan()
	if !g.closed {
		g.serve(now)
	}
	return true
}

// settle implements settler, for permits that were taken here: the state may have moved since.
func (g *keyGate) settle(c *claim, how settlement, actual int64) {
	c.key = g.hash
	g.keyed.settle(c, how, actual)
}

func (g *keyGate) settleHere(c *claim, actual int64) (alive bool) {
	now, alive := g.arrive(nil)
	if !alive {
		return false
	}
	defer g.unlock()
	if c.terms == g.terms || actual > c.permits {
		g.settleEntered(now, c, actual)
		return true
	}
	// The permits were taken under another limit: only words know how to give them back.
	var state [mostWords]uint64
	words := state[:g.terms.packed.words()]
	g.terms.packed.keep(g.meter, words)
	k := g.keyed
	if k.returns() {
		actual = 0
	}
	g.terms.packed.cancel(words, now, c.permits-actual, c.mark, c.terms.packed)
	g.meter = g.terms.packed.meter(words, now)
	g.touched, g.changed = now, now
	g.meter.replan()
	if !g.closed {
		g.serve(now)
	}
	return true
}

// mostWords is the size of the largest state.
const mostWords = 65
