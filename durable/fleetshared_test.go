package durable_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/bounds"
	"github.com/weirhq/weir/store"
)

// sharedLimit is a limit that the processes of a fleet share, and what is asked of it.
type sharedLimit struct {
	name  string
	limit weir.Limit
	kept  store.Consistency
}

// charge is one for permits of the limit.
func (l *sharedLimit) charge(key string, n int64) store.Charge {
	return store.Charge{Policy: l.name, Key: key, Limit: l.limit, N: n, Consistency: l.kept, Fail: store.FailClosed}
}

var (
	leasedBucket     = sharedLimit{"leased-bucket", weir.TokenBucket(weir.PerSecond(4), 100), store.ConsistencyLeased}
	leasedWindow     = sharedLimit{"leased-window", weir.FixedWindow(weir.Per(80, 10*time.Second)), store.ConsistencyLeased}
	leasedSliding    = sharedLimit{"leased-sliding", weir.SlidingWindow(weir.Per(80, 12*time.Second), 6), store.ConsistencyLeased}
	optimisticBucket = sharedLimit{"optimistic-bucket", weir.TokenBucket(weir.PerSecond(4), 100), store.ConsistencyOptimistic}
	optimisticWindow = sharedLimit{"optimistic-window", weir.FixedWindow(weir.Per(80, 10*time.Second)), store.ConsistencyOptimistic}
	leasedTide       = sharedLimit{"leased-tide", weir.TokenBucket(weir.PerSecond(20), 80), store.ConsistencyLeased}
	optimisticTide   = sharedLimit{"optimistic-tide", weir.TokenBucket(weir.PerSecond(4), 100), store.ConsistencyOptimistic}
	coherentBucket   = sharedLimit{"coherent-bucket", weir.TokenBucket(weir.PerSecond(2), 20), store.ConsistencyCoherent}
	coherentPair     = sharedLimit{"coherent-pair", weir.TokenBucket(weir.PerHour(100), 400), store.ConsistencyCoherent}
	coherentSlots    = sharedLimit{"coherent-slots", weir.AtOnce(5), store.ConsistencyCoherent}
)

// process is one that shares limits in the store.
type process struct {
	*simulation

	name  string
	fleet *store.Fleet
	ctx   context.Context //nolint:containedctx // until the process ends
}

// share begins the store and the processes of two fleets: those of one keep their limits leased, and those of the other optimistic.
func (s *simulation) share(t *testing.T) {
	t.Helper()
	s.clock = newDriftingClock(s.net, "redis", s.seed%3 != 0)
	s.redis = must(store.NewMemory(store.MemoryOptions{Clock: s.clock}))
	s.net.cutNowAndThen("redis")
	for i := range 3 {
		machine := fmt.Sprint("machine", i)
		s.net.cutNowAndThen(machine, machine+">redis")
		s.live(machine, "leased", leasedTide, leasedBucket, leasedWindow, leasedSliding)
		s.live(machine, "optimistic", optimisticTide, optimisticBucket, optimisticWindow)
	}
}

// live has a process start and end again and again, in order or not. The first of its limits is that of the tide.
func (s *simulation) live(machine, fleet string, limits ...sharedLimit) {
	name := machine + " " + fleet
	r := s.chance(name)
	s.work.Go(func() {
		for s.ctx.Err() == nil {
			s.mu.Lock()
			s.begun[limits[0].kept]++
			s.mu.Unlock()
			long, dies := 2*fleetTime, r.IntN(2) == 0
			if r.IntN(2) == 0 {
				long = time.Duration(r.Int64N(int64(fleetTime)))
			}
			s.process(machine, name, fmt.Sprint(r.Uint64()), long, dies, limits)
			lasts(s.ctx, time.Duration(r.Int64N(int64(5*time.Second))))
		}
	})
}

// process is a process from its start to its end.
func (s *simulation) process(machine, name, life string, long time.Duration, dies bool, limits []sharedLimit) {
	link := &remote{Memory: s.redis, net: s.net, link: machine + ">redis"}
	clock := newDriftingClock(s.net, name, true)
	f := must(store.NewFleet(link, store.FleetOptions{
		Breaker:    store.BreakerOptions{Failures: 1_000_000}, // what it waits is of no seed
		Leased:     store.LeasedOptions{Clock: clock},
		Optimistic: store.OptimisticOptions{Clock: clock},
		Replicas:   store.ReplicasOptions{Disabled: true},
	}))
	ctx, cancel := context.WithTimeout(s.ctx, long)
	defer cancel()
	p := &process{simulation: s, name: name, fleet: f, ctx: ctx}
	done := make(chan struct{})
	clients := 0
	client := func(what string, about time.Duration, ask func(r *rand.Rand)) {
		clients++
		r := s.chance(fmt.Sprint(name, " ", life, " ", what))
		go func() {
			defer func() { done <- struct{}{} }()
			for hasty := 0; pause(ctx, r, about, &hasty); {
				ask(r)
			}
		}()
	}
	client("tide", time.Second, func(r *rand.Rand) { p.tide(r, &limits[0]) })
	for i := range limits[1:] {
		i++
		client(limits[i].name, 2*time.Second, func(r *rand.Rand) { p.take(&limits[i], 1+r.Int64N(8)) })
	}
	client("coherent", 3*time.Second, p.coherent)
	client("pair", 6*time.Second, func(r *rand.Rand) { p.pair(r, &limits[1]) })
	client("slots", 3*time.Second, p.slot)
	<-ctx.Done()
	if dies && s.ctx.Err() == nil {
		link.dead.Store(true)
	}
	for range clients {
		<-done
	}
	time.Sleep(time.Duration(s.chance(name + " end").Int64N(int64(500 * time.Millisecond)))) // so that not all end at one instant
	_ = f.Close()
}

