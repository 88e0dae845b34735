package store

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/queue"
)

// LeasedOptions configure a [Leased].
type LeasedOptions struct {
	// Term is for how long, at most, permits stay in memory: from 10 ms to 1 min. It must be the same in all processes that share
	// a limit, as the lowered burst of a token bucket depends on it. Default: 1 s.
	Term time.Duration
	// MaxKeys is how many keys of policies are kept at a time: from 1 to 10^9. Where there is no room, a key without a loan is
	// forgotten. If none is found, the inner store decides on requests for new keys, one by one. Default: 1,000,000.
	MaxKeys int
	// Clock replaces the monotonic clock of this process. It must not go backward, nor stop while time passes for the inner
	// store. Default: nil.
	Clock weir.Clock
}

func (o LeasedOptions) filled() (LeasedOptions, error) {
	if o.Term == 0 {
		o.Term = time.Second
	}
	if o.Term < 10*time.Millisecond || o.Term > time.Minute {
		return o, &weir.OptionError{Option: "LeasedOptions.Term", Value: o.Term.String(), Accepted: "from 10ms to 1m"}
	}
	var err error
	o.MaxKeys, err = maxKeysOf("LeasedOptions.MaxKeys", o.MaxKeys)
	return o, err
}

// Leased is a [Home] that takes permits of an inner store in blocks, by Lend, and spends them in memory: most decisions cost no
// round trip. It never allows more than the limit, whatever the number of processes, the delays of the inner store and the clocks
// of the processes, and also if processes die (TestLeasedNeverAbove). It may allow less, by the permits that other processes have
// at that moment.
//
// Limits of fewer than 64 permits, limits whose segment or window is shorter than 5 ms, token buckets that fill in less than 20
// ms, and AlgorithmConcurrency are not leased: the inner store decides on each request. Reserve, Commit, Cancel, Debit, Lend and
// Return go to the inner store too, which does not know what is in memory here. A probe asks it if nothing is in hand.
//
// # What callers see
//
// Of a token bucket, more than the lowered burst at once is refused with ReasonNever, and the Limit of decisions is the lowered
// burst: see [LeasedOptions.Bound]. Remaining is what is in hand, plus what the inner store had when it was asked last. Where one
// charge of a request refuses, those of the others that were not asked are Allowed, as far as is known.
//
// While the inner store is unavailable, what is in hand is spent until its time is over; then calls return the error of the inner
// store. They also return ErrUnavailable if the context ends before a block comes: nothing was taken then.
//
// # How far below
//
// A process has at most [LeasedBound].Block permits of a key unspent, a 16th of the limit. A request is refused only if the inner
// store does not have its permits, or did not within the last 64th of Term, or needs them for requests that already wait. So of a
// window no more than Block x processes permits stay unused, and of a token bucket also those by which the burst is lowered: see
// [LeasedBound.Unused] (TestLeasedUnused). What is not used for a quarter of Term, or near its end, goes back by Return. A block
// in a process that dies, or under a limit that changes, is lost until its permits come back as any do.
//
// Blocks follow the demand of the process. A key that is seldom used has none, and each request is one call. A key that is often
// used is asked for ahead of need (TestLeasedAsksAhead). All requests for a key with nothing in hand wait for one call, and are
// served in the order in which they came (TestLeasedOneCallForAll).
//
// A refusal is remembered until its RetryAfter, or for Term if that is shorter, and at least for a 64th of Term: until then
// requests for as many permits, or more, are refused from memory (TestLeasedRefusesFromMemory). After that the first request asks
// again, and waits. Those that come meanwhile are refused at once where there cannot be permits for them as well; their
// RetryAfter is when the store is expected to have replied (TestLeasedRefusesWhileItAsks, TestLeasedRefusesUntilTheWindowEnds,
// TestLeasedWaitsForWhatCameBack). Of a token bucket that fills fast, one request asks shortly before the refusal ends, so that
// no request waits for long (TestLeasedAsksBeforeRefusalEnds).
//
// # Exceptions
//
// After a Reset, after a Refund of permits that were not taken, or when a clock of the inner store is set forward, what processes
// have in hand may be spent on top, for Term at most. While some processes have another limit than others, each spends what it
// was lent under its own. Why the limit is kept otherwise is in docs/decisions/0014.
//
// A Leased has one goroutine that gives back what is not used, from the first key on, and one for each call of Lend and Return
// that is under way. All end with Close. The zero Leased is not usable: call [NewLeased].
type Leased struct {
	near[leasedKey]

	term      time.Duration
	returning chan struct{} // has room for as many calls that give back
	ahead     atomic.Int64  // calls that are under way, and that no request waits for
	stats     leasedCounts
}

