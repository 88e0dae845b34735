package store

import (
	"context"
	"time"

	"github.com/weirhq/weir"
)

// Peek implements [Store]. The store is asked about keys of which it must be.
func (o *Optimistic) Peek(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	c := optimisticCall{o: o, charges: charges, decisions: decisions, ask: o.inner.Peek}
	return c.run(ctx)
}

// Reserve implements [Store]. The store decides, but on what is known to be refused.
func (o *Optimistic) Reserve(
	ctx context.Context, charges []Charge, decisions []weir.Decision, expiry time.Duration,
) (r Reservation, err error) {
	if err := CheckExpiry(expiry); err != nil {
		return Reservation{}, err
	}
	if len(charges) == 0 {
		return o.inner.Reserve(ctx, charges, decisions, expiry)
	}
	c := optimisticCall{o: o, charges: charges, decisions: decisions, takes: true, whole: true}
	c.ask = func(ctx context.Context, charges []Charge, decisions []weir.Decision) (err error) {
		r, err = o.inner.Reserve(ctx, charges, decisions, expiry)
		return err
	}
	if err := c.run(ctx); err != nil {
		return Reservation{}, err
	}
	return r, nil
}

// Lend implements [Store]. The store decides, but on what is known to be refused.
func (o *Optimistic) Lend(ctx context.Context, charge Charge, least int64) (l Loan, d weir.Decision, err error) {
	if err := CheckLend(charge, least); err != nil {
		return Loan{}, weir.Decision{}, err
	}
	asked, decisions := charge, make([]weir.Decision, 1)
	asked.N = least
	c := optimisticCall{o: o, charges: []Charge{asked}, decisions: decisions, takes: true, whole: true}
	c.ask = func(ctx context.Context, _ []Charge, decisions []weir.Decision) (err error) {
		l, decisions[0], err = o.inner.Lend(ctx, charge, least)
		return err
	}
	if err := c.run(ctx); err != nil {
		return Loan{}, weir.Decision{}, err
	}
	return l, decisions[0], nil
}

// Debit implements [Store].
func (o *Optimistic) Debit(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	if err := CheckTaken(charges); err != nil {
		return err
	}
	c := optimisticCall{o: o, charges: charges, decisions: decisions, ask: o.inner.Debit, takes: true, whole: true, always: true}
	return c.run(ctx)
}

// Inspect implements [Store].
func (o *Optimistic) Inspect(ctx context.Context, charge Charge) (s State, err error) {
	charge.N = 0
	c := optimisticCall{
		o: o, charges: []Charge{charge}, decisions: make([]weir.Decision, 1), takes: true, whole: true, always: true,
	}
	c.ask = func(ctx context.Context, _ []Charge, decisions []weir.Decision) (err error) {
		s, err = o.inner.Inspect(ctx, charge)
		decisions[0] = s.Decision
		return err
	}
	return s, c.run(ctx)
}

// Refund implements [Store]. Permits of which the store does not know yet are given back here.
func (o *Optimistic) Refund(ctx context.Context, charges []Charge) error {
	if err := CheckCharges(charges); err != nil {
		return err
	}
	if err := o.enter(ctx); err != nil {
		return err
	}
	rest := make([]Charge, 0, len(charges))
	for _, c := range charges {
		o.with(c.Policy, c.Key, func(_ *nearShard[optimisticKey], k *optimisticKey) {
			here := min(c.N, k.telling(false))
			k.refund(here, o.now())
			c.N -= here
		})
		if c.N > 0 {
			rest = append(rest, c)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	defer o.mistrust(rest)
	return o.inner.Refund(ctx, rest)
}

// mistrust has the next requests for the keys ask the store, as permits were given back there.
func (o *Optimistic) mistrust(charges []Charge) {
	for i := range charges {
		o.with(charges[i].Policy, charges[i].Key, func(_ *nearShard[optimisticKey], k *optimisticKey) { k.mistrust() })
	}
}

// enter returns why a call cannot begin, or nil.
func (o *Optimistic) enter(ctx context.Context) error {
	if o.closed.Load() {
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return notTaken(err)
	}
	return nil
}

// Commit implements [Store].
func (o *Optimistic) Commit(ctx context.Context, r Reservation, actual []int64) error {
	if err := o.enter(ctx); err != nil {
		return err
	}
	defer o.mistrust(r.Charges)
	return o.inner.Commit(ctx, r, actual)
}

// Cancel implements [Store].
func (o *Optimistic) Cancel(ctx context.Context, r Reservation) error {
	if err := o.enter(ctx); err != nil {
		return err
	}
	defer o.mistrust(r.Charges)
	return o.inner.Cancel(ctx, r)
}

// Return implements [Store].
func (o *Optimistic) Return(ctx context.Context, l Loan, unspent int64) error {
	if err := o.enter(ctx); err != nil {
		return err
	}
	defer o.mistrust([]Charge{l.Charge})
	return o.inner.Return(ctx, l, unspent)
}

// Reset implements [Store]. What this process owes is forgotten; what others owe they tell the store afterwards.
func (o *Optimistic) Reset(ctx context.Context, policy, key string) error {
	if err := checkName(policy, key); err != nil {
		return err
	}
	if err := o.enter(ctx); err != nil {
		return err
	}
	forget := func(_ *nearShard[optimisticKey], k *optimisticKey) {
		k.forget()
		k.mistrust()
	}
	var f *optimisticFlight
	o.with(policy, key, func(_ *nearShard[optimisticKey], k *optimisticKey) {
		forget(nil, k)
		f = k.flight
	})
	if f != nil { // what is under way would count afterwards
		select {
		case <-f.done:
		case <-ctx.Done():
			return notTaken(ctx.Err())
		}
	}
	defer o.with(policy, key, forget)
	return o.inner.Reset(ctx, policy, key)
}
