package store

import (
	"context"

	"github.com/weirhq/weir"
)

// takeMixed is Take for charges some of which are not of ConsistencyOptimistic: those, and the others of which more must be
// known, are taken in one call of the store, or none is. Where memory refuses, the store is not asked.
func (o *Optimistic) takeMixed(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	c := optimisticCall{o: o, charges: charges, decisions: decisions, takes: true, mixed: true}
	c.ask = func(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
		return Take(ctx, o.inner, charges, decisions)
	}
	return c.run(ctx)
}

// refuses reports whether one of the charges is known to be refused. Then the decisions are made.
func (o *Optimistic) refuses(charges []Charge, decisions []weir.Decision) bool {
	refused := false
	now := o.now()
	for i := range charges {
		c := &charges[i]
		if c.Consistency != ConsistencyOptimistic {
			t, _ := compiled.terms(c.Limit) // which was checked
			decisions[i] = notAsked(c, t)
			continue
		}
		hash := o.hashOf(c.Policy, c.Key)
		s := o.shard(hash)
		s.lock.Lock()
		k, v := o.judgeKnown(hash, c, now, &decisions[i])
		switch t, _ := compiled.terms(c.Limit); { // which was checked
		case v == verdictRefuse:
			refused = true
		case k != nil:
			decisions[i] = k.peek(c.N, now)
		default:
			unknown := optimisticKey{nearKey: nearKey[optimisticKey]{policy: c.Policy}, terms: t}
			decisions[i] = unknown.peek(c.N, now)
		}
		s.lock.Unlock()
	}
	return refused
}

// notAsked is the decision on a charge about which nobody was asked.
func notAsked(c *Charge, t *terms) weir.Decision {
	return weir.Decision{Allowed: true, Limit: t.most, Policy: c.Policy}
}
