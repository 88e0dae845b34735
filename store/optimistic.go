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

// OptimisticOptions configure an [Optimistic].
type OptimisticOptions struct {
	// Interval is how often the store is told what was granted: from 1 ms to 1 m. Default: 100 ms.
	Interval time.Duration
	// Drift is how many permits of a key the process may have granted without the store knowing, in per cent of the limit, but
	// at least one permit: from 1 to 100. Default: 10. See [OptimisticOptions.DriftOf].
	Drift int
	// MaxKeys is how many keys of policies are remembered at a time: from 1 to 10^9. Where there is no room, keys of which
	// the store knows everything are forgotten; if there are none, the store is asked about new keys each time. Default:
	// 1,000,000.
	MaxKeys int
	// Recheck is how long a refusal is believed, from 1 ms on: the first request after it asks the store again, and so sees
	// permits that another process has given back, or a Reset. Default: 0, until its RetryAfter.
	Recheck time.Duration
	// Timeout is how long a call to the store may take that tells it what was granted, and Close at most: from 1 ms to 1 m.
	// Calls for a single request end with its context. Default: 1 s.
	Timeout time.Duration
	// Clock replaces the monotonic clock of the process. Only differences count, so it need not agree with that of the store
	// or of other processes. Default: nil.
	Clock weir.Clock
}

const (
	defaultInterval = 100 * time.Millisecond
	defaultDrift    = 10
	defaultTimeout  = time.Second
)

// filled is the options with their defaults, or an *[weir.OptionError].
func (o OptimisticOptions) filled() (OptimisticOptions, error) {
	for _, d := range []struct {
		option string
		value  *time.Duration
		or     time.Duration
	}{{"Interval", &o.Interval, defaultInterval}, {"Timeout", &o.Timeout, defaultTimeout}} {
		if *d.value == 0 {
			*d.value = d.or
		}
		if *d.value < time.Millisecond || *d.value > time.Minute {
			return o, &weir.OptionError{
				Option: "OptimisticOptions." + d.option, Value: d.value.String(), Accepted: "from 1ms to 1m",
			}
		}
	}
	if o.Recheck != 0 && o.Recheck < time.Millisecond {
		return o, &weir.OptionError{Option: "OptimisticOptions.Recheck", Value: o.Recheck.String(), Accepted: "0, or from 1ms on"}
	}
	if o.Drift == 0 {
		o.Drift = defaultDrift
	}
	if o.Drift < 1 || o.Drift > 100 {
		return o, &weir.OptionError{
			Option: "OptimisticOptions.Drift", Value: fmt.Sprint(o.Drift), Accepted: "from 1 to 100 per cent",
		}
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = defaultMaxKeys
	}
	if o.MaxKeys < 1 || o.MaxKeys > 1e9 {
		return o, &weir.OptionError{Option: "OptimisticOptions.MaxKeys", Value: fmt.Sprint(o.MaxKeys), Accepted: "from 1 to 10^9"}
	}
	return o, nil
}

