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

// part is the charges of a request that have the same consistency, or are taken together.
type part struct {
	charges   []Charge
	decisions []weir.Decision
	at        []int // where they are in the request
	took      took
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

// parts are those of a request, in order.
type parts [len(order)]part

// split cuts a request into parts.
func (f *Fleet) split(charges []Charge) *parts {
	p := f.parts.Get().(*parts)
	for i := range charges {
		p[placeOf(charges[i].Consistency)].add(charges, i)
	}
	return p
}

// splitTaken cuts a request into two parts at most: what is leased, and what the store has to be asked for in one call.
func (f *Fleet) splitTaken(charges []Charge) *parts {
	p := f.parts.Get().(*parts)
	rest := placeOf(ConsistencyCoherent)
	for i := range charges {
		if charges[i].Consistency == ConsistencyOptimistic {
			rest = placeOf(ConsistencyOptimistic)
		}
	}
	for i := range charges {
		at := rest
		if c := &charges[i]; c.Consistency == ConsistencyLeased && f.leased.leases(c.Limit) {
			at = placeOf(ConsistencyLeased)
		}
		p[at].add(charges, i)
	}
	return p
}

// add adds the charge of a request that is at i.
func (q *part) add(charges []Charge, i int) {
	q.charges = append(q.charges, charges[i])
	q.decisions = append(q.decisions, weir.Decision{})
	q.at = append(q.at, i)
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

// fallsBack reports whether a call that failed is to be decided without the store: nobody waits for a decision any more whose
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
	p := f.splitTaken(charges)
	defer f.join(p)
	if err := f.takeParts(ctx, p); err != nil {
		return err
	}
	for i := range p {
		for j, at := range p[i].at {
			decisions[at] = p[i].decisions[j]
		}
	}
	return nil
}

// takeParts takes the parts of a request, or none of them.
func (f *Fleet) takeParts(ctx context.Context, p *parts) error {
	leased := &p[placeOf(ConsistencyLeased)]
	if f.refuses(p) {
		leased.notAsked()
		return nil
	}
	for i := range p {
		q := &p[i]
		if len(q.charges) == 0 {
			continue
		}
		var err error
		if q.took, err = f.take(ctx, order[i], q.charges, q.decisions); err == nil && allGranted(q.decisions) {
			continue
		}
		if q != leased && len(leased.charges) > 0 {
			f.giveBack(leased)
		}
		if err != nil {
			return err
		}
		for j := i + 1; j < len(p); j++ {
			p[j].notAsked()
		}
		break
	}
	return nil
}

// refuses reports whether a part that comes after what is leased is known to be refused, for which nothing need be taken.
func (f *Fleet) refuses(p *parts) bool {
	q := &p[placeOf(ConsistencyOptimistic)]
	if len(q.charges) == 0 || len(p[placeOf(ConsistencyLeased)].charges) == 0 || f.fallback.owing.Load() != 0 || f.grace.Load() {
		return false
	}
	return f.optimist().refuses(q.charges, q.decisions)
}

// take is Take for charges that are taken together: of one consistency, or, for ConsistencyOptimistic, others among them.
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
			err = f.leased.Take(ctx, charges, decisions)
		case ConsistencyOptimistic:
			if _, mixed := consistencyOf(charges); mixed {
				err = f.optimist().takeMixed(ctx, charges, decisions)
			} else {
				err = f.optimist().Take(ctx, charges, decisions)
			}
		default:
			err = f.breaker.Take(ctx, charges, decisions)
		}
	}
	if by.by == tookShare && (err != nil || !allGranted(decisions)) {
		f.fallback.unpass(charges, by.share)
	}
	if err == nil || !fallsBack(ctx, err) {
		return by, err
	}
	by.by, by.share = tookLocal, f.fallback.memory.time()
	_, err = f.fallback.decide(fallbackTake, charges, decisions, f.breaker.retryAfter(), 0)
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
	for j := range q.decisions {
		d := &q.decisions[j]
		d.Remaining = min(d.Remaining+q.charges[j].N, d.Limit)
	}
}

// notAsked fills the decisions of a part that was not asked.
func (q *part) notAsked() {
	for i := range q.charges {
		t, _ := compiled.terms(q.charges[i].Limit) // which was checked
		q.decisions[i] = notAsked(&q.charges[i], t)
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

// ended reports whether a call failed for the context of its caller.
func ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
