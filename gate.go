package weir

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/inwords"
	"github.com/weirhq/weir/internal/queue"
)

// gate is what all limiters of this package share: a lock, a queue and its timer around an algorithm and its state.
type gate struct {
	mu       sync.Mutex
	id       uint64 // gates are locked in this order
	meter    meter  // what it limits by is set by the limiter that makes it
	word     word   // nil: every call takes the lock
	clock    *clock.Steady
	policy   string
	owner    settler       // of the leases
	observer leaseObserver // nil: no one is told

	limit      atomic.Int64 // changes only under the lock, and only that of a pool
	queueLimit int64
	maxDebt    int64
	born       int64
	touched    int64 // when permits came or went in another way than by time and take
	returned   bool  // permits come back on release, not with time

	queue   queue.Queue[caller]
	closed  bool
	at      int64 // when the step of a chain that holds the lock takes place
	refuses bool  // whether it is refused here
	due     int64 // what the timer is set to, math.MaxInt64 if no caller waits for time to pass
	changed int64 // when the state was last changed
	armed   bool
	timer   *time.Timer
	stop    func() bool // the timer of a clock that was given

	allowed, refused, forgiven int64

	keeper keeper // of a key: what knows where it belongs
	terms  *terms // the limit that the meter applies
}

// keeper knows where the state of a key belongs.
type keeper interface {
	// counted counts a decision with those on other keys.
	counted(allowed bool)
	// takenUnder is what permits that are taken now are taken under.
	takenUnder() under
}

// leaseObserver is told of every claim before its caller has it.
type leaseObserver interface {
	leased(c *claim, d Decision)
}

var gates atomic.Uint64

type gateOptions struct {
	of         string
	policy     string
	limit      int64
	queueLimit int64
	newest     bool // is served first
	maxDebt    int64
	clock      Clock
}

func (g *gate) setUp(o gateOptions) error {
	if o.queueLimit < 0 || o.queueLimit > algo.MaxPermits {
		return &OptionError{o.of + ".QueueLimit", fmt.Sprint(o.queueLimit), "from 0 to 10^15 permits"}
	}
	debt, err := maxDebt(o.of, o.maxDebt, o.limit)
	if err != nil {
		return err
	}
	g.id = gates.Add(1)
	g.owner = g
	g.policy, g.queueLimit, g.clock = o.policy, o.queueLimit, steady(o.clock)
	g.limit.Store(o.limit)
	g.queue.NewestFirst = o.newest
	g.maxDebt = debt
	g.born = g.now()
	g.touched = g.born
	g.due = math.MaxInt64
	return nil
}

func (g *gate) now() int64 { return g.clock.Now() }

// made panics if g is that of a zero limiter, before the lock is taken: a caller that recovers must not leave it locked.
func (g *gate) made() {
	if g.owner == nil {
		panic("weir: zero limiter: make it by its constructor")
	}
}

func (g *gate) lock() {
	g.made()
	g.mu.Lock()
	if g.word != nil {
		g.word.raise()
	}
}

// enter locks, and returns the time.
func (g *gate) enter() (now int64) {
	g.lock()
	return g.catchUp()
}

// catchUp serves those whose permits have come by now, and returns the time. If the timer is late, no caller may change the
// state from which they are owed before.
func (g *gate) catchUp() (now int64) {
	if now = g.now(); g.due > now {
		return now
	}
	g.serve(now)
	return g.now() // which is not before the time of the last grant
}

func (g *gate) unlock() {
	if g.word != nil && g.queue.Len() == 0 && !g.closed {
		g.word.lower()
	}
	g.mu.Unlock()
}

// TryAcquire implements [Acquirer].
func (g *gate) TryAcquire(n int64) Lease { return g.try(n, false) }

// TryReserve implements [Acquirer].
func (g *gate) TryReserve(n int64) Lease { return g.try(n, true) }

func (g *gate) try(n int64, reserve bool) Lease {
	if n < 0 {
		return g.invalid(n)
	}
	now := g.enter()
	defer g.unlock()
	r, reason := g.take(now, n)
	g.count(n, reason == ReasonNone)
	return g.lease(n, g.decision(r, reason), r.Mark, reserve, g.takenUnder())
}

