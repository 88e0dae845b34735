package store

import (
	"context"
	"fmt"
	"sync"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/queue"
)

// leasedPart is a charge of a request, and its decision.
type leasedPart struct {
	charge   *Charge
	decision *weir.Decision
	plan     *leasePlan
	hash     uint64
	entry    *leasedKey
	state    leasedState

	// The rest is of a charge that waits for a block. The lock of its shard guards it, and the decision, until done is closed.
	place   *queue.Waiter[*leasedPart]
	sent    bool // it was waiting when the Lend that is under way began
	decided bool
	err     error
	done    chan struct{}
}

type leasedState uint8

const (
	leasedPassed leasedState = iota // the inner store decides
	leasedInHand
	leasedWaits
	leasedRefused
	leasedNever // more than the limit ever has
	leasedProbe // allowed, and takes nothing
)

// leasedCall is a request on its way.
type leasedCall struct {
	l       *Leased
	parts   []leasedPart
	shards  nearLocks // those of the charges that are leased
	since   int64
	waits   int
	passed  int
	counts  bool // among Leased.calls, until it has ended
	returns []Hold
}

// take takes permits. If the context ends while it waits for a block, nothing was taken.
func (l *Leased) take(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	if err := check(&Ask{}, charges, decisions); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return notTaken(err)
	}
	if l.closed.Load() {
		return ErrClosed
	}
	c, _ := leasedCalls.Get().(*leasedCall)
	if c == nil {
		c = new(leasedCall)
	}
	*c = leasedCall{l: l, parts: c.parts[:0]}
	defer c.end()
	for i := range charges {
		p, err := l.plan(charges[i].Limit)
		if err != nil {
			return err
		}
		part := leasedPart{charge: &charges[i], decision: &decisions[i], plan: p}
		if p.bound.Leased {
			part.hash = l.hashOf(&charges[i])
			c.shards |= 1 << l.shardAt(part.hash)
		}
		c.parts = append(c.parts, part)
	}
	refused, err := c.begin() //nolint:contextcheck // blocks are asked for, and given back, for no request alone
	if c.counts {
		defer c.l.calls.Done()
	}
	if err != nil || refused {
		return err
	}
	if c.waits > 0 {
		if refused, err = c.await(ctx); err != nil || refused {
			return err
		}
	}
	if c.passed > 0 {
		return c.pass(ctx)
	}
	return nil
}

// leasedCalls are calls that have ended.
var leasedCalls sync.Pool

// end puts the call away, and keeps nothing of it.
func (c *leasedCall) end() {
	clear(c.parts)
	*c = leasedCall{parts: c.parts[:0]}
	leasedCalls.Put(c)
}

func (c *leasedCall) shard(i int) *nearShard[leasedKey] { return c.l.shard(c.parts[i].hash) }

// begin takes what is in hand, and has the rest asked for, or refuses the request.
func (c *leasedCall) begin() (refused bool, err error) {
	c.l.lock(c.shards)
	defer c.l.unlock(c.shards)
	defer c.looked()
	c.since = c.l.now()
	for i := range c.parts {
		part := &c.parts[i]
		if part.plan.bound.Leased {
			if c.shard(i).closed {
				c.l.returnSoon(c.returns) // those of shards that are still open, and so are waited for
				return false, ErrClosed
			}
			if part.state = c.look(i); part.entry != nil {
				part.entry.pins++
			}
		}
		switch part.state {
		case leasedPassed:
			c.passed++
		case leasedRefused, leasedNever:
			refused = true
		default:
		}
	}
	holds := false
	for i := range c.parts {
		if refused {
			c.told(i, c.since)
			continue
		}
		part := &c.parts[i]
		switch e := part.entry; part.state {
		case leasedInHand:
			e.spend(part.charge.N, c.since)
			holds = true
			e.allowed(part.decision, part.charge.Policy, e.left(c.since), c.since)
			if e.low >= 0 && e.left(c.since) <= e.low {
				c.l.launchAhead(e, c.since, 0)
			}
		case leasedProbe:
			e.allowed(part.decision, part.charge.Policy, e.left(c.since), c.since)
		case leasedWaits:
			holds = true
			e.wait(part)
			c.waits++
			c.l.launch(e, c.since)
		default:
		}
	}
	c.l.returnSoon(c.returns)
	if c.counts = holds && c.waits+c.passed > 0; c.counts {
		c.l.calls.Add(1) // so that Close waits for what undo gives back
	}
	return refused, nil
}

