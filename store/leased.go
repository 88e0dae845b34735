package store

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
)

// LeasedOptions configure a [Leased].
type LeasedOptions struct {
	// Term is for how long, at most, permits are held in memory: from 10 ms to 1 min. It must be the same in all processes that
	// share a limit, as the burst that a token bucket is lowered to depends on it. Default: 1 s.
	Term time.Duration
	// MaxKeys is how many keys of policies are kept at a time: from 1 to 10^9. Where there is no room, a key is forgotten to
	// which nothing is on loan; if none of those looked at is such a key, requests for new ones are decided by the inner store,
	// one by one. Default: 1,000,000.
	MaxKeys int
	// Clock replaces the monotonic clock of this process. It must not go backward, nor stand still while time passes for the
	// inner store. Default: nil.
	Clock weir.Clock
}

func (o LeasedOptions) filled() (LeasedOptions, error) {
	if o.Term == 0 {
		o.Term = time.Second
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = defaultMaxKeys
	}
	if o.Term < 10*time.Millisecond || o.Term > time.Minute {
		return o, &weir.OptionError{Option: "LeasedOptions.Term", Value: o.Term.String(), Accepted: "from 10ms to 1m"}
	}
	if o.MaxKeys < 1 || o.MaxKeys > 1e9 {
		return o, &weir.OptionError{Option: "LeasedOptions.MaxKeys", Value: fmt.Sprint(o.MaxKeys), Accepted: "from 1 to 10^9"}
	}
	return o, nil
}

// Leased is a [Store] that takes permits of an inner store in blocks, by Lend, and spends them in memory: most decisions cost no
// round trip. What it grants never exceeds the limit, whatever the number of processes, however late the answers of the inner
// store are, whatever the clocks of the processes show, and whoever dies (TestLeasedNeverAbove). It may be below the limit, by
// the permits that others hold at that moment.
//
// # Why it is never above
//
// A permit that the inner store lent at time T of its clock is spent only as long as this counts no differently from spending it
// at T. For how long that is, is measured by the monotonic clock of the process from before the call was sent, so from before
// T; a 1024th is left out, for clocks that do not run equally fast.
//
//   - Fixed window, calendar window: until the window of T ends. What is spent in a window was taken in it, and the inner store
//     lends no more than the limit in each.
//   - Sliding window: until the segment of T ends, for the same reason for each segment, and so for each row of segments.
//   - Sliding counter: until the window of T ends. At the time of a spending, no more was spent in the window than was taken,
//     the same holds for the one before, and the weight of that has only become less since the last permit was taken.
//   - Token bucket of burst b and rate r: for a span s, which is Term, or b / 4r if that is shorter. The inner store is asked
//     with the burst lowered to b - r s, rounded down. What is spent in a time from t to t + d was taken between t - s and
//     t + d, and so is at most (b - r s) + r (d + s) = b + r d, which is what a bucket of burst b may grant in d. So more than
//     the lowered burst at once is refused with ReasonNever, and the Limit of decisions is the lowered burst.
//
// Those who already waited for a block when it was asked for count as granted at T, which is between the beginning and the end
// of their calls, as it is when the inner store decides. What is given back unspent counts as if it had never been taken.
//
// After a Reset, or a Refund of permits that were not taken, or when a clock of the inner store is set forward, so that windows
// end early, what processes hold may be spent on top, for Term at most; and while some processes have another limit than others,
// each spends what it was lent under its own.
//
// # How far below
//
// A process holds at most [LeasedBound].Block permits of a key unspent, a 16th of the limit. A request is refused only if the
// inner store has fewer permits than it asks for, or had so within the last 64th of Term, or has fewer than it and those who wait
// already ask for: so of a window no more than Block x processes permits stay unused, and of a token bucket those by which the
// burst is lowered as well: see [LeasedBound.Unused] (TestLeasedUnused). A bucket goes on filling while a block is held, and what
// is given back of the block is less by what can have come back since. A block that is in hand when its process dies, or when the
// limit is changed, is lost until its permits come back as any do.
//
// Blocks follow the demand of the process: a key that is seldom used has none, and each request is one call of the inner store. A
// key that is used often is asked for ahead of need, so that requests do not wait (TestLeasedAsksAhead). All requests for a key
// that has nothing in hand wait for one call, and are served in the order in which they came; nobody overtakes those who wait
// (TestLeasedOneCallForAll). A refusal is remembered until its RetryAfter, or for Term if that is shorter, and at least for a
// 64th of Term: until then requests of as many permits, or more, are refused from memory (TestLeasedRefusesFromMemory).
//
// Then the first request asks again, and waits for the answer; who comes alone after RetryAfter has the permits. Of a token
// bucket that fills fast one of those that are refused asks shortly before, so that nobody waits for long
// (TestLeasedAsksBeforeRefusalEnds). Requests that come while somebody waits need not all wait too: they are refused at once
// before the inner store said that there would be permits (TestLeasedRefusesUntilTheWindowEnds), and after that, of a token
// bucket or a sliding counter, if there cannot be permits for them as well at the rate of the limit
// (TestLeasedWaitsForWhatCameBack). Their RetryAfter is when the answer is expected, and 1 ns or more. So a key that is refused
// most of the time does not stall those who ask for it (TestLeasedRefusesWhileItAsks); what others gave back, by Refund, Cancel,
// Return or Reset, is granted one round trip later at most than it would be if all waited.
//
// What is not used for a quarter of Term, or not used up near its end, goes back by Return.
//
// # What is not leased
//
// Limits of fewer than 64 permits, and those whose span, segment or window is shorter than 5 ms, are passed on to the inner store
// as they are, and so is AlgorithmConcurrency. Probes ask the inner store if nothing is in hand. Reserve, Commit, Cancel and
// Debit go to the inner store, which knows nothing of what is held here, at the lowered limit, and so do Lend and Return.
//
// Decisions that are made in memory show as Remaining what is in hand and what the inner store had left when it was asked last.
// Where one charge of a request refuses, those of the others for which nobody was asked are Allowed, as far as is known.
//
// While the inner store is unavailable, what is in hand is spent until its time is over; then its error is passed on. So is
// ErrUnavailable if the context ends before a block comes: nothing was taken then.
//
// A Leased has one goroutine that gives back what is not used, from the first block on, and one for each call of Lend and Return
// that is under way. All end with Close.
type Leased struct {
	inner  Store
	clock  weir.Clock
	start  time.Time
	seed   maphash.Seed
	plans  leasePlans
	shards []leasedShard

	ctx    context.Context // of calls that are made for no request alone
	cancel context.CancelFunc
	calls  sync.WaitGroup
	ahead  atomic.Int64
	closed atomic.Bool
	ended  chan struct{}
	sweep  leasedSweep
	stats  leasedCounts
}

