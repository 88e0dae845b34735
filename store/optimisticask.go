package store

import (
	"context"

	"github.com/weirhq/weir"
)

// optimisticFlight is a call to the store about some keys.
type optimisticFlight struct {
	keys []*optimisticKey
	done chan struct{}
	err  error // once it is done
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

// join adds a key to a call.
func (f *optimisticFlight) join(k *optimisticKey) {
	k.flight, k.alone = f, true
	f.keys = append(f.keys, k)
}

// land ends a call about keys whose shards are locked.
func (o *Optimistic) land(f *optimisticFlight, err error) {
	now := o.now()
	for _, k := range f.keys {
		o.withdraw(&k.nearKey)
		k.land()
		o.queue(k, now)
	}
	f.err = err
	close(f.done)
	o.calls.Done()
}

// asks is the key of a charge if more must be known of it, and it is kept.
func (c *optimisticCall) asks(i int) *optimisticKey {
	if c.parts[i].verdict != verdictAsk {
		return nil
	}
	return c.parts[i].key
}

// busy is a call under way, other than mine, about one of the keys of which more must be known, or nil.
func (c *optimisticCall) busy(mine *optimisticFlight) *optimisticFlight {
	for i := range c.parts {
		if k := c.asks(i); k != nil && k.flight != nil && k.flight != mine {
			return k.flight
		}
	}
	return nil
}

// depart begins a call about all keys of which more must be known.
func (c *optimisticCall) depart() *optimisticFlight {
	f := &optimisticFlight{done: make(chan struct{})}
	for i := range c.parts {
		if k := c.asks(i); k != nil {
			f.join(k)
		}
	}
	c.o.calls.Add(1)
	return f
}

// adopt adds keys to a call of which more must be known by now, and reports whether they can wait for its end: no other call must
// be under way about them, and nothing be owed.
func (c *optimisticCall) adopt(f *optimisticFlight) bool {
	if c.busy(f) != nil {
		return false
	}
	for i := range c.parts {
		if k := c.asks(i); k != nil && k.owed > 0 {
			return false
		}
	}
	for i := range c.parts {
		if k := c.asks(i); k != nil && k.flight == nil {
			f.join(k)
		}
	}
	return true
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

// tell unlocks, tells the store what is owed, and locks again. If it fails the call has ended, and nothing is locked.
//
// What is owed must not be told twice because a caller goes away, so the call goes on then.
func (c *optimisticCall) tell(ctx context.Context, f *optimisticFlight) error {
	o, shards := c.o, c.shards // the request may have ended before the store answers
	b := new(optimisticBatch)
	for _, k := range f.keys {
		if k.owed > 0 {
			b.add(k, true)
		}
	}
	o.unlock(shards)
	answered, left := false, false // belong to the locks
	result := make(chan error, 1)
	go func() {
		err := o.debit(context.WithoutCancel(ctx), b)
		o.lock(shards)
		now := o.now()
		for i := range b.keys {
			o.hear(b, i, err, now)
		}
		if answered = true; err != nil || left {
			o.land(f, err)
		}
		o.unlock(shards)
		result <- err
	}()
	select {
	case err := <-result:
		if err == nil {
			o.lock(shards)
		}
		return err
	case <-ctx.Done():
		o.lock(shards)
		if left = true; answered && f.err == nil {
			o.land(f, nil)
		}
		o.unlock(shards)
		return notTaken(ctx.Err())
	}
}

// finish unlocks and asks the store about all charges of which more must be known. What memory grants is taken before, and given
// back if the store refuses.
func (c *optimisticCall) finish(ctx context.Context, f *optimisticFlight) (Hold, error) {
	now := c.o.now()
	var asked []Charge
	for i := range c.parts {
		p, k := &c.parts[i], c.parts[i].key
		switch {
		case p.verdict == verdictAsk:
			asked = append(asked, c.charges[i])
			if k == nil {
				c.pass(i, 1)
			}
		case c.takes:
			k.pins++
			p.hold = k.takeHeld(c.charges[i].N, now)
			c.o.queue(k, now)
		case p.verdict == verdictGrant:
			c.decisions[i] = c.peek(i, now)
		}
	}
	if c.ask.Mode == ModeLend {
		asked[0].N = c.lends
	}
	c.o.unlock(c.shards)
	answers := make([]weir.Decision, len(asked))
	hold, err := c.o.inner.Do(ctx, c.ask, asked, answers)
	c.o.lock(c.shards)
	defer c.o.unlock(c.shards)
	now = c.o.now()
	allowed := err == nil && allGranted(answers)
	next := 0
	for i := range c.parts {
		p, k := &c.parts[i], c.parts[i].key
		if k != nil {
			c.o.withdraw(&k.nearKey)
		}
		if p.verdict != verdictAsk {
			if c.takes {
				c.settle(i, allowed, now)
			}
			continue
		}
		if k == nil {
			c.pass(i, -1)
		}
		if err == nil {
			c.decisions[i] = answers[next]
			if k != nil {
				c.see(i, now)
			}
		} else if k != nil {
			k.mistrust()
		}
		next++
	}
	if ctx.Err() != nil {
		c.o.land(f, nil) // requests that wait for it have contexts of their own
	} else {
		c.o.land(f, err)
	}
	return hold, err
}

// see makes the decision on a charge the view of its key, if that is held to the same limit still.
func (c *optimisticCall) see(i int, now int64) {
	n, p := c.charges[i].N, &c.parts[i]
	if c.always { // it is what a probe was answered
		n = 0
	}
	if p.key.terms.text == p.terms.text {
		p.key.see(c.o, n, &c.decisions[i], now)
	}
}

// settle ends what finish has taken from memory for a charge.
func (c *optimisticCall) settle(i int, allowed bool, now int64) {
	p, n := &c.parts[i], c.charges[i].N
	k := p.key
	k.pins--
	if allowed {
		k.keep(n, p.hold)
	} else {
		k.giveBack(n, p.hold, now)
		c.decisions[i] = k.peek(n, now)
	}
	c.o.queue(k, now)
}

// pass counts the calls about a key that is not kept.
func (c *optimisticCall) pass(i, n int) {
	passing, key := &c.o.passing[c.o.shardAt(c.parts[i].hash)], c.charges[i].recordKey()
	if *passing == nil {
		*passing = make(map[recordKey]int)
	}
	if (*passing)[key] += n; (*passing)[key] == 0 {
		delete(*passing, key)
	}
}
