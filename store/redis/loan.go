package redis

import (
	"context"
	"errors"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// Debit implements [store.Store]. In a cluster, it is one step for each slot. If it fails for some of the slots, the call fails,
// and what was debited in others stays so.
func (s *Store) Debit(ctx context.Context, charges []store.Charge, decisions []weir.Decision) error {
	if err := store.CheckTaken(charges); err != nil {
		return err
	}
	if err := check(charges, decisions); err != nil || len(charges) == 0 {
		return err
	}
	parts, err := s.parts(charges)
	if err != nil {
		return err
	}
	errs := make([]error, len(parts))
	each(parts, func(k int, p *part) {
		if p.decisions = decisions; p.places != nil {
			p.decisions = make([]weir.Decision, len(p.charges))
		}
		errs[k] = s.debit(ctx, p)
	})
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

func (s *Store) debit(ctx context.Context, p *part) error {
	r, err := s.run(ctx, &question{op: opDebit, part: p, argument: p.counted})
	if err != nil {
		return err
	}
	now := r.number()
	for i := range p.charges {
		p.decisions[i] = p.laws[i].decision(&r, now, 0, p.charges[i].Policy)
	}
	if r.short {
		clear(p.decisions)
		return unavailable(errReply)
	}
	return nil
}

// counted is the argument of a charge of which only the number of permits counts.
func (p *part) counted(i int) string { return string(p.laws[i].settling(p.charges[i].N)) }

// Lend implements [store.Store].
func (s *Store) Lend(ctx context.Context, c store.Charge, least int64) (store.Loan, weir.Decision, error) {
	if err := store.CheckLend(c, least); err != nil {
		return store.Loan{}, weir.Decision{}, err
	}
	parts, err := s.parts([]store.Charge{c})
	if err != nil {
		return store.Loan{}, weir.Decision{}, err
	}
	p := &parts[0]
	r, err := s.run(ctx, &question{op: opLend, part: p, extra: least, argument: p.counted})
	if err != nil {
		return store.Loan{}, weir.Decision{}, err
	}
	now := r.number()
	ahead := r // the time that counts for the record comes after whether it is allowed
	ahead.byte()
	loan := store.Loan{Charge: c, Taken: ahead.number() * microsecond}
	d := p.laws[0].decision(&r, now, least, c.Policy)
	loan.Charge.N = r.number()
	if r.short {
		return store.Loan{}, weir.Decision{}, unavailable(errReply)
	}
	if !d.Allowed {
		loan = store.Loan{}
	}
	return loan, d, nil
}

// Return implements [store.Store].
func (s *Store) Return(ctx context.Context, l store.Loan, unspent int64) error {
	if l.Charge.N == 0 {
		return nil
	}
	if err := store.CheckReturn(l, unspent); err != nil {
		return err
	}
	l.Charge.N = unspent
	parts, err := s.parts([]store.Charge{l.Charge})
	if err != nil {
		return err
	}
	p := &parts[0]
	_, err = s.run(ctx, &question{op: opReturn, part: p, extra: l.Taken / microsecond, argument: p.counted})
	return err
}