var _ Store = (*Leased)(nil)

// NewLeased returns a Leased over inner, or an *[weir.OptionError]. Closing it does not close inner.
func NewLeased(inner Store, o LeasedOptions) (*Leased, error) {
	if err := mustHave("NewLeased.inner", inner); err != nil {
		return nil, err
	}
	o, err := o.filled()
	if err != nil {
		return nil, err
	}
	l := &Leased{
		inner: inner, clock: o.Clock, start: time.Now(), seed: maphash.MakeSeed(),
		plans: leasePlans{term: o.Term}, shards: newLeasedShards(o.MaxKeys), ended: make(chan struct{}),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.sweep.wake, l.sweep.stop = make(chan struct{}, 1), make(chan struct{})
	l.sweep.room = make(chan struct{}, mostReturns)
	return l, nil
}

// now is the time of the process.
func (l *Leased) now() int64 {
	if l.clock == nil {
		return int64(time.Since(l.start))
	}
	return l.clock.Now()
}

// Take implements [Store]. If the context ends while it waits for a block, nothing was taken.
func (l *Leased) Take(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	if len(charges) == 1 && len(decisions) == 1 && charges[0].N > 0 && ctx.Err() == nil {
		if l.takeInHand(&charges[0], &decisions[0]) { //nolint:contextcheck // a block in advance is for no request alone
			return nil
		}
	}
	return l.takeAll(ctx, charges, decisions)
}

// takeInHand decides about a charge, if that can be done from memory.
func (l *Leased) takeInHand(c *Charge, d *weir.Decision) bool {
	hash := l.hashOf(c.Policy, c.Key)
	s := &l.shards[l.shardAt(hash)]
	now := l.now()
	s.lock.Lock()
	defer s.lock.Unlock()
	e := s.find(hash, c.Policy, c.Key)
	switch {
	case e == nil || s.closed || e.plan.given != c.Limit:
		return false
	case e.first == nil && e.spend(c.N, now):
		e.allowed(d, c.Policy, now)
		if e.low >= 0 && !e.inFlight && e.left(now) <= e.low {
			l.launchAhead(s, e, now, 0)
		}
		return true
	case c.N <= e.plan.most && e.refuses(c.N, now):
		e.refused(d, c.Policy, c.N, now)
		if e.plan.drips && !e.inFlight {
			l.launchAhead(s, e, now, min(e.trip, e.plan.pause()/2)) // so that the answer comes when that is over
		}
		return true
	}
	return false
}
