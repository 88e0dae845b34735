package weir

import (
	"context"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/tally"
)

// Limiter is one limit whose permits come back with time. It is made by [New]. All methods are safe for concurrent use.
//
// In every method n is a number of permits. n = 0 is a probe: it succeeds if at least one permit is available and takes none. n
// above the limit is refused with ReasonNever and RetryAfter [Never]. A negative n is misuse: it is refused with ReasonInvalid.
//
// Callers that wait are served in strict order, each as of the moment at which its permits became available. If the timer that
// wakes them is late, by up to 10 ms, nothing is lost: those whose turn has come meanwhile are woken together, so that within an
// interval t callers that wait may see burst + rate x (t + 10 ms) permits. What a longer stall holds up is lost (TestLateTimer).
//
// While no caller waits, a token bucket, and a fixed window of less than 2^31 permits, is one word that calls exchange by
// compare-and-swap: nothing is allocated and no lock is taken (TestWordEqualsArithmetic; docs/decisions/0003 has the bounds).
// A token bucket of 256 permits or more that many goroutines ask by Allow at the same time lends them permits in advance, and
// still allows at most burst + rate x t (TestLendingEqualsItsRule; docs/decisions/0021).
type Limiter struct {
	gate

	of     Limit
	fast   arrival
	window *windowWord // of a fixed window
}

var _ Acquirer = (*Limiter)(nil)

// New returns a limiter with all permits available, or an *[OptionError] that names what cannot be used. A limit [AtOnce] is
// refused: its permits come back when they are released, see [NewConcurrency].
func New(limit Limit, o Options) (*Limiter, error) {
	const of = "Options"
	if !limit.in().returnsByTime() {
		return nil, byRelease("New limit", limit)
	}
	if err := limit.Check(); err != nil {
		return nil, err
	}
	l := &Limiter{of: limit}
	options := gateOptions{of, o.Name, limit.Permits(), o.QueueLimit, o.NewestFirst, o.MaxDebt, o.Clock}
	if err := l.setUp(options); err != nil {
		return nil, err
	}
	law, err := limit.in().law("Limit", l.born)
	if err != nil {
		return nil, err
	}
	if limit.Algorithm() == AlgorithmSlidingWindow {
		a, _ := limit.in().sliding("Limit", l.born)
		law = a.LawWithTotal()
	}
	l.meter.apply(law)
	law.Begin(l.meter.state, l.born, 0)
	switch limit.Algorithm() {
	case AlgorithmTokenBucket:
		bucket, _ := algo.NewTokenBucket(limit.Rate().Permits, limit.Rate().Period, limit.in().permits)
		if l.fast.fit(&l.gate, bucket, l.born) {
			l.word, l.owner = &l.fast, &l.fast
			l.fast.lower()
		}
	case AlgorithmFixedWindow:
		l.window = new(windowWord)
		l.window.fit(&l.gate, limit.Rate())
	case AlgorithmCalendarWindow:
		if o.Clock == nil {
			l.meter.law = limit.in().byWall(law)
		}
	default:
	}
	return l, nil
}

// Limit is the limit that New was given.
func (l *Limiter) Limit() Limit { return l.of }

// Allow takes one permit if it is available and no caller waits for it, and reports whether it did.
func (l *Limiter) Allow() bool {
	// This is take(one), written out: the call would cost a twentieth of the whole.
	a := &l.fast
	scale := a.scale
	if scale == 0 {
		return l.allowOther()
	}
	before, epoch := a.word.Load(), a.epoch.Load()
	if before == lent {
		cell := tally.Cell()
		return a.spend(cell) || l.allowLocked(cell)
	}
	now := clock.Now()
	old, at := a.load(), uint64(now)*scale
	ahead := max(int64(old&^lowBits-at), 0)
	if old&raised != 0 || uint64(now-epoch) >= a.horizon || a.epoch.Load() != epoch {
		return l.allowContended(now)
	}
	if ahead <= a.room {
		if a.word.CompareAndSwap(old, at+uint64(ahead+a.one)|(old+oneGrant)&grantBits) {
			return true
		}
	} else if old == before {
		a.refused.Add()
		return false
	}
	return l.allowContended(now)
}