// tideEvery is how often all processes ask for the same limit at once. Between, all of its permits come back.
const tideEvery = 15 * time.Second

// tide waits for the next tide, and has permits held then that are not spent, while others come back, before it asks for all that there are.
func (p *process) tide(r *rand.Rand, l *sharedLimit) {
	if !lasts(p.ctx, tideEvery-p.net.now()%tideEvery+time.Duration(r.Int64N(int64(time.Millisecond)))) {
		return
	}
	for range 8 {
		p.take(l, 1)
		lasts(p.ctx, time.Millisecond)
	}
	for range 4 {
		lasts(p.ctx, 210*time.Millisecond)
		p.take(l, 1)
	}
	for asked, refused := 0, 0; asked < 80 && refused < 4 && p.ctx.Err() == nil; asked++ {
		if !p.take(l, 1+r.Int64N(2)) {
			refused++
			lasts(p.ctx, time.Duration(r.Int64N(int64(time.Millisecond))))
		}
	}
}

// take takes permits of one limit, and reports whether it was allowed to.
func (p *process) take(l *sharedLimit, n int64) bool {
	charges, decisions := []store.Charge{l.charge("k", n)}, make([]weir.Decision, 1)
	since := p.net.now()
	err := store.Take(context.Background(), p.fleet, charges, decisions)
	kind, until := told(err, decisions), p.net.now()
	if kind == bounds.Maybe {
		until += straggle
	}
	p.note(l.name, kind, n, since, until)
	return kind == bounds.Granted
}

// coherent takes permits that the store decides about, gives some back, or reserves them.
func (p *process) coherent(r *rand.Rand) {
	n := 1 + r.Int64N(6)
	switch r.IntN(6) {
	default:
		p.take(&coherentBucket, n)
	case 0:
		since := p.net.now()
		err := store.Refund(context.Background(), p.fleet, []store.Charge{coherentBucket.charge("k", n)})
		p.gave(coherentBucket.name, n, since, err)
	case 1, 2:
		p.reserve(r, &coherentBucket, n)
	}
}

// gave notes that permits were given back, since an instant.
func (p *process) gave(limit string, n int64, since time.Duration, err error) {
	switch {
	case err == nil:
		p.note(limit, bounds.Returned, n, since, p.net.now())
	case !known(err): // it is tried again until the end
		p.note(limit, bounds.MayReturn, n, since, 2*fleetTime)
	}
}

// reserve reserves permits, and settles that, or leaves it to itself.
func (p *process) reserve(r *rand.Rand, l *sharedLimit, n int64) {
	const expiry = 5 * time.Second
	charges, decisions := []store.Charge{l.charge("k", n)}, make([]weir.Decision, 1)
	since := p.net.now()
	held, err := store.Reserve(context.Background(), p.fleet, charges, decisions, expiry)
	kind, until := told(err, decisions), p.net.now()
	if kind == bounds.Maybe { // it expires, if it was made
		p.note(l.name, kind, n, since, until+straggle+expiry+p.slack())
		return
	}
	p.note(l.name, kind, n, since, until)
	if kind == bounds.Refused {
		return
	}
	lasts(p.ctx, time.Duration(r.Int64N(int64(expiry*5/4))))
	back, how := n, r.IntN(3)
	settled := p.net.now()
	switch how {
	case 0:
		err = store.Cancel(context.Background(), p.fleet, held)
	case 1:
		actual := r.Int64N(n + 1)
		if l.limit.Algorithm() != weir.AlgorithmConcurrency {
			back -= actual
		}
		err = store.Commit(context.Background(), p.fleet, held, []int64{actual})
	}
	switch {
	case how < 2 && err == nil:
		p.canceled(l, back, since, settled)
	case how < 2 && !known(err):
		p.note(l.name, bounds.MayReturn, n, min(settled, since+expiry-p.slack()), 2*fleetTime)
	default:
		p.note(l.name, bounds.MayReturn, n, since+expiry-p.slack(), max(p.net.now(), until+expiry)+p.slack()+straggle)
	}
}

