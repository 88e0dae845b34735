package weir

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/inside"
	"github.com/weirhq/weir/internal/queue"
	"github.com/weirhq/weir/internal/tally"
)

// Concurrency is a limit of permits at a time, made by [NewConcurrency]. They come back when their leases are released, so every
// lease that was allowed must be released, once; what is released twice counts once. See [Limiter] for n.
//
// A weighted semaphore would hand out too much if released too often, and lets a large request wait for ever behind
// small ones if it does not keep order. Here each lease gives back what it took, and the queue is strict: no caller
// overtakes.
//
// While no caller waits, the permits are one word that calls exchange by compare-and-swap (TestWordEqualsLock). While permits
// come back all the time, Stats.Idle may begin up to a millisecond late.
type Concurrency struct{ pool }

var _ Acquirer = (*Concurrency)(nil)

// NewConcurrency returns a limiter with all n permits free, from 1 to 10^15, or an *[OptionError] that names what cannot be used.
// See [Concurrency.SetLimit].
func NewConcurrency(n int64, o Options) (*Concurrency, error) {
	if o.MaxDebt != 0 {
		return nil, noDebtAtOnce("Options.MaxDebt", o.MaxDebt)
	}
	c := new(Concurrency)
	if err := c.setUp(gateOptions{"Options", o.Name, n, o.QueueLimit, o.NewestFirst, NoDebt, o.Clock}); err != nil {
		return nil, err
	}
	return c, nil
}

// noDebtAtOnce is the error of a debt where permits are released.
func noDebtAtOnce(option string, debt int64) error {
	return &OptionError{option, strconv.FormatInt(debt, 10), "0, as permits come back when they are released"}
}

// Limit is the limit now.
func (c *Concurrency) Limit() Limit { return AtOnce(c.limit.Load()) }

// SetLimit changes how many permits can be out at a time to n: from 1 to 10^15, anything else is an *OptionError and
// changes nothing. It takes effect before it returns (TestContentionSetLimitIsNeverExceeded):
//
//   - Raised, it serves callers that wait and now fit, in order.
//   - Lowered, it revokes nothing. While more than n permits are out no caller gets any; Stats.Remaining is 0 then.
//   - Callers that wait for more than n permits are refused with ReasonNever, or they would stop all callers behind them.
func (c *Concurrency) SetLimit(n int64) error {
	a, err := algo.NewConcurrency(n)
	if err != nil {
		return &OptionError{"Concurrency.SetLimit", fmt.Sprint(n), "from 1 to 10^15 permits"}
	}
	c.setLimit(a)
	return nil
}

// pool is a gate whose permits come back when they are released.
type pool struct {
	gate

	fast free
}

// poolLaw knows since when no permit is out, which the algorithm does not know.
type poolLaw struct {
	algo.Law

	pool *pool
}

// FreshAt implements [algo.Law].
func (l *poolLaw) FreshAt([]uint64) int64 { return l.pool.fast.idleSince.Load() }

func (p *pool) setUp(o gateOptions) error {
	a, err := algo.NewConcurrency(o.limit)
	if err != nil {
		return &OptionError{"Concurrency limit", strconv.FormatInt(o.limit, 10), "from 1 to 10^15 permits"}
	}
	p.returned = true
	if err := p.gate.setUp(o); err != nil {
		return err
	}
	p.meter.apply(&poolLaw{a.Law(), p})
	p.owner, p.fast.owner = p, p
	p.fast.idleSince.Store(p.born)
	p.word = &p.fast
	p.fast.lower()
	return nil
}

// free is the state of a pool in one word:
//
//	bits 63..9  the permits that are free; below zero, how many more are out than the limit, which was lowered
//	bit      8  permits have come back since watch looked
//	bit      7  watched: it looks from time to time, and releases need not read the clock
//	bits  6..1  how many requests were allowed: see countedWord
//	bit      0  raised: the state is in the meter, under the lock
//
// That the word holds what is free, and not what is out, makes the limit a part of it: a call that exchanges it needs no limit,
// so a limit that changes meanwhile cannot be exceeded.
type free struct {
	countedWord

	refused   tally.Tally
	idleSince atomic.Int64
	often     atomic.Int64 // how often in a row all permits have come back soon after they had
	owner     *pool
	timer     *time.Timer // of watch, while that goes on; under the lock, like
	cameBack  bool        // bit 8 of words that were raised since watch looked
}

