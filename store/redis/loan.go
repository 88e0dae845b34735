package redis

import (
	"context"
	"errors"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// debit takes permits whether they are there or not.
func (s *Store) debit(ctx context.Context, parts []part, decisions []weir.Decision) error {
	errs := make([]error, len(parts))
	each(parts, func(k int, p *part) { errs[k] = s.debitPart(ctx, p) })
	if err := errors.Join(errs...); err != nil {
		clear(decisions)
		return err
	}
	for k := range parts {
		for i, at := range parts[k].places {
			decisions[at] = parts[k].decisions[i]
		}
	}
	return nil
}

func (s *Store) debitPart(ctx context.Context, p *part) error {
	r, err := s.run(ctx, p, opDebit, 0, "")
	if err != nil {
		return err
	}
	for i := range p.charges {
		p.decisions[i] = p.law(i).decision(&r, 0, p.charges[i].Policy)
		if err := r.failure(&p.charges[i]); err != nil {
			clear(p.decisions)
			return err
		}
	}
	return p.ended(&r)
}

// lend takes what there is of the permits of a charge, and least at least.
func (s *Store) lend(ctx context.Context, p *part, least int64) (store.Hold, error) {
	r, err := s.run(ctx, p, opLend, least, "")
	if err != nil {
		return store.Hold{}, err
	}
	ahead := r // the time that counts for the record comes after whether it is allowed
	ahead.byte()
	c := p.charges[0]
	taken := ahead.number() * microsecond
	p.decisions[0] = p.law(0).decision(&r, least, c.Policy)
	most := c.N
	if c.N = r.number(); p.decisions[0].Allowed && (c.N < least || c.N > most) { // or all that it says would be spent here
		r.short = true
	}
	if err := p.ended(&r); err != nil {
		return store.Hold{}, err
	}
	if !p.decisions[0].Allowed {
		return store.Hold{}, nil
	}
	return store.Hold{Charges: []store.Charge{c}, Taken: taken}, nil
}

// takeBack gives back what was not spent of a loan.
func (s *Store) takeBack(ctx context.Context, loan *store.Hold, unspent int64) error {
	c := loan.Charges[0]
	c.N = unspent
	parts, err := s.parts([]store.Charge{c})
	if err != nil {
		return err
	}
	_, err = s.run(ctx, &parts[0], opReturn, loan.Taken/microsecond, "")
	return err
}