// allowEntered is try(1) where only the answer matters, at time now, under the lock, which it unlocks.
func (g *gate) allowEntered(now int64) bool {
	allowed := false
	if !g.closed && !g.overtakes() {
		g.changed = now
		allowed = g.meter.grant(now)
	}
	g.count(1, allowed)
	g.unlock()
	return allowed
}

// take decides on a call that does not wait.
func (g *gate) take(now, n int64) (algo.Result, Reason) {
	switch {
	case g.closed:
		return g.meter.peek(now, n), ReasonClosed
	case n > 0 && n <= g.limit.Load() && g.overtakes():
		r := g.meter.peek(now, n)
		r.RetryAfter = g.meter.wait(now, &g.queue, n)
		return r, ReasonLimited
	}
	r := g.meter.take(now, n)
	g.changed = now
	return r, reasonOf(r)
}

// peek is take without the taking.
func (g *gate) peek(now, n int64) (algo.Result, Reason) {
	r := g.meter.peek(now, n)
	switch {
	case g.closed:
		return r, ReasonClosed
	case n > 0 && n <= g.limit.Load() && g.overtakes():
		r.RetryAfter = g.meter.wait(now, &g.queue, n)
		return r, ReasonLimited
	}
	return r, reasonOf(r)
}

// overtakes reports whether granting a newcomer would overtake a caller that waits.
func (g *gate) overtakes() bool { return g.queue.Len() > 0 && !g.queue.NewestFirst }

func reasonOf(r algo.Result) Reason {
	switch {
	case r.Allowed:
		return ReasonNone
	case r.RetryAfter == Never:
		return ReasonNever
	default:
		return ReasonLimited
	}
}

func (g *gate) count(n int64, allowed bool) {
	switch {
	case n == 0:
	case g.keeper != nil:
		g.keeper.counted(allowed)
	case allowed:
		g.allowed++
	default:
		g.refused++
	}
}

func (g *gate) decision(r algo.Result, reason Reason) Decision {
	d := Decision{
		Allowed:    reason == ReasonNone,
		Reason:     reason,
		Limit:      g.limit.Load(),
		Remaining:  r.Remaining,
		RetryAfter: r.RetryAfter,
		ResetAfter: r.ResetAfter,
		Policy:     g.policy,
	}
	if reason == ReasonClosed {
		d.RetryAfter = Never
	}
	return d
}

func (g *gate) lease(n int64, d Decision, m algo.Mark, reserve bool, u under) Lease {
	l := Lease{decision: d, permits: n}
	g.bind(&l, &m, reserve, &u)
	return l
}

// bind gives l the claim on its permits if they may come back, or cost more than was reserved, which can be nothing.
func (g *gate) bind(l *Lease, m *algo.Mark, reserve bool, u *under) {
	if l.decision.Allowed && (reserve && !g.returned || g.returned && l.permits > 0) {
		c := l.bind(g.owner, l.permits)
		c.mark, c.under = *m, *u
		if g.observer != nil {
			g.observer.leased(l.claim, l.decision)
		}
	}
}

func (g *gate) invalid(n int64) Lease {
	return Lease{
		decision: Decision{Reason: ReasonInvalid, Limit: g.limit.Load(), RetryAfter: Never, Policy: g.policy},
		permits:  n,
	}
}

// Acquire implements [Acquirer].
func (g *gate) Acquire(ctx context.Context, n int64) (l Lease, err error) {
	err = g.acquire(ctx, n, false, &l)
	return l, err
}

// Reserve implements [Acquirer].
func (g *gate) Reserve(ctx context.Context, n int64) (l Lease, err error) {
	err = g.acquire(ctx, n, true, &l)
	return l, err
}

// canceled is what a call gets whose context has ended.
func (g *gate) canceled(ctx context.Context, n int64, l *Lease) error {
	*l = Lease{decision: Decision{Reason: ReasonCanceled, Limit: g.limit.Load(), Policy: g.policy}, permits: n}
	return ended(ctx, n)
}

// ended is the error of a call whose context has ended: it wraps the error of the context and its cause.
func ended(ctx context.Context, n int64) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return &endedError{n, cause}
	}
	return fmt.Errorf("weir: acquire %s: %w: %w", inwords.Permits(n), err, cause)
}

// endedError is an error that is formatted when it is read: many callers may give up at once.
type endedError struct {
	permits int64
	cause   error
}

