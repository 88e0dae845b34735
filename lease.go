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
	since      int64   // when it was granted, for an observer
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

var claims = sync.Pool{New: func() any { return new(claim) }}

func newClaim(s settler, permits int64, mark algo.Mark) (*claim, uint64) {
	c := claims.Get().(*claim)
	c.settler, c.permits, c.mark = s, permits, mark
	return c, c.generation.Load()
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
func (l Lease) Release() { l.settle(release, l.permits) }

// Commit ends a reserved lease with what it really cost. If that is less than what was reserved, the rest is refunded
// as by Cancel. If it is more, the difference is charged at once whether it is available or not: the limiter goes into
// debt, and refuses until it has regained it. The debt of a limiter never exceeds its MaxDebt; what exceeds it is
// forgiven and counted in Stats.Forgiven (TestCommitDebtIsBounded). So over any interval t a token bucket has allowed
// at most burst + rate x t + MaxDebt, and a fixed window over any k windows at most k x limit + MaxDebt. A sliding
// window forgets a debt together with the segment that made it: each of its windows may hold limit + MaxDebt. A
// negative cost counts as
// 0. Committing a lease of a Concurrency limiter, or one that was not reserved, is Release.
func (l Lease) Commit(actual int64) { l.settle(commit, max(actual, 0)) }

// Cancel ends a reserved lease as if nothing had been taken, and gives its permits to callers that wait. Permits that the
// limiter has regained in the meantime are not given back twice: a window that has ended refunds nothing, and a
// token bucket refunds what it still lacks of them, so that a cancellation never lets more through than the limit
// (TestCancelNeverMints). Canceling a lease that was not reserved is Release, except that an overload.Adaptive
// learns nothing from it.
func (l Lease) Cancel() { l.settle(cancel, 0) }

// Drop ends the lease like Release, for a request that was lost to an overload of what the limiter protects: it was
// refused there, or took too long to be of use. An overload.Adaptive then lowers its limit; for all others it is Release.
func (l Lease) Drop() { l.settle(drop, l.permits) }

func (l Lease) settle(how settlement, actual int64) {
	c := l.claim
	if c == nil || !c.generation.CompareAndSwap(l.generation, l.generation+1) {
		return
	}
	c.settler.settle(c, how, actual)
	c.settler, c.mark, c.under = nil, algo.Mark{}, under{}
	clear(c.parts)
	c.parts = c.parts[:0]
	claims.Put(c)
}

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