func (l *Limiter) allowContended(now int64) bool {
	switch ahead, _, v := l.fast.takeContended(l.fast.one, now); v {
	case taken:
		l.fast.contend(ahead, now)
		return true
	case short:
		l.fast.refused.Add()
		return false
	default:
		return l.allowLocked(tally.Cell())
	}
}

// allowLocked is Allow under the lock, of a goroutine of this cell.
func (l *Limiter) allowLocked(cell uint) (ok bool) {
	l.made()
	l.mu.Lock()
	if l.fast.borrow(cell) {
		l.mu.Unlock()
		return true
	}
	if l.word != nil {
		l.word.raise()
	}
	return l.allowEntered(l.catchUp())
}

// allowOther is Allow for all but a token bucket in one word.
func (l *Limiter) allowOther() bool {
	if w := l.window; w != nil {
		switch _, _, _, v := w.take(1); v {
		case taken:
			w.allowed.Add()
			return true
		case short:
			w.refused.Add()
			return false
		case locked:
		}
	}
	return l.allowLocked(tally.Cell())
}

// Take takes n permits if they are available and no caller waits for them, and returns the decision. It never waits.
func (l *Limiter) Take(n int64) Decision { return l.TryAcquire(n).decision }

// TryAcquire is Take with a [Lease], as [Acquirer] has it. Releasing it does nothing: permits come back with time.
func (l *Limiter) TryAcquire(n int64) (lease Lease) {
	if l.fast.try(&lease, n, false, true) || l.window.try(&lease, n, false, true) {
		return lease
	}
	return l.gate.TryAcquire(n)
}

// TryReserve takes n permits if they are available and no caller waits for them, for a cost that is known later: the lease must
// end in Commit with what it really cost, or in Cancel. It never waits.
func (l *Limiter) TryReserve(n int64) (lease Lease) {
	if l.fast.try(&lease, n, true, true) || l.window.try(&lease, n, true, true) {
		return lease
	}
	return l.gate.TryReserve(n)
}

// Wait takes n permits, and waits for them in the queue of the limiter if they are not available. The error is nil if and only if
// they were taken: see [Acquirer].
func (l *Limiter) Wait(ctx context.Context, n int64) error {
	if n == 1 && l.fast.word.Load() == lent && !over(ctx) && l.fast.takeLent(tally.Cell()) {
		return nil
	}
	return waited(l.Acquire(ctx, n))
}

// Acquire is Wait with a [Lease], as [Acquirer] has it. Releasing it does nothing: permits come back with time.
func (l *Limiter) Acquire(ctx context.Context, n int64) (lease Lease, err error) {
	if over(ctx) {
		err = l.acquire(ctx, n, false, &lease)
		return lease, err
	}
	if l.fast.try(&lease, n, false, false) || l.window.try(&lease, n, false, false) {
		return lease, nil
	}
	err = l.acquireBegun(ctx, n, false, &lease)
	return lease, err
}

// Reserve is Wait for a cost that is known later: the lease must end in Commit with what it really cost, or in Cancel.
func (l *Limiter) Reserve(ctx context.Context, n int64) (lease Lease, err error) {
	if over(ctx) {
		err = l.acquire(ctx, n, true, &lease)
		return lease, err
	}
	if l.fast.try(&lease, n, true, false) || l.window.try(&lease, n, true, false) {
		return lease, nil
	}
	err = l.acquireBegun(ctx, n, true, &lease)
	return lease, err
}

// Peek returns what Take would, and takes nothing. Remaining is what remains now.
func (l *Limiter) Peek(n int64) Decision { return l.gate.Peek(n) }

// Refund gives back n permits whatever their origin, at most until all are available, and serves callers that wait for them. It
// is for operators: to undo a request, reserve and Cancel, which cannot give back too much. An n below 1 is ignored.
func (l *Limiter) Refund(n int64) { l.refund(n) }

// Stats returns counts that were true at one moment.
func (l *Limiter) Stats() Stats { return l.gate.Stats() }

// Close refuses all callers that wait and all that come later, with ReasonClosed. Leases may still be settled. Closing twice is
// harmless. The error is always nil.
func (l *Limiter) Close() error { return l.gate.Close() }