func (e *endedError) Error() string {
	return fmt.Sprintf("weir: acquire %s: %v", inwords.Permits(e.permits), e.cause)
}

func (e *endedError) Unwrap() error { return e.cause }

func (g *gate) acquire(ctx context.Context, n int64, reserve bool, l *Lease) error {
	if over(ctx) && n >= 0 {
		return g.canceled(ctx, n, l)
	}
	return g.acquireBegun(ctx, n, reserve, l)
}

// acquireBegun is acquire for a call whose ctx had not ended when it began: what is there is tried for before the time counts.
func (g *gate) acquireBegun(ctx context.Context, n int64, reserve bool, l *Lease) error {
	return g.acquireEntered(ctx, g.enter(), n, reserve, l)
}

// acquireEntered is acquire at time now, under the lock, which it unlocks.
//
// A goroutine begins with a small stack, and growing it costs more than to join the queue. So what is large lies in functions
// that have returned before the caller waits.
func (g *gate) acquireEntered(ctx context.Context, now, n int64, reserve bool, l *Lease) error {
	w, err := g.join(ctx, now, n, reserve, l)
	if w == nil {
		return err
	}
	for {
		select {
		case <-w.Value.answer:
			return g.answered(w, reserve, l)
		case <-w.Value.tick:
			g.wake()
		case <-ctx.Done():
			if g.withdraw(w) {
				return g.canceled(ctx, n, l)
			}
			<-w.Value.answer
			return g.answered(w, reserve, l)
		}
	}
}

// join puts a caller into the queue, or, if there is nothing to wait for, returns nil and what acquire does.
func (g *gate) join(ctx context.Context, now, n int64, reserve bool, l *Lease) (*queue.Waiter[caller], error) {
	defer g.unlock()
	if !g.follows(ctx, n) {
		if waits, err := g.decide(ctx, now, n, reserve, l); !waits {
			return nil, err
		}
	}
	if g.queue.Len() == 0 {
		g.meter.replan()
	}
	// Not recycled: a channel made in a bubble of testing/synctest must not be used in another.
	w := &queue.Waiter[caller]{Permits: n, Value: caller{ctx: ctx, answer: make(chan struct{}, 1)}}
	g.queue.Push(w)
	if g.queue.Front() == w {
		g.serve(now)
	}
	if g.timer != nil {
		w.Value.tick = g.timer.C
	}
	return w, nil
}

// follows reports whether a caller must wait because others do, and may, whatever the limit would say to it.
func (g *gate) follows(ctx context.Context, n int64) bool {
	if !g.overtakes() || n <= 0 || n > min(g.limit.Load(), g.queueLimit-g.queue.Permits()) {
		return false
	}
	_, ends := ctx.Deadline()
	return !ends || g.clock != nil
}

// decide is what acquire does at time now if there is nothing to wait for. Otherwise the caller waits.
func (g *gate) decide(ctx context.Context, now, n int64, reserve bool, l *Lease) (waits bool, err error) {
	if n < 0 {
		*l = g.invalid(n)
		return false, l.Err()
	}
	r, reason := g.take(now, n)
	if reason == ReasonLimited {
		if reason = g.admit(ctx, now, n, r); reason == ReasonLimited {
			return true, nil
		}
	}
	g.count(n, reason == ReasonNone)
	*l = g.lease(n, g.decision(r, reason), r.Mark, reserve, g.takenUnder())
	return false, refusal(l.decision, n, noQueue(reason, g.queueLimit))
}

// answered is what acquire does once w has its answer.
func (g *gate) answered(w *queue.Waiter[caller], reserve bool, l *Lease) error {
	if w.Value.decision.Reason == ReasonCanceled {
		return g.canceled(w.Value.ctx, w.Permits, l)
	}
	*l = Lease{decision: w.Value.decision, permits: w.Permits}
	g.bind(l, &w.Value.mark, reserve, &w.Value.under)
	return l.Err()
}

