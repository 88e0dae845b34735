// Package weir keeps every flow below what its downstream can take.
//
// A limiter holds permits. [TokenBucket], [FixedWindow] and [SlidingWindow] regain theirs with time; [Concurrency] gets
// them back when they are released, and [Adaptive] finds out how many there should be; [Chain] asks several limiters as one
// step. [Keyed] is any of these for each of millions of keys, [Guard] throttles endpoints and locks out those that keep
// pushing, and [Shedder] turns away by priority what a machine under pressure cannot do. All of them decide exactly, also
// when many goroutines ask at once:
//
//	limiter, err := weir.NewTokenBucket(weir.TokenBucketOptions{Rate: weir.PerSecond(10), Burst: 20})
//	...
//	if !limiter.Allow() {
//		return errTooManyRequests
//	}
//
// There are three ways to ask. Allow answers yes or no. TryAcquire never waits and answers a [Lease], which carries the
// permits and a [Decision]: how many are left, and when to come back. Acquire waits in a bounded queue, in order, until
// permits are there, the context ends, or it is clear that its deadline comes first.
//
// Where the cost of something is known only afterwards (tokens of a language model, bytes of a body), reserve an
// estimate with TryReserve or Reserve, and then Commit the lease with what it really cost, or Cancel it.
//
// A refusal is a value, not an error: errors are for misuse and for contexts that ended. A request that can never be
// granted has RetryAfter [Never].
//
// Limiters are made by their constructors: the zero value of a limiter cannot be used, and its methods panic.
//
// All limiters are safe for concurrent use. None starts a goroutine: waiters wait in the goroutine that called, and a
// queue has one timer, which is armed only while somebody waits in it. A [Guard] has a timer that cleans up, until it
// is closed.
package weir
