package weir

import (
	"slices"
	"time"

	"github.com/weirhq/weir/algo"
)

// Quota is what the limiter promises over a longer time: Burst permits, and the time in which an empty bucket regains
// them, rounded up to a nanosecond. Over one such window up to twice the burst is admitted, of which one half was saved
// before.
func (b *TokenBucket) Quota() (permits int64, window time.Duration) {
	return bucketQuota(b.bucket.algorithm)
}

// Quota is Limit permits, and the length of a window.
func (w *FixedWindow) Quota() (permits int64, window time.Duration) {
	return w.limit.Load(), w.window.algorithm.Window()
}

// Quota is Limit permits, and the length of the window.
func (w *SlidingWindow) Quota() (permits int64, window time.Duration) {
	if w.approx.algorithm.Limit() > 0 {
		return w.limit.Load(), w.approx.algorithm.Window()
	}
	return w.limit.Load(), w.exact.algorithm.Window()
}

// Quota is Limit permits at a time, and a window of 0: permits come back when they are released, not with time.
func (c *Concurrency) Quota() (permits int64, window time.Duration) { return c.limit.Load(), 0 }

// Quota is what each key has that has no limit of its own: as many permits as its limit, and the window in which they come
// back: of a token bucket the time in which an empty one regains them, rounded up to a nanosecond; 0 for
// AlgorithmConcurrency.
func (k *Keyed[K]) Quota() (permits int64, window time.Duration) {
	if k.base.limit.Algorithm == AlgorithmSlidingCounter {
		return k.base.permits, k.base.limit.Rate.Period
	}
	return k.base.permits, k.base.refill
}

// Limiters are the limiters of the chain, in its order. The slice is a copy.
func (c *Chain) Limiters() []Limiter { return slices.Clone(c.limits) }

func bucketQuota(a algo.TokenBucket) (permits int64, window time.Duration) {
	_, r := a.Take(algo.TokenBucketState{}, 0, a.Burst())
	return a.Burst(), r.ResetAfter
}
