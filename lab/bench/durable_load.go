package bench

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/store"
)

// durableLoad is a measurement of durable limits.
type durableLoad struct {
	name    string
	kind    string // of the cluster
	how     string
	callers int
	budget  budget
	// far tells that another process owns the limit; binds that the limit, and not what it costs, holds the callers up.
	far, binds bool
	time       time.Duration
}

// durableCallers are the numbers of callers.
func durableCallers() []int { return []int{1, 32, 256, 10_000} }

var (
	// busyBudget has more permits than any measurement can use up, and regains next to none, so that what was taken of it can
	// be counted.
	busyBudget = budget{10, time.Second, 10_000_000_000}
	// bindingBudget is far less than 10,000 callers ask for.
	bindingBudget = budget{20_000, time.Second, 100}
)

// The names of the tables.
const (
	ownName   = "the owner is asked in its own process"
	farName   = "the owner is asked from another process"
	bindsName = "the limit holds the callers up"
)

func durableLoads() (all []durableLoad) {
	add := func(l durableLoad) {
		for _, callers := range durableCallers() {
			l.callers = callers
			all = append(all, l)
		}
	}
	const same = "Each caller asks for one permit of the same limit, waits until it is granted, and asks again. The limit has " +
		"so many permits that no caller ever waits."
	add(durableLoad{name: ownName, kind: oneNode, budget: busyBudget, how: same})
	add(durableLoad{name: ownName, kind: threeNodes, budget: busyBudget, how: same})
	add(durableLoad{
		name: farName, kind: threeNodes, budget: busyBudget, far: true,
		how: "The same, but the limit is owned by another of the three processes: all callers share one gRPC stream to it.",
	})
	return append(all, durableLoad{
		name: bindsName, kind: oneNode, budget: bindingBudget, binds: true, callers: 10_000,
		how: fmt.Sprintf("The same with a limit of %s/s and a burst of %d, far below the demand: callers stand in the queue of "+
			"the owner, and their latency is what the limit says.", count(int(bindingBudget.permits)), bindingBudget.burst),
	})
}

func (l durableLoad) id() string { return fmt.Sprintf("%s, %s x%d", l.name, l.kind, l.callers) }

// durableSubject is a K.
type durableSubject struct {
	by      string
	reserve int64
	every   int    // of how many grants the time of one is measured
	far     string // the prefix of the limits of another process
}

// The names of both.
const (
	byOne      = "K = 1"
	byAdaptive = "K adaptive"
)

func durableSubjects() []durableSubject {
	return []durableSubject{{byOne, 1, 1, farOne}, {byAdaptive, 0, localEvery, farAdaptive}}
}

// durableSample is one measurement.
type durableSample struct {
	wall    time.Duration
	granted int64
	latency Latency
	cpu     time.Duration // of this process
	// writes are transactions of etcd.
	writes int64
	// taken is how many permits the limit is short of afterwards, and since how long it had regained some then.
	taken int64
	since time.Duration
}

func (m durableSample) perSecond() float64 { return float64(m.granted) / m.wall.Seconds() }

// admitted is how many were granted over how many may have been: those that the limit allows, and those that it has counted, with
// what it can have regained meanwhile.
func (m durableSample) admitted(l durableLoad) float64 {
	counted := float64(m.taken) + l.budget.perSecond()*m.since.Seconds() + 1
	return max(float64(m.granted)/l.budget.evenly(m.wall), float64(m.granted)/counted)
}

// drive has callers ask for so long, or until each was answered once, each again as soon as it is answered. Every request that
// was begun is waited for, and counts.
func (l durableLoad) drive(
	ctx context.Context, caller func() redisDecide, callers int, d time.Duration, every int, h *histogram,
) (m durableSample, err error) {
	var (
		all     sync.WaitGroup
		begun   sync.WaitGroup // until each was answered once
		over    atomic.Bool
		gate    = make(chan struct{})
		answers = redisAnswers{all: h}
		keys    = []string{""}
	)
	for range callers {
		ask, first := caller(), true
		once := func() {
			if first {
				first = false
				begun.Done()
			}
		}
		begun.Add(1)
		all.Go(func() {
			<-gate
			answers.ask(func(key string) (bool, error) {
				ok, err := ask(key)
				once()
				return ok, err
			}, keys, 0, every, &over)
			once()
		})
	}
	cpu, start := cpuTime(), time.Now()
	close(gate)
	pause(ctx, d)
	begun.Wait()
	over.Store(true)
	all.Wait()
	m.wall, m.cpu, m.granted = time.Since(start), cpuTime()-cpu, answers.granted
	if answers.err == nil {
		answers.err = ctx.Err()
	}
	return m, answers.err
}

// durableAsk takes the permits of a charge, and waits for them.
func durableAsk(ctx context.Context, n *durable.Node, c store.Charge) (weir.Decision, error) {
	charges, decisions := [1]store.Charge{c}, [1]weir.Decision{}
	_, err := n.Do(ctx, store.Ask{Wait: time.Minute}, charges[:], decisions[:])
	return decisions[0], err
}

// limit is the budget as one of weir.
func (l durableLoad) limit() weir.Limit {
	return weir.TokenBucket(weir.Per(l.budget.permits, l.budget.period), l.budget.burst)
}

// durableKeys numbers the keys, so that each measurement has one that is new.
var durableKeys atomic.Int64

