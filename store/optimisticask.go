package store

import (
	"context"

	"github.com/weirhq/weir"
)

// tell unlocks, tells the store what is owed, and locks again. If it fails the call has ended, and nothing is locked.
//
// What is owed must not be told twice because a caller goes away, so the call goes on then.
func (c *optimisticCall) tell(ctx context.Context, f *optimisticFlight) error {
	var keys []*optimisticKey
	for _, k := range f.keys {
		if k.owed > 0 {
			keys = append(keys, k)
		}
	}
	b := c.o.send(keys)
	c.o.unlock(c.shards)
	if ctx.Done() == nil {
		err := c.o.debit(context.WithoutCancel(ctx), b)
		c.o.lock(c.shards)
		if c.o.heard(b, err); err != nil {
			c.end(f, err)
			c.o.unlock(c.shards)
		}
		return err
	}
	answered, left := false, false // belong to the locks
	result := make(chan error, 1)
	go func() {
		err := c.o.debit(context.WithoutCancel(ctx), b)
		c.o.lock(c.shards)
		c.o.heard(b, err)
		if answered = true; err != nil || left {
			c.end(f, err)
		}
		c.o.unlock(c.shards)
		result <- err
	}()
	select {
	case err := <-result:
		if err == nil {
			c.o.lock(c.shards)
		}
		return err
	case <-ctx.Done():
		c.o.lock(c.shards)
		defer c.o.unlock(c.shards)
		if left = true; answered {
			select {
			case <-f.done: // it has failed
			default:
				c.end(f, nil)
			}
		}
		return notTaken(ctx.Err())
	}
}

// finish unlocks and asks the store about all charges of which more must be known. What memory grants is taken before, and given
// back if the store refuses.
func (c *optimisticCall) finish(ctx context.Context, f *optimisticFlight) error {
	now := c.o.now()
	var asked []Charge
	holds := make([]optimisticHold, len(c.keys))
	for i, k := range c.keys {
		switch {
		case c.verdicts[i] == verdictAsk:
			asked = append(asked, c.charges[i])
			if k == nil {
				c.pass(i, 1)
			}
		case c.takes:
			k.pins++
			holds[i] = k.takeHeld(c.charges[i].N, now)
			c.o.queue(k, now)
		case c.verdicts[i] == verdictGrant:
			c.decisions[i] = c.peek(i, now)
		}
	}
	c.o.unlock(c.shards)
	answers := make([]weir.Decision, len(asked))
	err := c.ask(ctx, asked, answers)
	c.o.lock(c.shards)
	defer c.o.unlock(c.shards)
	now = c.o.now()
	allowed := err == nil
	for i := range answers {
		allowed = allowed && answers[i].Allowed
	}
	next := 0
	for i, k := range c.keys {
		if c.verdicts[i] != verdictAsk {
			if c.takes {
				c.settle(i, holds[i], allowed, now)
			}
			continue
		}
		if k == nil {
			c.pass(i, -1)
		}
		if err == nil {
			c.decisions[i] = answers[next]
			if k != nil {
				c.see(k, i, now)
			}
		} else if k != nil {
			k.mistrust()
		}
		next++
	}
	if ctx.Err() != nil {
		c.end(f, nil) // those who wait for it have contexts of their own
		return err
	}
	c.end(f, err)
	return err
}

// see makes the decision on a charge the view of its key, if that is held to the same limit still.
func (c *optimisticCall) see(k *optimisticKey, i int, now int64) {
	n := c.charges[i].N
	if c.always { // it is what a probe was answered
		n = 0
	}
	if k.terms.text == c.terms[i].text {
		k.see(c.o, n, &c.decisions[i], now)
	}
}

// settle ends what finish has taken from memory for a charge.
func (c *optimisticCall) settle(i int, h optimisticHold, allowed bool, now int64) {
	k := c.keys[i]
	k.pins--
	if allowed {
		k.keep(c.charges[i].N, h)
		c.o.queue(k, now)
		return
	}
	k.giveBack(c.charges[i].N, h, now)
	c.o.queue(k, now)
	c.decisions[i] = k.peek(c.charges[i].N, now)
}

// pass counts the calls about a key that is not kept.
func (c *optimisticCall) pass(i, n int) {
	passing, key := &c.o.passing[c.o.shardAt(c.hashes[i])], memoryKey{c.charges[i].Policy, c.charges[i].Key}
	if *passing == nil {
		*passing = make(map[memoryKey]int)
	}
	if (*passing)[key] += n; (*passing)[key] == 0 {
		delete(*passing, key)
	}
}
