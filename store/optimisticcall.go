package store

import (
	"context"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// optimisticPart is a charge of a request.
type optimisticPart struct {
	hash    uint64
	terms   *terms
	key     *optimisticKey // nil if it is not kept
	verdict verdict
	hold    optimisticHold // of permits from memory while the store is asked for the others
}

// optimisticCall is a request on its way.
type optimisticCall struct {
	o         *Optimistic
	ask       Ask
	charges   []Charge
	decisions []weir.Decision
	parts     []optimisticPart
	shards    nearLocks
	lends     int64 // of ModeLend, how many permits the store is asked for

	// takes says that what memory grants is taken. Otherwise nothing is, and refusals do not end the call.
	takes bool
	// whole says that the store decides on all charges that are not refused, and always that memory refuses nothing.
	whole, always bool
	// mixed says that charges of other consistencies are among them, about which the store is always asked.
	mixed bool
}

// begin begins a call about charges that were checked, but for their limits.
func (o *Optimistic) begin(ask Ask, charges []Charge, decisions []weir.Decision) *optimisticCall {
	c := &optimisticCall{o: o, ask: ask, charges: charges, decisions: decisions, parts: make([]optimisticPart, len(charges))}
	for i := range charges {
		hash := o.hashOf(&charges[i])
		c.parts[i].hash = hash
		c.shards |= 1 << o.shardAt(hash)
	}
	switch ask.Mode {
	case ModePeek:
		c.always = ask.States != nil
		c.takes, c.whole = c.always, c.always
	case ModeLend:
		least := charges[0]
		least.N = ask.Least
		c.charges, c.lends = []Charge{least}, charges[0].N
		c.takes, c.whole = true, true
	default:
		c.always = ask.Mode == ModeDebit
		c.takes, c.whole = true, c.always || ask.Hold != 0
	}
	return c
}

// run makes the decisions. It has the locks of all its shards while it looks at keys, in one order, and none while it waits.
//
// A call that needs an answer about a key waits for the call under way, with nothing in its hands, or begins one: then nothing is
// allowed for that key until it has ended, so that the answer is exact.
func (c *optimisticCall) run(ctx context.Context) (Hold, error) {
	if err := ctx.Err(); err != nil {
		return Hold{}, notTaken(err)
	}
	for {
		c.o.lock(c.shards)
		done, err := c.decide(c.o.now(), nil)
		if done || err != nil {
			c.o.unlock(c.shards)
			return Hold{}, err
		}
		if f := c.busy(nil); f != nil {
			c.o.unlock(c.shards)
			if err := f.wait(ctx); err != nil {
				return Hold{}, err
			}
			continue
		}
		f := c.depart()
		if c.owes(f) {
			if err := c.tell(ctx, f); err != nil {
				return Hold{}, err
			}
			done, err := c.decide(c.o.now(), f)
			if done || err != nil || !c.adopt(f) {
				c.o.land(f, nil)
				c.o.unlock(c.shards)
				if done || err != nil {
					return Hold{}, err
				}
				continue
			}
		}
		return c.finish(ctx, f)
	}
}

// decide reports whether all decisions could be made from memory, for the call mine. If they grant, the permits are taken. The
// error is about a limit.
func (c *optimisticCall) decide(now int64, mine *optimisticFlight) (done bool, err error) {
	asks, refuses := false, false
	for i := range c.parts {
		v, err := c.judge(i, now, mine)
		if err != nil {
			return false, err
		}
		c.parts[i].verdict = v
		asks, refuses = asks || v == verdictAsk, refuses || v == verdictRefuse
	}
	switch {
	case refuses && c.takes:
		for i := range c.parts {
			if c.parts[i].verdict != verdictRefuse {
				c.decisions[i] = c.peek(i, now)
			}
		}
		return true, nil
	case asks:
		return false, nil
	}
	for i := range c.parts {
		if p := &c.parts[i]; c.takes {
			p.key.take(c.charges[i].N)
			c.o.queue(p.key, now)
		} else if p.verdict == verdictGrant {
			c.decisions[i] = c.peek(i, now)
		}
	}
	return true, nil
}

// judge finds what is kept for a charge and decides on it, if that is possible.
func (c *optimisticCall) judge(i int, now int64, mine *optimisticFlight) (v verdict, err error) {
	p, charge := &c.parts[i], &c.charges[i]
	s, foreign := c.o.shard(p.hash), c.foreign(i)
	if s.closed {
		return verdictAsk, ErrClosed
	}
	var k *optimisticKey
	if !foreign {
		k = c.o.find(p.hash, charge)
	}
	if k != nil && k.terms.limit == charge.Limit {
		p.terms = k.terms
	} else if p.terms, err = termsOf(charge.Limit); err != nil {
		return verdictAsk, err
	}
	if k == nil && c.takes && !c.whole && !foreign {
		k = c.o.remember(p.hash, charge, now)
	}
	if p.key = k; k == nil {
		return verdictAsk, nil
	}
	k.used = now
	if mine == nil && k.owed+k.sent > 0 && k.terms.text != p.terms.text {
		return verdictAsk, nil // what was taken under the limit before is told under it
	}
	k.hold(c.o, p.terms)
	if c.always {
		return verdictAsk, nil
	}
	v = k.judge(c.o, charge.N, max(now, k.at), &k.next, &c.decisions[i])
	if v == verdictGrant && c.takes && (c.whole || !k.may(charge.N, mine)) {
		v = verdictAsk
	}
	return v, nil
}

// foreign reports whether nothing of a charge is kept here.
func (c *optimisticCall) foreign(i int) bool {
	return c.mixed && c.charges[i].Consistency != ConsistencyOptimistic
}

// peek is what is known about a charge.
func (c *optimisticCall) peek(i int, now int64) weir.Decision {
	p, charge := &c.parts[i], &c.charges[i]
	if c.foreign(i) {
		return notAsked(charge, p.terms)
	}
	if p.key != nil {
		return p.key.peek(charge.N, now)
	}
	unknown := optimisticKey{nearKey: nearKey[optimisticKey]{recordKey: recordKey{policy: charge.Policy}}, terms: p.terms}
	return unknown.peek(charge.N, now)
}

// notAsked is the decision on a charge about which no store was asked.
func notAsked(c *Charge, t *terms) weir.Decision {
	return weir.Decision{Allowed: true, Limit: t.most, Policy: c.Policy}
}

// takeKnown decides on a charge if no more must be known than the view of its key. It does not allocate.
func (o *Optimistic) takeKnown(c *Charge, d *weir.Decision) bool {
	if c.N < 0 || c.N > algo.MaxPermits {
		return false
	}
	hash := o.hashOf(c)
	copied := o.published(hash, c)
	now := o.now()
	if copied != nil && copied.terms.limit == c.Limit {
		var next algo.TokenBucketState
		if copied.judge(o, c.N, max(now, copied.at), &next, d) == verdictRefuse {
			return true
		}
	}
	s := o.shard(hash)
	lock(&s.lock)
	defer s.lock.Unlock()
	k, v := o.judgeKnown(hash, c, now, d)
	switch v {
	case verdictGrant:
		k.take(c.N)
		o.queue(k, now)
	case verdictRefuse:
		if k.calls++; k.calls >= o.patience {
			o.publish(&k.nearKey, k)
		}
	default:
	}
	return v != verdictAsk
}

// judgeKnown decides on a charge by the view of its key, if it is kept. Its shard must be locked.
func (o *Optimistic) judgeKnown(hash uint64, c *Charge, now int64, d *weir.Decision) (*optimisticKey, verdict) {
	s := o.shard(hash)
	k := o.find(hash, c)
	if k == nil || k.terms.limit != c.Limit || s.closed {
		return nil, verdictAsk
	}
	k.used = now
	v := k.judge(o, c.N, max(now, k.at), &k.next, d)
	if v == verdictGrant && !k.may(c.N, nil) {
		v = verdictAsk
	}
	return k, v
}

// takeAllKnown is takeKnown for several charges.
func (o *Optimistic) takeAllKnown(charges []Charge, decisions []weir.Decision) bool {
	if checkNames(charges) != nil {
		return false
	}
	var hashes [MostCharges]uint64
	var keys [MostCharges]*optimisticKey
	shards := nearLocks(0)
	for i := range charges {
		hashes[i] = o.hashOf(&charges[i])
		shards |= 1 << o.shardAt(hashes[i])
	}
	now := o.now()
	o.lock(shards)
	defer o.unlock(shards)
	var verdicts [MostCharges]verdict
	kept, asks, refuses := true, false, false
	for i := range charges {
		k, v := o.judgeKnown(hashes[i], &charges[i], now, &decisions[i])
		keys[i], verdicts[i] = k, v
		kept, asks, refuses = kept && k != nil, asks || v == verdictAsk, refuses || v == verdictRefuse
	}
	known := kept && (refuses || !asks)
	for i := range charges {
		switch k := keys[i]; {
		case !known:
		case !refuses:
			k.take(charges[i].N)
			o.queue(k, now)
		case verdicts[i] != verdictRefuse:
			decisions[i] = k.peek(charges[i].N, now)
		}
	}
	return known
}
