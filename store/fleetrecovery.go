package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir"
)

const (
	// recoveryTick is how often the goroutine of the recovery acts.
	recoveryTick = 100 * time.Millisecond
	// mostTold is how often in a tick the store is told what it is owed of up to MostCharges keys.
	mostTold = 16
	// mostPruned is how many debts are looked at in a tick while the store is unavailable.
	mostPruned = 512
	// mostFailures is after how many failures nothing more is tried in a tick: they must not open the breaker.
	mostFailures = 2
	// mostUnsettled is how many reservations are kept to be settled later.
	mostUnsettled = 10_000
	// mostSettled is how many of them are settled in a tick.
	mostSettled = 256
	// mostLastWords is how long Close tells the store what it has to know.
	mostLastWords = time.Second
)

// unsettled is a reservation that could not be settled. It is canceled if actual is nil.
type unsettled struct {
	hold   Hold
	actual []int64
}

// settleLater keeps a reservation until the store is back.
func (f *Fleet) settleLater(h Hold, actual []int64) {
	if h.ID == "" {
		return
	}
	f.lock.Lock()
	if len(f.unsettled) >= mostUnsettled {
		f.dropped.Add(1)
	} else {
		f.unsettled = append(f.unsettled, unsettled{newReservation(h.ID, h.Charges, h.Expires), slices.Clone(actual)})
		f.waiting.Add(1)
	}
	f.lock.Unlock()
	f.recovers()
}

// recovers starts the goroutine of the recovery, if there is something to do for it.
func (f *Fleet) recovers() {
	if f.running.Load() || f.idle() {
		return
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	if !f.closed.Load() && f.running.CompareAndSwap(false, true) {
		f.done.Go(f.recover)
	}
}

// idle reports whether the store knows all that it has to, and that for long enough.
func (f *Fleet) idle() bool {
	return f.fallback.owing.Load() == 0 && f.waiting.Load() == 0 && !f.grace.Load()
}

// back begins the time of grace: the store is asked again from now on.
func (f *Fleet) back() {
	if f.replicas.Live() == 1 { // a share would be all
		return
	}
	f.graceEnd.Store(f.breaker.clock.Now() + int64(f.graceFor))
	f.grace.Store(true)
	f.recovers()
}

// recover tells the store what it has to know, as soon as it can be told, and ends when it knows all.
func (f *Fleet) recover() {
	ticker := time.NewTicker(recoveryTick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-f.ctx.Done():
			return
		}
		if f.breaker.state() == BreakerClosed {
			f.tellSome(f.ctx, mostTold)
			f.settleSome(f.ctx, mostSettled)
			if f.breaker.clock.Now() >= f.graceEnd.Load() {
				f.grace.Store(false)
			}
		} else {
			f.fallback.prune(mostPruned)
		}
		if f.idle() {
			f.running.Store(false)
			if f.idle() || !f.running.CompareAndSwap(false, true) { // or something came up meanwhile
				return
			}
		}
	}
}

// tell tells the store what is owed, and wakes the calls that wait for it. What could not be told before is told in calls of
// their own: if a part of the store is away, the others must not hear again and again of what is owed of their keys.
func (f *Fleet) tell(ctx context.Context, claims []claim, mine *telling) error {
	var charges [len(order)][]Charge
	var of [len(order)][]claim
	failures := 0
	debit := func(c Consistency, claims []claim, charges []Charge) {
		if len(claims) == 0 {
			return
		}
		err := mine.err
		if failures < mostFailures {
			_, err = f.layer(c).Do(ctx, Ask{Mode: ModeDebit}, charges, make([]weir.Decision, len(charges)))
		}
		if f.fallback.told(claims, err); err != nil && !errors.Is(err, ErrUnreadable) {
			mine.err = err
			failures++
		}
	}
	for i := range claims {
		c := &claims[i]
		if c.alone {
			debit(c.charge.Consistency, claims[i:i+1], []Charge{c.charge})
			continue
		}
		at := placeOf(c.charge.Consistency)
		of[at] = append(of[at], *c)
		charges[at] = append(charges[at], c.charge)
	}
	for i := range of {
		debit(order[i], of[i], charges[i])
	}
	close(mine.done)
	return mine.err
}

// tellSome tells the store what is owed, of so many times MostCharges keys at most.
func (f *Fleet) tellSome(ctx context.Context, times int) {
	for range times {
		if f.fallback.owing.Load() == 0 || ctx.Err() != nil {
			return
		}
		claims, mine := f.fallback.claimSome()
		if len(claims) == 0 {
			return
		}
		short, cancel := context.WithTimeout(ctx, mostLastWords)
		err := f.tell(short, claims, mine)
		cancel()
		if err != nil && !errors.Is(err, ErrPartUnavailable) {
			return
		}
	}
}

// settleSome settles reservations that could not be settled before, so many at most.
func (f *Fleet) settleSome(ctx context.Context, most int) {
	for range most {
		f.lock.Lock()
		if len(f.unsettled) == 0 || ctx.Err() != nil {
			f.lock.Unlock()
			return
		}
		u := f.unsettled[0]
		f.lock.Unlock()
		short, cancel := context.WithTimeout(ctx, mostLastWords)
		err := f.oneOf(u.hold.Charges).Settle(short, u.hold, u.actual)
		cancel()
		f.lock.Lock() // only this goroutine takes from the front
		f.unsettled[0] = unsettled{}
		f.unsettled = f.unsettled[1:]
		away := errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnreadable)
		if away { // the others must not wait for this one, as a part of a store can be away
			f.unsettled = append(f.unsettled, u)
		} else { // settled, or nothing that can be
			f.waiting.Add(-1)
		}
		f.lock.Unlock()
		if away && !errors.Is(err, ErrPartUnavailable) {
			return
		}
	}
}

// lastWords is what the store is told before it is closed. It returns an error if that is not all.
func (f *Fleet) lastWords() error {
	if f.breaker.state() == BreakerClosed && !f.idle() {
		ctx, cancel := context.WithTimeout(context.Background(), mostLastWords)
		defer cancel()
		f.settleSome(ctx, mostUnsettled)
		for f.fallback.owing.Load() != 0 && ctx.Err() == nil && f.breaker.state() == BreakerClosed {
			before := f.fallback.owing.Load()
			f.tellSome(ctx, mostTold)
			if f.fallback.owing.Load() >= before {
				break
			}
		}
	}
	f.fallback.prune(int(f.fallback.owing.Load()))
	if owed := f.fallback.owing.Load(); owed != 0 {
		return fmt.Errorf("weir: the store could not be told of what was allowed without it for %d keys", owed)
	}
	return nil
}
