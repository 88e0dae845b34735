package store

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/queue"
)

// wait puts w at the end of the queue.
func (e *leasedKey) wait(w *leasedPart) {
	w.done, w.place = make(chan struct{}), &queue.Waiter[*leasedPart]{Value: w, Permits: w.charge.N}
	e.waiting.Push(w.place)
}

// waits reports whether a request waits.
func (e *leasedKey) waits() bool { return e.waiting.Len() > 0 }

// decide returns w, which leaves the queue.
func (e *leasedKey) decide(w *leasedPart, err error) {
	e.waiting.Remove(w.place)
	w.decided, w.err = true, err
	close(w.done)
}

// fail returns an error to all requests that wait.
func (e *leasedKey) fail(err error) {
	for e.waits() {
		e.decide(e.waiting.Front().Value, err)
	}
}

// depart begins a Lend of n permits, and least at least, for the requests that wait and for the demand to come; ahead reports
// whether no request waits for it. It is not ok if there is nothing to ask for.
func (e *leasedKey) depart(now int64) (n, least int64, ahead, ok bool) {
	left := e.left(now)
	want := e.demand(now, left)
	for w := e.waiting.Front(); w != nil; w = w.Newer() {
		want = min(want+w.Permits, algo.MaxPermits) // many that wait for so much could add up to less than nothing
		w.Value.sent = true
	}
	least, ahead = 1, !e.waits()
	if !ahead {
		least = e.waiting.Front().Permits - left
	}
	if least <= 0 || want <= left {
		return 0, 0, ahead, false
	}
	e.inFlight, e.late, e.sentAt = true, false, now
	return min(max(want-left, least), algo.MaxPermits), least, ahead, true
}

// launch sends a Lend, unless one is under way. The shard must be locked, and open.
func (l *Leased) launch(e *leasedKey, now int64) {
	if e.inFlight {
		return
	}
	if n, least, ahead, ok := e.depart(now); ok {
		l.calls.Go(func() { l.fly(e, n, least, ahead) })
	}
}

// launchAhead sends a Lend before a caller has to wait for it, by as much earlier than it is worth while as lead is.
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

// fly asks for blocks until no request waits. Until then the plan of the key stays.
func (l *Leased) fly(e *leasedKey, n, least int64, ahead bool) {
	s := l.shard(e.hash)
	for ok := true; ok; {
		if ahead {
			l.ahead.Add(1)
		}
		loan, d, err := l.lend(Charge{Policy: e.policy, Key: e.key, Limit: e.plan.lowered, N: n}, least)
		if ahead {
			l.ahead.Add(-1)
		}
		s.lock.Lock()
		l.withdraw(&e.nearKey)
		now := l.now() // not before, as it counts for requests that have come meanwhile
		back := e.land(n, least, loan, d, err, s.closed, now)
		e.inFlight, ok = false, false
		if e.waits() && !s.closed {
			n, least, ahead, ok = e.depart(now)
		}
		l.watchHand(e, now)
		s.lock.Unlock()
		for _, loan := range back {
			l.giveLoanBack(loan)
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
func (e *leasedKey) land(n, least int64, loan Hold, d weir.Decision, err error, closed bool, now int64) (back []Hold) {
	switch {
	case closed: // no request waits any more
		if loan.Lent() > 0 {
			back = append(back, loan)
		}
		return back
	case err != nil:
		e.aheadAt = now + e.plan.pause()
		e.fail(err)
		return nil
	case e.late:
		e.landLate(loan, now)
		return nil
	}
	e.trip = max(now-e.sentAt, 0)
	e.seen, e.reset = d.Remaining, now+min(int64(d.ResetAfter), latest)
	if !d.Allowed {
		e.refuse(&d, least, now)
		return nil
	}
	e.refusal = leasedRefusal{}
	partly := loan.Lent() < n // there is no more for now
	if partly {
		e.aheadAt = now + e.plan.pause()
	}
	b := leasedBlock{
		taken: loan.Taken, deadline: e.sentAt + e.plan.spendable(loan.Taken), n: loan.Lent(), left: loan.Lent(),
	}
	e.blocks = append(e.blocks, b)
	e.serve(now)
	switch {
	case partly && e.plan.drips: // as it would say if it were asked now
		e.refuse(&weir.Decision{Reason: weir.ReasonLimited}, 1, now)
	case partly && e.plan.steady: // until when it would refuse is for it to say
		e.refusal = leasedRefusal{least: 1, sent: e.sentAt, asked: now, retry: now, reason: weir.ReasonLimited}
	}
	left := e.left(now)
	e.lentAt, e.lentN = now, left
	e.low = -1
	if demand := e.demand(now, left); demand > 0 { // a quarter, or what is used up while the answer is twice as late as this one
		e.low = max(demand/4, muldiv(demand, min(2*max(now-e.sentAt, 0), e.plan.demandSpan()), e.plan.demandSpan()))
	}
	return e.shed(left, now, back)
}

// serve grants what is in hand to the requests that wait, in their order.
func (e *leasedKey) serve(now int64) {
	for e.waits() {
		w := e.waiting.Front().Value
		if !e.spend(w.charge.N, w.at(e.sentAt, now)) {
			return
		}
		e.allowed(w.decision, w.charge.Policy, e.left(now), now)
		e.decide(w, nil)
	}
}

// shed takes out of the hand what is too much, as the calls that needed it have gone.
func (e *leasedKey) shed(left, now int64, back []Hold) []Hold {
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
func (e *leasedKey) refuse(d *weir.Decision, least, now int64) {
	r := leasedRefusal{least: least, sent: e.sentAt, reason: d.Reason, forever: d.RetryAfter == weir.Never}
	wait := max(int64(d.RetryAfter), e.plan.pause())
	r.retry, r.asked = now+min(wait, latest), now+min(wait, e.plan.longest)
	e.refusal, e.aheadAt = r, r.asked
	for at := e.waiting.Front(); at != nil; {
		w := at.Value
		at = at.Newer()
		if w.charge.N-e.left(w.at(e.sentAt, now)) >= r.least {
			e.refused(w.decision, w.charge.Policy, w.charge.N, now)
			e.decide(w, nil)
		}
	}
	e.serve(now)
}

// at is the time that counts for w when the reply to a Lend comes. Requests that waited when it was sent count as allowed while
// it was under way, which is between their beginning and their end: it makes no difference to them that a block is too old when
// the reply is late.
func (w *leasedPart) at(sent, now int64) int64 {
	if w.sent {
		return min(sent, now)
	}
	return now
}

// landLate takes in a block that was asked for before the key was reset: the requests that waited for it have it. The rest is
// not given back, as all permits are there already.
func (e *leasedKey) landLate(loan Hold, now int64) {
	unspent := loan.Lent()
	for e.waits() {
		w := e.waiting.Front().Value
		if !w.sent || w.charge.N > unspent {
			return
		}
		unspent -= w.charge.N
		e.allowed(w.decision, w.charge.Policy, e.left(now), now)
		e.decide(w, nil)
	}
}