const (
	freeWatched  = 1 << 7
	freeCameBack = 1 << 8
	freeShift    = 9
)

// release gives n permits back; not ok if it needs the lock.
func (f *free) release(n int64) (ok bool) {
	for {
		old := f.word.Load()
		next := old + uint64(n)<<freeShift
		switch {
		case old == held:
			runtime.Gosched()
		case old&raised != 0:
			return false
		case old&freeWatched == 0:
			if f.releaseTimed(old, next) {
				return true
			}
		case f.word.CompareAndSwap(old, next|freeCameBack):
			return true
		}
	}
}

// releaseTimed exchanges the word for one that may have all permits, and notes the time if so.
func (f *free) releaseTimed(old, next uint64) (ok bool) {
	limit, often := f.owner.limit.Load(), false
	if int64(next)>>freeShift == limit {
		often = f.touch() < oftenIdle // before the permits are back: Stats must not see an old time
	}
	if !f.word.CompareAndSwap(old, next) {
		return false
	}
	if f.owner.limit.Load() != limit { // the permits may have been the last that were out
		f.touch()
	}
	switch {
	case !often:
		f.often.Store(0)
	case f.often.Add(1) == watchedAfter:
		f.owner.watch()
	}
	return true
}

// touch moves idleSince forward to now, and returns by how much.
func (f *free) touch() (by time.Duration) {
	now := f.owner.now()
	for {
		old := f.idleSince.Load()
		if old >= now || f.idleSince.CompareAndSwap(old, now) {
			return time.Duration(now - old)
		}
	}
}

// A pool is watched if all permits have come back watchedAfter times in a row with less than oftenIdle between one time and
// the next. Reading the clock would take as long as all the rest. So idleSince may be late by watchPeriod. It is early by no
// more than the release took that has noted it.
const (
	watchedAfter = 64
	oftenIdle    = 10 * time.Microsecond
	watchPeriod  = time.Millisecond
)

// watch begins to look from time to time whether permits have come back.
func (p *pool) watch() {
	p.lock()
	defer p.unlock()
	if p.fast.timer == nil && p.clock == nil {
		p.fast.timer = time.AfterFunc(watchPeriod, p.look)
	}
}

// look goes on with watch while permits come back. They have come back now at the latest, as raise says.
func (p *pool) look() {
	p.lock()
	defer p.unlock()
	f := &p.fast
	if f.cameBack {
		f.cameBack = false
		f.timer.Reset(watchPeriod)
	} else {
		f.timer = nil
		f.often.Store(0)
	}
}

func (f *free) raise() {
	old, ok := f.seize()
	if !ok {
		return
	}
	f.owner.meter.state[0] = uint64(f.owner.limit.Load() - int64(old)>>freeShift)
	if old&freeCameBack != 0 {
		f.cameBack = true
		f.touch()
	}
}

func (f *free) lower() {
	next := uint64(f.owner.limit.Load()-int64(f.owner.meter.state[0])) << freeShift
	if f.timer != nil {
		next |= freeWatched
	}
	f.word.Store(next)
}

func (f *free) counts() (allowed, refused int64) { return f.sum(), f.refused.Sum() }

// ask implements sharer.
func (f *free) ask(d *Decision, _, n int64) (old, next uint64, v verdict) {
	limit := f.owner.limit.Load()
	old = f.load()
	if old&raised != 0 || n > limit {
		return old, 0, locked
	}
	left := int64(old) >> freeShift
	d.Limit, d.Policy = limit, f.owner.policy
	if left < n {
		d.Reason, d.Remaining = ReasonLimited, min(max(left, 0), limit)
		return old, 0, short
	}
	d.Allowed, d.Remaining = true, min(left, limit)-n // the limit may have changed meanwhile
	return old, old - uint64(n)<<freeShift + oneGrant, taken
}

