// Package weir limits what callers may take: exactly, in fair order, and with a reason for each refusal.
//
// A [Limit] is a rule, such as TokenBucket(PerSecond(10), 20). [New] makes a [Limiter] of it, [NewKeyed] one for each
// of millions of keys. Permits come back with time:
//
//	limiter, err := weir.New(weir.TokenBucket(weir.PerSecond(10), 20), weir.Options{QueueLimit: 100})
//	...
//	if !limiter.Allow() {
//		return errTooManyRequests
//	}
//
// There are four ways to ask:
//
//   - Allow and Take never wait. Allow reports whether a permit was taken; Take returns the [Decision], which has how many
//     permits remain, and when to retry.
//   - Wait waits in a bounded queue, in order, until the permits are there, the context ends, or its deadline cannot be met.
//   - TryReserve and Reserve are for a cost that is known later, such as the tokens of a language model: reserve an estimate,
//     then Commit what it really cost, or Cancel.
//   - TryAcquire and Acquire return a [Lease] from any limiter. Middleware and [Chain], which asks several limiters as one step,
//     take them as an [Acquirer].
//
// Permits that come back when they are released, such as places for jobs, are those of [Concurrency] and [KeyedConcurrency]: Do
// calls a function while it holds them. An overload.Adaptive finds by itself how many there should be.
//
// A call that never waits returns a refusal as a value. A call that may wait returns an error whenever the permits were not
// taken: a *[RefusedError], which matches [ErrRefused] and carries the Decision, or the error of a context that ended. Where
// there is no queue, a call that would have to wait fails with [ErrNoQueue]. A request that can never be allowed has the
// RetryAfter [Never].
//
// Limiters are made by their constructors: a zero limiter must not be used, and panics where it is asked. So do calls that may
// wait with a nil context. All limiters are safe for concurrent use. None keeps a goroutine: a caller waits in its own. A queue
// has a timer while a caller waits in it, and so have an override until it ends and a limiter that many goroutines ask.
//
// Package httplimit limits the handlers of a server, httpclient the requests of a client, and policy decides by rules. Package
// guard locks out endpoints that keep pushing, and overload turns away what a busy service cannot do. Limits that
// several servers share are in store, and those that survive a crash in durable.
package weir