// Optimistic is a [Store] that decides from memory and tells the store behind it afterwards: a decision about a key that is in
// use costs no round trip. The nodes that share a limit admit, on any interval, at most
//
//	what the limit allows + (nodes - 1) x drift
//
// permits, where drift is [OptimisticOptions.DriftOf] the limit (TestOptimisticBound). A single node never admits more than the
// limit. What is admitted above that of a token bucket, of a fixed window or of one of a calendar is owed and missing
// afterwards, so that the nodes keep to the limit on average (TestOptimisticAverage). Sliding windows and counters forget it
// when it leaves the window, so that they may have as much above the limit in each window.
//
// # How
//
// For each key a node has a view, which is what the store answered last less what the node has granted since, and knows how
// many permits it has granted that the store has not acknowledged, in calls that are under way too. It grants n permits by
// itself if its view has them, these unacknowledged permits with the n more are at most drift, and the view is younger than two
// intervals. Every interval, and when three quarters of the drift are used up, the store is told by [Store.Debit], whose answer
// is the new view. Otherwise the request asks: it tells the store what is owed and decides by the answer, or takes its permits
// in the store. There is one call for a key at a time, for which all wait who need its answer: so a node grants at most drift
// permits of a key in a round trip, but for requests of more than that. What is refused is remembered until its RetryAfter,
// and costs no call.
//
// The view of a token bucket refills, by the monotonic clock of the process, from the moment at which the answer came in, which
// is not before the store gave it. Of windows nothing comes back before the next answer. So only the store's clock and
// differences on the clock of one process count, and it makes no difference what clocks show.
//
// # Why the bound holds
//
// Take an interval on which the store alone would admit at most A permits: burst + rate x t of a bucket, the limit for a window,
// for the segments of a sliding window, and for the estimate of a sliding counter. Of all grants in it take the last one that
// was made on the latest view, in the order in which the store gave the answers; let s be the moment of that answer and m its
// node. What the store had heard of at s, and what m granted by then that was not in the answer, together are at most A: the
// view of m was the answer less all that m had granted and that the answer did not know, and it had the permits. (Of a bucket,
// it had regained no more than the store would have since.) After that grant m made no other one in the interval, as s is the
// latest view. Every other node made its last grant in the interval on an answer not later than s. What it had granted and the
// store had acknowledged by then is in what the store had heard of at s; what was not acknowledged is at most drift. That
// makes A + (nodes - 1) x drift. What a node grants at the end of a window and the store hears of in the next counts in the
// next, which only makes less of it. Nothing here depends on how old a view is, or on how long calls take. While a request takes
// permits in the store its node grants none of the key from memory, and it has told the store everything before.
//
// A call that fails may have been heard, and its permits are told again, once the store answers: then they count twice, for
// less to be admitted (TestOptimisticToldTwice). A store that has lost its state, a Reset, and permits that are given back by
// Refund are outside of the proof, as they are for the store alone.
//
// # Debts
//
// The store remembers a debt of at most one limit ([Store.Debit]). As long as (nodes - 1) x drift is not more than the limit,
// which is up to 11 nodes with the default Drift and a limit that is a multiple of 10, nothing is forgotten, and both
// statements above hold. With more nodes a burst of all of them at once can make a larger debt, of which the rest is forgotten.
// Before that can happen again the debt that is kept must be paid back, so then up to
//
//	(nodes - 1) x drift - limit
//
// permits more may be admitted in each time in which one limit comes back (TestOptimisticForgottenDebt).
//
// # What is refused
//
// A request that a coherent store would grant is refused here only because the view was behind: by what came back within two
// round trips; by what would have come back in an interval in which the store did not know that something was missing; by what
// others gave back since the refusal (see Recheck); by what was told twice after a failure; by permits of a window that the
// store heard of in the next, at most nodes x drift of them; and by what a sliding counter gave back in the tenth of an interval
// for which it is not asked again after a refusal. TestOptimisticNearlyNothingIsRefused measures it.
//
// Requests with several charges are all or nothing: what is granted from memory is given back if the store refuses the rest,
// and another request may have been refused for it meanwhile. The store is told of it when it is known to be granted, so
// that nothing has to be given back there, where it could be too late (TestOptimisticGivesBackExactly); but if another
// request has to ask about the key in between, the store is told first, and the permits stay taken
// (TestOptimisticToldOfWhatIsHeld). When one limit refuses, no others are asked: their decisions tell what is known of them,
// which is that all permits are there if nothing is.
//
// # What else
//
// Reserve, Lend, Debit and Inspect tell the store what is owed and go to it, as do concurrency limits. Permits of a request
// that the store does not answer are not granted: its error is passed on, and the permits may be gone. In the background errors
// are not reported: what is owed is told again, ever later up to five seconds, and until then at most drift permits are granted.
//
// A goroutine runs until Close, and up to four more while they tell the store what is owed. A call that tells it for a request
// goes on in a goroutine of its own if the request is given up, as long as Timeout.
type Optimistic struct {
	inner Store
	o     OptimisticOptions
	start time.Time
	seed  maphash.Seed
	keep  int64 // how old a view may be

	shards  []optimisticShard
	most    int // keys in a shard
	waiting atomic.Int64

	closed  atomic.Bool
	stop    chan struct{}
	urgent  chan *optimisticKey
	ended   chan struct{} // the goroutine has ended
	flushed chan struct{} // Close has ended
	calls   sync.WaitGroup
	workers atomic.Int32
	sync    optimisticSync
}

var _ Store = (*Optimistic)(nil)

// NewOptimistic returns a store that decides from memory, over one that processes share, or an *[weir.OptionError].
func NewOptimistic(inner Store, o OptimisticOptions) (*Optimistic, error) {
	if err := mustHave("NewOptimistic.inner", inner); err != nil {
		return nil, err
	}
	o, err := o.filled()
	if err != nil {
		return nil, err
	}
	count := mostShards
	for count > 1 && o.MaxKeys/count < leastInShard {
		count /= 2
	}
	s := &Optimistic{
		inner: inner, o: o, start: time.Now(), seed: maphash.MakeSeed(), keep: 2 * int64(o.Interval),
		shards: make([]optimisticShard, count), most: o.MaxKeys / count,
		stop: make(chan struct{}), urgent: make(chan *optimisticKey, mostUrgent),
		ended: make(chan struct{}), flushed: make(chan struct{}),
	}
	for i := range s.shards {
		s.shards[i].keys = make(map[memoryKey]*optimisticKey)
	}
	go s.reconcile()
	return s, nil
}

// now is the time on the clock of the process.
func (o *Optimistic) now() int64 {
	if o.o.Clock == nil {
		return int64(time.Since(o.start))
	}
	return o.o.Clock.Now()
}

// Take implements [Store].
func (o *Optimistic) Take(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	if len(charges) == len(decisions) && ctx.Err() == nil {
		switch {
		case len(charges) == 1 && o.takeKnown(&charges[0], &decisions[0]), len(charges) > 1 && o.takeAllKnown(charges, decisions):
			return nil
		}
	}
	if err := CheckTaken(charges); err != nil {
		return err
	}
	c := optimisticCall{o: o, charges: charges, decisions: decisions, ask: o.inner.Take, takes: true}
	return c.run(ctx)
}
