package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/weirhq/weir"
)

// Peek implements [Store].
func (d *Divided) Peek(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	if gone := ctx.Err(); gone != nil {
		return notTaken(gone)
	}
	durable, mixed := kindOf(charges)
	if !mixed {
		return byFail(ctx, charges, decisions, d.of(durable).Peek(ctx, charges, decisions))
	}
	if err := firstOf(errors.Join(CheckDecisions(charges, decisions), CheckCharges(charges))); err != nil {
		return err
	}
	s := d.split(charges)
	defer func() { d.join(s, decisions) }()
	for i := range s {
		p := &s[i]
		asked := p.store.Peek(ctx, p.charges, p.decisions)
		if err := byFail(ctx, p.charges, p.decisions, asked); err != nil {
			return err
		}
	}
	return nil
}

// Commit implements [Store]. It settles both parts of a reservation, even if one fails; after an error it can be called again.
func (d *Divided) Commit(ctx context.Context, r Reservation, actual []int64) error {
	if actual == nil {
		actual = []int64{}
	}
	return d.settle(ctx, r, actual)
}

// Cancel implements [Store].
func (d *Divided) Cancel(ctx context.Context, r Reservation) error { return d.settle(ctx, r, nil) }

// settle ends a reservation, as Cancel does if actual is nil.
func (d *Divided) settle(ctx context.Context, r Reservation, actual []int64) error {
	if !strings.HasPrefix(r.ID, dividedID) {
		durable, _ := kindOf(r.Charges)
		return settleIn(ctx, d.of(durable), r, actual)
	}
	if err := CheckReservation(Reservation{Charges: r.Charges}, actual); err != nil {
		return err
	}
	two, costs, ok := parted(r, actual)
	if !ok {
		return ErrNotReserved
	}
	first, second := settleIn(ctx, d.durable, two[0], costs[0]), settleIn(ctx, d.shared, two[1], costs[1])
	switch gone := errors.Is(second, ErrNotReserved); {
	case errors.Is(first, ErrNotReserved) && !gone: // the rest was settled
		return second
	case gone:
		return first
	}
	return errors.Join(first, second)
}

func settleIn(ctx context.Context, s Store, r Reservation, actual []int64) error {
	if actual == nil {
		return s.Cancel(ctx, r)
	}
	return s.Commit(ctx, r, actual)
}

// byKind calls f for the charges of each kind.
func (d *Divided) byKind(charges []Charge, decisions []weir.Decision, call func(p *side) error) error {
	if err := CheckCharges(charges); err != nil {
		return err
	}
	s := d.split(charges)
	defer func() { d.join(s, decisions) }()
	for i := range s {
		if len(s[i].charges) > 0 {
			if err := call(&s[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Refund implements [Store]. Charges of both kinds are given back one kind after the other.
func (d *Divided) Refund(ctx context.Context, charges []Charge) error {
	if durable, mixed := kindOf(charges); !mixed {
		return d.of(durable).Refund(ctx, charges)
	}
	return d.byKind(charges, nil, func(p *side) error { return p.store.Refund(ctx, p.charges) })
}

// Debit implements [Store]. Charges of both kinds are debited one kind after the other.
func (d *Divided) Debit(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	if durable, mixed := kindOf(charges); !mixed {
		return d.of(durable).Debit(ctx, charges, decisions)
	}
	if err := firstOf(errors.Join(CheckTaken(charges), CheckDecisions(charges, decisions))); err != nil {
		return err
	}
	return d.byKind(charges, decisions, func(p *side) error { return p.store.Debit(ctx, p.charges, p.decisions) })
}

// Lend implements [Store].
func (d *Divided) Lend(ctx context.Context, c Charge, least int64) (Loan, weir.Decision, error) {
	return d.of(c.Durable).Lend(ctx, c, least)
}

// Return implements [Store].
func (d *Divided) Return(ctx context.Context, l Loan, unspent int64) error {
	return d.of(l.Charge.Durable).Return(ctx, l, unspent)
}

// Reset implements [Store]. Both are asked, as the name does not tell which of them has the key.
func (d *Divided) Reset(ctx context.Context, policy, key string) error {
	if err := checkName(policy, key); err != nil {
		return err
	}
	var errs [2]error
	for i, at := range []Store{d.durable, d.shared} {
		if at != (nobody{}) {
			errs[i] = at.Reset(ctx, policy, key)
		}
	}
	return errors.Join(errs[:]...)
}

// Inspect implements [Store].
func (d *Divided) Inspect(ctx context.Context, c Charge) (State, error) {
	return d.of(c.Durable).Inspect(ctx, c)
}

// Close implements [Store]. It closes both stores.
func (d *Divided) Close() error { return errors.Join(d.durable.Close(), d.shared.Close()) }

// nobody is where no store is.
type nobody struct{}

var errNobody = &weir.OptionError{Option: "Charge.Durable", Value: "given", Accepted: "what there is a store for"}

func (nobody) Take(context.Context, []Charge, []weir.Decision) error { return errNobody }
func (nobody) Peek(context.Context, []Charge, []weir.Decision) error { return errNobody }
func (nobody) Refund(context.Context, []Charge) error                { return errNobody }

func (nobody) Reserve(context.Context, []Charge, []weir.Decision, time.Duration) (Reservation, error) {
	return Reservation{}, errNobody
}

func (nobody) Acquire(context.Context, []Charge, []weir.Decision, Waiting) (Reservation, error) {
	return Reservation{}, errNobody
}
func (nobody) Commit(context.Context, Reservation, []int64) error     { return errNobody }
func (nobody) Cancel(context.Context, Reservation) error              { return errNobody }
func (nobody) Debit(context.Context, []Charge, []weir.Decision) error { return errNobody }
func (nobody) Lend(context.Context, Charge, int64) (Loan, weir.Decision, error) {
	return Loan{}, weir.Decision{}, errNobody
}
func (nobody) Return(context.Context, Loan, int64) error      { return errNobody }
func (nobody) Reset(context.Context, string, string) error    { return errNobody }
func (nobody) Inspect(context.Context, Charge) (State, error) { return State{}, errNobody }
func (nobody) Close() error                                   { return nil }