// mark implements sharer.
func (*free) mark(uint64, int64) algo.Mark { return algo.Mark{} }

// count implements sharer. The word counts what is allowed.
func (f *free) count(allowed bool) {
	if !allowed {
		f.refused.Add()
	}
}

// try decides on n permits without the lock; not ok if it needs the lock, or if it would refuse and must not.
func (p *pool) try(l *Lease, n int64, refuse bool) (ok bool) {
	if n <= 0 {
		return false
	}
	for l.permits = n; ; l.decision = (Decision{}) {
		old, next, v := p.fast.ask(&l.decision, 0, n)
		switch {
		case v == taken:
			l.bind(p.owner, n)
			if !p.fast.word.CompareAndSwap(old, next) {
				continue
			}
			if p.observer != nil {
				p.observer.leased(l.claim, l.decision)
			}
			return true
		case old == held:
			runtime.Gosched()
		default:
			l.unbind()
			if v == locked || !refuse {
				return false
			}
			p.fast.refused.Add()
			return true
		}
	}
}

// TryAcquire implements [Acquirer].
func (p *pool) TryAcquire(n int64) (l Lease) {
	if p.try(&l, n, true) {
		return l
	}
	return p.gate.TryAcquire(n)
}

// TryReserve is TryAcquire: permits are released when the lease ends, whatever it cost.
func (p *pool) TryReserve(n int64) Lease { return p.TryAcquire(n) }

// Acquire implements [Acquirer].
func (p *pool) Acquire(ctx context.Context, n int64) (l Lease, err error) {
	if over(ctx) {
		err = p.acquire(ctx, n, false, &l)
		return l, err
	}
	if p.try(&l, n, false) {
		return l, nil
	}
	err = p.acquireBegun(ctx, n, false, &l)
	return l, err
}

// Reserve is Acquire: permits are released when the lease ends, whatever it cost.
func (p *pool) Reserve(ctx context.Context, n int64) (Lease, error) { return p.Acquire(ctx, n) }

// Do calls f while it holds n permits, which come back when f returns or panics. It waits for them as Acquire does. The error is
// that of f, or, if the permits were not taken and f not called, that of Acquire. A nil f panics.
func (p *pool) Do(ctx context.Context, n int64, f func() error) error {
	mustDo(f)
	l, err := p.Acquire(ctx, n)
	return l.during(err, f)
}

// settle implements settler.
func (p *pool) settle(cl *claim, how settlement, actual int64) {
	if !p.fast.release(cl.permits) {
		p.fast.touch()
		p.gate.settle(cl, how, actual)
	}
}

// setLimit makes a the algorithm, and refuses callers that wait for more than it ever grants.
func (p *pool) setLimit(a algo.Concurrency) {
	p.lock()
	defer p.unlock()
	p.meter.law = &poolLaw{a.Law(), p}
	p.limit.Store(a.Limit())
	now := p.now()
	var older *queue.Waiter[caller]
	for w := p.queue.Newest(); w != nil; w = older {
		older = w.Older()
		switch {
		case w.Permits <= a.Limit():
		case w.Value.ctx.Err() != nil:
			p.answer(w, algo.Result{}, ReasonCanceled)
		default:
			p.answer(w, p.meter.peek(now, w.Permits), ReasonNever)
		}
	}
	p.meter.replan()
	if !p.closed {
		p.serve(now)
	}
}

// observed ends the leases of a pool of which an observer learns.
type observed struct {
	pool *pool
	by   inside.Observer
}

// leased implements leaseObserver.
func (o *observed) leased(c *claim, d Decision) {
	c.since = o.pool.now()
	o.by.Leased(d.Limit - d.Remaining)
}

// settle implements settler.
func (o *observed) settle(c *claim, how settlement, actual int64) {
	since, now := c.since, o.pool.now()
	o.pool.settle(c, how, actual)
	if how != cancel && how != ignore {
		o.by.Ended(since, now, how == drop)
	}
}

func observe(c *Concurrency, by inside.Observer) (now int64) {
	o := &observed{&c.pool, by}
	c.owner, c.observer = o, o
	return c.born
}
