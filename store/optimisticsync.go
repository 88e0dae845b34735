package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir"
)

const (
	// mostSyncs is how many calls are under way at a time that tell the store what is owed, apart from those of requests.
	mostSyncs = 4
	// longestPause is how long the store is left alone at most after it could not be told.
	longestPause = 5 * time.Second
	// leastUrgent is the least drift with which keys are told early: with less, a call for each request would be made.
	leastUrgent = 4
)

// optimisticSync is when the store is told, and how far that is.
type optimisticSync struct {
	lock   sync.Mutex
	shard  int // where the next batch begins
	pause  time.Duration
	paused int64 // until when
}

// optimisticBatch is what the store is told in one call.
type optimisticBatch struct {
	keys      []*optimisticKey
	terms     []*terms
	charges   []Charge
	decisions []weir.Decision
	flight    *optimisticFlight
	unsure    []Charge // one of which the store may have heard, if there is one
	apart     bool     // calls with others have failed for one of the keys: each is told in a call of its own
	errs      []error  // of each of these calls
}

// queue has the store told about a key in the next tick, or now if most of its drift is used up. Its shard must be locked.
func (o *Optimistic) queue(k *optimisticKey, now int64) {
	switch {
	case k.flight == nil && !k.single && now >= k.full && k.drift >= leastUrgent && k.telling(false) > k.drift-k.drift/4:
		o.watch(&k.nearKey, now)
	case k.owed > 0 && k.due == never:
		o.watch(&k.nearKey, o.nextTick(now))
	}
}

// due has other goroutines tell the store about the keys that are due.
func (o *Optimistic) due(now int64) (next int64) {
	for {
		o.sync.lock.Lock()
		paused := o.sync.paused
		o.sync.lock.Unlock()
		if now < paused {
			return paused
		}
		if o.workers.Add(1) > mostSyncs {
			o.workers.Add(-1)
			return never // until one of them has ended
		}
		b := o.batch(now)
		if b == nil {
			o.workers.Add(-1)
			return now
		}
		o.calls.Go(func() {
			if err := o.bring(context.Background(), b); err == nil || !unreachable(err) {
				_ = o.work(context.Background(), now)
			}
			o.workers.Add(-1)
			o.hurry()
		})
	}
}

// work tells the store about all keys that are due at a time, unless it cannot be reached. What it could not be told is due in
// the next tick.
func (o *Optimistic) work(ctx context.Context, now int64) error {
	var failure error
	for ctx.Err() == nil {
		b := o.batch(now)
		if b == nil {
			return failure
		}
		err := o.bring(ctx, b)
		if err != nil {
			failure = err
		}
		if err != nil && unreachable(err) {
			return err
		}
	}
	return ctx.Err()
}

// bring tells the store in one call.
func (o *Optimistic) bring(ctx context.Context, b *optimisticBatch) error {
	err := o.debit(ctx, b)
	o.pace(err, o.now())
	o.answer(b, err)
	return err
}

// answer ends a batch. It locks one shard at a time.
func (o *Optimistic) answer(b *optimisticBatch, err error) {
	now := o.now()
	if b.errs == nil || !ofSomeKeys(err) { // who waits for them asks for theirs
		b.flight.err = err
	}
	for i, k := range b.keys {
		s := o.shard(k.hash)
		s.lock.Lock()
		o.hear(b, i, err, now)
		k.land()
		o.queue(k, now)
		s.lock.Unlock()
	}
	close(b.flight.done)
}

// ofSomeKeys reports whether an error is about some keys while the store works.
func ofSomeKeys(err error) bool {
	return errors.Is(err, ErrUnreadable) || errors.Is(err, ErrPartUnavailable)
}

