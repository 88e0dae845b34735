package weir

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/algo"
)

// ConcurrencyOptions configure a [Concurrency].
type ConcurrencyOptions struct {
	// Name is the Policy of the decisions. Default: "".
	Name string
	// Limit is how many permits can be out at a time: from 1 to 10^15. Required.
	Limit int64
	// QueueLimit bounds the sum of the permits that callers of Acquire wait for: from 0 to 10^15. Default: 0, nobody
	// waits.
	QueueLimit int64
	// QueueOrder is who is served first. Default: OldestFirst.
	QueueOrder Order
	// Clock replaces the monotonic clock of the process, from which only Idle is taken. Default: nil.
	Clock Clock
}

// Concurrency grants up to Limit permits at a time. They come back when their leases are released, so every lease that
// was granted must be released, once; what is released twice counts once.
//
// A weighted semaphore would hand out too much if released too often, and lets a large request wait for ever behind
// small ones if it does not keep order. Here each lease gives back what it took, and the queue is strict: nobody
// overtakes.
type Concurrency struct {
	gate

	permits metered[algo.ConcurrencyState, algo.Concurrency]
	fast    inUse
}

var _ Limiter = (*Concurrency)(nil)

// NewConcurrency answers a limiter with all permits free, or an error that names the option that cannot be used.
func NewConcurrency(o ConcurrencyOptions) (*Concurrency, error) {
	const of = "ConcurrencyOptions"
	a, err := algo.NewConcurrency(o.Limit)
	if err != nil {
		return nil, optionError(of, err)
	}
	c := new(Concurrency)
	c.returned = true
	c.permits.algorithm = a
	err = c.init(&c.permits, gateOptions{of, o.Name, o.Limit, o.QueueLimit, o.QueueOrder, NoDebt, o.Clock})
	if err != nil {
		return nil, err
	}
	c.owner, c.fast.owner = c, c
	c.fast.idleSince.Store(c.born)
	c.word = &c.fast
	return c, nil
}

// inUse is the state of a Concurrency in one word: the permits that are out, shifted left by one; bit 0 is raised.
type inUse struct {
	_         [64]byte
	word      atomic.Int64
	granted   atomic.Int64
	_         [48]byte
	refused   tally
	idleSince atomic.Int64
	owner     *Concurrency
}

func (u *inUse) take(n int64) (left int64, v verdict) {
	for {
		old := u.word.Load()
		if old&raised != 0 {
			return 0, locked
		}
		left = u.owner.limit - old>>1
		if left < n {
			return left, short
		}
		if u.word.CompareAndSwap(old, old+n<<1) {
			u.granted.Add(1)
			return left - n, taken
		}
	}
}

// release gives n permits back; not ok if it needs the lock.
func (u *inUse) release(n int64) (ok bool) {
	for {
		old := u.word.Load()
		if old&raised != 0 {
			return false
		}
		if old == n<<1 {
			u.touch() // before the permits are back: Idle must not see an old time
		}
		if u.word.CompareAndSwap(old, old-n<<1) {
			return true
		}
	}
}

// touch moves idleSince forward to now.
func (u *inUse) touch() {
	now := u.owner.now()
	for {
		old := u.idleSince.Load()
		if old >= now || u.idleSince.CompareAndSwap(old, now) {
			return
		}
	}
}

func (u *inUse) raise() {
	for {
		old := u.word.Load()
		if old&raised != 0 {
			return
		}
		if u.word.CompareAndSwap(old, old|raised) {
			u.owner.permits.state.InUse = old >> 1
			return
		}
	}
}

func (u *inUse) lower() { u.word.Store(u.owner.permits.state.InUse << 1) }

func (u *inUse) counts() (granted, refused int64) { return u.granted.Load(), u.refused.sum() }

// try decides on n permits without the lock; not ok if it needs the lock.
func (c *Concurrency) try(l *Lease, n int64, refuse bool) (ok bool) {
	if n <= 0 || n > c.limit {
		return false
	}
	left, v := c.fast.take(n)
	if v == locked || v == short && !refuse {
		return false
	}
	l.permits = n
	d := &l.decision
	d.Limit, d.Remaining, d.Policy = c.limit, left, c.policy
	if v == short {
		d.Reason = ReasonLimited
		c.fast.refused.add()
		return true
	}
	d.Allowed = true
	l.claim, l.generation = newClaim(c, n, algo.Mark{})
	return true
}

// TryAcquire implements [Limiter].
func (c *Concurrency) TryAcquire(n int64) (l Lease) {
	if c.try(&l, n, true) {
		return l
	}
	return c.gate.TryAcquire(n)
}

// TryReserve is TryAcquire: permits are released when the lease ends, whatever it cost.
func (c *Concurrency) TryReserve(n int64) Lease { return c.TryAcquire(n) }

// Acquire implements [Limiter].
func (c *Concurrency) Acquire(ctx context.Context, n int64) (l Lease, err error) {
	if ctx.Err() == nil && c.try(&l, n, false) {
		return l, nil
	}
	return c.gate.Acquire(ctx, n)
}

// Reserve is Acquire: permits are released when the lease ends, whatever it cost.
func (c *Concurrency) Reserve(ctx context.Context, n int64) (Lease, error) { return c.Acquire(ctx, n) }

// settle implements settler.
func (c *Concurrency) settle(cl *claim, how settlement, actual int64) {
	if !c.fast.release(cl.permits) {
		c.fast.touch()
		c.gate.settle(cl, how, actual)
	}
}

// Idle implements [Limiter].
func (c *Concurrency) Idle() (time.Duration, bool) {
	c.lock()
	defer c.unlock()
	if c.permits.state.InUse > 0 || c.queue.Len() > 0 {
		return 0, false
	}
	return time.Duration(max(c.now()-c.fast.idleSince.Load(), 0)), true
}