// looked lets the keys of the request be forgotten again.
func (c *leasedCall) looked() {
	for i := range c.parts {
		if e := c.parts[i].entry; e != nil {
			e.pins--
		}
	}
}

// look finds out how a charge is decided.
func (c *leasedCall) look(i int) leasedState {
	part := &c.parts[i]
	charge := part.charge
	e := c.l.find(part.hash, charge)
	part.entry = e
	if charge.N > part.plan.most {
		return leasedNever
	}
	if e == nil {
		if charge.N == 0 {
			return leasedPassed
		}
		if e = c.l.keep(part.hash, charge, part.plan, c.since); e == nil {
			c.l.stats.full.Add(1)
			return leasedPassed
		}
		part.entry = e
	}
	if e.plan != part.plan {
		switch {
		case e.plan.lowered == part.plan.lowered:
			if !e.inFlight {
				e.plan = part.plan
			}
		case e.inFlight || e.waits():
			return leasedPassed
		default: // the limit was changed
			c.returns = e.releaseAll(c.since, c.returns)
			e.plan, e.refusal, e.seen = part.plan, leasedRefusal{}, part.plan.most
		}
	}
	switch {
	case charge.N == 0 && e.left(c.since) > 0:
		return leasedProbe
	case !e.waits() && charge.N > 0 && e.left(c.since) >= charge.N:
		return leasedInHand
	case e.refuses(max(charge.N, 1), c.since):
		return leasedRefused
	case charge.N == 0:
		return leasedPassed
	}
	return leasedWaits
}

// told is the decision about a charge of a request that is refused, as far as it is known.
func (c *leasedCall) told(i int, now int64) {
	part := &c.parts[i]
	e, charge, d := part.entry, part.charge, part.decision
	switch {
	case part.state == leasedRefused:
		e.refused(d, charge.Policy, max(charge.N, 1), now)
		return
	case e != nil && e.plan == part.plan:
		e.allowed(d, charge.Policy, e.left(now), now)
	default:
		*d = weir.Decision{Allowed: true, Limit: part.plan.most, Remaining: part.plan.most, Policy: charge.Policy}
	}
	if part.state == leasedNever {
		d.Allowed, d.Reason, d.RetryAfter = false, weir.ReasonNever, weir.Never
	}
}

// await waits for the blocks that the request needs. If it is refused, or the context ends, all goes back.
func (c *leasedCall) await(ctx context.Context) (refused bool, err error) {
	for i := range c.parts {
		w := &c.parts[i]
		if w.state != leasedWaits {
			continue
		}
		select {
		case <-w.done:
		case <-ctx.Done():
			err = fmt.Errorf("%w: no permits came in time, and none were taken: %w", ErrUnavailable, ctx.Err())
		}
		if err == nil {
			err = w.err
		}
		if err != nil {
			break
		}
		if !w.decision.Allowed {
			w.state, refused = leasedRefused, true
			break
		}
	}
	if refused || err != nil {
		c.undo() //nolint:contextcheck // what goes back is of no request alone
	}
	return refused, err
}

// undo gives back what was taken, and leaves the queues. Where the request was refused, it tells what is left.
func (c *leasedCall) undo() {
	for _, loan := range c.undoHere() {
		c.l.giveLoanBack(loan)
	}
}

