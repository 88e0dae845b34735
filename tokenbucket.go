package weir

import (
	"context"
	"errors"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/clock"
)

// TokenBucketOptions configure a [TokenBucket].
type TokenBucketOptions struct {
	// Name is the Policy of the decisions. Default: "".
	Name string
	// Rate is how fast permits come back: at most 10^9 a second, at least 1 in 3660 days. Required.
	Rate Rate
	// Burst is how many permits the bucket holds, and so how many can be taken at once: from 1 to 10^15, such that an
	// empty bucket is full again within 18300 days. Default: the permits of Rate.
	Burst int64
	// QueueLimit bounds the sum of the permits that callers of Acquire wait for: from 0 to 10^15. Default: 0, nobody
	// waits.
	QueueLimit int64
	// QueueOrder is who is served first. Default: OldestFirst.
	QueueOrder Order
	// MaxDebt is how many permits commits may charge beyond those available: from 1 to 10^15, or NoDebt. Default:
	// Burst.
	MaxDebt int64
	// Clock replaces the monotonic clock of the process. With it every call takes a lock, and deadlines of
	// contexts, which are in real time, are not compared with the wait. Default: nil.
	Clock Clock
}

// TokenBucket holds up to Burst permits and regains them evenly at Rate.
//
// It is exact: over any interval t it admits at most burst + rate x t permits (plus MaxDebt if commits are used),
// however many goroutines ask at once, and callers that keep asking get all of them (TestContention: 64 goroutines at 1
// M/s). A permit comes back after exactly 1/rate, fractions of a nanosecond included. Only a bucket that
// holds a single permit loses the rest of the nanosecond in which it comes.
//
// While nobody waits, the bucket is one word that calls exchange by compare-and-swap: a granted Allow costs a reading
// of the clock and one such exchange, a refused one writes only a counter, neither allocates. While somebody waits, and
// for everything but Allow, TryAcquire, TryReserve and Acquire, calls take a lock.
//
// Those who wait are served in strict order, each as of the moment at which its permits became available. If the timer
// that wakes them is late, by up to 10 ms, nothing is lost: those whose turn has come meanwhile are woken together, so
// that within an interval t callers that wait may see burst + rate x (t + 10 ms) permits. What a longer stall holds up
// is lost (TestLateTimer).
//
// The price of the single word is that it holds time only up to a bound. Once every 2^54/num nanoseconds, where num is
// the permits of the rate per nanosecond in lowest terms, one call takes the lock to move the bound (num is 1 for 10/s:
// every 208 days; 999999937 for 999999937/s: every 18 ms, 0.0003 % of its calls). A bucket whose burst times the
// period in lowest terms exceeds 2^55 does not fit in a word, and always takes the lock
// (TestWordEqualsArithmetic).
type TokenBucket struct {
	gate

	bucket metered[algo.TokenBucketState, algo.TokenBucket]
	fast   arrival
}

var _ Limiter = (*TokenBucket)(nil)

// NewTokenBucket returns a full bucket, or an error that names the option that cannot be used.
func NewTokenBucket(o TokenBucketOptions) (*TokenBucket, error) {
	const of = "TokenBucketOptions"
	if err := o.Rate.option(of + ".Rate"); err != nil {
		return nil, err
	}
	if o.Burst == 0 {
		o.Burst = o.Rate.Permits
	}
	a, err := algo.NewTokenBucket(o.Rate.Permits, o.Rate.Period, o.Burst)
	if err != nil {
		return nil, optionError(of, err)
	}
	b := new(TokenBucket)
	b.bucket.algorithm = a
	err = b.init(&b.bucket, gateOptions{of, o.Name, o.Burst, o.QueueLimit, o.QueueOrder, o.MaxDebt, o.Clock})
	if err != nil {
		return nil, err
	}
	if b.fast.init(b, b.born) {
		b.word = &b.fast
		b.fast.lower()
	}
	return b, nil
}

// optionError turns the error of a constructor of algo into one that names the option.
func optionError(of string, err error) error {
	var p *algo.ParameterError
	if !errors.As(err, &p) {
		return err
	}
	names := map[string]string{
		"permits": "Rate", "period": "Rate", "burst": "Burst",
		"limit": "Limit", "window": "Window", "segments": "Segments",
	}
	return &OptionError{of + "." + names[p.Parameter], p.Value, p.Accepted}
}

// Allow takes one permit if it is available and nobody waits for it. It is TryAcquire(1) where the decision does not
// matter.
func (b *TokenBucket) Allow() bool {
	// This is take(one), written out: the call would cost a twentieth of the whole.
	a := &b.fast
	before, epoch := a.word.Load(), a.epoch.Load()
	now := clock.Now()
	start, at := uint64(epoch)*a.scale, uint64(now-epoch)*a.scale
	old := a.word.Load()
	full := max(old&^lowBits-start, at)
	if old&raised != 0 || uint64(now-epoch) >= a.horizon || a.epoch.Load() != epoch {
		return b.gate.TryAcquire(1).decision.Allowed
	}
	if int64(full-at) <= a.room {
		next := start + full + uint64(a.one) | (old+oneGrant)&grantBits
		if next&grantBits > 0 && a.word.CompareAndSwap(old, next) || next&grantBits == 0 && a.fold(old, next) {
			return true
		}
	} else if old == before {
		a.refused.Add()
		return false
	}
	return b.allowContended(now)
}

func (b *TokenBucket) allowContended(now int64) bool {
	switch _, _, _, v := b.fast.takeContended(b.fast.one, now); v {
	case taken:
		return true
	case short:
		b.fast.refused.Add()
		return false
	default:
		return b.gate.TryAcquire(1).decision.Allowed
	}
}

// TryAcquire implements [Limiter].
func (b *TokenBucket) TryAcquire(n int64) (l Lease) {
	if b.fast.try(&l, n, false) {
		return l
	}
	return b.gate.TryAcquire(n)
}

// TryReserve implements [Limiter].
func (b *TokenBucket) TryReserve(n int64) (l Lease) {
	if b.fast.try(&l, n, true) {
		return l
	}
	return b.gate.TryReserve(n)
}

// Acquire implements [Limiter].
func (b *TokenBucket) Acquire(ctx context.Context, n int64) (l Lease, err error) {
	if over(ctx) {
		return b.gate.Acquire(ctx, n)
	}
	if b.fast.tryFirst(&l, n, false) {
		return l, nil
	}
	return b.acquireBegun(ctx, n, false)
}

// Reserve implements [Limiter].
func (b *TokenBucket) Reserve(ctx context.Context, n int64) (l Lease, err error) {
	if over(ctx) {
		return b.gate.Reserve(ctx, n)
	}
	if b.fast.tryFirst(&l, n, true) {
		return l, nil
	}
	return b.acquireBegun(ctx, n, true)
}

// Wait takes n permits, and waits for them in the queue of the limiter. The error is nil if they were granted, and otherwise
// that of [Limiter].Acquire.
func (b *TokenBucket) Wait(ctx context.Context, n int64) error { return waited(b.Acquire(ctx, n)) }

// Refund gives back n permits whatever their origin, at most until the limiter is full, and serves those who wait for
// them. It is for operators: to undo a request, reserve and Cancel, which cannot give back too much. An n below 1 is
// ignored.
func (b *TokenBucket) Refund(n int64) { b.refund(n) }
