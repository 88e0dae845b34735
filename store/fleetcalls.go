package store

import (
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/limits"
)

// Peek implements [Store]. What this process allowed while the store was unavailable is told to the store first.
func (f *Fleet) Peek(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	c, mixed := consistencyOf(charges)
	if !mixed {
		return f.peek(ctx, c, charges, decisions)
	}
	if err := errors.Join(CheckDecisions(charges, decisions), CheckCharges(charges)); err != nil {
		return firstOf(err)
	}
	p := f.split(charges)
	defer f.join(p)
	for i := range p {
		q := &p[i]
		if len(q.charges) == 0 {
			continue
		}
		if err := f.peek(ctx, order[i], q.charges, q.decisions); err != nil {
			return err
		}
		for j, at := range q.at {
			decisions[at] = q.decisions[j]
		}
	}
	return nil
}

func (f *Fleet) peek(ctx context.Context, c Consistency, charges []Charge, decisions []weir.Decision) (err error) {
	if gone := ctx.Err(); gone != nil {
		return notTaken(gone)
	}
	if f.fallback.owing.Load() != 0 {
		err = f.repay(ctx, charges)
	}
	if err == nil {
		err = f.layer(c).Peek(ctx, charges, decisions)
	}
	if err != nil && fallsBack(ctx, err) {
		_, err = f.fallback.decide(fallbackPeek, charges, decisions, f.breaker.retryAfter(), 0)
	}
	return err
}

// Reserve implements [Store]. It is one call of the store, whatever the consistencies of charges are.
func (f *Fleet) Reserve(
	ctx context.Context, charges []Charge, decisions []weir.Decision, expiry time.Duration,
) (r Reservation, err error) {
	if wrong := CheckExpiry(expiry); wrong != nil {
		return Reservation{}, wrong
	}
	if gone := ctx.Err(); gone != nil {
		return Reservation{}, notTaken(gone)
	}
	if f.fallback.owing.Load() != 0 {
		err = f.repay(ctx, charges)
	}
	passed, since := false, int64(0)
	if err == nil && f.grace.Load() {
		since = f.fallback.memory.time()
		if passed, err = f.fallback.passes(charges, decisions, f.graceFor); !passed {
			return Reservation{}, err
		}
	}
	if err == nil {
		if c, mixed := consistencyOf(charges); mixed {
			r, err = f.oneOf(charges).Reserve(ctx, f.lowered(charges), decisions, expiry)
		} else {
			r, err = f.layer(c).Reserve(ctx, charges, decisions, expiry)
		}
	}
	if passed && r.ID == "" {
		f.fallback.unpass(charges, since)
	}
	if err != nil && fallsBack(ctx, err) {
		r, err = f.fallback.decide(fallbackReserve, charges, decisions, f.breaker.retryAfter(), expiry)
		f.recovers()
	}
	return r, err
}

// oneOf is the layer that has to know of all charges: that of ConsistencyOptimistic, if one of them has it, as its view of the
// key changes.
func (f *Fleet) oneOf(charges []Charge) Store { //nolint:ireturn // one of two
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

// Commit implements [Store]. If the store is unavailable the fleet tries again when it is back.
func (f *Fleet) Commit(ctx context.Context, r Reservation, actual []int64) error {
	if actual == nil {
		actual = []int64{}
	}
	return f.settle(ctx, r, actual)
}

// Cancel implements [Store]. If the store is unavailable the fleet tries again when it is back.
func (f *Fleet) Cancel(ctx context.Context, r Reservation) error { return f.settle(ctx, r, nil) }

func (f *Fleet) settle(ctx context.Context, r Reservation, actual []int64) error {
	if f.closed.Load() {
		return ErrClosed
	}
	if ok, err := f.fallback.settle(ctx, r, actual); ok {
		f.recovers()
		return err
	}
	err := f.ask(ctx, r, actual)
	if errors.Is(err, ErrUnavailable) && CheckReservation(r, actual) == nil {
		f.settleLater(r, actual)
	}
	return err
}

// ask settles a reservation that the store made.
func (f *Fleet) ask(ctx context.Context, r Reservation, actual []int64) error {
	if actual == nil {
		return f.oneOf(r.Charges).Cancel(ctx, r)
	}
	return f.oneOf(r.Charges).Commit(ctx, r, actual)
}

// byConsistency calls f for the charges of each consistency.
func (f *Fleet) byConsistency(charges []Charge, call func(s Store, q *part) error) error {
	if err := CheckCharges(charges); err != nil {
		return err
	}
	p := f.split(charges)
	defer f.join(p)
	for i := range p {
		if len(p[i].charges) > 0 {
			if err := call(f.layer(order[i]), &p[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Refund implements [Store]. While the store is unavailable, charges of FailLocal are given back in this process. For those of
// FailOpen it does nothing, and for the others it returns an error.
func (f *Fleet) Refund(ctx context.Context, charges []Charge) error {
	return f.byConsistency(charges, func(s Store, q *part) error {
		err := s.Refund(ctx, q.charges)
		if err == nil || !fallsBack(ctx, err) {
			return err
		}
		f.fallback.refund(q.charges)
		for i := range q.charges {
			if fail := q.charges[i].Fail; fail != FailOpen && fail != FailLocal {
				return err
			}
		}
		return nil
	})
}

// Debit implements [Store]. While the store is unavailable and all charges are of FailLocal, they are debited in this process and
// the store is told later; otherwise it is an error. Charges of several consistencies are debited one after the other.
func (f *Fleet) Debit(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	if err := errors.Join(CheckTaken(charges), CheckDecisions(charges, decisions)); err != nil {
		return firstOf(err)
	}
	return f.byConsistency(charges, func(s Store, q *part) error {
		err := s.Debit(ctx, q.charges, q.decisions)
		if err != nil && fallsBack(ctx, err) {
			if ok, wrong := f.fallback.debit(q.charges, q.decisions); ok {
				err = wrong
				f.recovers()
			}
		}
		for j, at := range q.at {
			decisions[at] = q.decisions[j]
		}
		return err
	})
}

// Lend implements [Store]. The store is asked for it.
func (f *Fleet) Lend(ctx context.Context, c Charge, least int64) (Loan, weir.Decision, error) {
	return f.layer(c.Consistency).Lend(ctx, c, least)
}

// Return implements [Store]. The store is asked for it.
func (f *Fleet) Return(ctx context.Context, l Loan, unspent int64) error {
	return f.layer(l.Charge.Consistency).Return(ctx, l, unspent)
}

// Reset implements [Store]. What this process knows of the key is reset even if the store fails.
func (f *Fleet) Reset(ctx context.Context, policy, key string) error {
	if err := checkName(policy, key); err != nil {
		return err
	}
	f.fallback.reset(policy, key)
	if o := f.optimistic.Load(); o != nil {
		if err := o.Reset(ctx, policy, key); err != nil {
			return err
		}
	}
	return f.leased.Reset(ctx, policy, key)
}

// Inspect implements [Store]. The store is asked for it.
func (f *Fleet) Inspect(ctx context.Context, c Charge) (State, error) {
	return f.layer(c.Consistency).Inspect(ctx, c)
}