// undoHere puts into the hand what was taken, and returns what has to go back to the inner store instead, as the hand is closed.
func (c *leasedCall) undoHere() (returns []Hold) {
	c.l.lock(c.shards)
	defer c.l.unlock(c.shards)
	now := c.l.now()
	for i := range c.parts {
		part := &c.parts[i]
		e, n := part.entry, part.charge.N
		if e != nil {
			c.l.withdraw(&e.nearKey)
		}
		switch {
		case part.state == leasedInHand:
			c.l.stats.lost.Add(e.putBack(n, c.since, now))
		case part.state != leasedWaits:
			continue
		case !part.decided:
			e.waiting.Remove(part.place)
		case part.err != nil: // it has left, and has nothing
		case part.decision.Allowed:
			c.l.stats.lost.Add(e.putBack(n, c.since, now))
		default:
			continue
		}
		e.allowed(part.decision, part.charge.Policy, e.left(now), now)
		if c.shard(i).closed {
			returns = e.releaseLeft(now, returns)
			continue
		}
		c.l.watchHand(e, now)
	}
	for i := range c.parts {
		if c.parts[i].state == leasedPassed {
			c.told(i, now)
		}
	}
	return returns
}

// pass has the inner store decide on the charges that are not leased.
func (c *leasedCall) pass(ctx context.Context) error {
	charges, decisions := make([]Charge, 0, c.passed), make([]weir.Decision, c.passed)
	for i := range c.parts {
		if c.parts[i].state == leasedPassed {
			charge := *c.parts[i].charge
			charge.Limit = c.parts[i].plan.lowered
			charges = append(charges, charge)
		}
	}
	if c.counts {
		bounded, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.l.ctx, cancel)() //nolint:contextcheck // Close does not wait for ever
		ctx = bounded
	}
	if _, err := c.l.inner.Do(ctx, Ask{}, charges, decisions); err != nil {
		c.undo() //nolint:contextcheck // what goes back is of no request alone
		return err
	}
	allowed := true
	for i, at := 0, 0; i < len(c.parts); i++ {
		if c.parts[i].state == leasedPassed {
			allowed = allowed && decisions[at].Allowed
			at++
		}
	}
	if !allowed {
		c.undo() //nolint:contextcheck // what goes back is of no request alone
	}
	for i, at := 0, 0; i < len(c.parts); i++ {
		if c.parts[i].state == leasedPassed {
			*c.parts[i].decision = decisions[at]
			at++
		}
	}
	return nil
}

// leases reports whether a limit, which was checked, is leased.
func (l *Leased) leases(limit weir.Limit) bool {
	p, err := l.plan(limit)
	return err == nil && p.bound.Leased
}

// giveBackSince undoes a take of this process that was called at the time since of [Leased.now], or later: exactly, and without
// asking the inner store. What may lie too far back stays taken, and so does what was passed on to the inner store, as none can
// tell it what has come back there meanwhile.
func (l *Leased) giveBackSince(charges []Charge, since int64) {
	for i := range charges {
		charge := &charges[i]
		p, err := l.plan(charge.Limit)
		if err != nil || charge.N <= 0 {
			continue
		}
		if !p.bound.Leased || !l.putBack(charge, p, since) {
			l.stats.lost.Add(charge.N)
		}
	}
}

// putBack puts the permits of a charge back into the hand, or returns that they did not come from there.
func (l *Leased) putBack(charge *Charge, p *leasePlan, since int64) bool {
	there := false // otherwise what was not spent has gone back already, and this was
	l.with(charge, func(e *leasedKey) {
		if there = e.plan.lowered == p.lowered; there {
			now := l.now()
			l.stats.lost.Add(e.putBack(charge.N, since, now))
			l.watchHand(e, now)
		}
	})
	return there
}

// returnSoon gives permits back without waiting. A shard must be locked, and open.
func (l *Leased) returnSoon(returns []Hold) {
	if len(returns) == 0 {
		return
	}
	l.calls.Go(func() {
		for _, loan := range returns {
			l.giveLoanBack(loan)
		}
	})
}

// giveLoanBack gives permits back. If that fails they come back as any do.
func (l *Leased) giveLoanBack(loan Hold) {
	ctx, cancel := context.WithTimeout(l.ctx, callTime)
	defer cancel()
	if err := Return(ctx, l.inner, loan, loan.Lent()); err != nil {
		l.stats.lost.Add(loan.Lent())
		if l.closed.Load() {
			err = fmt.Errorf("weir: permits on loan could not be given back: %w", err)
			l.stats.failure.Store(&err)
		}
		return
	}
	l.stats.returned.Add(loan.Lent())
}
