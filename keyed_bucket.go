package weir

import "github.com/weirhq/weir/internal/table"

// allowPlain is Allow for a bucket, which is the limit that most keys have. It counts: a verdict of locked is none.
//
// The clock is read before the lock is taken: see cell.try.
func (k *keyed) allowPlain(h table.Hash) (v verdict, added bool) {
	if k.base.most == 0 || k.closed.Load() {
		return locked, false
	}
	now := k.now()
	law := k.base.law
	shard := k.states.Lock(h)
	slot := shard.Find(h)
	switch {
	case slot == nil:
		now = k.now() // the key may have been forgotten meanwhile, which was fresh later
		if slot = shard.Add(h, baseTag, now); slot == nil {
			v = locked
			break
		}
		law.Begin(slot.State(), now, k.returned.Load())
		law.Grant(slot.State(), now)
		shard.Due(h, law.FreshAt(slot.State()))
		v, added = taken, true
		shard.Tally[0]++
	case slot.Tag() != baseTag:
		v = locked
	case law.Grant(slot.State(), now) || law.Grant(slot.State(), k.now()):
		v = taken
		shard.Tally[0]++
	case k.base.elsewhere(slot.State(), now):
		v = locked
	default:
		v = short
		shard.Tally[1]++
	}
	shard.Unlock()
	return v, added
}
