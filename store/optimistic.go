package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
)

// OptimisticOptions configure an [Optimistic].
type OptimisticOptions struct {
	// Interval is how often the store is told what was allowed: from 1 ms to 1 m. Default: 100 ms.
	Interval time.Duration
	// Drift is how many permits of a key the process may allow without the store knowing, in per cent of the limit, but at least
	// one permit: from 1 to 100. Default: 10. See [OptimisticOptions.DriftOf].
	Drift int
	// MaxKeys is how many keys of policies are remembered at a time: from 1 to 10^9. Where there is no room, keys of which the
	// store knows everything are forgotten. If there are none, the store is asked about new keys each time. Default: 1,000,000.
	MaxKeys int
	// Recheck is how long a refusal is remembered, from 1 ms on. The first request after it asks the store again, and so sees
	// permits that another process has given back, or a Reset. Default: 0, until its RetryAfter.
	Recheck time.Duration
	// Timeout is how long a call in the background to the store may take, and Close at most: from 1 ms to 1 m. Calls for a single
	// request end with its context. Default: 1 s.
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
	var err error
	o.MaxKeys, err = maxKeysOf("OptimisticOptions.MaxKeys", o.MaxKeys)
	return o, err
}

// Optimistic is a [Home] that decides from memory and tells the store behind it afterwards: a decision about a key that is in
// use costs no round trip. The nodes that share a limit allow, on any interval, at most
//
//	what the limit allows + (nodes - 1) x drift
//
// permits, where drift is [OptimisticOptions.DriftOf] the limit (TestOptimisticBound). A single node never allows more than the
// limit. What is allowed above that of a token bucket, a fixed window or a calendar window is owed and missing afterwards, so the
// nodes keep to the limit on average (TestOptimisticAverage). Sliding windows and counters forget it when it leaves the window,
// so they may be as much above the limit in each window.
//
// # How
//
// For each key a node has a view: what the store returned last, less what the node has allowed since. The node allows a request
// by itself if its view has the permits, the view is younger than two intervals, and the permits that the store does not know of
// are at most drift. Otherwise it asks the store. Every interval, and when three quarters of the drift are used up, it tells the
// store by [Debit], which returns the new view. There is one call for a key at a time, and all requests that need it wait
// for it. What is refused is remembered until its RetryAfter, and costs no call.
//
// A token bucket in the view refills by the monotonic clock of the process. Of windows nothing comes back before the next call.
// So it makes no difference what clocks show.
//
// # Failures
//
// A call that fails may have reached the store. Its permits are told again once the store is back; they may then count twice, so
// that less is allowed (TestOptimisticToldTwice). The bound does not include permits of a store that has lost its state, of a
// Reset, or of a Refund.
//
// If the store fails, a request that needs it gets its error, and the permits may be gone. Errors in the background are not
// reported: they are retried, ever later up to five seconds. Until then the node allows at most drift permits.
//
// # Debts
//
// The store remembers a debt of at most one limit ([Debit]). As long as (nodes - 1) x drift is not more than the limit,
// nothing is forgotten. That is up to 11 nodes with the default Drift and a limit that is a multiple of 10. With more nodes a
// burst of all of them at once can make a larger debt, of which the rest is forgotten. Up to
//
//	(nodes - 1) x drift - limit
//
// permits more may then be allowed in each time in which one limit comes back (TestOptimisticForgottenDebt).
//
// # What is refused
//
// A coherent store may allow a request that is refused here, because the view was behind. TestOptimisticNearlyNothingIsRefused
// measures it. It concerns permits that came back within two round trips, that others gave back since a refusal (see Recheck), or
// that were told twice after a failure. At the edge of a window it also concerns those that the store heard of in the next one,
// at most nodes x drift.
//
// Requests with several charges are all or nothing: what memory allowed is given back if the store refuses the rest
// (TestOptimisticGivesBackExactly). Another request may have been refused because of it meanwhile. If another request has to ask
// the store about the key in between, the permits stay taken (TestOptimisticToldOfWhatIsHeld). When one limit refuses, no others
// are asked: their decisions are what is known of them, all permits if nothing is.
//
// Reserve, Lend, Debit and Inspect tell the store what is owed and go to it, as do concurrency limits. A goroutine runs from the
// first key on until Close, and up to four more while they tell the store what is owed. A call to the store goes on for up to
// Timeout after its request is given up. The zero Optimistic is not usable: call [NewOptimistic].
type Optimistic struct {
	near[optimisticKey]

	o    OptimisticOptions
	keep int64 // how old a view may be
	// passing is how many calls about keys that are not kept are under way, in each shard. These keys are not added meanwhile, as
	// what is taken from memory must be known to the calls that ask the store.
	passing []map[recordKey]int
	workers atomic.Int32
	sync    optimisticSync
}

var _ Home = (*Optimistic)(nil)

// NewOptimistic returns a store that decides from memory, over one that processes share, or an *[weir.OptionError].
func NewOptimistic(inner Home, o OptimisticOptions) (*Optimistic, error) {
	if err := mustHave("NewOptimistic.inner", inner); err != nil {
		return nil, err
	}
	o, err := o.filled()
	if err != nil {
		return nil, err
	}
	s := &Optimistic{o: o, keep: 2 * int64(o.Interval)}
	s.open(inner, o.Clock, o.MaxKeys, o.Interval, s)
	s.passing = make([]map[recordKey]int, len(s.shards))
	return s, nil
}

