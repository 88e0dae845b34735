package durable

import (
	"context"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// change carries out a call that asks for no permits, other than to borrow them.
func (o *Owner) change(ctx context.Context, c *Call) Result {
	if !o.join() {
		return failed(errNotOwner)
	}
	defer o.calls.Done()
	s, err := o.gather(ctx, c)
	if err != nil {
		return failed(err)
	}
	defer s.leave()
	if s.full >= 0 {
		return s.changeNone()
	}
	var after answers
	result := Result{States: c.Ask.States}
	if n := c.decided(); n > 0 {
		result.Decisions = make([]weir.Decision, n)
	}
	now := time.Now()
	switch {
	case c.Verb == VerbAdjust:
		result.Adjustments = make([]Adjustment, 1)
		err = s.adjust(now, &result.Adjustments[0], &after)
	case c.lent():
		err = s.takeBack(now, &after)
	case c.Verb == VerbSettle:
		err = s.settle(now, &after)
	case c.Ask.Mode == store.ModePeek:
		err = s.look(now, &result, &after)
	case c.Ask.Mode == store.ModeLend:
		err = s.lend(now, &result, &after)
	default:
		err = s.charge(now, &result, &after)
	}
	s.unlock(&after)
	if err == nil {
		err = s.wait(ctx)
	}
	if err != nil {
		return failed(err)
	}
	return result
}

// changeNone serves a call about a key that is not kept, as there is no room for it, and unlocks the others.
func (s *step) changeNone() Result {
	var after answers
	s.unlock(&after)
	result := Result{Decisions: make([]weir.Decision, s.call.decided())}
	if len(result.Decisions) == 0 || s.call.Ask.States != nil {
		return failed(errFull)
	}
	for i := range result.Decisions {
		result.Decisions[i] = s.owner.noRoom(&s.call.Charges[i])
	}
	return result
}

// look returns what a request would be, and changes nothing.
func (s *step) look(now time.Time, result *Result, after *answers) error {
	for i := range s.parts {
		p := &s.parts[i]
		b, charge := p.bucket, p.charge
		var state *store.Record
		var err error
		if b.state == nil {
			state, err = store.NewRecord(charge.Limit, s.owner.unix(now, charge.Limit.Algorithm()))
		} else {
			b.bring(now)
			b.expire(now, after)
			b.serve(now, after)
			state, err = b.state.As(charge.Limit)
		}
		if err != nil {
			return err //nolint:wrapcheck // it names what is wrong
		}
		if result.Decisions[p.at] = b.judge(charge, state, false); result.States != nil {
			result.States[p.at] = state.State(*charge)
		}
	}
	return nil
}

// judge is what a limit says to a charge, without taking anything. The state is that of the bucket, as it is under the limit of
// the charge.
func (b *bucket) judge(c *store.Charge, state *store.Record, reserve bool) weir.Decision {
	d := store.DecisionOf(*c, state.Most(), state.Peek(c.N))
	switch {
	case d.Reason == weir.ReasonNever:
	case b.queue.Len() > 0 && c.N > 0: // a new request is served after those that wait, and a probe ignores them
		d.Allowed, d.Reason, d.RetryAfter = false, weir.ReasonLimited, b.untilTurn(c.N)
	case d.Allowed && reserve && state.Full():
		d.Allowed, d.Reason, d.RetryAfter = false, weir.ReasonTableFull, state.UntilExpiry()
	}
	return d
}

// settle ends a reservation at all of its keys.
func (s *step) settle(now time.Time, after *answers) error {
	found := len(s.parts) == 0
	for i := range s.parts {
		p := &s.parts[i]
		actual, cancel := int64(0), s.call.Actual == nil
		if !cancel {
			actual = s.call.Actual[p.at]
		}
		if p.bucket.settle(&s.call.Hold, actual, cancel) {
			found = true
			s.written(p, after)
			p.bucket.serve(now, after)
		}
	}
	if !found {
		return ErrNotReserved
	}
	return nil
}

// written has a part, which was carried out in memory, wait until it is durable. It stays done even if that fails.
func (s *step) written(p *part, after *answers) {
	w := s.waiter(p, 0)
	w.must, w.stays = true, true
	p.bucket.pass(w, after)
}

// takeBack takes back what was not spent of a loan. The call does not wait until that is durable: if it is lost, that is on the
// side of the limit.
func (s *step) takeBack(now time.Time, after *answers) error {
	p := &s.parts[0]
	b := p.bucket
	if b.state == nil { // it has all its permits
		return nil
	}
	if err := b.ready(now, b.state.Limit(), after); err != nil {
		return err
	}
	if err := b.state.TakeBack(p.charge.Limit, s.call.unspent(), s.call.Hold.Taken); err != nil {
		return err //nolint:wrapcheck // it names what is wrong
	}
	b.ask()
	b.serve(now, after)
	return nil
}

// lend takes what there is.
func (s *step) lend(now time.Time, result *Result, after *answers) error {
	p := &s.parts[0]
	b := p.bucket
	if err := b.ready(now, p.charge.Limit, after); err != nil {
		return err
	}
	if b.paused(now) {
		return b.failure
	}
	asked := *p.charge
	asked.N = s.call.Ask.Least
	d := &result.Decisions[0]
	if *d = b.judge(&asked, b.state, false); d.Allowed {
		w := s.waiter(p, min(p.charge.N, d.Remaining))
		result.Lent, result.Hold.Taken = w.charge.N, b.state.Time()
		b.take(w, after)
		*d = w.decision[0]
	}
	return nil
}

// charge gives permits back, or takes them whether they are there or not.
func (s *step) charge(now time.Time, result *Result, after *answers) error {
	for i := range s.parts {
		p := &s.parts[i]
		b, mode := p.bucket, s.call.Ask.Mode
		if b.state == nil && mode != store.ModeDebit { // it has all its permits
			continue
		}
		limit := p.charge.Limit
		if mode == store.ModeReset {
			limit = b.state.Limit()
		}
		if err := b.ready(now, limit, after); err != nil {
			return err
		}
		switch mode {
		case store.ModeRefund:
			b.state.Refund(p.charge.N)
			b.uncover()
			s.written(p, after)
		case store.ModeReset:
			b.state.Reset()
			b.generation++
			b.uncover()
			s.written(p, after)
		default:
			s.debit(p, after)
			probe := b.state.Peek(0)
			result.Decisions[p.at] = store.DecisionOf(store.Charge{Policy: p.charge.Policy}, b.state.Most(), probe)
		}
		b.serve(now, after)
	}
	return nil
}

// debit takes permits: as a request does if they are there, which needs no write then where the record is ahead.
func (s *step) debit(p *part, after *answers) {
	b, n := p.bucket, p.charge.N
	switch {
	case n == 0:
	case b.state.Peek(n).Allowed:
		w := s.waiter(p, n)
		w.stays = true
		b.state.Debit(n)
		b.pass(w, after)
	default:
		b.state.Debit(n)
		s.written(p, after)
	}
}
