package durable

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/weirhq/weir/store"
)

// mayWait reports whether a call that was refused can wait for what it asks for.
func (s *step) mayWait(result *Result) bool {
	if s.call.Wait == 0 || result.Outcome != Refused || s.full >= 0 {
		return false
	}
	for i := range s.call.Charges {
		if !result.Decisions[i].Allowed && s.call.Charges[i].Queue == 0 {
			return false
		}
	}
	return true
}

// queue joins one queue after the other, in the order in which all calls do, and holds what it has got meanwhile. Keys for
// which nobody can wait come first, so that they refuse at once or not at all.
func (s *step) queue(ctx context.Context, deadline time.Time) Result {
	order := make([]*part, len(s.parts))
	for i := range s.parts {
		order[i] = &s.parts[i]
		order[i].waiter = nil
	}
	slices.SortStableFunc(order, func(a, b *part) int { return waits(a.charge) - waits(b.charge) })
	result := Result{Outcome: Granted, Decisions: refusedAll(s.call, Refused).Decisions}
	if s.call.Expiry != 0 {
		result.ID = rand.Text()
	}
	for _, p := range order {
		left := time.Until(deadline)
		w := s.waiter(p, p.charge.N)
		w.id = result.ID
		if w.request.Reserve > 0 { // at least for as long as it is asked for, from when all permits are there
			w.request.Reserve += max(left, 0)
		}
		if p.charge.Queue > 0 {
			w.request.QueueLimit, w.request.Wait, w.at = p.charge.Queue, max(left, 1), deadline
		}
		p.bucket.enter(w) //nolint:contextcheck // a record is read for everybody
		e := s.next(ctx, p)
		if e.answer.Outcome != Granted {
			p.waiter = nil
			s.revoke()
			return s.refused(ctx, &e)
		}
		result.Decisions[p.at] = e.answer.Decision
	}
	s.retime(&result)
	return result
}

func waits(c *store.Charge) int {
	if c.Queue > 0 {
		return 1
	}
	return 0
}

// next is the ending of a part, which is withdrawn if ctx ends before.
func (s *step) next(ctx context.Context, p *part) ending {
	select {
	case e := <-s.ended:
		return e
	case <-ctx.Done():
	}
	p.bucket.cancel(p.waiter)
	return <-s.ended
}

// retime has what was reserved bit by bit end at one time. Nobody waits until that is durable: what a crash leaves ends later.
func (s *step) retime(result *Result) {
	if result.ID == "" {
		return
	}
	now := time.Now()
	for i := range s.parts { // their time may be of a clock that was ahead
		b := s.parts[i].bucket
		b.mu.Lock()
		at := max(s.owner.unix(now, b.state.Limit().Algorithm()), b.state.Time())
		result.Expires = max(result.Expires, at+int64(s.call.Expiry))
		b.mu.Unlock()
	}
	for i := range s.parts {
		p := &s.parts[i]
		p.bucket.mu.Lock()
		until := p.bucket.until(result.Expires, s.call.Expiry)
		p.bucket.state.Retime(result.ID, p.waiter.final.Reservation.Expires, until)
		if p.bucket.ended == 0 {
			p.bucket.ask()
			p.bucket.arm()
		}
		p.bucket.mu.Unlock()
	}
}