// admit reports whether a call may wait: ReasonLimited if it may, otherwise why not. It makes room in a newest-first queue.
func (g *gate) admit(ctx context.Context, now, n int64, r algo.Result) Reason {
	if n > g.queueLimit || !g.queue.NewestFirst && n > g.queueLimit-g.queue.Permits() {
		return ReasonQueueFull
	}
	if until, ok := ctx.Deadline(); ok && g.clock == nil {
		wait := r.RetryAfter
		if n == 0 && g.overtakes() { // a probe ignores the queue until it stands in it
			wait = g.meter.wait(now, &g.queue, 0)
		}
		if wait > time.Until(until) {
			return ReasonDeadline
		}
	}
	for n > g.queueLimit-g.queue.Permits() {
		w := g.queue.Oldest()
		g.answer(w, g.meter.peek(now, w.Permits), ReasonEvicted)
	}
	return ReasonLimited
}

// withdraw takes w out of the queue, if it is still there, and serves callers that now fit.
func (g *gate) withdraw(w *queue.Waiter[caller]) bool {
	g.lock()
	defer g.unlock()
	now := g.now()
	if w.Queued() && g.due <= now {
		g.serve(now) // the timer is late: it may be w's turn since a time at which it was not too late
	}
	if !w.Queued() {
		return false
	}
	first := g.queue.Front() == w
	g.queue.Remove(w)
	g.meter.replan()
	if first {
		g.serve(now)
	}
	return true
}

// tooLate reports whether a caller cannot be allowed anything as of the time at: its context has ended, and not just by a
// deadline after that time.
func (g *gate) tooLate(ctx context.Context, now, at int64) bool {
	err := ctx.Err()
	if err == nil || g.clock != nil || at >= now || !errors.Is(err, context.DeadlineExceeded) {
		return err != nil
	}
	until, ok := ctx.Deadline()
	return !ok || now+int64(time.Until(until)) < at
}

// answer ends the waiting of w.
func (g *gate) answer(w *queue.Waiter[caller], r algo.Result, reason Reason) {
	g.queue.Remove(w)
	if reason != ReasonCanceled {
		g.count(w.Permits, reason == ReasonNone)
	}
	w.Value.decision, w.Value.mark, w.Value.under = g.decision(r, reason), r.Mark, g.takenUnder()
	w.Value.answer <- struct{}{}
}

// maxLate is how late a timer may be without a loss to callers that wait.
const maxLate = int64(10 * time.Millisecond)

// serve grants permits to callers that wait, strictly in order, and sets the timer for the next.
//
// Timers are late, by a millisecond where the operating system waits no finer. A limit that holds few permits would
// lose those that come meanwhile, although a caller waits for them. So each is allowed as of the time at which it
// became available.
func (g *gate) serve(now int64) {
	at := now
	if g.due < now {
		at = min(max(g.due, now-maxLate, g.changed), now) // a clock may have gone back
		if at > g.due {
			g.meter.replan() // what is lost moves all callers back
		}
	}
	for w := g.queue.Front(); w != nil; w = g.queue.Front() {
		if g.tooLate(w.Value.ctx, now, at) {
			g.answer(w, algo.Result{}, ReasonCanceled)
			g.meter.replan()
			continue
		}
		r := g.meter.take(at, w.Permits)
		if r.Allowed {
			g.changed = at
			g.answer(w, r, ReasonNone)
			continue
		}
		if g.returned {
			return
		}
		if at = clock.After(at, r.RetryAfter); at > now {
			g.arm(now, at)
			if g.clock == nil || g.clock.Now() < at {
				return
			}
			now = at // a caller moved the clock before the timer was set
		}
	}
	g.disarm()
}

func (g *gate) arm(now, due int64) {
	if g.armed && g.due == due {
		return
	}
	d := time.Duration(due - now)
	if _, corrected := g.meter.law.(*wallLaw); corrected {
		d = min(d, wallCheck) // to look whether due is still right
	}
	g.due = due
	switch {
	case g.clock != nil:
		if g.armed {
			g.stop()
		}
		g.stop = g.clock.At(due, g.wake)
	case g.timer == nil:
		g.timer = time.NewTimer(d) // which a caller that waits hears
	default:
		g.timer.Reset(d)
	}
	g.armed = true
}

func (g *gate) disarm() {
	g.halt()
	g.timer = nil // nor must a timer
	g.due = math.MaxInt64
}

func (g *gate) halt() {
	if !g.armed {
		return
	}
	g.armed = false
	if g.clock != nil {
		g.stop()
	} else {
		g.timer.Stop()
	}
}

