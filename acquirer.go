package weir

import (
	"context"
	"time"
)

// Acquirer is what all limiters have in common, and what middleware and a [Chain] take: [Limiter], [Concurrency] and Chain. See
// [Limiter] for n.
type Acquirer interface {
	// TryAcquire takes n permits if they are available and no caller waits for them, and never waits itself. The lease must be
	// released; where permits come back with time, releasing it does nothing.
	TryAcquire(n int64) Lease
	// Acquire takes n permits, and waits for them in the queue of the limiter if they are not available. The error is nil if and
	// only if they were taken. A *[RefusedError], which matches [ErrRefused], is returned if the limiter refused: it has no queue
	// ([ErrNoQueue]), the queue is full, the limiter is closed, the deadline of ctx comes before the caller's turn, n exceeds the
	// limit, or n is negative. It is returned at once, without waiting. If ctx ends, before or while the call waits, the error
	// wraps ctx.Err() and context.Cause(ctx). A ctx that has ended before the call loses even if permits are available. Otherwise
	// permits that are available are taken before the deadline counts, and a caller that waits gets those that come before it,
	// also if the timer of the machine is up to 10 ms late (TestLateTimerCostsNoDeadline). A nil ctx panics. A lease that comes
	// with an error needs no Release, which does nothing.
	Acquire(ctx context.Context, n int64) (Lease, error)
	// TryReserve is TryAcquire with a cost that is settled later: the lease must end in Commit with what it really
	// cost, or Cancel. See [Lease.Commit].
	TryReserve(n int64) Lease
	// Reserve is Acquire with a cost that is settled later, like TryReserve.
	Reserve(ctx context.Context, n int64) (Lease, error)
	// Peek returns what TryAcquire would, and takes nothing. Remaining is what remains now.
	Peek(n int64) Decision
	// Stats returns counts that were true at one moment.
	Stats() Stats
}

// Stats are the counts of a limiter, or those of a limiter for keys: of all keys together.
type Stats struct {
	// Limit is how many permits can be taken at once now: the burst of a token bucket, otherwise the limit. An
	// overload.Adaptive finds it by itself. Of a limiter for keys it is that of the keys that have no other.
	Limit int64
	// Remaining is how many permits could be taken now. Of a limiter for keys it is 0, as each key has its own: see Peek.
	Remaining int64
	// Queued is how many permits callers that wait are waiting for, and Waiters how many callers they are.
	Queued  int64
	Waiters int
	// Allowed and Refused count the requests (not the permits) that were decided so far. One whose decision is on its
	// way may have taken its permits and not be counted yet. Probes and refusals because of misuse or an ended context
	// are not counted.
	Allowed int64
	Refused int64
	// Forgiven counts permits that commits and debits should have charged but that exceeded the largest debt. It ends at the
	// largest int64.
	Forgiven int64
	// Idle is for how long the limiter has been unused: full, with no caller waiting and no permit out. It is negative while
	// the limiter is in use. It may begin late, but is never too long, other than for a [Concurrency] by as long as the Release
	// of its last permit took. Of a limiter for keys it is negative, as it is not known of them.
	Idle time.Duration

	// Keys is how many keys are tracked, and MaxKeys how many may be: Keys can be more after that was lowered. Both are 0 for a
	// limiter that has no keys.
	Keys, MaxKeys int64
	// Untracked counts the requests that were allowed without a count, because the table of keys was full. It is 0 for a limiter
	// that has no keys.
	Untracked int64
	// Overridden is how many keys have another limit for a while. It is 0 for a limiter that has no keys.
	Overridden int64
}
