package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/limits"
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
// It also decides about a key whose record cannot be read, and about keys of a part of the store that cannot be reached, while
// others are decided by the store ([ErrUnreadable], [ErrPartUnavailable]).
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
// have expired by then were canceled by themselves. The zero Fleet is not usable: call [NewFleet].
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

// Close tells the store what it has to know, within a second or two, gives back what was leased, and closes the store. It returns
// an error if it could not tell what was allowed without it. Closing twice is harmless.
func (f *Fleet) Close() error {
	f.lock.Lock()
	first := !f.closed.Swap(true)
	f.lock.Unlock()
	f.end()
	f.done.Wait()
	if !first {
		return nil
	}
	err := f.lastWords()
	if o := f.optimistic.Load(); o != nil {
		err = errors.Join(err, o.Close())
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

// order is in which order the parts of a request are decided: what is leased first, as that can be given back in memory.
var order = [...]Consistency{ConsistencyLeased, ConsistencyOptimistic, ConsistencyCoherent}

// placeOf is where in order a consistency is.
func placeOf(c Consistency) int {
	switch c {
	case ConsistencyLeased:
		return 0
	case ConsistencyOptimistic:
		return 1
	default:
		return 2
	}
}

// consistencyOf is that of all charges, unless it is mixed.
func consistencyOf(charges []Charge) (c Consistency, mixed bool) {
	if len(charges) == 0 {
		return ConsistencyCoherent, false
	}
	c = charges[0].Consistency
	for i := 1; i < len(charges); i++ {
		if charges[i].Consistency != c {
			return c, true
		}
	}
	return c, false
}

// took is what took the permits of a part, and since when it may be undone.
type took struct {
	by    taker
	since int64 // by the clock of Leased, of what is leased
	share int64 // by that of the memory of the fallback
}

type taker uint8

const (
	tookStore taker = iota // the layer of its consistency
	tookShare              // that, and the share of this process
	tookLocal              // this process without the store
)

// takenAt is the place of a charge that is taken: what is leased, and, in one part, what the store is asked for in one call.
func (f *Fleet) takenAt(charges []Charge) func(c *Charge) int {
	rest := placeOf(ConsistencyCoherent)
	for i := range charges {
		if charges[i].Consistency == ConsistencyOptimistic {
			rest = placeOf(ConsistencyOptimistic)
		}
	}
	return func(c *Charge) int {
		if c.Consistency == ConsistencyLeased && f.leased.leases(c.Limit) {
			return placeOf(ConsistencyLeased)
		}
		return rest
	}
}

// fallsBack reports whether a call that failed is to be decided without the store: no caller waits for a decision any more whose
// context was canceled.
func fallsBack(ctx context.Context, err error) bool {
	return errors.Is(err, ErrUnavailable) && !errors.Is(ctx.Err(), context.Canceled)
}

// takeMixed takes charges of several consistencies.
func (f *Fleet) takeMixed(ctx context.Context, charges []Charge, decisions []weir.Decision) error {
	p := splitBy(charges, f.takenAt(charges))
	filled := decisions
	defer func() { p.end(filled) }()
	if f.refuses(p) {
		p[placeOf(ConsistencyLeased)].notAsked()
		return nil
	}
	err := p.takeAll(func(i int, q *part) (err error) {
		since := int64(0)
		if order[i] == ConsistencyLeased {
			since = f.leased.now()
		}
		q.took, err = f.take(ctx, order[i], q.charges, q.decisions)
		q.took.since = since
		return err
	}, f.giveBack)
	if err != nil {
		filled = nil
	}
	return err
}

// refuses reports whether a part that comes after what is leased is known to be refused, for which nothing need be taken.
func (f *Fleet) refuses(p *parts) bool {
	q := &p[placeOf(ConsistencyOptimistic)]
	if len(q.charges) == 0 || len(p[placeOf(ConsistencyLeased)].charges) == 0 || f.fallback.owing.Load() != 0 || f.grace.Load() {
		return false
	}
	return f.optimist().refuses(q.charges, q.decisions)
}

// take takes the permits of charges that are taken together: of one consistency, or, for ConsistencyOptimistic, others among
// them.
func (f *Fleet) take(ctx context.Context, c Consistency, charges []Charge, decisions []weir.Decision) (by took, err error) {
	if gone := ctx.Err(); gone != nil {
		return by, notTaken(gone)
	}
	if f.fallback.owing.Load() != 0 {
		err = f.repay(ctx, charges)
	}
	if err == nil && f.grace.Load() {
		by.by, by.share = tookShare, f.fallback.memory.time()
		passed, wrong := f.fallback.passes(charges, decisions, f.graceFor)
		if !passed {
			return by, wrong
		}
	}
	if err == nil {
		switch c {
		case ConsistencyLeased:
			_, err = f.leased.Do(ctx, Ask{}, charges, decisions)
		case ConsistencyOptimistic:
			if _, mixed := consistencyOf(charges); mixed {
				err = f.optimist().takeMixed(ctx, charges, decisions)
			} else {
				_, err = f.optimist().Do(ctx, Ask{}, charges, decisions)
			}
		default:
			_, err = f.breaker.Do(ctx, Ask{}, charges, decisions)
		}
	}
	if by.by == tookShare && (err != nil || !allGranted(decisions)) {
		f.fallback.unpass(charges, by.share)
	}
	if err == nil || !fallsBack(ctx, err) {
		return by, err
	}
	by.by, by.share = tookLocal, f.fallback.memory.time()
	_, err = f.fallback.decide(Ask{}, charges, decisions, f.breaker.retryAfter())
	f.recovers()
	return by, err
}

// giveBack undoes what is leased of a request.
func (f *Fleet) giveBack(q *part) {
	switch q.took.by {
	case tookLocal:
		f.fallback.undo(q.charges, q.took.share)
	case tookShare:
		f.fallback.unpass(q.charges, q.took.share)
		f.leased.giveBackSince(q.charges, q.took.since)
	default:
		f.leased.giveBackSince(q.charges, q.took.since)
	}
	q.givenBack()
}

// repay tells the store what is owed of the keys of charges, before it decides about them. It waits for other calls that do so.
func (f *Fleet) repay(ctx context.Context, charges []Charge) error {
	for {
		if f.breaker.failsFast() {
			return errOpen
		}
		claims, mine, other := f.fallback.claim(charges)
		switch {
		case other == nil && len(claims) == 0:
			return nil
		case other == nil:
			return f.tell(ctx, claims, mine)
		case f.breaker.state() != BreakerClosed: // the other one is its probe, which may take long
			return errOpen
		}
		select {
		case <-other.done:
			if err := other.err; errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrPartUnavailable) && !ended(err) {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
		}
	}
}

// ended reports whether a call failed for the context of its caller.
func ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Do implements [Home].
//
// Charges of several consistencies are debited and given back one after the other. While the store is unavailable, what is
// refunded of charges of FailLocal is given back in this process. For those of FailOpen nothing is done, and for the others it
// is an error. If all charges are of FailLocal, they are debited in this process, and the store is told later; otherwise it is
// an error. The store is asked for loans and states. A reset reaches what this process knows even if the store fails.
func (f *Fleet) Do(ctx context.Context, ask Ask, charges []Charge, decisions []weir.Decision) (Hold, error) {
	if ask.Wait != 0 {
		return Hold{}, errNoQueue(ask.Wait)
	}
	c, mixed := consistencyOf(charges)
	switch {
	case ask.Hold != 0:
		return f.reserve(ctx, ask, charges, decisions)
	case ask.Mode == ModeTake && !mixed:
		_, err := f.take(ctx, c, charges, decisions)
		return Hold{}, err
	case (ask.Mode == ModePeek || ask.Mode == ModeLend) && !mixed:
		return f.look(ctx, ask, c, charges, decisions)
	}
	if err := CheckQueued(ask, charges, decisions); err != nil {
		return Hold{}, err
	}
	switch {
	case ask.Mode == ModeTake:
		return Hold{}, f.takeMixed(ctx, charges, decisions)
	case ask.Mode == ModeReset:
		return Hold{}, f.reset(ctx, charges)
	case ask.States != nil:
		return Hold{}, inTurn(ask, charges, decisions, func(ask Ask, one []Charge, d []weir.Decision) error {
			_, err := f.look(ctx, ask, one[0].Consistency, one, d)
			return err
		})
	}
	p := splitBy(charges, func(c *Charge) int { return placeOf(c.Consistency) })
	err := p.each(func(i int, q *part) error { return f.change(ctx, ask, order[i], q) })
	if ask.Mode == ModePeek && err != nil || ask.Mode == ModeRefund {
		decisions = nil
	}
	p.end(decisions)
	return Hold{}, err
}

// look asks the layer of a consistency, which may be decided on without it. What this process allowed while the store was
// unavailable is told to the store first.
func (f *Fleet) look(
	ctx context.Context, ask Ask, c Consistency, charges []Charge, decisions []weir.Decision,
) (h Hold, err error) {
	if ask.Mode == ModeLend || ask.States != nil {
		return f.layer(c).Do(ctx, ask, charges, decisions)
	}
	if gone := ctx.Err(); gone != nil {
		return Hold{}, notTaken(gone)
	}
	if f.fallback.owing.Load() != 0 {
		err = f.repay(ctx, charges)
	}
	if err == nil {
		_, err = f.layer(c).Do(ctx, ask, charges, decisions)
	}
	if err != nil && fallsBack(ctx, err) {
		_, err = f.fallback.decide(ask, charges, decisions, f.breaker.retryAfter())
	}
	return Hold{}, err
}

// change peeks at, debits or refunds the charges of one consistency.
func (f *Fleet) change(ctx context.Context, ask Ask, c Consistency, q *part) error {
	if ask.Mode == ModePeek {
		_, err := f.look(ctx, ask, c, q.charges, q.decisions)
		return err
	}
	_, err := f.layer(c).Do(ctx, ask, q.charges, q.decisions)
	switch {
	case err == nil || !fallsBack(ctx, err):
	case ask.Mode == ModeDebit:
		if ok, wrong := f.fallback.debit(q.charges, q.decisions); ok {
			err = wrong
			f.recovers()
		}
	default:
		f.fallback.refund(q.charges)
		for i := range q.charges {
			if fail := q.charges[i].Fail; fail != FailOpen && fail != FailLocal {
				return err
			}
		}
		err = nil
	}
	return err
}

// reserve reserves charges. It is one call of the store, whatever their consistencies are.
func (f *Fleet) reserve(ctx context.Context, ask Ask, charges []Charge, decisions []weir.Decision) (h Hold, err error) {
	if wrong := check(&ask, charges, decisions); wrong != nil {
		return Hold{}, wrong
	}
	if gone := ctx.Err(); gone != nil {
		return Hold{}, notTaken(gone)
	}
	if f.fallback.owing.Load() != 0 {
		err = f.repay(ctx, charges)
	}
	passed, since := false, int64(0)
	if err == nil && f.grace.Load() {
		since = f.fallback.memory.time()
		if passed, err = f.fallback.passes(charges, decisions, f.graceFor); !passed {
			return Hold{}, err
		}
	}
	if err == nil {
		if c, mixed := consistencyOf(charges); mixed {
			h, err = f.oneOf(charges).Do(ctx, ask, f.lowered(charges), decisions)
		} else {
			h, err = f.layer(c).Do(ctx, ask, charges, decisions)
		}
	}
	if passed && h.ID == "" {
		f.fallback.unpass(charges, since)
	}
	if err != nil && fallsBack(ctx, err) {
		h, err = f.fallback.decide(ask, charges, decisions, f.breaker.retryAfter())
		f.recovers()
	}
	return h, err
}

// oneOf is the layer that has to know of all charges: that of ConsistencyOptimistic, if one of them has it, as its view of the
// key changes.
func (f *Fleet) oneOf(charges []Charge) Home { //nolint:ireturn // one of two
	for i := range charges {
		if charges[i].Consistency == ConsistencyOptimistic {
			return f.optimist()
		}
	}
	return f.breaker
}

// lowered are the charges with the limits that the store has for them.
func (f *Fleet) lowered(charges []Charge) []Charge {
	changed := make([]Charge, len(charges))
	for i, c := range charges {
		if c.Consistency == ConsistencyLeased && c.Limit.Algorithm() == weir.AlgorithmTokenBucket {
			if b := f.o.Leased.Bound(c.Limit); b.Leased {
				c.Limit = limits.WithPermits(c.Limit, b.Lowered)
			}
		}
		changed[i] = c
	}
	return changed
}

// Settle implements [Home]. If the store is unavailable, the fleet settles a reservation when it is back.
func (f *Fleet) Settle(ctx context.Context, h Hold, actual []int64) error {
	if h.lent() {
		return f.layer(h.Charges[0].Consistency).Settle(ctx, h, actual)
	}
	if f.closed.Load() {
		return ErrClosed
	}
	if ok, err := f.fallback.settle(ctx, h, actual); ok {
		f.recovers()
		return err
	}
	err := f.oneOf(h.Charges).Settle(ctx, h, actual)
	if errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnreadable) && CheckSettle(h, actual) == nil {
		f.settleLater(h, actual)
	}
	return err
}

// reset forgets keys.
func (f *Fleet) reset(ctx context.Context, charges []Charge) error {
	f.fallback.reset(charges)
	if o := f.optimistic.Load(); o != nil {
		if _, err := o.Do(ctx, Ask{Mode: ModeReset}, charges, nil); err != nil {
			return err
		}
	}
	_, err := f.leased.Do(ctx, Ask{Mode: ModeReset}, charges, nil)
	return err
}
