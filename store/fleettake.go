package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirhq/weir"
)

// order is in which order the parts of a request are decided: what is leased first, as that can be given back in memory.
var order = [...]Consistency{ConsistencyLeased, ConsistencyOptimistic, ConsistencyCoherent}

// placeOf is where in order a consistency is.
func placeOf(c Consistency) int {
	switch c {
	case ConsistencyLeased:
		return 0
	case ConsistencyOptimistic:
		return 1
	default:
		return 2
	}
}

// consistencyOf is that of all charges, unless it is mixed.
func consistencyOf(charges []Charge) (c Consistency, mixed bool) {
	if len(charges) == 0 {
		return ConsistencyCoherent, false
	}
	c = charges[0].Consistency
	for i := 1; i < len(charges); i++ {
		if charges[i].Consistency != c {
			return c, true
		}
	}
	return c, false
}

// took is who took the permits of a part, and since when it may be undone.
type took struct {
	by    taker
	since int64 // by the clock of Leased
	share int64 // by that of the memory of the fallback
}

type taker uint8

const (
	tookStore taker = iota // the layer of its consistency
	tookShare              // that, and the share of this process
	tookLocal              // this process without the store
)

// takenAt is the place of a charge that is taken: what is leased, and, in one part, what the store is asked for in one call.
func (f *Fleet) takenAt(charges []Charge) func(c *Charge) int {
	rest := placeOf(ConsistencyCoherent)
	for i := range charges {
		if charges[i].Consistency == ConsistencyOptimistic {
			rest = placeOf(ConsistencyOptimistic)
		}
	}
	return func(c *Charge) int {
		if c.Consistency == ConsistencyLeased && f.leased.leases(c.Limit) {
			return placeOf(ConsistencyLeased)
		}
		return rest
	}
}

// fallsBack reports whether a call that failed is to be decided without the store: nobody waits for a decision any more whose
// context was canceled.
func fallsBack(ctx context.Context, err error) bool {
	return errors.Is(err, ErrUnavailable) && !errors.Is(ctx.Err(), context.Canceled)
}

// takeMixed takes charges of several consistencies.
func (f *Fleet) takeMixed(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	p := splitBy(charges, f.takenAt(charges))
	filled := decisions
	defer func() { p.end(filled) }()
	if f.refuses(p) {
		p[placeOf(ConsistencyLeased)].notAsked()
		return nil
	}
	err := p.takeAll(func(i int, q *part) (err error) {
		q.took, err = f.take(ctx, order[i], q.charges, q.decisions)
		return err
	}, f.giveBack)
	if err != nil {
		filled = nil
	}
	return err
}

// refuses reports whether a part that comes after what is leased is known to be refused, for which nothing need be taken.
func (f *Fleet) refuses(p *parts) bool {
	q := &p[placeOf(ConsistencyOptimistic)]
	if len(q.charges) == 0 || len(p[placeOf(ConsistencyLeased)].charges) == 0 || f.fallback.owing.Load() != 0 || f.grace.Load() {
		return false
	}
	return f.optimist().refuses(q.charges, q.decisions)
}

// take takes the permits of charges that are taken together: of one consistency, or, for ConsistencyOptimistic, others among
// them.
func (f *Fleet) take(ctx context.Context, c Consistency, charges []Charge, decisions []weir.Decision) (by took, err error) {
	if gone := ctx.Err(); gone != nil {
		return by, notTaken(gone)
	}
	if f.fallback.owing.Load() != 0 {
		err = f.repay(ctx, charges)
	}
	if err == nil && f.grace.Load() {
		by.by, by.share = tookShare, f.fallback.memory.time()
		passed, wrong := f.fallback.passes(charges, decisions, f.graceFor)
		if !passed {
			return by, wrong
		}
	}
	if err == nil {
		switch c {
		case ConsistencyLeased:
			by.since = f.leased.now()
			_, err = f.leased.Do(ctx, Ask{}, charges, decisions)
		case ConsistencyOptimistic:
			if _, mixed := consistencyOf(charges); mixed {
				err = f.optimist().takeMixed(ctx, charges, decisions)
			} else {
				_, err = f.optimist().Do(ctx, Ask{}, charges, decisions)
			}
		default:
			_, err = f.breaker.Do(ctx, Ask{}, charges, decisions)
		}
	}
	if by.by == tookShare && (err != nil || !allGranted(decisions)) {
		f.fallback.unpass(charges, by.share)
	}
	if err == nil || !fallsBack(ctx, err) {
		return by, err
	}
	by.by, by.share = tookLocal, f.fallback.memory.time()
	_, err = f.fallback.decide(Ask{}, charges, decisions, f.breaker.retryAfter())
	f.recovers()
	return by, err
}

// giveBack undoes what is leased of a request.
func (f *Fleet) giveBack(q *part) {
	switch q.took.by {
	case tookLocal:
		f.fallback.undo(q.charges, q.took.share)
	case tookShare:
		f.fallback.unpass(q.charges, q.took.share)
		f.leased.giveBackSince(q.charges, q.took.since)
	default:
		f.leased.giveBackSince(q.charges, q.took.since)
	}
	q.givenBack()
}

// repay tells the store what is owed of the keys of charges, before it decides about them. It waits for others who do so.
func (f *Fleet) repay(ctx context.Context, charges []Charge) error {
	for {
		if f.breaker.failsFast() {
			return errOpen
		}
		claims, mine, other := f.fallback.claim(charges)
		switch {
		case other == nil && len(claims) == 0:
			return nil
		case other == nil:
			return f.tell(ctx, claims, mine)
		case f.breaker.state() != BreakerClosed: // the other one is its probe, which may take long
			return errOpen
		}
		select {
		case <-other.done:
			if err := other.err; errors.Is(err, ErrUnavailable) && !ended(err) {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		}
	}
}

// ended reports whether a call failed for the context of its caller.
func ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
