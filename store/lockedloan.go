package store

import (
	"context"
	"errors"

	"github.com/weirhq/weir"
)

// Debit implements [Store]. If the call is cut short, some of the charges may have been debited.
func (s *Locked) Debit(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	if err := errors.Join(CheckTaken(charges), CheckDecisions(charges, decisions), CheckCharges(charges)); err != nil {
		return firstOf(err)
	}
	debited := make([]bool, len(charges)) // by attempts that lost a lock later
	return s.attempts(ctx, charges, func(c *call) error {
		for i := range c.keys {
			k := &c.keys[i]
			charge := charges[k.charge]
			t, err := compiled.terms(charge.Limit)
			if err != nil {
				return err
			}
			c.ready(k, t)
			n := charge.N
			if debited[k.charge] {
				n = 0
			}
			decisions[k.charge] = DecisionOf(Charge{Policy: charge.Policy}, t.most, k.rec.debit(n))
			if err := c.write(k); err != nil {
				return err
			}
			debited[k.charge] = true
		}
		return nil
	})
}

// Lend implements [Store].
func (s *Locked) Lend(ctx context.Context, charge Charge, least int64) (Loan, weir.Decision, error) {
	if err := CheckLend(charge, least); err != nil {
		return Loan{}, weir.Decision{}, err
	}
	t, err := compiled.terms(charge.Limit)
	if err != nil {
		return Loan{}, weir.Decision{}, err
	}
	var l Loan
	var d weir.Decision
	err = s.attempts(ctx, []Charge{charge}, func(c *call) error {
		k := &c.keys[0]
		c.ready(k, t)
		lent, r := k.rec.lend(least, charge.N)
		d = DecisionOf(Charge{Policy: charge.Policy, N: least}, t.most, r)
		l = Loan{}
		if d.Allowed {
			l = Loan{Charge: charge, Taken: k.rec.at}
			l.Charge.N = lent
		}
		return c.write(k)
	})
	if err != nil {
		return Loan{}, weir.Decision{}, err
	}
	return l, d, nil
}

// Return implements [Store].
func (s *Locked) Return(ctx context.Context, l Loan, unspent int64) error {
	if l.Charge.N == 0 {
		return nil
	}
	if err := CheckReturn(l, unspent); err != nil {
		return err
	}
	return s.attempts(ctx, []Charge{l.Charge}, func(c *call) error {
		k := &c.keys[0]
		t, err := compiled.terms(l.Charge.Limit)
		if err != nil || k.rec == nil || k.rec.terms.text != t.text {
			return err
		}
		c.ready(k, nil)
		k.rec.takeBack(unspent, l.Taken)
		return c.write(k)
	})
}
