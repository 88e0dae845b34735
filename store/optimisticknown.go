package store

import (
	"math/bits"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// takeKnown decides on a charge if no more must be known than the view of its key. It does not allocate.
func (o *Optimistic) takeKnown(c *Charge, d *weir.Decision) bool {
	if c.N < 0 || c.N > algo.MaxPermits {
		return false
	}
	s := &o.shards[o.place(c.Policy, c.Key)]
	now := o.now()
	s.lock.Lock()
	defer s.lock.Unlock()
	k, v := o.judgeKnown(s, c, now, d)
	if v == verdictGrant {
		k.take(c.N)
		o.queue(k, now)
	}
	return v != verdictAsk
}

// judgeKnown decides on a charge by the view of its key, if it is kept. Its shard must be locked.
func (o *Optimistic) judgeKnown(s *optimisticShard, c *Charge, now int64, d *weir.Decision) (*optimisticKey, verdict) {
	k := s.keys[memoryKey{c.Policy, c.Key}]
	if k == nil || k.terms.limit != c.Limit || o.closed.Load() {
		return nil, verdictAsk
	}
	k.used = true
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
	var places [MostCharges]uint8
	var keys [MostCharges]*optimisticKey
	shards := uint64(0)
	for i := range charges {
		at := o.place(charges[i].Policy, charges[i].Key)
		places[i] = uint8(at)
		shards |= 1 << at
	}
	now := o.now()
	for rest := shards; rest != 0; rest &= rest - 1 {
		o.shards[bits.TrailingZeros64(rest)].lock.Lock()
	}
	var verdicts [MostCharges]verdict
	kept, asks, refuses := true, false, false
	for i := range charges {
		k, v := o.judgeKnown(&o.shards[places[i]], &charges[i], now, &decisions[i])
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
	for rest := shards; rest != 0; rest &= rest - 1 {
		o.shards[bits.TrailingZeros64(rest)].lock.Unlock()
	}
	return known
}