var _ Home = (*Leased)(nil)

// NewLeased returns a Leased over inner, or an *[weir.OptionError]. Closing it does not close inner.
func NewLeased(inner Home, o LeasedOptions) (*Leased, error) {
	if err := mustHave("NewLeased.inner", inner); err != nil {
		return nil, err
	}
	o, err := o.filled()
	if err != nil {
		return nil, err
	}
	l := &Leased{term: o.Term, returning: make(chan struct{}, mostReturns)}
	l.open(inner, o.Clock, o.MaxKeys, o.Term, l)
	return l, nil
}

// Do implements [Home]. What memory does not decide on goes to the inner store at the lowered limit. A loan must be spent in
// time: see docs/decisions/0014. After a reset, other processes may still spend what they have.
func (l *Leased) Do(ctx context.Context, ask Ask, charges []Charge, decisions []weir.Decision) (Hold, error) {
	if ask.Mode == ModeTake && ask.Hold == 0 && ask.Wait == 0 {
		if len(charges) == 1 && len(decisions) == 1 && charges[0].N > 0 && ctx.Err() == nil {
			if l.takeInHand(&charges[0], &decisions[0]) { //nolint:contextcheck // a block in advance is for no request alone
				return Hold{}, nil
			}
		}
		return Hold{}, l.take(ctx, charges, decisions)
	}
	if l.closed.Load() {
		return Hold{}, ErrClosed
	}
	if ask.Mode == ModeReset {
		return Hold{}, l.reset(ctx, charges)
	}
	if err := check(&ask, charges, decisions); err != nil {
		return Hold{}, err
	}
	asked, err := l.lowered(charges)
	switch {
	case err != nil:
		return Hold{}, err
	case ask.Mode == ModePeek:
		return Hold{}, l.peek(ctx, ask, charges, asked, decisions)
	case ask.Mode == ModeRefund:
		if asked = l.refund(charges, asked); len(asked) == 0 {
			return Hold{}, nil
		}
		decisions = nil
	}
	return l.inner.Do(ctx, ask, asked, decisions)
}

// Settle implements [Home].
func (l *Leased) Settle(ctx context.Context, h Hold, actual []int64) error {
	if l.closed.Load() {
		return ErrClosed
	}
	return l.inner.Settle(ctx, h, actual)
}

// takeInHand decides about a charge, if that can be done from memory.
func (l *Leased) takeInHand(c *Charge, d *weir.Decision) bool {
	hash := l.hashOf(c)
	copied := l.published(hash, c)
	now := l.now()
	if copied != nil && copied.plan.terms.limit == c.Limit && copied.takeUnlocked(c, d, now) {
		return true
	}
	s := l.shard(hash)
	lock(&s.lock)
	defer s.lock.Unlock()
	e := l.find(hash, c)
	switch {
	case e == nil || s.closed || e.plan.terms.limit != c.Limit:
		return false
	case !e.waits() && e.spend(c.N, now):
		left := e.left(now)
		e.allowed(d, c.Policy, left, now)
		if e.low >= 0 && !e.inFlight && left <= e.low {
			l.launchAhead(e, now, 0)
		}
	case c.N <= e.plan.most && e.refuses(c.N, now):
		e.refused(d, c.Policy, c.N, now)
		if e.plan.drips && !e.inFlight {
			l.launchAhead(e, now, e.lead())
		}
	default:
		return false
	}
	if e.calls++; e.calls >= l.patience && e.lendHand(now) {
		kept := *e
		kept.blocks, kept.past = nil, nil // which change
		l.publish(&e.nearKey, &kept)
	}
	return true
}

// lowered are the charges as the inner store is asked.
func (l *Leased) lowered(charges []Charge) ([]Charge, error) {
	asked := make([]Charge, len(charges))
	for i, c := range charges {
		p, err := l.plan(c.Limit)
		if err != nil {
			return nil, err
		}
		c.Limit = p.lowered
		asked[i] = c
	}
	return asked, nil
}

// inHand calls f with what is kept for a charge that is leased and has something in hand.
func (l *Leased) inHand(c *Charge, f func(e *leasedKey, now int64)) {
	p, err := l.plan(c.Limit)
	if err != nil || !p.bound.Leased {
		return
	}
	l.with(c, func(e *leasedKey) {
		if e.plan.lowered == p.lowered {
			f(e, l.now())
		}
	})
}

