// Package weir keeps every flow below what its downstream can take.
//
// A limiter holds permits. [TokenBucket], [FixedWindow] and [SlidingWindow] regain theirs with time; [Concurrency] gets
// them back when they are released, and [Adaptive] finds out how many there should be; [Chain] asks several limiters as one
// step. [Keyed] is any of these for each of millions of keys. All of them decide exactly, also when many goroutines ask at
// once:
//
//	limiter, err := weir.New(weir.TokenBucket(weir.PerSecond(10), 20), weir.Options{})
//	...
//	if !limiter.Allow() {
//		return errTooManyRequests
//	}
//
// There are three ways to ask. Allow returns yes or no. TryAcquire never waits and returns a [Lease], which carries the
// permits and a [Decision]: how many are left, and when to come back. Acquire waits in a bounded queue, in order, until
// permits are there, the context ends, or it is clear that its deadline comes first; Wait is Acquire where permits come back
// with time, and Do calls a function while it holds permits that come back when they are released.
//
// Where the cost of something is known only afterwards (tokens of a language model, bytes of a body), reserve an
// estimate with TryReserve or Reserve, and then Commit the lease with what it really cost, or Cancel it.
//
// A call that never waits returns a refusal as a value. A call that may wait (Acquire, Reserve, Wait, Do) returns an error
// whenever the permits were not granted: a [*RefusedError], which matches [ErrRefused] and carries the Decision, or that of a
// context that ended. Where there is no queue, a call that would have to wait fails with [ErrNoQueue]. A request that can never
// be granted has RetryAfter [Never].
//
// Beside them stand package guard, which locks out endpoints that keep pushing, package overload, which turns away by priority
// what a machine under pressure cannot do, package policy, which decides by rules, and packages httplimit, httpclient and
// store.
//
// Limiters are made by their constructors: the zero value of a limiter cannot be used, and its methods panic. So do calls
// that may wait with a nil context.
//
// All limiters are safe for concurrent use. None starts a goroutine: waiters wait in the goroutine that called, and a
// queue has one timer, which is armed only while a caller waits in it.
package weir