// Do implements [Home]. The store is asked about keys of which it must be. It decides on reservations and loans, but on what is
// known to be refused. Permits of which it does not know yet are given back here. After a reset, others report what they owe.
func (o *Optimistic) Do(ctx context.Context, ask Ask, charges []Charge, decisions []weir.Decision) (Hold, error) {
	takes := ask.Mode == ModeTake && ask.Hold == 0 && ask.Wait == 0
	if takes && len(charges) == len(decisions) && ctx.Err() == nil {
		switch {
		case len(charges) == 1 && o.takeKnown(&charges[0], &decisions[0]), len(charges) > 1 && o.takeAllKnown(charges, decisions):
			return Hold{}, nil
		}
	}
	if err := check(&ask, charges, decisions); err != nil {
		return Hold{}, err
	}
	switch {
	case len(charges) == 0:
		if err := o.enter(ctx); err != nil {
			return Hold{}, err
		}
		return o.inner.Do(ctx, ask, charges, decisions)
	case ask.Mode == ModeRefund:
		return Hold{}, o.refund(ctx, charges)
	case ask.Mode == ModeReset:
		return Hold{}, o.reset(ctx, charges)
	}
	return o.begin(ask, charges, decisions).run(ctx)
}

// takeMixed takes the permits of charges some of which are not of ConsistencyOptimistic: those, and the others of which more must
// be known, are taken in one call of the store, or none is. Where memory refuses, the store is not asked.
func (o *Optimistic) takeMixed(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	c := o.begin(Ask{}, charges, decisions)
	c.mixed = true
	_, err := c.run(ctx)
	return err
}

// refuses reports whether one of the charges, which may be mixed, is known to be refused. Then the decisions are made.
func (o *Optimistic) refuses(charges []Charge, decisions []weir.Decision) bool {
	c := o.begin(Ask{}, charges, decisions)
	c.mixed, c.whole = true, true // of which memory grants nothing
	o.lock(c.shards)
	defer o.unlock(c.shards)
	refused, _ := c.decide(o.now(), nil)
	return refused
}

// Settle implements [Home].
func (o *Optimistic) Settle(ctx context.Context, h Hold, actual []int64) error {
	if err := o.enter(ctx); err != nil {
		return err
	}
	defer o.mistrust(h.Charges)
	return o.inner.Settle(ctx, h, actual)
}

// refund gives permits back: here those of which the store does not know yet.
func (o *Optimistic) refund(ctx context.Context, charges []Charge) error {
	if err := CheckQueued(Ask{Mode: ModeRefund}, charges, nil); err != nil {
		return err
	}
	if err := o.enter(ctx); err != nil {
		return err
	}
	rest := make([]Charge, 0, len(charges))
	for _, c := range charges {
		o.with(&c, func(k *optimisticKey) {
			here := min(c.N, k.telling(false))
			k.refund(here, o.now())
			c.N -= here
		})
		if c.N > 0 {
			rest = append(rest, c)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	defer o.mistrust(rest)
	return Refund(ctx, o.inner, rest)
}

// mistrust has the next requests for the keys ask the store, as permits were given back there.
func (o *Optimistic) mistrust(charges []Charge) {
	for i := range charges {
		o.with(&charges[i], (*optimisticKey).mistrust)
	}
}

// enter returns why a call cannot begin, or nil.
func (o *Optimistic) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return notTaken(err)
	}
	if o.closed.Load() {
		return ErrClosed
	}
	return nil
}

// reset forgets keys. What this process owes is forgotten; what others owe they tell the store afterwards.
func (o *Optimistic) reset(ctx context.Context, charges []Charge) error {
	if err := o.enter(ctx); err != nil {
		return err
	}
	forget := func(k *optimisticKey) {
		k.forget()
		k.mistrust()
	}
	for i := range charges {
		var flights []*optimisticFlight
		o.withAll(&charges[i], func(k *optimisticKey) {
			forget(k)
			if k.flight != nil {
				flights = append(flights, k.flight)
			}
		})
		for _, f := range flights {
			select { // what is under way would count afterwards
			case <-f.done:
			case <-ctx.Done():
				return notTaken(ctx.Err())
			}
		}
	}
	defer func() {
		for i := range charges {
			o.withAll(&charges[i], forget)
		}
	}()
	_, err := o.inner.Do(ctx, Ask{Mode: ModeReset}, charges, nil)
	return err
}

// DriftOf is how many permits of a key under the limit l a process allows at most without the store knowing of them. It is Drift
// per cent of the limit (the burst of a token bucket), but at least one. It is 0 if l is not decided on in memory, as a
// concurrency limit is not, and if l or the options are not valid.
func (o OptimisticOptions) DriftOf(l weir.Limit) int64 {
	o, err := o.filled()
	if err != nil {
		return 0
	}
	t, err := termsOf(l)
	if err != nil {
		return 0
	}
	return o.driftOf(t)
}

func (o OptimisticOptions) driftOf(t *terms) int64 {
	if t.limit.Algorithm() == weir.AlgorithmConcurrency {
		return 0
	}
	return max(1, t.most*int64(o.Drift)/100)
}

// Describe is how far the limit l can be exceeded, in words: "optimistic: up to 10 x (instances - 1) permits above the limit,
// paid back afterwards with up to 11 instances". Sliding windows and counters do not pay back: "... above the limit, in each
// window".
func (o OptimisticOptions) Describe(l weir.Limit) string {
	drift := o.DriftOf(l)
	if drift == 0 {
		return "coherent: never above the limit, as every decision asks the store"
	}
	t, err := termsOf(l)
	if err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("optimistic: up to %d x (instances - 1) permits above the limit, ", drift)
	switch l.Algorithm() {
	case weir.AlgorithmSlidingWindow, weir.AlgorithmSlidingCounter:
		return text + "in each window"
	default:
		return text + fmt.Sprintf("paid back afterwards with up to %d instances", t.most/drift+1)
	}
}
