package store

// leasedKey is what a [Leased] keeps for a key of a policy.
type leasedKey struct {
	nearKey[leasedKey]

	plan *leasePlan

	// blocks have permits left, the oldest first; past have none, but may be given some back.
	blocks, past []leasedBlock
	// forgotten is until when blocks were spent that are not kept any more.
	forgotten int64

	// spent is how many permits were granted since the time since; before, in as long a time until then.
	spent, before, since int64
	low                  int64 // with no more left than that, a block is asked for in advance; -1 for never
	lentAt, lentN        int64 // when the last block came, and of how many permits

	seen  int64 // what the inner store had left when it was asked last
	reset int64 // when it will have all of them

	refusal  leasedRefusal
	aheadAt  int64 // no block is asked for in advance before
	inFlight bool  // a Lend is under way
	sentAt   int64 // when it was sent
	trip     int64 // how long the last one took
	epoch    int64 // counts what makes the answer to a Lend that is under way worthless

	first, last *leasedWaiter
	queued      int64 // permits that are waited for; less than nothing if they are too many to count
}

// keep adds a key that is not kept yet, or returns nil if there is no room. Its shard must be locked.
func (l *Leased) keep(hash uint64, policy, key string, p *leasePlan, now int64) *leasedKey {
	s := l.shard(hash)
	if !l.room(s) {
		return nil
	}
	e := &leasedKey{
		plan: p, seen: p.most, since: now, forgotten: s.evicted, low: -1, lentAt: now, reset: now, aheadAt: now,
	}
	l.add(&e.nearKey, e, hash, policy, key, now)
	return e
}

func (*Leased) idle(e *leasedKey) bool {
	return len(e.blocks) == 0 && !e.inFlight && e.first == nil
}

func (*Leased) stale(e *leasedKey, now int64) bool { return now-e.used > 2*e.plan.longest }
