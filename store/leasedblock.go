package store

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
)

// leasedBlock is a loan that is spent from memory.
type leasedBlock struct {
	taken    int64 // when it was taken, by the clock of the inner store
	deadline int64 // before which it must be spent
	n, left  int64
	back     int64 // how many permits were ever put back
	end      int64 // when the last of it was spent, or later
}

// mostPast is how many blocks that are spent are remembered for a key, so that permits can be given back to where they came from.
const mostPast = 8

// left is how many permits are in hand at a time.
func (e *leasedKey) left(at int64) int64 {
	left := int64(0)
	for i := range e.blocks {
		if b := &e.blocks[i]; b.deadline > at {
			left += b.left
		}
	}
	return left
}

// spend grants n permits from what is in hand at a time, if there are as many.
func (e *leasedKey) spend(n, at int64) bool {
	if len(e.blocks) == 0 {
		return false
	}
	if b := &e.blocks[0]; b.deadline > at && b.left > n { // nearly always
		b.left -= n
		e.count(n, at)
		return true
	}
	if e.left(at) < n {
		return false
	}
	e.count(n, at)
	emptied := false
	for i := 0; n > 0; i++ {
		b := &e.blocks[i]
		if b.deadline <= at {
			continue
		}
		part := min(n, b.left)
		b.left -= part
		n -= part
		if b.left == 0 {
			b.end, emptied = e.used, true
		}
	}
	if emptied {
		e.tidy(at)
	}
	return true
}

// leasedHand has the permits of the oldest block in time while a copy of the key is published, which takes them from here.
type leasedHand struct {
	left   atomic.Int64 // -1 once the copy is withdrawn
	block  int          // among those of the key
	n      int64        // how many there were
	keep   int64        // so many are taken under the lock only: the last one, and those that have the next block asked for
	others int64        // permits of the other blocks
	until  int64        // when it must be seen under the lock

	_ [16]byte // neighbors do not share a cache line
}

// lendHand has what is in hand spent by a copy of the key. It returns whether a copy can decide about anything.
func (e *leasedKey) lendHand(now int64) bool {
	left := e.left(now)
	if left == 0 {
		return e.refusal.least > 0
	}
	at, until := -1, e.since+e.plan.demandSpan()
	for i := range e.blocks {
		if b := &e.blocks[i]; b.deadline > now {
			until = min(until, b.deadline)
			if at < 0 && b.left > 0 {
				at = i
			}
		}
	}
	b := &e.blocks[at]
	keep, others := int64(0), left-b.left
	switch {
	case e.low < 0 || e.inFlight:
	case left > e.low:
		keep = max(0, e.low-others)
	default:
		until = min(until, e.aheadAt)
	}
	if e.waits() || b.left <= keep || now >= until {
		return false
	}
	e.hand = &leasedHand{block: at, n: b.left, keep: keep, others: others, until: until}
	e.hand.left.Store(b.left)
	b.left = 0
	return true
}

// takeUnlocked decides about a charge by a copy of what is kept, if that has all that it takes.
func (e *leasedKey) takeUnlocked(c *Charge, d *weir.Decision, now int64) bool {
	h := e.hand
	if h == nil {
		if c.N > e.plan.most || e.asksAhead(now) || !e.refuses(c.N, now) {
			return false
		}
		e.refused(d, c.Policy, c.N, now)
		return true
	}
	if now >= h.until {
		return false
	}
	for left := h.left.Load(); left-c.N > h.keep; left = h.left.Load() {
		if h.left.CompareAndSwap(left, left-c.N) {
			e.allowed(d, c.Policy, left-c.N+h.others, now)
			return true
		}
	}
	return false
}

// lead is how long before a refusal ends the store is asked, so that the answer comes when that is over.
func (e *leasedKey) lead() int64 { return min(e.trip, e.plan.pause()/2) }

// asksAhead reports whether the next refusal has the store asked.
func (e *leasedKey) asksAhead(now int64) bool {
	return e.plan.drips && !e.inFlight && now >= e.aheadAt-e.lead()
}

// tidy puts blocks without permits among those of the past, and forgets those that have been there for long.
func (e *leasedKey) tidy(now int64) {
	kept := e.blocks[:0]
	for _, b := range e.blocks {
		if b.left > 0 {
			kept = append(kept, b)
			continue
		}
		if len(e.past) > 0 && (len(e.past) >= mostPast || e.past[0].end < now-2*e.plan.span) {
			e.forgotten = max(e.forgotten, e.past[0].end)
			e.past = slices.Delete(e.past, 0, 1)
		}
		e.past = append(e.past, b)
	}
	e.blocks = kept
}

// count counts demand. Calls come in another order than that of their times: after a look at the clock they wait for the lock.
func (e *leasedKey) count(n, at int64) {
	e.used = max(e.used, at)
	if span := e.plan.demandSpan(); at-e.since >= span {
		if e.before = e.spent; at-e.since >= 2*span {
			e.before = 0
		}
		e.spent, e.since = 0, at
	}
	e.spent += n
}

