package store

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
)

// FleetOptions configure a [Fleet]. The zero value is good for production, but for a Logger.
type FleetOptions struct {
	// Breaker is when the store is given up for a while.
	Breaker BreakerOptions
	// Leased is for charges of ConsistencyLeased.
	Leased LeasedOptions
	// Optimistic is for charges of ConsistencyOptimistic.
	Optimistic OptimisticOptions
	// Replicas is how the processes of the fleet are counted, for charges of FailLocal. It may be disabled if there are none.
	Replicas ReplicasOptions
	// Fallback is for charges of FailLocal while the store is unavailable.
	Fallback FallbackOptions
	// Logger logs one line when the store becomes unavailable and one when it is back, unless Breaker.Logger is given. Default:
	// nil, nothing is logged.
	Logger *slog.Logger
}

// Fleet is the [Home] for programs of which several processes share limits. It keeps each charge as exactly as its Consistency,
// and its Fail decides while the store is unavailable.
//
// A request is all or nothing whatever its charges are. Those of ConsistencyLeased that are leased come first, mostly from
// memory. All others are one step, with at most one call of the store (TestFleetMixedAsksOnce). If that refuses, what memory has
// taken is given back, never so that more becomes available than without the request (TestFleetMixedAcrossWindows). Permits of a
// window that may have ended, and those that the store was told of meanwhile, stay taken. In a refused request, a charge that was
// not asked is Allowed with Remaining 0; one that was asked and is Allowed has more than 0. Reserve is one call of the store for
// all charges, whatever their Consistency, and so exact.
//
// # While the store is unavailable
//
// A [Breaker] fails calls at once. The Fail of each charge that could not be asked decides:
//   - FailClosed refuses with weir.ReasonUnavailable, and a RetryAfter of when the store will be tried again. If one charge of a
//     request is refused so, nothing is taken for the others.
//   - FailOpen allows. The store is not told later.
//   - FailLocal limits this process to the limit divided by the number of live [Replicas], in a [Memory]. The rate of a token
//     bucket is divided exactly; its burst, and the permits of the others, are rounded down, but to one permit at least. Requests
//     for more than the divided limit, but not than the limit, are refused with weir.ReasonUnavailable.
//
// A call that failed may have been charged by the store nevertheless, which can only refuse more. A caller whose context is
// canceled gets an error, and no decision.
//
// # When it is back
//
// Debit tells the store what this process allowed, except what has come back here since. It does so before the store decides on
// the next request for the key, in one call for the keys of a request. All other keys are told in the background, 64 in a call
// and at most 1,024 in 100 ms.
//
// The other processes may find out later that the store is back. So for FallbackOptions.Grace, charges of FailLocal need a permit
// of the share of this process and one of the store: recovery makes no burst.
//
// # What is guaranteed
//
// N processes that count one another rightly and lose the store together, for however long, allow at most one limit more, if the
// limit is at least N (TestFleetOutage). That is twice the permits of a window. Of a token bucket it is 2 x burst + rate x (t +
// Grace) in any time t from before the outage until after it. This holds for keys that the store is told of within Grace: about
// 80,000 for each process, and those that are asked for. If k of the N processes are cut off while the others have the store,
// those k go on with k/N of the rate, or of each window, besides the limit that the others keep to.
//
// FailClosed never allows more than the Consistency of the charge does (TestFleetClosedKeepsTheLimit). Peek does not know of the
// shares.
//
// # Reservations
//
// Reservations of FailLocal are kept in this process, divided like the limits. Their IDs begin with "weir-local:", or
// "weir-open:" if all charges are of FailOpen. They are settled in this process, also when the store is back; another process
// returns [ErrNotReserved]. What was reserved is told to the store like what was taken. If it costs less after that, the rest
// comes back as any permit does; if it costs more, the store is told. Those of a concurrency limit stay in this process until
// they are settled or expire, and the store is not told: until then up to one limit more is in use.
//
// Reservations that the store made are settled by the store. If it cannot be reached, Commit and Cancel return [ErrUnavailable],
// and the fleet keeps up to 10,000 of them and tries again when the store is back. Callers need not try again; reservations that
// have expired by then were canceled by themselves.
type Fleet struct {
	breaker    *Breaker
	leased     *Leased
	optimist   func() *Optimistic         // makes it when it is used
	optimistic atomic.Pointer[Optimistic] // nil until then
	replicas   *Replicas
	fallback   *fallback
	o          FleetOptions

	ctx     context.Context
	end     context.CancelFunc
	closed  atomic.Bool
	running atomic.Bool // the goroutine of the recovery

	grace    atomic.Bool
	graceEnd atomic.Int64
	graceFor time.Duration

	lock      sync.Mutex
	done      sync.WaitGroup
	unsettled []unsettled
	waiting   atomic.Int64 // how many of unsettled
	dropped   atomic.Uint64
}

