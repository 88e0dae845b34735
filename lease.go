package weir

import (
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/algo"
)

// Lease is the result of a request for permits: the [Decision], and the permits if it was allowed.
//
// A lease may be copied; however often it and its copies are released, committed or canceled, only the first call
// counts. All methods are safe for concurrent use, also after the limiter has been closed, and on the zero Lease, which
// is a refusal. Releasing, committing or canceling a refusal does nothing. Leases do not allocate:
// what they share with their copies is recycled.
type Lease struct {
	decision   Decision
	permits    int64
	claim      *claim // nil: nothing to give back or to settle
	generation uint64
}

// claim is what the copies of a lease share. Settling it raises the generation, which turns all copies stale.
type claim struct {
	generation atomic.Uint64
	settler    settler
	permits    int64
	mark       algo.Mark
	under      under   // of a Keyed: what they were taken under
	since      int64   // when it began, for an observer
	parts      []Lease // of a Chain
	reserved   bool    // of a Chain: commit and cancel count
}

// settler ends claims: it keeps actual of the permits that were taken.
type settler interface {
	settle(c *claim, how settlement, actual int64)
}

type settlement uint8

const (
	release settlement = iota
	drop               // release, of which an observer learns more
	ignore             // release, of which an observer learns nothing
	commit
	cancel
)

// claims are those that are used again. What they refer to is kept with them, until they are or the pool forgets them.
var claims = sync.Pool{New: func() any { return new(claim) }}

// bind gives l a claim that s settles. Where a word is exchanged for the permits, it is bound before: the exchange waits for
// what was written, so a caller that copies the lease need not.
func (l *Lease) bind(s settler, permits int64) *claim {
	c := l.claim
	if c == nil {
		c = claims.Get().(*claim)
		l.claim, l.generation = c, c.generation.Load()
	}
	c.settler, c.permits = s, permits
	return c
}

// unbind takes the claim of l, which has no copies, away again.
func (l *Lease) unbind() {
	if l.claim != nil {
		claims.Put(l.claim)
		l.claim, l.generation = nil, 0
	}
}

// begin has observers learn from the time since now: until then the caller has waited for other limiters of its chain.
func (c *claim) begin() {
	if c == nil {
		return
	}
	switch s := c.settler.(type) {
	case *observed:
		c.since = s.pool.now()
	case *Chain:
		for i := range c.parts {
			c.parts[i].claim.begin()
		}
	}
}

// settle ends the claim of a lease of this generation, which it is not if the lease or a copy of it has ended before.
func (c *claim) settle(generation uint64, how settlement, actual int64) {
	if c == nil || !c.generation.CompareAndSwap(generation, generation+1) {
		return
	}
	c.settler.settle(c, how, actual)
	claims.Put(c)
}

// Allowed reports whether the permits were taken.
func (l Lease) Allowed() bool { return l.decision.Allowed }

// Decision is what the limiter decided.
func (l Lease) Decision() Decision { return l.decision }

// Permits is how many permits the lease has, 0 for a refusal.
func (l Lease) Permits() int64 {
	if !l.decision.Allowed {
		return 0
	}
	return l.permits
}

// Err is nil if the permits were taken, and otherwise a [*RefusedError] with the decision.
func (l Lease) Err() error { return refusal(l.decision, l.permits, nil) }

// Release ends the lease. The permits of a [Concurrency] limiter are given back; of other limiters they are spent, and
// come back with time: a reserved lease that is released has cost what was reserved.
func (l Lease) Release() { l.claim.settle(l.generation, release, l.permits) }

// Commit ends a reserved lease with what it really cost. If that is less than what was reserved, the rest is refunded
// as by Cancel. If it is more, also if nothing was reserved (TestReservationOfNothing), the difference is charged at once
// whether it is available or not: the limiter goes into debt, and refuses until it has regained it. The debt of a limiter
// never exceeds its MaxDebt; what exceeds it is forgiven and counted in Stats.Forgiven (TestCommitDebtIsBounded). So over
// any interval t a token bucket has allowed at most burst + rate x t + MaxDebt, and a fixed window over any k windows at
// most k x limit + MaxDebt. A sliding window forgets a debt together with the segment that made it: each of its windows
// may hold limit + MaxDebt. A negative cost counts as 0. Committing a lease of a Concurrency limiter, or one that was not
// reserved, is Release.
func (l Lease) Commit(actual int64) { l.claim.settle(l.generation, commit, max(actual, 0)) }

// Cancel ends a reserved lease as if nothing had been taken, and gives its permits to callers that wait. Permits that the
// limiter has regained in the meantime are not given back twice: a window that has ended refunds nothing, and a
// token bucket refunds what it still lacks of them, so that a cancellation never lets more through than the limit
// (TestCancelNeverMints). Canceling a lease that was not reserved is Release, except that an overload.Adaptive
// learns nothing from it.
func (l Lease) Cancel() { l.claim.settle(l.generation, cancel, 0) }

// Drop ends the lease like Release, for a request that was lost to an overload of what the limiter protects: it was
// refused there, or took too long to be of use. An overload.Adaptive then lowers its limit; for all others it is Release.
func (l Lease) Drop() { l.claim.settle(l.generation, drop, l.permits) }

// ignore ends the lease like Release, also one that was reserved. An overload.Adaptive learns nothing from it.
func (l Lease) ignore() { l.claim.settle(l.generation, ignore, l.permits) }

// waited is the error of a call whose lease needs no release.
func waited(_ Lease, err error) error { return err }

// during calls f while the lease l holds its permits, which come back when f returns or panics, unless err says that there are
// none.
func (l Lease) during(err error, f func() error) error {
	if err != nil {
		return err
	}
	defer l.Release()
	return f()
}

// mustDo refuses a nil function before a permit is taken for it.
func mustDo(f func() error) {
	if f == nil {
		panic("weir: Do: nil function")
	}
}
