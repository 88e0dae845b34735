package store

import (
	"context"
	"time"

	"github.com/weirhq/weir"
)

// lowered are the charges as the inner store is asked.
func (l *Leased) lowered(charges []Charge) ([]Charge, error) {
	if l.closed.Load() {
		return nil, ErrClosed
	}
	if err := checkNames(charges); err != nil {
		return nil, err
	}
	asked := make([]Charge, len(charges))
	for i, c := range charges {
		p, err := l.plans.plan(c.Limit)
		if err != nil {
			return nil, err
		}
		c.Limit = p.lowered
		asked[i] = c
	}
	return asked, nil
}

// inHand calls f with what is kept for a charge that is leased and has something in hand.
func (l *Leased) inHand(c *Charge, f func(e *leasedKey, now int64)) {
	p, err := l.plans.plan(c.Limit)
	if err != nil || !p.bound.Leased {
		return
	}
	l.with(c.Policy, c.Key, func(_ *nearShard[leasedKey], e *leasedKey) {
		if e.plan.lowered == p.lowered {
			f(e, l.now())
		}
	})
}

// Peek implements [Store]: it asks the inner store, and adds what is in hand here.
func (l *Leased) Peek(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	if err := CheckDecisions(charges, decisions); err != nil {
		return err
	}
	asked, err := l.lowered(charges)
	if err != nil {
		return err
	}
	held := make([]int64, len(charges))
	for i, c := range charges {
		l.inHand(&c, func(e *leasedKey, now int64) {
			held[i] = e.left(now)
			if n := c.N; n <= e.plan.most { // or it is refused for good
				asked[i].N = max(0, n-held[i])
			}
		})
	}
	if err := l.inner.Peek(ctx, asked, decisions); err != nil {
		return err
	}
	for i := range decisions {
		d := &decisions[i]
		d.Remaining = min(d.Remaining+held[i], max(d.Limit, d.Remaining))
		if !d.Allowed && held[i] > 0 && charges[i].N <= held[i] {
			d.Allowed, d.Reason, d.RetryAfter = true, weir.ReasonNone, 0
		}
	}
	return nil
}

// Refund implements [Store]: permits that were spent from a block in hand go back into it, all others to the inner store.
func (l *Leased) Refund(ctx context.Context, charges []Charge) error {
	asked, err := l.lowered(charges)
	if err != nil {
		return err
	}
	few := asked[:0]
	for i, given := range charges {
		c := asked[i]
		l.inHand(&given, func(e *leasedKey, now int64) {
			e.refusal = leasedRefusal{}
			for i := range e.blocks {
				if b := &e.blocks[i]; b.deadline > now {
					back := min(c.N, b.n-b.left)
					b.left += back
					b.back += back
					c.N -= back
				}
			}
		})
		if c.N > 0 {
			few = append(few, c)
		}
	}
	if len(few) == 0 {
		return nil
	}
	return l.inner.Refund(ctx, few)
}

// Reserve implements [Store] at the lowered limit. It asks the inner store for all permits, whatever is in hand here.
func (l *Leased) Reserve(
	ctx context.Context, charges []Charge, decisions []weir.Decision, expiry time.Duration,
) (Reservation, error) {
	if err := CheckDecisions(charges, decisions); err != nil {
		return Reservation{}, err
	}
	asked, err := l.lowered(charges)
	if err != nil {
		return Reservation{}, err
	}
	return l.inner.Reserve(ctx, asked, decisions, expiry)
}

// Commit implements [Store].
func (l *Leased) Commit(ctx context.Context, r Reservation, actual []int64) error {
	if l.closed.Load() {
		return ErrClosed
	}
	return l.inner.Commit(ctx, r, actual)
}

// Cancel implements [Store].
func (l *Leased) Cancel(ctx context.Context, r Reservation) error {
	if l.closed.Load() {
		return ErrClosed
	}
	return l.inner.Cancel(ctx, r)
}

// Debit implements [Store] at the lowered limit.
func (l *Leased) Debit(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	asked, err := l.lowered(charges)
	if err != nil {
		return err
	}
	return l.inner.Debit(ctx, asked, decisions)
}

// Lend implements [Store] at the lowered limit. The caller must spend the permits in time: see docs/decisions/0014.
func (l *Leased) Lend(ctx context.Context, c Charge, least int64) (Loan, weir.Decision, error) {
	asked, err := l.lowered([]Charge{c})
	if err != nil {
		return Loan{}, weir.Decision{}, err
	}
	return l.inner.Lend(ctx, asked[0], least)
}

// Return implements [Store].
func (l *Leased) Return(ctx context.Context, loan Loan, unspent int64) error {
	if l.closed.Load() {
		return ErrClosed
	}
	return l.inner.Return(ctx, loan, unspent)
}

// Reset implements [Store]. What is in hand here is forgotten; other processes may still spend what they have.
func (l *Leased) Reset(ctx context.Context, policy, key string) error {
	if l.closed.Load() {
		return ErrClosed
	}
	if err := l.inner.Reset(ctx, policy, key); err != nil {
		return err
	}
	l.with(policy, key, func(_ *nearShard[leasedKey], e *leasedKey) {
		now := l.now()
		e.releaseAll(now, nil)
		e.epoch++
		e.refusal, e.seen, e.reset = leasedRefusal{}, e.plan.most, now
	})
	return nil
}

// Inspect implements [Store]: what the inner store keeps, with what is in hand here as a part of what remains.
func (l *Leased) Inspect(ctx context.Context, c Charge) (State, error) {
	asked, err := l.lowered([]Charge{c})
	if err != nil {
		return State{}, err
	}
	state, err := l.inner.Inspect(ctx, asked[0])
	if err != nil {
		return State{}, err
	}
	l.inHand(&c, func(e *leasedKey, now int64) {
		if left := e.left(now); left > 0 {
			d := &state.Decision
			d.Remaining = min(d.Remaining+left, d.Limit)
			d.Allowed, d.Reason, d.RetryAfter = true, weir.ReasonNone, 0
		}
	})
	return state, nil
}