// sample measures one K on a new key, after a warm-up of a part of the time on another one.
func (l durableLoad) sample(ctx context.Context, c *durableCluster, s durableSubject, h *histogram) (m durableSample, err error) {
	wrong := func(err error) (durableSample, error) {
		return m, fmt.Errorf("bench: durable, %s: %s: %w", l.id(), s.by, err)
	}
	n, end, err := l.node(ctx, c, s)
	if err != nil {
		return wrong(err)
	}
	defer end()
	r := store.Charge{
		Policy: benchPolicy, Key: "warm-" + strconv.FormatInt(durableKeys.Add(1), 10), Limit: l.limit(), N: 1,
		Queue: int64(2 * l.callers),
	}
	ask := func() redisDecide {
		return func(string) (bool, error) {
			if d, why := durableAsk(ctx, n, r); !d.Allowed {
				return false, fmt.Errorf("a request was answered %v: %w", d.Reason, why)
			}
			return true, nil
		}
	}
	h.reset()
	if _, err = l.drive(ctx, ask, l.callers, l.time/warmPart, s.every, h); err != nil {
		return wrong(err)
	}
	h.reset()
	r.Key = "hot-" + strconv.FormatInt(durableKeys.Add(1), 10)
	runtime.GC()
	before, err := c.revision(ctx)
	if err != nil {
		return wrong(err)
	}
	start := time.Now()
	if m, err = l.drive(ctx, ask, l.callers, l.time, s.every, h); err != nil {
		return wrong(err)
	}
	after, err := c.revision(ctx)
	if err != nil {
		return wrong(err)
	}
	m.writes, m.latency = after-before, h.latency()
	r.N, r.Queue = 0, 0
	probe, err := durableAsk(ctx, n, r)
	if probe.Limit != l.budget.burst {
		return wrong(fmt.Errorf("a probe was answered %v: %w", probe.Reason, err))
	}
	m.taken, m.since = probe.Limit-probe.Remaining, time.Since(start)
	return m, l.verify(s, m)
}

// verify fails if what was measured is not what the row is about.
func (l durableLoad) verify(s durableSubject, m durableSample) error {
	var wrong string
	switch {
	case m.granted < int64(l.callers):
		wrong = "every caller should have been granted a permit"
	case m.writes == 0:
		wrong = "nothing was written"
	default:
		return nil
	}
	return fmt.Errorf("bench: durable, %s: %s granted %d with %d writes, but %s: the row does not measure what it says",
		l.id(), s.by, m.granted, m.writes, wrong)
}

// node is a node of this process that owns the limits, or one that asks their owner in another process; it has found it when it
// is answered.
func (l durableLoad) node(ctx context.Context, c *durableCluster, s durableSubject) (n *durable.Node, end func(), err error) {
	o := durable.NodeOptions{Owner: durable.OwnerOptions{Reserve: s.reserve}, Address: "here", OwnerWait: time.Minute}
	prefix := "/near-" + strconv.FormatInt(durableKeys.Add(1), 10) + "/"
	if l.far {
		o, prefix = durable.NodeOptions{Follower: true, OwnerWait: time.Minute}, s.far
	}
	if n, end, err = newNode(c.server, prefix, o); err != nil { //nolint:contextcheck // it lasts until it is closed
		return nil, nil, err
	}
	d, err := durableAsk(ctx, n, store.Charge{Policy: benchPolicy, Key: "first", Limit: l.limit(), N: 1, Queue: 1})
	if d.Allowed && (n.Owner() == nil) == l.far {
		return n, end, nil
	}
	end()
	return nil, nil, fmt.Errorf("the first request was answered %v, by an owner in this process: %v: %w",
		d.Reason, n.Owner() != nil, err)
}

// durableIdle is what a limit does that was busy and then is not.
type durableIdle struct {
	granted, writes int64         // while it was busy
	quiet           time.Duration // how long it was watched afterwards
	idle            int64         // writes in that time
}

// quietTime is how long an idle limit is watched.
const quietTime = 2 * time.Second

// settled is how long nothing was written when the last write of a busy time is over.
const settled = time.Second

// rest measures what is written for a limit that is idle after a busy time.
func (l durableLoad) rest(ctx context.Context, c *durableCluster, quiet time.Duration, h *histogram) (i durableIdle, err error) {
	s := durableSubjects()[1]
	n, end, err := l.node(ctx, c, s)
	if err != nil {
		return i, err
	}
	defer end()
	r := store.Charge{
		Policy: benchPolicy, Key: "idle-" + strconv.FormatInt(durableKeys.Add(1), 10), Limit: l.limit(), N: 1,
		Queue: int64(2 * l.callers),
	}
	first, err := c.revision(ctx)
	if err != nil {
		return i, err
	}
	m, err := l.drive(ctx, func() redisDecide {
		return func(string) (bool, error) {
			d, why := durableAsk(ctx, n, r)
			return d.Allowed, why
		}
	}, l.callers, l.time, s.every, h)
	if err != nil {
		return i, err
	}
	i.granted, i.quiet = m.granted, quiet
	last, before, own := int64(0), int64(0), int64(0)
	for last != before+1 { // the last write may not have returned
		before = last
		pause(ctx, settled)
		if last, err = c.written(ctx); err != nil {
			return i, err
		}
		own++
	}
	i.writes = last - first - own
	pause(ctx, quiet)
	after, err := c.revision(ctx)
	if err != nil {
		return i, err
	}
	i.idle = after - last
	if i.granted == 0 || i.writes == 0 {
		return i, fmt.Errorf("bench: durable, idle: %d grants and %d writes before: the row does not measure what it says",
			i.granted, i.writes)
	}
	return i, ctx.Err()
}
