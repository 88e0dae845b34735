package store

import (
	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// takeKnown decides on a charge if no more must be known than the view of its key. It does not allocate.
func (o *Optimistic) takeKnown(c *Charge, d *weir.Decision) bool {
	if c.N < 0 || c.N > algo.MaxPermits {
		return false
	}
	hash := o.hashOf(c.Policy, c.Key)
	s := o.shard(hash)
	now := o.now()
	s.lock.Lock()
	defer s.lock.Unlock()
	k, v := o.judgeKnown(hash, c, now, d)
	if v == verdictGrant {
		k.take(c.N)
		o.queue(k, now)
	}
	return v != verdictAsk
}

// judgeKnown decides on a charge by the view of its key, if it is kept. Its shard must be locked.
func (o *Optimistic) judgeKnown(hash uint64, c *Charge, now int64, d *weir.Decision) (*optimisticKey, verdict) {
	s := o.shard(hash)
	k := s.find(hash, c.Policy, c.Key)
	if k == nil || k.terms.limit != c.Limit || s.closed {
		return nil, verdictAsk
	}
	k.used = now
	v := k.judge(o, c.N, max(now, k.at), d)
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
		hashes[i] = o.hashOf(charges[i].Policy, charges[i].Key)
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