var _ Home = (*Fleet)(nil)

// NewFleet returns a fleet over s, which it closes when it is closed, or an *[weir.OptionError].
//
// It starts the goroutine of [Replicas], those of [Leased] and [Optimistic] when there are charges for them, and one more after
// an outage, until the store has been told everything. Close ends all of them.
func NewFleet(s Home, o FleetOptions) (*Fleet, error) {
	if err := mustHave("NewFleet.s", s); err != nil {
		return nil, err
	}
	if o.Breaker.Logger == nil {
		o.Breaker.Logger = o.Logger
	}
	breaker, err := NewBreaker(s, o.Breaker)
	if err != nil {
		return nil, err
	}
	f := &Fleet{breaker: breaker, o: o}
	breaker.back, f.optimist = f.back, sync.OnceValue(f.newOptimist)
	if f.fallback, err = newFallback(o.Fallback, func() int { return f.replicas.Live() }); err != nil {
		return nil, err
	}
	if f.replicas, err = newReplicas(breaker, o.Replicas); err != nil {
		return nil, err
	}
	if f.graceFor = o.Fallback.Grace; f.graceFor == 0 {
		f.graceFor = min(time.Second+f.replicas.o.Interval+breaker.o.MaxCooldown, time.Hour)
	}
	if f.graceFor < time.Millisecond || f.graceFor > time.Hour {
		return nil, &weir.OptionError{Option: "FallbackOptions.Grace", Value: f.graceFor.String(), Accepted: upToAnHour}
	}
	f.ctx, f.end = context.WithCancel(context.Background())
	if _, err = o.Optimistic.filled(); err != nil {
		return nil, err
	}
	if f.leased, err = NewLeased(breaker, o.Leased); err != nil {
		return nil, err
	}
	f.replicas.start()
	return f, nil
}

// layer is the store that keeps limits of a consistency.
func (f *Fleet) layer(c Consistency) Home { //nolint:ireturn // one of three
	switch c {
	case ConsistencyLeased:
		return f.leased
	case ConsistencyOptimistic:
		return f.optimist()
	default:
		return f.breaker
	}
}

// newOptimist makes the layer of ConsistencyOptimistic.
func (f *Fleet) newOptimist() *Optimistic {
	f.lock.Lock()
	defer f.lock.Unlock()
	o, err := NewOptimistic(f.breaker, f.o.Optimistic)
	if err != nil {
		panic(err) // the options were checked
	}
	if f.closed.Load() {
		_ = o.Close() // there is nothing to be told
	}
	f.optimistic.Store(o)
	return o
}

// FleetStats tell how a [Fleet] does. They are for status pages and metrics.
type FleetStats struct {
	Breaker  BreakerStats  `json:"breaker"`
	Fallback FallbackStats `json:"fallback"`
	// Replicas is how many processes share the limits, as far as this one knows; at least 1.
	Replicas int         `json:"replicas"`
	Leased   LeasedStats `json:"leased"`
	// Grace reports whether charges of FailLocal are still limited to the share of this process, because the store was
	// unavailable a moment ago.
	Grace bool `json:"grace"`
	// Unsettled is how many reservations are to be settled when the store is back. UnsettledDropped is how many will not be, as
	// there were too many.
	Unsettled        int    `json:"unsettled"`
	UnsettledDropped uint64 `json:"unsettled_dropped"`
}

// Stats are the counts of this process. It looks at every key that is leased.
func (f *Fleet) Stats() FleetStats {
	return FleetStats{
		Breaker: f.breaker.Stats(), Fallback: f.fallback.stats(), Replicas: f.replicas.Live(), Grace: f.grace.Load(),
		Leased:    f.leased.Stats(),
		Unsettled: int(f.waiting.Load()), UnsettledDropped: f.dropped.Load(),
	}
}

// Close tells the store what it has to know, within a second or two, gives back what was leased, and closes the store. Closing
// twice is harmless.
func (f *Fleet) Close() error {
	f.lock.Lock()
	first := !f.closed.Swap(true)
	f.lock.Unlock()
	f.end()
	f.done.Wait()
	if !first {
		return nil
	}
	f.lastWords()
	var err error
	if o := f.optimistic.Load(); o != nil {
		err = o.Close()
	}
	return errors.Join(err, f.leased.Close(), f.replicas.Close(), f.breaker.Close(), f.fallback.memory.Close())
}

// allGranted reports whether all decisions are Allowed.
func allGranted(decisions []weir.Decision) bool {
	for i := range decisions {
		if !decisions[i].Allowed {
			return false
		}
	}
	return true
}
