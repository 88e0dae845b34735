package store

import (
	"context"

	"github.com/weirhq/weir"
)

// optimisticCall is a request that may have to ask the store.
type optimisticCall struct {
	o         *Optimistic
	charges   []Charge
	decisions []weir.Decision
	// ask asks the store about those of the charges that memory cannot decide on.
	ask func(ctx context.Context, charges []Charge, decisions []weir.Decision) error
	// takes says that what memory grants is taken. Otherwise nothing is, and refusals do not end the call.
	takes bool
	// whole says that the store decides on all charges that are not refused, and always that memory refuses nothing.
	whole, always bool
	// mixed says that charges of other consistencies are among them, about which the store is always asked.
	mixed bool

	terms    []*terms
	keys     []*optimisticKey // nil for those that are not kept
	verdicts []verdict
	hashes   []uint64
	shards   nearLocks
}

// run makes the decisions. It has the locks of all its shards while it looks at keys, in one order, and none while it waits.
//
// A call that needs an answer about a key waits for the call under way, with nothing in its hands, or begins one: then nothing is
// granted for that key until it has ended, so that the answer is exact.
func (c *optimisticCall) run(ctx context.Context) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	for {
		c.o.lock(c.shards)
		if c.o.closed.Load() {
			c.o.unlock(c.shards)
			return ErrClosed
		}
		now := c.o.now()
		if c.decide(now, nil) {
			c.o.unlock(c.shards)
			return nil
		}
		if f := c.busy(nil); f != nil {
			c.o.unlock(c.shards)
			if err := f.wait(ctx); err != nil {
				return err
			}
			continue
		}
		f := c.begin()
		if c.owes(f) {
			if err := c.tell(ctx, f); err != nil {
				return err
			}
			done := c.decide(c.o.now(), f)
			if done || !c.adopt(f) {
				c.end(f, nil)
				c.o.unlock(c.shards)
				if done {
					return nil
				}
				continue
			}
		}
		return c.finish(ctx, f)
	}
}

// wait waits until the call has ended, and returns its error.
func (f *optimisticFlight) wait(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return notTaken(ctx.Err())
	}
}

// prepare finds the limits of the charges and their shards.
func (c *optimisticCall) prepare(ctx context.Context) error {
	n := len(c.charges)
	c.terms, c.keys, c.verdicts, c.hashes = make([]*terms, n), make([]*optimisticKey, n), make([]verdict, n), make([]uint64, n)
	for i := range c.charges {
		var err error
		if c.terms[i], err = compiled.terms(c.charges[i].Limit); err != nil {
			return err
		}
		c.hashes[i] = c.o.hashOf(c.charges[i].Policy, c.charges[i].Key)
		c.shards |= 1 << c.o.shardAt(c.hashes[i])
	}
	if err := ctx.Err(); err != nil {
		return notTaken(err)
	}
	return nil
}

// decide reports whether all decisions could be made from memory, for the call mine. If they grant, the permits are taken.
func (c *optimisticCall) decide(now int64, mine *optimisticFlight) bool {
	asks, refuses := false, false
	for i := range c.charges {
		v := c.judge(i, now, mine)
		c.verdicts[i] = v
		asks, refuses = asks || v == verdictAsk, refuses || v == verdictRefuse
	}
	switch {
	case refuses && c.takes:
		for i := range c.charges {
			if c.verdicts[i] != verdictRefuse {
				c.decisions[i] = c.peek(i, now)
			}
			c.verdicts[i] = verdictRefuse
		}
		return true
	case asks:
		return false
	}
	for i, k := range c.keys {
		if c.takes {
			k.take(c.charges[i].N)
			c.o.queue(k, now)
		} else if c.verdicts[i] == verdictGrant {
			c.decisions[i] = c.peek(i, now)
		}
	}
	return true
}

// judge finds what is kept for a charge and decides on it, if that is possible.
func (c *optimisticCall) judge(i int, now int64, mine *optimisticFlight) verdict {
	charge := &c.charges[i]
	if c.foreign(i) {
		return verdictAsk
	}
	k := c.o.shard(c.hashes[i]).find(c.hashes[i], charge.Policy, charge.Key)
	if k == nil && c.takes && !c.whole {
		k = c.o.begin(c.hashes[i], charge, now)
	}
	if c.keys[i] = k; k == nil {
		return verdictAsk
	}
	k.used = now
	if mine == nil && k.owed+k.sent > 0 && k.terms.text != c.terms[i].text {
		return verdictAsk // what was granted under the limit before is told under it
	}
	k.hold(c.o, c.terms[i])
	if c.always {
		return verdictAsk
	}
	v := k.judge(c.o, charge.N, max(now, k.at), &c.decisions[i])
	if v == verdictGrant && c.takes && (c.whole || !k.may(charge.N, mine)) {
		return verdictAsk
	}
	return v
}

// foreign reports whether nothing of a charge is kept here.
func (c *optimisticCall) foreign(i int) bool {
	return c.mixed && c.charges[i].Consistency != ConsistencyOptimistic
}

// peek is what is known about a charge.
func (c *optimisticCall) peek(i int, now int64) weir.Decision {
	if c.foreign(i) {
		return notAsked(&c.charges[i], c.terms[i])
	}
	if k := c.keys[i]; k != nil {
		return k.peek(c.charges[i].N, now)
	}
	unknown := optimisticKey{nearKey: nearKey[optimisticKey]{policy: c.charges[i].Policy}, terms: c.terms[i]}
	return unknown.peek(c.charges[i].N, now)
}

// busy is a call under way, other than mine, about one of the keys of which more must be known, or nil.
func (c *optimisticCall) busy(mine *optimisticFlight) *optimisticFlight {
	for i, k := range c.keys {
		if c.verdicts[i] == verdictAsk && k != nil && k.flight != nil && k.flight != mine {
			return k.flight
		}
	}
	return nil
}

// begin begins a call about all keys of which more must be known.
func (c *optimisticCall) begin() *optimisticFlight {
	f := &optimisticFlight{done: make(chan struct{})}
	for i, k := range c.keys {
		if c.verdicts[i] == verdictAsk && k != nil {
			f.join(k)
		}
	}
	c.o.calls.Add(1)
	return f
}

// join adds a key to a call.
func (f *optimisticFlight) join(k *optimisticKey) {
	k.flight, k.alone = f, true
	f.keys = append(f.keys, k)
}

// adopt adds keys to a call of which more must be known by now, and reports whether they can wait for its end: no other call must
// be under way about them, and nothing be owed.
func (c *optimisticCall) adopt(f *optimisticFlight) bool {
	if c.busy(f) != nil {
		return false
	}
	for i, k := range c.keys {
		if c.verdicts[i] == verdictAsk && k != nil && k.owed > 0 {
			return false
		}
	}
	for i, k := range c.keys {
		if c.verdicts[i] == verdictAsk && k != nil && k.flight == nil {
			f.join(k)
		}
	}
	return true
}

// end ends a call.
func (c *optimisticCall) end(f *optimisticFlight, err error) {
	now := c.o.now()
	for _, k := range f.keys {
		k.land()
		c.o.queue(k, now)
	}
	f.err = err
	close(f.done)
	c.o.calls.Done()
}

// land ends the part of a key in a call.
func (k *optimisticKey) land() {
	if k.doubt {
		k.known, k.doubt = false, false
	}
	k.flight, k.alone = nil, false
}

// owes reports whether the store does not know everything about the keys of a call.
func (c *optimisticCall) owes(f *optimisticFlight) bool {
	for _, k := range f.keys {
		if k.owed > 0 {
			return true
		}
	}
	return false
}