// demand is how many permits the key is likely to need in the time that a block is meant for: as many as it used in such a time
// before, and several times as many as of the last block if that was used up much faster.
func (e *leasedKey) demand(now, left int64) int64 {
	span := e.plan.demandSpan()
	demand := int64(0)
	if now-e.since < 2*span {
		demand = max(e.spent, e.before)
	}
	if now-e.lentAt < span/4 && e.lentN > left {
		demand = max(demand, 4*(e.lentN-left))
	}
	const few = 4 // with fewer it is not worth while to hold any
	if demand < few {
		return 0
	}
	return min(demand, e.plan.bound.Block)
}

// putBack gives back n permits that were spent at the time since or later: to the oldest blocks that they can have come from, so
// that they are not spent later than they may be. What may have come from a block that is forgotten stays spent, and so does what
// may have come from one that has all of its permits back, as others than those which came from it were put there: so many are
// lost.
func (e *leasedKey) putBack(n, since, now int64) (lost int64) {
	e.spent = max(0, e.spent-n)
	if since <= e.forgotten {
		return n
	}
	lost = n
	for i := 0; i < len(e.past); {
		if b := e.past[i]; b.end >= since {
			at, _ := slices.BinarySearchFunc(e.blocks, b, older)
			e.blocks = slices.Insert(e.blocks, at, b)
			e.past = slices.Delete(e.past, i, i+1)
		} else {
			i++
		}
	}
	for i := range e.blocks {
		b := &e.blocks[i]
		part, most := min(n, b.n-b.left), min(n, b.n-b.left+b.back)
		b.left += part
		b.back += part
		n -= most
		lost -= part
	}
	e.tidy(now)
	return lost
}

func older(a, b leasedBlock) int {
	if a.deadline < b.deadline {
		return -1
	}
	return 1
}

// release takes permits that are left of a block out of the hand, as if they were a loan of their own. The caller must tidy.
func (e *leasedKey) release(b *leasedBlock, unspent, now int64) Hold {
	b.left -= unspent
	b.n -= unspent
	b.end = max(now, e.used)
	return Hold{Charges: []Charge{{Policy: e.policy, Key: e.key, Limit: e.plan.lowered, N: unspent}}, Taken: b.taken}
}

// releaseLeft takes everything out of the hand. The blocks are known as spent, so that what is put back finds them.
func (e *leasedKey) releaseLeft(now int64, returns []Hold) []Hold {
	for i := range e.blocks {
		if b := &e.blocks[i]; b.left > 0 {
			returns = append(returns, e.release(b, b.left, now))
		}
	}
	e.tidy(now)
	return returns
}

// releaseAll takes everything out of the hand and forgets the blocks.
func (e *leasedKey) releaseAll(now int64, returns []Hold) []Hold {
	returns = e.releaseLeft(now, returns)
	e.blocks, e.past, e.forgotten, e.low, e.lentN = nil, nil, max(now, e.used), -1, 0
	return returns
}

// leasedRefusal is a refusal of the inner store that is believed for a while.
type leasedRefusal struct {
	least   int64 // as many permits, or more, are refused; 0 for none
	sent    int64 // when that was asked
	asked   int64 // until then; then the store is asked again
	retry   int64 // when it said that they will be there
	reason  weir.Reason
	forever bool
}

// refuses reports whether n permits, which are not in hand, are refused without asking. While requests wait for the reply of the
// store, others are refused as well if there cannot be permits for them yet, should those that wait get theirs.
func (e *leasedKey) refuses(n, now int64) bool {
	r := &e.refusal
	if r.least == 0 {
		return false
	}
	more := n - e.left(now) - r.least
	switch {
	case more < 0:
		return false
	case now < r.asked:
		return true
	case !e.waits(): // no request has asked since
		return false
	case now < r.retry:
		return true
	}
	rate := e.plan.lowered.Rate()
	return e.plan.steady && more+e.waiting.Permits() > muldiv(rate.Permits, max(now-r.sent, 0), int64(rate.Period))
}

// allowed is the decision about a request that was allowed, after which so many permits are in hand.
func (e *leasedKey) allowed(d *weir.Decision, policy string, left, now int64) {
	*d = weir.Decision{
		Allowed: true, Limit: e.plan.most, Remaining: e.remaining(left), ResetAfter: e.resetAfter(now), Policy: policy,
	}
}

// refused is the decision about a request of n permits that is refused as the inner store did last.
func (e *leasedKey) refused(d *weir.Decision, policy string, n, now int64) {
	r, left := &e.refusal, e.left(now)
	*d = weir.Decision{
		Reason: r.reason, Limit: e.plan.most, Remaining: e.remaining(left), ResetAfter: e.resetAfter(now),
		RetryAfter: weir.Never, Policy: policy,
	}
	if r.forever {
		return
	}
	at := r.retry
	if at <= now { // then the answer that is under way is expected
		at = max(e.sentAt+e.trip, now+1)
	}
	d.RetryAfter = time.Duration(at - now)
	if more := n - left - r.least; more > 0 && e.plan.lowered.Algorithm() == weir.AlgorithmTokenBucket {
		d.RetryAfter += time.Duration(muldiv(more, int64(e.plan.lowered.Rate().Period), e.plan.lowered.Rate().Permits) + 1)
	}
}

// remaining is what is in hand and what the inner store had left when it was asked last.
func (e *leasedKey) remaining(left int64) int64 { return min(left+e.seen, e.plan.most) }

func (e *leasedKey) resetAfter(now int64) time.Duration { return nonNegative(e.reset - now) }

func nonNegative(d int64) time.Duration { return time.Duration(max(d, 0)) }
