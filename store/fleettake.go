package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirhq/weir"
)

// order is in which order the parts of a request are decided: the last one cannot be given back in memory.
var order = [...]Consistency{ConsistencyOptimistic, ConsistencyLeased, ConsistencyCoherent}

// placeOf is where in order a consistency is.
func placeOf(c Consistency) int {
	switch c {
	case ConsistencyOptimistic:
		return 0
	case ConsistencyLeased:
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

// part is the charges of a request that have the same consistency.
type part struct {
	charges   []Charge
	decisions []weir.Decision
	at        []int // where they are in the request
	took      took
}

// took is who took the permits of a part.
type took uint8

const (
	tookStore took = iota // the layer of its consistency
	tookShare             // that, and the share of this process
	tookLocal             // this process without the store
)

// parts are those of a request, in order.
type parts [len(order)]part

// split cuts a request into parts.
func (f *Fleet) split(charges []Charge) *parts {
	p := f.parts.Get().(*parts)
	for i := range charges {
		q := &p[placeOf(charges[i].Consistency)]
		q.charges = append(q.charges, charges[i])
		q.decisions = append(q.decisions, weir.Decision{})
		q.at = append(q.at, i)
	}
	return p
}

// join ends the use of the parts.
func (f *Fleet) join(p *parts) {
	for i := range p {
		q := &p[i]
		clear(q.charges)
		clear(q.decisions)
		*q = part{charges: q.charges[:0], decisions: q.decisions[:0], at: q.at[:0]}
	}
	f.parts.Put(p)
}

// fallsBack tells whether a call that failed is to be decided without the store: nobody waits for a decision any more whose
// context was canceled.
func fallsBack(ctx context.Context, err error) bool {
	return errors.Is(err, ErrUnavailable) && !errors.Is(ctx.Err(), context.Canceled)
}

// Take implements [Store].
func (f *Fleet) Take(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	c, mixed := consistencyOf(charges)
	if !mixed {
		_, err := f.take(ctx, c, charges, decisions)
		return err
	}
	if err := errors.Join(CheckTaken(charges), CheckDecisions(charges, decisions), CheckCharges(charges)); err != nil {
		return firstOf(err)
	}
	p := f.split(charges)
	defer f.join(p)
	for i := range p {
		q := &p[i]
		if len(q.charges) == 0 {
			continue
		}
		var err error
		if q.took, err = f.take(ctx, order[i], q.charges, q.decisions); err != nil {
			f.giveBack(p[:i]) //nolint:contextcheck // the context of the caller may have ended
			return err
		}
		if !allGranted(q.decisions) {
			f.giveBack(p[:i]) //nolint:contextcheck // the context of the caller may have ended
			for j := i + 1; j < len(p); j++ {
				p[j].notAsked()
			}
			break
		}
	}
	for i := range p {
		for j, at := range p[i].at {
			decisions[at] = p[i].decisions[j]
		}
	}
	return nil
}

// take is Take for charges of one consistency.
func (f *Fleet) take(ctx context.Context, c Consistency, charges []Charge, decisions []weir.Decision) (by took, err error) {
	if gone := ctx.Err(); gone != nil {
		return tookStore, notTaken(gone)
	}
	if f.fallback.owing.Load() != 0 {
		err = f.repay(ctx, charges)
	}
	if err == nil && f.grace.Load() {
		passed, wrong := f.fallback.passes(charges, decisions, f.graceFor)
		if !passed {
			return tookShare, wrong
		}
		by = tookShare
	}
	if err == nil {
		switch c {
		case ConsistencyLeased:
			err = f.leased.Take(ctx, charges, decisions)
		case ConsistencyOptimistic:
			err = f.optimist().Take(ctx, charges, decisions)
		default:
			err = f.breaker.Take(ctx, charges, decisions)
		}
	}
	if by == tookShare && (err != nil || !allGranted(decisions)) {
		f.fallback.unpass(charges)
	}
	if err == nil || !fallsBack(ctx, err) {
		return by, err
	}
	_, err = f.fallback.decide(fallbackTake, charges, decisions, f.breaker.retryAfter(), 0)
	f.recovers()
	return tookLocal, err
}

// giveBack undoes parts that were granted.
func (f *Fleet) giveBack(granted []part) {
	for i := range granted {
		q := &granted[i]
		switch {
		case len(q.charges) == 0:
			continue
		case q.took == tookLocal:
			f.fallback.refund(q.charges)
		case order[i] == ConsistencyLeased:
			f.leased.giveBack(q.charges)
		default:
			f.optimist().giveBack(q.charges)
		}
		if q.took == tookShare {
			f.fallback.unpass(q.charges)
		}
		for j := range q.decisions {
			d := &q.decisions[j]
			d.Remaining = min(d.Remaining+q.charges[j].N, d.Limit)
		}
	}
}

// notAsked fills the decisions of a part that was not asked.
func (q *part) notAsked() {
	for i := range q.charges {
		c := &q.charges[i]
		t, _ := compiled.terms(c.Limit) // which was checked
		q.decisions[i] = weir.Decision{Allowed: true, Limit: t.most, Policy: c.Policy}
	}
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

// ended tells whether a call failed for the context of its caller.
func ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
