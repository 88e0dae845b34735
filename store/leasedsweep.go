package store

import (
	"sync/atomic"
	"time"
)

// mostReturns is how many blocks are given back at the same time.
const mostReturns = 16

// closeTime is how long Close lets calls of the inner store go on.
const closeTime = 5 * time.Second

// watchHand has a key with something in hand looked at: after a quarter of the time that blocks are for, or before the end of
// one. Its shard must be locked.
func (l *Leased) watchHand(e *leasedKey, now int64) {
	if len(e.blocks) == 0 || l.shard(e.hash).closed {
		return
	}
	at := now + e.plan.span/4
	for i := range e.blocks {
		at = min(at, e.blocks[i].deadline-e.plan.span/8)
	}
	l.watch(&e.nearKey, max(at, now+e.plan.span/16))
}

// due gives back what is not used.
func (l *Leased) due(now int64) (next int64) {
	for i := range l.shards {
		s := &l.shards[i]
		s.lock.Lock()
		for e := l.pop(s, now); e != nil; e = l.pop(s, now) {
			returns := e.lookAt(now)
			l.watchHand(e, now)
			s.lock.Unlock()
			for _, loan := range returns {
				l.returnBeside(loan)
			}
			s.lock.Lock()
		}
		s.lock.Unlock()
	}
	return now
}

// lookAt takes what is not used, or will not be used in time, out of the hand.
func (e *leasedKey) lookAt(now int64) (returns []Hold) {
	if e.inFlight || e.waits() { // requests that wait may count on what is there
		return nil
	}
	unused := now-e.used >= e.plan.span/4
	for i := range e.blocks {
		if b := &e.blocks[i]; b.left > 0 && (unused || b.deadline-e.plan.span/8 <= now) {
			returns = append(returns, e.release(b, b.left, now))
		}
	}
	e.tidy(now)
	return returns
}

// returnBeside gives permits back while the caller goes on, if not too many calls are under way.
func (l *Leased) returnBeside(loan Hold) {
	l.returning <- struct{}{}
	l.calls.Go(func() {
		l.giveLoanBack(loan)
		<-l.returning
	})
}

// leasedCounts are counted all the time.
type leasedCounts struct {
	lends, lent, returned, lost, full atomic.Int64
	failure                           atomic.Pointer[error] // of a call that was to give permits back after Close
}

// LeasedStats are the counts of a [Leased] since it was made.
type LeasedStats struct {
	// Keys is how many keys are kept, and Held how many permits are in hand for them.
	Keys int   `json:"keys"`
	Held int64 `json:"held"`
	// Lends is how often blocks were asked for, and Lent how many permits came.
	Lends int64 `json:"lends"`
	Lent  int64 `json:"lent"`
	// Returned is how many permits were given back, and Lost how many could not be.
	Returned int64 `json:"returned"`
	Lost     int64 `json:"lost"`
	// Full is how many charges went to the inner store, as there was no room for their keys.
	Full int64 `json:"full"`
}

// Stats returns what was done so far. It looks at every key.
func (l *Leased) Stats() LeasedStats {
	c := &l.stats
	stats := LeasedStats{
		Lends: c.lends.Load(), Lent: c.lent.Load(), Returned: c.returned.Load(), Lost: c.lost.Load(), Full: c.full.Load(),
	}
	now := l.now()
	l.each(func(e *leasedKey) {
		stats.Keys++
		stats.Held += e.left(now)
	})
	return stats
}

// Close gives back everything that was not spent, and ends all goroutines. Calls that wait for a block return ErrClosed. What
// their requests had taken goes back as well (TestLeasedCloseKeepsNothing), also where the inner store refuses the rest of a
// request (TestLeasedCloseWhileTheStoreIsAsked). After 5 s it ends the calls that are still under way. The error is one that kept
// permits from being given back after the call. Closing twice is harmless. The inner store stays open.
func (l *Leased) Close() error {
	var returns []Hold
	return l.shut(closeTime, func(s *nearShard[leasedKey]) {
		now := l.now()
		for _, k := range s.ring {
			k.kept.fail(ErrClosed)
			returns = k.kept.releaseLeft(now, returns)
		}
		s.keys, s.ring = nil, nil
	}, func() error {
		for _, loan := range returns {
			l.returnBeside(loan)
		}
		l.calls.Wait()
		if f := l.stats.failure.Load(); f != nil {
			return *f
		}
		return nil
	})
}
