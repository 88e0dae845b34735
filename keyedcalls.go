package weir

import (
	"context"
	"math"
	"time"

	"github.com/weirhq/weir/internal/table"
)

// acquire decides on n permits of a key, and waits for them if it must.
func (k *keyed) acquire(ctx context.Context, h table.Hash, t *terms, plan *keyPlan, n int64, reserve bool) (Lease, error) {
	if n < 0 {
		l := k.refuse(ReasonInvalid, n)
		return l, l.Err()
	}
	if over(ctx) {
		return k.canceled(ctx, n)
	}
	for attempt := 0; ; {
		shard := k.states.Lock(h)
		if k.closed.Load() {
			shard.Unlock()
			l := k.refuseClosed(h, t, n)
			return l, l.Err()
		}
		slot := shard.Find(h)
		if slot != nil && slot.Tag() == raisedTag {
			g := k.busy[shard.Index()][h]
			shard.Unlock()
			if l, alive, err := g.acquire(ctx, t, plan, n, reserve); alive {
				return l, err
			}
			continue
		}
		now := k.now()
		d, m, ok := k.decide(shard, slot, h, t, now, n, reserve)
		if ok && d.Reason == ReasonLimited {
			if d.Reason = k.mayWait(ctx, d, n); d.Reason == ReasonLimited {
				k.raise(shard, slot, h, now)
				shard.Unlock()
				continue
			}
		}
		shard.Unlock()
		if ok {
			l := k.lease(h, d, m, n, reserve)
			return l, refusal(d, n, noQueue(d.Reason, k.bounds.Load().QueueLimit))
		}
		if !k.makeRoom(&t, now, attempt) {
			l := k.full(t, now, n)
			return l, l.Err()
		}
		attempt++
	}
}

// canceled is what a call gets whose context has ended.
func (k *keyed) canceled(ctx context.Context, n int64) (Lease, error) {
	return Lease{decision: Decision{Reason: ReasonCanceled, Limit: k.base.permits, Policy: k.policy}, permits: n}, ended(ctx, n)
}

// mayWait reports whether a caller may wait in a queue that does not exist yet: ReasonLimited if it may, otherwise why not.
func (k *keyed) mayWait(ctx context.Context, d Decision, n int64) Reason {
	if n > k.bounds.Load().QueueLimit {
		return ReasonQueueFull
	}
	if until, ok := ctx.Deadline(); ok && k.clock == nil && d.RetryAfter > time.Until(until) {
		return ReasonDeadline
	}
	return ReasonLimited
}

func (k *keyed) peek(h table.Hash, t *terms, n int64) Decision {
	if n < 0 {
		return k.refuse(ReasonInvalid, n).decision
	}
	for {
		shard := k.states.Lock(h)
		slot := shard.Find(h)
		if slot != nil && slot.Tag() == raisedTag {
			g := k.busy[shard.Index()][h]
			shard.Unlock()
			if d, alive := g.peek(t, n); alive {
				return d
			}
			continue
		}
		r := t.fresh(n)
		if slot != nil {
			now := k.now()
			if !k.adopt(shard, slot, h, t, now) { // t was retired: the next request will have its successor
				t = k.termsWith(slot.Tag())
			}
			r = t.packed.peek(slot.State(), now, n)
		}
		d := k.decision(t, r)
		if k.closed.Load() {
			d.Allowed, d.Reason, d.RetryAfter = false, ReasonClosed, Never
		}
		shard.Unlock()
		return d
	}
}

// refuseClosed is the answer of a limiter that is closed.
func (k *keyed) refuseClosed(h table.Hash, t *terms, n int64) Lease {
	l := k.refuse(ReasonClosed, n)
	l.decision = k.peek(h, t, n)
	return l
}

// resetAll is what Reset refunds.
const resetAll = math.MaxInt64

// refund implements Keyed.Refund and Reset.
func (k *keyed) refund(h table.Hash, n int64) {
	if k.returns() {
		return
	}
	for {
		shard := k.states.Lock(h)
		slot := shard.Find(h)
		if slot != nil && slot.Tag() == raisedTag {
			g := k.busy[shard.Index()][h]
			shard.Unlock()
			if g.refund(n) {
				return
			}
			continue
		}
		if n == resetAll {
			k.resets.note(h)
		}
		if slot != nil {
			t := k.termsWith(slot.Tag())
			t.packed.refund(slot.State(), k.now(), n)
			if n == resetAll {
				k.forgotten(slot.State(), slot.Tag())
				shard.Remove(h)
			} else {
				shard.Due(h, t.packed.freshAt(slot.State()))
			}
		}
		shard.Unlock()
		return
	}
}

// settle implements settler.
func (k *keyed) settle(c *claim, how settlement, actual int64) {
	if k.returns() {
		actual = 0
	} else if how < commit {
		return
	}
	for {
		shard := k.states.Lock(c.key)
		slot := shard.Find(c.key)
		if slot != nil && slot.Tag() == raisedTag {
			g := k.busy[shard.Index()][c.key]
			shard.Unlock()
			if g.settleHere(c, actual) {
				return
			}
			continue
		}
		k.settleSlot(shard, slot, c, k.now(), actual)
		shard.Unlock()
		return
	}
}

func (k *keyed) settleSlot(shard *table.Shard, slot table.Slot, c *claim, now, actual int64) {
	over := actual - c.permits
	if slot == nil && over > 0 {
		t := c.under.terms
		if t.tag == baseTag { // of an override, perhaps
			t = k.base
		}
		if slot = k.add(shard, c.key, k.renew(t), now); slot == nil {
			k.forgive(over)
			return
		}
	}
	if slot == nil {
		return // all permits are back
	}
	t := k.termsWith(slot.Tag())
	if over > 0 {
		k.forgive(over - t.packed.charge(slot.State(), now, over, k.debt(t)))
	} else {
		k.giveBack(slot.State(), t, now, -over, c)
	}
	shard.Due(c.key, t.packed.freshAt(slot.State()))
}

// forgive counts permits that were not charged, up to the largest int64.
func (k *keyed) forgive(n int64) {
	for n > 0 {
		old := k.forgiven.Load()
		if k.forgiven.CompareAndSwap(old, old+min(n, math.MaxInt64-old)) {
			return
		}
	}
}

// shut implements Keyed.Close.
func (k *keyed) shut() {
	if k.closed.Swap(true) {
		return
	}
	for _, g := range k.gates() {
		g.lock()
		if g.normal != nil {
			g.end()
		}
		g.unlock()
		_ = g.Close()
	}
}

// gates are the gates of all keys that have one.
func (k *keyed) gates() (gates []*keyGate) {
	for i := range k.busy {
		shard := k.states.LockShard(i)
		for _, g := range k.busy[i] {
			gates = append(gates, g)
		}
		shard.Unlock()
	}
	return gates
}