// wake is called when the time has come, perhaps after the timer has been stopped and set anew: so it is stopped again, or there
// would be two of a clock.
func (g *gate) wake() {
	g.lock()
	defer g.unlock()
	g.halt()
	if !g.closed {
		g.serve(g.now())
	}
}

// settle implements settler.
func (g *gate) settle(c *claim, how settlement, actual int64) {
	if !g.returned && (how < commit || actual == c.permits) {
		return
	}
	now := g.enter()
	defer g.unlock()
	g.settleEntered(now, c, actual)
}

// settleEntered is settle at time now, under the lock.
func (g *gate) settleEntered(now int64, c *claim, actual int64) {
	g.touched, g.changed = now, now
	switch {
	case g.returned || actual < c.permits:
		if g.returned {
			actual = 0
		}
		g.meter.cancel(now, c.permits-actual, c.mark)
		g.meter.replan()
		if !g.closed {
			g.serve(now)
		}
	case actual > c.permits:
		over := actual - c.permits
		g.forgive(over - g.meter.charge(now, over, g.maxDebt))
		g.meter.replan()
	}
}

// forgive counts permits that were not charged, up to the largest int64.
func (g *gate) forgive(n int64) { g.forgiven += min(n, math.MaxInt64-g.forgiven) }

// refund gives back n permits whatever their origin, and serves callers that wait for them.
func (g *gate) refund(n int64) {
	if n <= 0 {
		return
	}
	now := g.enter()
	defer g.unlock()
	g.touched, g.changed = now, now
	g.meter.refund(now, n)
	g.meter.replan()
	if !g.closed {
		g.serve(now)
	}
}

// Peek implements [Acquirer].
func (g *gate) Peek(n int64) Decision {
	if n < 0 {
		return g.invalid(n).decision
	}
	now := g.enter()
	defer g.unlock()
	return g.decision(g.peek(now, n))
}

// Stats implements [Acquirer].
func (g *gate) Stats() Stats {
	g.lock()
	defer g.unlock()
	return g.stats()
}

func (g *gate) stats() Stats {
	now := g.now()
	s := Stats{
		Limit:     g.limit.Load(),
		Remaining: g.meter.peek(now, 0).Remaining,
		Queued:    g.queue.Permits(),
		Waiters:   g.queue.Len(),
		Allowed:   g.allowed,
		Refused:   g.refused,
		Forgiven:  g.forgiven,
		Idle:      g.idle(now),
	}
	if g.word != nil {
		allowed, refused := g.word.counts()
		s.Allowed += allowed
		s.Refused += refused
	}
	return s
}

// inUse is Stats.Idle of a limiter that is in use, or of which it is not known.
const inUse time.Duration = -1

// idle is Stats.Idle.
func (g *gate) idle(now int64) time.Duration {
	if g.queue.Len() > 0 || !g.meter.fresh(now) {
		return inUse
	}
	since := max(g.meter.freshAt(), g.born, g.touched)
	return time.Duration(max(now-since, 0)) // a clock that went back is not yet there
}

// Close refuses all callers that wait and all that come later, with ReasonClosed. Leases may still be settled. Closing twice is
// harmless. The error is always nil.
func (g *gate) Close() error {
	g.lock()
	defer g.unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	now := g.now()
	for w := g.queue.Oldest(); w != nil; w = g.queue.Oldest() {
		g.answer(w, g.meter.peek(now, w.Permits), ReasonClosed)
	}
	g.disarm()
	return nil
}

// word is a state that calls may change without the lock, until it is raised.
type word interface {
	raise() // moves the state into the meter; nothing changes without the lock until lower
	lower() // moves it back, if it fits
	counts() (allowed, refused int64)
}

// cameBack serves callers that wait, when permits have come in another way than by time.
func (g *gate) cameBack(now int64) {
	g.touched, g.changed = now, now
	g.meter.replan()
	if !g.closed {
		g.serve(now)
	}
}

// debit charges n permits at time now, under the lock: callers that wait do so for longer.
func (g *gate) debit(now, n int64) {
	g.touched, g.changed = now, now
	g.forgive(n - g.meter.charge(now, n, g.maxDebt))
	g.meter.replan()
}

// takenUnder is that of the key, if there is one.
func (g *gate) takenUnder() under {
	if g.keeper == nil {
		return under{}
	}
	return g.keeper.takenUnder()
}