// peek asks the inner store, and adds what is in hand here. asked are the charges with their lowered limits.
func (l *Leased) peek(ctx context.Context, ask Ask, charges, asked []Charge, decisions []weir.Decision) error {
	held := make([]int64, len(charges))
	for i, c := range charges {
		l.inHand(&c, func(e *leasedKey, now int64) {
			held[i] = e.left(now)
			if n := c.N; n <= e.plan.most { // or it is refused for good
				asked[i].N = max(0, n-held[i])
			}
		})
	}
	if _, err := l.inner.Do(ctx, ask, asked, decisions); err != nil {
		return err
	}
	add := func(d *weir.Decision, held, n int64) {
		d.Remaining = min(d.Remaining+held, max(d.Limit, d.Remaining))
		if !d.Allowed && held > 0 && n <= held {
			d.Allowed, d.Reason, d.RetryAfter = true, weir.ReasonNone, 0
		}
	}
	for i := range decisions {
		add(&decisions[i], held[i], charges[i].N)
	}
	for i := range ask.States {
		add(&ask.States[i].Decision, held[i], 0)
	}
	return nil
}

// refund puts permits that were spent from a block in hand back into it, and returns all others.
func (l *Leased) refund(charges, asked []Charge) []Charge {
	rest := asked[:0]
	for i, given := range charges {
		c := asked[i]
		l.inHand(&given, func(e *leasedKey, now int64) {
			e.refusal = leasedRefusal{}
			for i := range e.blocks {
				if b := &e.blocks[i]; b.deadline > now {
					back := min(c.N, b.n-b.left)
					b.left += back
					b.back += back
					c.N -= back
				}
			}
		})
		if c.N > 0 {
			rest = append(rest, c)
		}
	}
	return rest
}

// reset forgets keys in the inner store, and what is in hand here.
func (l *Leased) reset(ctx context.Context, charges []Charge) error {
	if _, err := l.inner.Do(ctx, Ask{Mode: ModeReset}, charges, nil); err != nil {
		return err
	}
	now := l.now()
	for i := range charges {
		l.withAll(&charges[i], func(e *leasedKey) {
			e.releaseAll(now, nil)
			e.late = true
			e.refusal, e.seen, e.reset = leasedRefusal{}, e.plan.most, now
		})
	}
	return nil
}

// leasedKey is what a [Leased] keeps for a key of a policy.
type leasedKey struct {
	nearKey[leasedKey]

	plan *leasePlan

	// blocks have permits left, the oldest first; past have none, but may be given some back.
	blocks, past []leasedBlock
	hand         *leasedHand // of the copy that is published, if it grants
	// forgotten is until when blocks were spent that are not kept any more.
	forgotten int64

	// spent is how many permits were taken since the time since; before, in as long a time until then.
	spent, before, since int64
	low                  int64 // with no more left than that, a block is asked for in advance; -1 for never
	lentAt, lentN        int64 // when the last block came, and of how many permits

	seen  int64 // what the inner store had left when it was asked last
	reset int64 // when it will have all of them

	refusal  leasedRefusal
	aheadAt  int64 // no block is asked for in advance before
	inFlight bool  // a Lend is under way
	late     bool  // its answer is worthless, as the key was reset since
	sentAt   int64 // when it was sent
	trip     int64 // how long the last one took

	waiting queue.Queue[*leasedPart] // its Permits are less than nothing if they are too many to count
}

// keep adds a key that is not kept yet, or returns nil if there is no room. Its shard must be locked.
func (l *Leased) keep(hash uint64, c *Charge, p *leasePlan, now int64) *leasedKey {
	s := l.shard(hash)
	if !l.room(s) {
		return nil
	}
	e := &leasedKey{
		plan: p, seen: p.most, since: now, forgotten: s.evicted, low: -1, lentAt: now, reset: now, aheadAt: now,
	}
	l.add(&e.nearKey, e, hash, c, now)
	return e
}

func (*Leased) idle(e *leasedKey) bool {
	return len(e.blocks) == 0 && !e.inFlight && !e.waits()
}

func (*Leased) stale(e *leasedKey, now int64) bool { return now-e.used > 2*e.plan.longest }

func (l *Leased) withdrawn(e *leasedKey) {
	if e.hand == nil {
		return
	}
	left := e.hand.left.Swap(-1) // nothing is taken from it afterwards
	if spent := e.hand.n - left; spent > 0 {
		e.spent += spent
		e.used = max(e.used, l.now()) // or earlier
	}
	e.blocks[e.hand.block].left += left
	e.hand = nil
}
