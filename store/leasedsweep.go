package store

import (
	"container/heap"
	"sync"
	"sync/atomic"
	"time"
)

// mostReturns is how many blocks are given back at the same time.
const mostReturns = 16

// closeTime is how long Close lets calls of the inner store go on.
const closeTime = 5 * time.Second

// leasedSweep is what gives back blocks that are not used.
type leasedSweep struct {
	lock    sync.Mutex
	queue   leasedQueue
	started bool
	ended   sync.WaitGroup
	wake    chan struct{}
	stop    chan struct{}
	room    chan struct{}
}

// leasedLook says when a key is to be looked at.
type leasedLook struct {
	at    int64
	shard *leasedShard
	entry *leasedKey
}

// leasedQueue is a heap of looks by time.
type leasedQueue []leasedLook

func (q leasedQueue) Len() int           { return len(q) }
func (q leasedQueue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q leasedQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements [heap.Interface].
func (q *leasedQueue) Push(x any) { *q = append(*q, x.(leasedLook)) } //nolint:errcheck,forcetypeassert // nothing else is pushed

// Pop implements [heap.Interface].
func (q *leasedQueue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	(*q)[last] = leasedLook{}
	*q = (*q)[:last]
	return x
}

// watch has a key with something in hand looked at. The shard must be locked.
func (l *Leased) watch(s *leasedShard, e *leasedKey, now int64) {
	if len(e.blocks) == 0 || e.looked != 0 || s.closed {
		return
	}
	e.looked = max(e.nextLook(now), now+e.plan.span/16)
	w := &l.sweep
	w.lock.Lock()
	defer w.lock.Unlock()
	heap.Push(&w.queue, leasedLook{e.looked, s, e})
	if !w.started {
		w.started = true
		w.ended.Go(l.sweepUntilClosed)
	}
	if w.queue[0].entry == e { // it is the first
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// nextLook is when the key has to be looked at: after a quarter of the time that blocks are for, or before the end of one.
func (e *leasedKey) nextLook(now int64) int64 {
	at := now + e.plan.span/4
	for i := range e.blocks {
		at = min(at, e.blocks[i].deadline-e.plan.span/8)
	}
	return at
}

// sweepUntilClosed looks at keys when it is time.
func (l *Leased) sweepUntilClosed() {
	for {
		now := l.now()
		looks, next := l.sweep.due(now)
		for _, k := range looks {
			k.shard.lock.Lock()
			returns := k.entry.lookAt(now)
			l.watch(k.shard, k.entry, now)
			k.shard.lock.Unlock()
			for _, r := range returns {
				l.returnBeside(r)
			}
		}
		if len(looks) > 0 {
			continue
		}
		after, stop := l.after(next - now)
		select {
		case <-l.sweep.stop:
			stop()
			return
		case <-l.sweep.wake:
			stop()
		case <-after:
		}
	}
}

// due takes those out of the queue that are to be looked at, and returns when the next one is.
func (w *leasedSweep) due(now int64) (looks []leasedLook, next int64) {
	w.lock.Lock()
	defer w.lock.Unlock()
	for len(w.queue) > 0 && w.queue[0].at <= now {
		looks = append(looks, heap.Pop(&w.queue).(leasedLook)) //nolint:errcheck,forcetypeassert // nothing else is in it
	}
	if len(w.queue) == 0 {
		return looks, now + int64(time.Hour)
	}
	return looks, w.queue[0].at
}

// lookAt takes what is not used, or will not be used in time, out of the hand.
func (e *leasedKey) lookAt(now int64) (returns []leasedReturn) {
	e.looked = 0
	if e.inFlight || e.first != nil { // those who wait may count on what is there
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
func (l *Leased) returnBeside(r leasedReturn) {
	l.sweep.room <- struct{}{}
	l.calls.Go(func() {
		l.giveLoanBack(r)
		<-l.sweep.room
	})
}

// after is a channel on which something comes once d has passed.
func (l *Leased) after(d int64) (passed <-chan time.Time, stop func() bool) {
	if l.clock == nil {
		t := time.NewTimer(time.Duration(d))
		return t.C, t.Stop
	}
	c := make(chan time.Time, 1)
	return c, l.clock.AfterFunc(time.Duration(d), func() { c <- time.Time{} })
}

// leasedCounts are counted all the time.
type leasedCounts struct {
	lends, lent, returned, lost, full atomic.Int64
	failure                           atomic.Pointer[leasedFailure]
}

type leasedFailure struct{ err error }

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
	for i := range l.shards {
		s := &l.shards[i]
		s.lock.Lock()
		stats.Keys += s.count
		s.all(func(e *leasedKey) { stats.Held += e.left(now) })
		s.lock.Unlock()
	}
	return stats
}

// Close gives back everything that was not spent, and ends all goroutines. Calls that wait for a block return ErrClosed. What
// their requests had taken goes back as well (TestLeasedCloseKeepsNothing), also where the inner store refuses the rest of a
// request (TestLeasedCloseWhileTheStoreIsAsked). After 5 s it ends the calls that are still under way. The error is one that kept
// permits from being given back after the call. Closing twice is harmless. The inner store stays open.
func (l *Leased) Close() error {
	if !l.closed.CompareAndSwap(false, true) {
		<-l.ended
		return nil
	}
	defer close(l.ended)
	l.stats.failure.Store(nil)
	var returns []leasedReturn
	for i := range l.shards {
		s := &l.shards[i]
		now := l.now()
		s.lock.Lock()
		s.closed = true
		s.all(func(e *leasedKey) {
			e.fail(ErrClosed)
			returns = e.releaseLeft(now, returns)
		})
		s.keys, s.count = nil, 0
		s.lock.Unlock()
	}
	close(l.sweep.stop)
	timer := time.AfterFunc(closeTime, l.cancel)
	defer timer.Stop()
	l.sweep.ended.Wait()
	for _, r := range returns {
		l.returnBeside(r)
	}
	l.calls.Wait()
	l.cancel()
	if f := l.stats.failure.Load(); f != nil {
		return f.err
	}
	return nil
}
