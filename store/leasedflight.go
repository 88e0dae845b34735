package store

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// leasedWaiter is a charge that waits for a block. Its shard's lock guards it until done is closed.
type leasedWaiter struct {
	prev, next *leasedWaiter
	n          int64
	policy     string
	sent       bool // it was waiting when the Lend that is under way began
	decided    bool
	decision   weir.Decision
	err        error
	done       chan struct{}
}

// wait puts w at the end of the queue.
func (e *leasedKey) wait(w *leasedWaiter) {
	w.done = make(chan struct{})
	e.queued += w.n
	if w.prev = e.last; e.last == nil {
		e.first = w
	} else {
		e.last.next = w
	}
	e.last = w
}

// leave takes w out of the queue.
func (e *leasedKey) leave(w *leasedWaiter) {
	e.queued -= w.n
	if w.prev == nil {
		e.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		e.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

// decide returns w, which leaves the queue.
func (e *leasedKey) decide(w *leasedWaiter, err error) {
	e.leave(w)
	w.decided, w.err = true, err
	close(w.done)
}

// fail returns an error to all requests that wait.
func (e *leasedKey) fail(err error) {
	for e.first != nil {
		e.decide(e.first, err)
	}
}

// leasedFlight is a Lend that is about to be sent.
type leasedFlight struct {
	plan     *leasePlan
	n, least int64
	sent     int64
	epoch    int64
	ahead    bool // no request waits for it
}

// flight plans a Lend for the requests that wait, and for the demand to come; not ok if there is nothing to ask for.
func (e *leasedKey) flight(now int64) (f leasedFlight, ok bool) {
	left := e.left(now)
	want := e.demand(now, left)
	for w := e.first; w != nil; w = w.next {
		want = min(want+w.n, algo.MaxPermits) // many that wait for so much could add up to less than nothing
		w.sent = true
	}
	f = leasedFlight{plan: e.plan, n: want - left, least: 1, sent: now, epoch: e.epoch, ahead: e.first == nil}
	if !f.ahead {
		f.least = e.first.n - left
	}
	f.n = min(max(f.n, f.least), algo.MaxPermits)
	return f, f.least > 0 && want > left
}

// launch sends a Lend, unless one is under way. The shard must be locked, and open.
func (l *Leased) launch(e *leasedKey, now int64) {
	if e.inFlight {
		return
	}
	f, ok := e.flight(now)
	if !ok {
		return
	}
	e.inFlight, e.sentAt = true, now
	l.calls.Go(func() { l.fly(e, f) })
}

// launchAhead sends a Lend before anybody has to wait for it, by as much earlier than it is worth while as lead is.
func (l *Leased) launchAhead(e *leasedKey, now, lead int64) {
	if e.inFlight || now < e.aheadAt-lead || l.shard(e.hash).closed || l.ahead.Load() >= mostAheadCalls {
		return
	}
	l.launch(e, now)
}

const (
	// mostAheadCalls is how many calls are under way at most that no request waits for.
	mostAheadCalls = 256
	// callTime is how long a call of the inner store that was made for no request alone may take.
	callTime = 10 * time.Second
)

// fly asks for blocks until no request waits.
func (l *Leased) fly(e *leasedKey, f leasedFlight) {
	s := l.shard(e.hash)
	for ok := true; ok; {
		if f.ahead {
			l.ahead.Add(1)
		}
		loan, d, err := l.lend(Charge{Policy: e.policy, Key: e.key, Limit: f.plan.lowered, N: f.n}, f.least)
		if f.ahead {
			l.ahead.Add(-1)
		}
		s.lock.Lock()
		now := l.now() // not before, as it counts for requests that have come meanwhile
		back := e.land(&f, loan, d, err, s.closed, now)
		e.inFlight = false
		ok = false
		if e.first != nil && !s.closed {
			if f, ok = e.flight(now); ok {
				e.inFlight, e.sentAt = true, now
			}
		}
		l.watchHand(e, now)
		s.lock.Unlock()
		for _, r := range back {
			l.giveLoanBack(r)
		}
	}
}

// lend asks the inner store for a block.
func (l *Leased) lend(c Charge, least int64) (Hold, weir.Decision, error) {
	l.stats.lends.Add(1)
	ctx, cancel := context.WithTimeout(l.ctx, callTime)
	defer cancel()
	loan, d, err := Lend(ctx, l.inner, c, least)
	switch {
	case err == nil:
		l.stats.lent.Add(loan.Lent())
	case ctx.Err() != nil && l.ctx.Err() == nil: // which is not that of any caller
		err = fmt.Errorf("%w: no answer within %v", ErrUnavailable, callTime)
	}
	return loan, d, err
}

// land takes in the answer to a Lend, and returns what goes back.
func (e *leasedKey) land(f *leasedFlight, loan Hold, d weir.Decision, err error, closed bool, now int64) (back []leasedReturn) {
	switch {
	case closed: // no request waits any more
		if loan.Lent() > 0 {
			back = append(back, leasedReturn{loan, loan.Lent()})
		}
		return back
	case err != nil:
		e.aheadAt = now + f.plan.pause()
		e.fail(err)
		return nil
	case f.epoch != e.epoch:
		e.landLate(loan, now)
		return nil
	}
	e.trip = max(now-f.sent, 0)
	e.seen, e.reset = d.Remaining, now+min(int64(d.ResetAfter), latest)
	if !d.Allowed {
		e.refuse(f, &d, f.least, now)
		return nil
	}
	e.refusal = leasedRefusal{}
	partly := loan.Lent() < f.n // there is no more for now
	if partly {
		e.aheadAt = now + f.plan.pause()
	}
	b := leasedBlock{
		taken: loan.Taken, deadline: f.sent + f.plan.spendable(loan.Taken), n: loan.Lent(), left: loan.Lent(),
	}
	e.blocks = append(e.blocks, b)
	e.serve(f.sent, now)
	switch {
	case partly && f.plan.drips: // as it would say if it were asked now
		e.refuse(f, &weir.Decision{Reason: weir.ReasonLimited}, 1, now)
	case partly && f.plan.steady: // until when it would refuse is for it to say
		e.refusal = leasedRefusal{least: 1, sent: f.sent, asked: now, retry: now, reason: weir.ReasonLimited}
	}
	left := e.left(now)
	e.lentAt, e.lentN = now, left
	e.low = -1
	if demand := e.demand(now, left); demand > 0 { // a quarter, or what is used up while the answer is twice as late as this one
		e.low = max(demand/4, muldiv(demand, min(2*max(now-f.sent, 0), f.plan.demandSpan()), f.plan.demandSpan()))
	}
	return e.shed(left, now, back)
}

// serve grants what is in hand to the requests that wait, in their order.
func (e *leasedKey) serve(sent, now int64) {
	for w := e.first; w != nil; w = e.first {
		if !e.spend(w.n, w.at(sent, now)) {
			return
		}
		e.allowed(&w.decision, w.policy, now)
		e.decide(w, nil)
	}
}

// shed takes out of the hand what is too much, as those for whom it was asked have gone.
func (e *leasedKey) shed(left, now int64, back []leasedReturn) []leasedReturn {
	for i := len(e.blocks) - 1; i >= 0 && left > e.plan.bound.Block; i-- {
		b := &e.blocks[i]
		if over := min(left-e.plan.bound.Block, b.left); b.deadline > now {
			back = append(back, e.release(b, over, now))
			left -= over
		}
	}
	e.tidy(now)
	return back
}

// refuse refuses the requests that wait for least permits that are not in hand, or more, and remembers that.
func (e *leasedKey) refuse(f *leasedFlight, d *weir.Decision, least, now int64) {
	r := leasedRefusal{least: least, sent: f.sent, reason: d.Reason, forever: d.RetryAfter == weir.Never}
	wait := max(int64(d.RetryAfter), f.plan.pause())
	r.retry, r.asked = now+min(wait, latest), now+min(wait, f.plan.longest)
	e.refusal, e.aheadAt = r, r.asked
	for w := e.first; w != nil; {
		next := w.next
		if w.n-e.left(w.at(f.sent, now)) >= r.least {
			e.refused(&w.decision, w.policy, w.n, now)
			e.decide(w, nil)
		}
		w = next
	}
	e.serve(f.sent, now)
}

// at is the time that counts for w when the reply to a Lend comes. Requests that waited when it was sent count as granted while
// it was under way, which is between their beginning and their end: it makes no difference to them that a block is too old when
// the reply is late.
func (w *leasedWaiter) at(sent, now int64) int64 {
	if w.sent {
		return min(sent, now)
	}
	return now
}

// landLate takes in a block that was asked for before the key was reset: the requests that waited for it have it. The rest is
// not given back, as all permits are there already.
func (e *leasedKey) landLate(loan Hold, now int64) {
	unspent := loan.Lent()
	for w := e.first; w != nil && w.sent && w.n <= unspent; w = e.first {
		unspent -= w.n
		e.allowed(&w.decision, w.policy, now)
		e.decide(w, nil)
	}
}