// canceled notes that permits are back that were taken after an instant, as if they had not been. It is not promised that those are
// that can have been regained meanwhile.
func (p *process) canceled(l *sharedLimit, n int64, since, settled time.Duration) {
	now, sure := p.net.now(), n
	if l.limit.Algorithm() != weir.AlgorithmConcurrency {
		regained := float64(l.limit.Rate().Permits) * float64(now-since+p.slack()) / float64(l.limit.Rate().Period)
		sure = max(0, n-int64(regained)-1)
	}
	p.event(l.name, bounds.Event{Sent: int64(settled), Received: int64(now), N: sure, Since: max(1, int64(since)), Kind: bounds.Returned})
	p.note(l.name, bounds.MayReturn, n-sure, settled, now)
}

// pair takes permits of two keys that are always charged together, and sometimes of another limit, too.
func (p *process) pair(r *rand.Rand, third *sharedLimit) {
	n := 1 + r.Int64N(5)
	charges := []store.Charge{coherentPair.charge("a", n), coherentPair.charge("b", n)}
	if r.IntN(3) == 0 {
		charges = append(charges, third.charge("k", n))
	}
	decisions := make([]weir.Decision, len(charges))
	since := p.net.now()
	err := store.Take(context.Background(), p.fleet, charges, decisions)
	kind, until := told(err, decisions), p.net.now()
	if kind == bounds.Maybe {
		until += straggle
	}
	if kind != bounds.Refused || told(nil, decisions[:2]) == bounds.Refused { // and not the third alone
		p.note(coherentPair.name, kind, n, since, until)
	}
	if len(charges) > 2 && kind != bounds.Refused {
		p.note(third.name, kind, n, since, until)
	}
}

// slot takes a slot of a concurrency limit for a while.
func (p *process) slot(r *rand.Rand) { p.reserve(r, &coherentSlots, 1+r.Int64N(2)) }

// slack is by how much the clock of the store may have been set, or have gone wrong.
func (s *simulation) slack() time.Duration {
	return s.clock.stepped() + time.Duration(int64(fleetTime)/1e6*1000)
}

// checkShared looks whether the limits of the fleet were kept.
func (s *simulation) checkShared(t *testing.T) {
	t.Helper()
	for _, l := range []sharedLimit{
		leasedTide, leasedBucket, leasedWindow, leasedSliding, optimisticTide, optimisticBucket, optimisticWindow,
		coherentBucket, coherentPair, coherentSlots,
	} {
		above := int64(0)
		if l.kept == store.ConsistencyOptimistic { // each of them may have ended without having told the store
			above = int64(s.begun[l.kept]-1) * store.OptimisticOptions{}.DriftOf(l.limit)
		}
		bound := s.bound(l.limit, above)
		if b := bound.Minted(s.events[l.name]); b.Broken() {
			s.failf("%s: %.2f permits more were granted than %v allows, from %v to %v", l.name, b.Permits, bound, b.From, b.To)
		}
		if exact := l.kept == store.ConsistencyCoherent && s.net.loss == 0 && l.limit.Algorithm() != weir.AlgorithmConcurrency; exact {
			if b := bound.Lost(s.events[l.name]); b.Broken() {
				s.failf("%s: %d requests were refused although %.2f permits were there, from %v to %v", l.name, b.Times, b.Permits, b.From, b.To)
			}
		}
	}
	a, b := s.left(t, "a"), s.left(t, "b")
	if a != b {
		s.failf("of two keys that are always charged together, one has %d permits left and the other %d", a, b)
	}
}

// left is how many permits the store has of one of a pair.
func (s *simulation) left(t *testing.T, key string) int64 {
	t.Helper()
	return must(store.Inspect(t.Context(), s.redis, coherentPair.charge(key, 1))).Decision.Remaining
}

// bound is what a limit allows, and so many permits above it.
func (s *simulation) bound(l weir.Limit, above int64) bounds.Limit {
	switch l.Algorithm() {
	case weir.AlgorithmFixedWindow, weir.AlgorithmSlidingWindow:
		return bounds.Window{
			Permits: l.Rate().Permits + above, Length: l.Rate().Period, Segments: max(1, l.Segments()), Aligned: len(s.clock.steps) == 0,
			Offset: s.net.begin.UnixNano() + int64(s.clock.ahead), Slack: s.slack(),
		}
	case weir.AlgorithmConcurrency:
		return bounds.Bucket{Burst: float64(l.Permits() + above)}
	default:
		return bounds.Bucket{
			Rate: float64(l.Rate().Permits) / l.Rate().Period.Seconds(), Burst: float64(l.Permits() + above), Slack: s.slack(),
		}
	}
}