// unreachable reports whether an error is about the store, and not about a charge.
func unreachable(err error) bool {
	return errors.Is(err, ErrUnavailable) && !ofSomeKeys(err) || errors.Is(err, ErrClosed) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// pace has the store left alone for longer and longer while it cannot be told.
func (o *Optimistic) pace(err error, now int64) {
	o.sync.lock.Lock()
	defer o.sync.lock.Unlock()
	if err == nil || !unreachable(err) {
		o.sync.pause, o.sync.paused = 0, 0
		return
	}
	if now < o.sync.paused { // another call has failed at the same time
		return
	}
	o.sync.pause = min(max(2*o.sync.pause, o.o.Interval), max(longestPause, o.o.Interval))
	o.sync.paused = now + int64(o.sync.pause)
}

// batch takes what is to be told in one call of the keys that are due at a time, or returns nil. It locks one shard at a time.
func (o *Optimistic) batch(now int64) *optimisticBatch {
	o.sync.lock.Lock()
	defer o.sync.lock.Unlock()
	b := &optimisticBatch{flight: &optimisticFlight{done: make(chan struct{})}}
	for range o.shards {
		s := &o.shards[o.sync.shard]
		if o.sync.shard++; o.sync.shard == len(o.shards) {
			o.sync.shard = 0
		}
		s.lock.Lock()
		full := o.fill(b, s, now)
		s.lock.Unlock()
		if full {
			break
		}
	}
	if len(b.keys) == 0 {
		return nil
	}
	return b
}

// fill adds keys of a shard, which is locked, to a batch, and reports whether it is full. A key for which calls with others have
// failed is told in a call of its own.
func (o *Optimistic) fill(b *optimisticBatch, s *nearShard[optimisticKey], now int64) (full bool) {
	for len(b.keys) < MostCharges {
		k := o.pop(s, now)
		switch {
		case k == nil:
			return false
		case k.flight != nil: // it is queued again when that call has ended
		case k.telling(s.closed) == 0: // all of it once nothing is given back any more
			o.queue(k, now)
		case k.single && len(b.keys) > 0:
			o.watch(&k.nearKey, now)
			return true
		default:
			k.flight = b.flight
			if b.add(k, s.closed); k.single {
				return true
			}
		}
	}
	return true
}

// add adds what the store does not know of a key: all of it, or what is not held.
func (b *optimisticBatch) add(k *optimisticKey, all bool) {
	c := Charge{Policy: k.policy, Key: k.key, Limit: k.terms.limit, N: k.telling(all)}
	k.sent = c.N
	if k.owed -= c.N; all && k.held > 0 {
		k.held = 0
		k.told++
	}
	b.keys = append(b.keys, k)
	b.charges, b.terms, b.decisions = append(b.charges, c), append(b.terms, k.terms), append(b.decisions, weir.Decision{})
	b.apart = b.apart || k.single
	if k.unsure && b.unsure == nil {
		c.N = 0
		b.unsure = []Charge{c}
	}
}

// debit tells the store, for as long as the timeout. If that has failed before for one of the keys, it asks something harmless
// first: so what the store has heard of is told again when it answers, and not each time it is tried.
func (o *Optimistic) debit(ctx context.Context, b *optimisticBatch) error {
	ctx, cancel := context.WithTimeout(ctx, o.o.Timeout)
	defer cancel()
	if b.apart && len(b.keys) > 1 {
		return o.debitApart(ctx, b)
	}
	if b.unsure != nil {
		var d [1]weir.Decision
		if err := Peek(ctx, o.inner, b.unsure, d[:]); err != nil {
			return err
		}
	}
	err := Debit(ctx, o.inner, b.charges, b.decisions)
	if errors.Is(err, ErrUnreadable) && len(b.keys) > 1 { // of one of them, and the others were not debited
		return o.debitApart(ctx, b)
	}
	return err
}

// debitApart tells the store of each key in a call of its own, so that a part of it that is away does not have the others hear
// again and again of theirs. It returns the first error.
func (o *Optimistic) debitApart(ctx context.Context, b *optimisticBatch) (first error) {
	b.errs = make([]error, len(b.keys))
	for i := range b.keys {
		one := &optimisticBatch{
			keys: b.keys[i : i+1], charges: b.charges[i : i+1], decisions: b.decisions[i : i+1], unsure: []Charge{b.charges[i]},
		}
		one.unsure[0].N = 0
		if b.errs[i] = o.debit(ctx, one); first == nil {
			first = b.errs[i]
		}
	}
	return first
}

// hear makes the answer of the store about a key its view. If there was none, or no room, what was sent is owed again.
func (o *Optimistic) hear(b *optimisticBatch, i int, err error, now int64) {
	k := b.keys[i]
	o.withdraw(&k.nearKey)
	if b.errs != nil {
		err = b.errs[i]
	}
	if k.single = err != nil; err != nil || b.decisions[i].Reason == weir.ReasonTableFull {
		k.owed += k.sent
	}
	k.sent, k.unsure = 0, err != nil
	if err == nil && k.terms.text == b.terms[i].text {
		k.see(o, 0, &b.decisions[i], now)
	}
}

// Close tells the store what is owed, for up to Timeout, and ends all goroutines. It returns an error if something could not be
// told. The store behind stays open. Later calls return ErrClosed.
func (o *Optimistic) Close() error {
	return o.shut(o.o.Timeout, func(*nearShard[optimisticKey]) {}, func() error {
		settled := make(chan struct{})
		go func() {
			o.calls.Wait()
			close(settled)
		}()
		select {
		case <-settled:
		case <-o.ctx.Done():
		}
		o.tick.Store(never) // what cannot be told is not tried again
		errs := make(chan error, mostSyncs)
		for range mostSyncs {
			go func() { errs <- o.work(o.ctx, never-1) }()
		}
		var failure error
		for range mostSyncs {
			if err := <-errs; err != nil {
				failure = err
			}
		}
		if failure == nil {
			return nil
		}
		owing := 0
		o.each(func(k *optimisticKey) {
			if k.owed > 0 {
				owing++
			}
		})
		return fmt.Errorf("weir: the store could not be told of what was allowed for %d keys: %w", owing, failure)
	})
}

// Len is how many keys are remembered.
func (o *Optimistic) Len() (n int) {
	o.each(func(*optimisticKey) { n++ })
	return n
}
