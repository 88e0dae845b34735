package store

import (
	"context"
	"errors"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/limits"
)

// Do implements [Home].
//
// Charges of several consistencies are debited and given back one after the other. While the store is unavailable, what is
// refunded of charges of FailLocal is given back in this process. For those of FailOpen nothing is done, and for the others it
// is an error. If all charges are of FailLocal, they are debited in this process, and the store is told later; otherwise it is
// an error. The store is asked for loans and states. A reset reaches what this process knows even if the store fails.
func (f *Fleet) Do(ctx context.Context, ask Ask, charges []Charge, decisions []weir.Decision) (Hold, error) {
	if ask.Wait != 0 {
		return Hold{}, errNoQueue(ask.Wait)
	}
	c, mixed := consistencyOf(charges)
	switch {
	case ask.Hold != 0:
		return f.reserve(ctx, ask, charges, decisions)
	case ask.Mode == ModeTake && !mixed:
		_, err := f.take(ctx, c, charges, decisions)
		return Hold{}, err
	case (ask.Mode == ModePeek || ask.Mode == ModeLend) && !mixed:
		return f.look(ctx, ask, c, charges, decisions)
	}
	if err := Check(ask, charges, decisions); err != nil {
		return Hold{}, err
	}
	switch {
	case ask.Mode == ModeTake:
		return Hold{}, f.takeMixed(ctx, charges, decisions)
	case ask.Mode == ModeReset:
		return Hold{}, f.reset(ctx, charges)
	case ask.States != nil:
		return Hold{}, inTurn(ask, charges, decisions, func(ask Ask, one []Charge, d []weir.Decision) error {
			_, err := f.look(ctx, ask, one[0].Consistency, one, d)
			return err
		})
	}
	p := splitBy(charges, func(c *Charge) int { return placeOf(c.Consistency) })
	err := p.each(func(i int, q *part) error { return f.change(ctx, ask, order[i], q) })
	if ask.Mode == ModePeek && err != nil || ask.Mode == ModeRefund {
		decisions = nil
	}
	p.end(decisions)
	return Hold{}, err
}

// look asks the layer of a consistency, which may be decided on without it. What this process allowed while the store was
// unavailable is told to the store first.
func (f *Fleet) look(
	ctx context.Context, ask Ask, c Consistency, charges []Charge, decisions []weir.Decision,
) (h Hold, err error) {
	if ask.Mode == ModeLend || ask.States != nil {
		return f.layer(c).Do(ctx, ask, charges, decisions)
	}
	if gone := ctx.Err(); gone != nil {
		return Hold{}, notTaken(gone)
	}
	if f.fallback.owing.Load() != 0 {
		err = f.repay(ctx, charges)
	}
	if err == nil {
		_, err = f.layer(c).Do(ctx, ask, charges, decisions)
	}
	if err != nil && fallsBack(ctx, err) {
		_, err = f.fallback.decide(ask, charges, decisions, f.breaker.retryAfter())
	}
	return Hold{}, err
}

// change peeks at, debits or refunds the charges of one consistency.
func (f *Fleet) change(ctx context.Context, ask Ask, c Consistency, q *part) error {
	if ask.Mode == ModePeek {
		_, err := f.look(ctx, ask, c, q.charges, q.decisions)
		return err
	}
	_, err := f.layer(c).Do(ctx, ask, q.charges, q.decisions)
	switch {
	case err == nil || !fallsBack(ctx, err):
	case ask.Mode == ModeDebit:
		if ok, wrong := f.fallback.debit(q.charges, q.decisions); ok {
			err = wrong
			f.recovers()
		}
	default:
		f.fallback.refund(q.charges)
		for i := range q.charges {
			if fail := q.charges[i].Fail; fail != FailOpen && fail != FailLocal {
				return err
			}
		}
		err = nil
	}
	return err
}

// reserve reserves charges. It is one call of the store, whatever their consistencies are.
func (f *Fleet) reserve(ctx context.Context, ask Ask, charges []Charge, decisions []weir.Decision) (h Hold, err error) {
	if wrong := check(&ask, charges, decisions); wrong != nil {
		return Hold{}, wrong
	}
	if gone := ctx.Err(); gone != nil {
		return Hold{}, notTaken(gone)
	}
	if f.fallback.owing.Load() != 0 {
		err = f.repay(ctx, charges)
	}
	passed, since := false, int64(0)
	if err == nil && f.grace.Load() {
		since = f.fallback.memory.time()
		if passed, err = f.fallback.passes(charges, decisions, f.graceFor); !passed {
			return Hold{}, err
		}
	}
	if err == nil {
		if c, mixed := consistencyOf(charges); mixed {
			h, err = f.oneOf(charges).Do(ctx, ask, f.lowered(charges), decisions)
		} else {
			h, err = f.layer(c).Do(ctx, ask, charges, decisions)
		}
	}
	if passed && h.ID == "" {
		f.fallback.unpass(charges, since)
	}
	if err != nil && fallsBack(ctx, err) {
		h, err = f.fallback.decide(ask, charges, decisions, f.breaker.retryAfter())
		f.recovers()
	}
	return h, err
}

// oneOf is the layer that has to know of all charges: that of ConsistencyOptimistic, if one of them has it, as its view of the
// key changes.
func (f *Fleet) oneOf(charges []Charge) Home { //nolint:ireturn // one of two
	for i := range charges {
		if charges[i].Consistency == ConsistencyOptimistic {
			return f.optimist()
		}
	}
	return f.breaker
}

// lowered are the charges with the limits that the store has for them.
func (f *Fleet) lowered(charges []Charge) []Charge {
	changed := make([]Charge, len(charges))
	for i, c := range charges {
		if c.Consistency == ConsistencyLeased && c.Limit.Algorithm() == weir.AlgorithmTokenBucket {
			if b := f.o.Leased.Bound(c.Limit); b.Leased {
				c.Limit = limits.WithPermits(c.Limit, b.Lowered)
			}
		}
		changed[i] = c
	}
	return changed
}

// Settle implements [Home]. If the store is unavailable, the fleet settles a reservation when it is back.
func (f *Fleet) Settle(ctx context.Context, h Hold, actual []int64) error {
	if h.lent() {
		return f.layer(h.Charges[0].Consistency).Settle(ctx, h, actual)
	}
	if f.closed.Load() {
		return ErrClosed
	}
	if ok, err := f.fallback.settle(ctx, h, actual); ok {
		f.recovers()
		return err
	}
	err := f.oneOf(h.Charges).Settle(ctx, h, actual)
	if errors.Is(err, ErrUnavailable) && CheckSettle(h, actual) == nil {
		f.settleLater(h, actual)
	}
	return err
}

// reset forgets keys.
func (f *Fleet) reset(ctx context.Context, charges []Charge) error {
	for i := range charges {
		f.fallback.reset(charges[i].Policy, charges[i].Key)
	}
	if o := f.optimistic.Load(); o != nil {
		if _, err := o.Do(ctx, Ask{Mode: ModeReset}, charges, nil); err != nil {
			return err
		}
	}
	_, err := f.leased.Do(ctx, Ask{Mode: ModeReset}, charges, nil)
	return err
}
