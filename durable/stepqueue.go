package durable

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// mayWait reports whether a call that was refused can wait for what it asks for.
func (s *step) mayWait(result *Result) bool {
	if s.call.Ask.Wait == 0 || result.Reason != weir.ReasonLimited || s.full >= 0 {
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
	}
	slices.SortStableFunc(order, func(a, b *part) int { return waits(a.charge) - waits(b.charge) })
	result := Result{Decisions: make([]weir.Decision, len(s.parts))}
	if s.call.Ask.Hold != 0 {
		result.Hold.ID = rand.Text()
	}
	for _, p := range order {
		left := time.Until(deadline)
		w := s.waiter(p, p.charge.N)
		w.id = result.Hold.ID
		if w.hold > 0 { // at least for as long as it is asked for, from when all permits are there
			w.hold += max(left, 0)
		}
		if p.charge.Queue > 0 {
			w.waits, w.at = true, deadline
		}
		p.bucket.enter(w) //nolint:contextcheck // a record is read for everybody
		select {
		case <-s.ended:
		case <-ctx.Done():
			w.cancel()
			<-s.ended
		}
		if !w.granted() {
			return s.refused(ctx, p)
		}
		result.Decisions[p.at] = w.decision[0]
	}
	s.retime(&result.Hold)
	return result
}

func waits(c *store.Charge) int {
	if c.Queue > 0 {
		return 1
	}
	return 0
}

// retime has what was reserved bit by bit end at one time. Nobody waits until that is durable: what a crash leaves ends later.
func (s *step) retime(h *store.Hold) {
	if h.ID == "" {
		return
	}
	now := time.Now()
	for i := range s.parts { // their time may be of a clock that was ahead
		b := s.parts[i].bucket
		b.mu.Lock()
		at := max(s.owner.unix(now, b.state.Limit().Algorithm()), b.state.Time())
		h.Expires = max(h.Expires, at+int64(s.call.Ask.Hold))
		b.mu.Unlock()
	}
	for i := range s.parts {
		p := &s.parts[i]
		p.bucket.mu.Lock()
		until := p.bucket.until(h.Expires, s.call.Ask.Hold)
		p.bucket.state.Retime(h.ID, p.waiter.expires, until)
		if p.bucket.ended == 0 {
			p.bucket.ask()
			p.bucket.arm()
		}
		p.bucket.mu.Unlock()
	}
}
