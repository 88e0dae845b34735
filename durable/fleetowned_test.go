//nolint:contextcheck // what was sent is carried out, whether its caller waits or not
package durable_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/internal/bounds"
	"github.com/weirhq/weir/store"
)

// ownedLimit is a limit that the owner among the nodes of a simulated fleet keeps.
type ownedLimit struct {
	name  string
	limit weir.Limit
}

var (
	ownedBucket = ownedLimit{"owned-bucket", weir.TokenBucket(weir.PerSecond(2), 30)}
	ownedWindow = ownedLimit{"owned-window", weir.FixedWindow(weir.Per(40, 10*time.Second))}
	ownedQuota  = ownedLimit{"owned-quota", weir.TokenBucket(weir.Per(1, 1_000*time.Hour), 300)} // of which nothing comes back
)

// ownedBy is the nodes of a simulated fleet that share an owner.
type ownedBy struct {
	*simulation

	registry *registry
	reserve  int64
	off      time.Duration // by how much the clocks of nodes can differ
	book     ledger        // of the quota
	serving  sync.WaitGroup

	mu    sync.Mutex
	nodes map[string]*durable.Node
}

// own begins the servers that elect the owner, and three nodes.
func (s *simulation) own() *ownedBy {
	r := s.chance("owners")
	o := &ownedBy{
		simulation: s, reserve: []int64{1, 3, 20, 0}[r.IntN(4)], off: 200 * time.Millisecond, nodes: map[string]*durable.Node{},
	}
	if r.IntN(3) == 0 {
		o.off = 2 * time.Hour
	}
	s.net.cutNowAndThen("records")
	for i := range 3 {
		machine := fmt.Sprint("machine", i)
		s.net.cutNowAndThen(machine+">records", machine+">"+fmt.Sprint("machine", (i+1)%3), machine+">"+fmt.Sprint("machine", (i+2)%3))
	}
	o.registry = newRegistry(s)
	for i := range 3 {
		o.live(fmt.Sprint("machine", i))
	}
	return o
}

// live has a node start and end again and again, in order or not.
func (o *ownedBy) live(machine string) {
	r := o.chance(machine + " node")
	o.work.Go(func() {
		for o.ctx.Err() == nil {
			long, dies := 2*fleetTime, r.IntN(2) == 0
			if r.IntN(2) == 0 {
				long = time.Duration(r.Int64N(int64(fleetTime)))
			}
			o.node(machine, fmt.Sprint(r.Uint64()), long, dies)
			lasts(o.ctx, time.Duration(r.Int64N(int64(5*time.Second))))
		}
	})
}

// node is a node from its start to its end.
func (o *ownedBy) node(machine, life string, long time.Duration, dies bool) {
	engine := o.registry.engine(machine)
	o.work.Go(engine.sever)
	r := o.chance(machine + " clock")
	clock := newDriftingClock(o.net, machine, o.off < time.Hour)
	clock.ahead, clock.fast = time.Duration(r.Int64N(int64(o.off)))-o.off/2, 0
	node := must(durable.NewNode(durable.NodeOptions{
		Engine: engine, Address: machine, Requeue: r.IntN(2) == 0, OwnerWait: 2 * time.Second,
		Owner: durable.OwnerOptions{Reserve: o.reserve, Clock: clock, WriteTimeout: 2 * time.Second, Sweep: 10 * time.Second},
		Dial:  func(_ context.Context, address string) (durable.Peer, error) { return o.dial(engine, machine, address) },
	}))
	o.put(machine, node)
	ctx, cancel := context.WithTimeout(o.ctx, long)
	defer cancel()
	var clients sync.WaitGroup
	client := func(what string, about time.Duration, ask func(ctx context.Context, node *durable.Node, r *rand.Rand)) {
		own := o.chance(fmt.Sprint(machine, " ", life, " ", what))
		clients.Go(func() {
			for hasty := 0; pause(ctx, own, about, &hasty); {
				ask(ctx, node, own)
			}
		})
	}
	client("bucket", 3*time.Second, func(_ context.Context, n *durable.Node, r *rand.Rand) { o.take(n, r, &ownedBucket) })
	client("window", 3*time.Second, func(_ context.Context, n *durable.Node, r *rand.Rand) { o.take(n, r, &ownedWindow) })
	client("quota", 3*time.Second, o.quota)
	<-ctx.Done()
	if dies && o.ctx.Err() == nil {
		o.put(machine, nil)
		engine.die()
	}
	clients.Wait()
	time.Sleep(time.Duration(r.Int64N(int64(500 * time.Millisecond)))) // so that not all end at one instant
	_ = node.Close()
	o.put(machine, nil)
	_ = engine.Close()
}

func (o *ownedBy) put(machine string, n *durable.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.nodes[machine] = n
}

func (o *ownedBy) at(machine string) *durable.Node {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.nodes[machine]
}

// dial connects a node to another one, whose streams break when either of them has died.
func (o *ownedBy) dial(e *farEngine, from, to string) (durable.Peer, error) {
	node, link := o.at(to), from+">"+to
	if node == nil || e.ctx.Err() != nil || o.net.cut(link, o.net.now()) {
		return nil, fmt.Errorf("%w: no connection", store.ErrUnavailable)
	}
	near, far := o.net.stream(link)
	context.AfterFunc(e.ctx, func() { _ = near.Close() })
	o.serving.Go(func() {
		_ = node.Serve(context.Background(), far)
		far.out.end()
	})
	return durable.NewStreamPeer(&hearing{near, &e.knows}), nil
}

// hearing is a connection of a node to the owner, over which it hears of the time of the limits.
type hearing struct {
	*streamEnd

	knows *atomic.Bool
}

// Receive implements [durable.Stream].
func (h *hearing) Receive() ([]byte, error) {
	b, err := h.streamEnd.Receive()
	if m, wrong := durable.ParseMessage(b); err == nil && wrong == nil && m.Kind == durable.MessageTime {
		h.knows.Store(true)
	}
	return b, err
}

// take takes permits, at once or after a while, from the owner itself if that is here.
func (o *ownedBy) take(n *durable.Node, r *rand.Rand, l *ownedLimit) {
	q := spectest.Request{Policy: l.name, Key: "k", Limit: l.limit, N: 1 + r.Int64N(4), Queue: 50}
	if r.IntN(3) == 0 {
		q.Wait = time.Duration(r.Int64N(int64(3 * time.Second)))
	}
	e := bounds.Event{Sent: int64(o.net.now()), N: q.N}
	var a spectest.Answer
	if own := n.Owner(); own != nil {
		a = spectest.Acquire(context.Background(), own, q)
		e.Epoch = own.Epoch()
	} else {
		a = spectest.Acquire(context.Background(), n, q)
	}
	e.Received = int64(o.net.now())
	switch a.Reason {
	case weir.ReasonNone:
		e.Kind = bounds.Granted
	case weir.ReasonLimited, weir.ReasonQueueFull, weir.ReasonNever:
		e.Kind = bounds.Refused
	default:
		e.Kind = bounds.Maybe
	}
	o.event(l.name, e)
}

// quota takes of the quota, or reserves of it and settles that.
func (o *ownedBy) quota(ctx context.Context, n *durable.Node, r *rand.Rand) {
	q := spectest.Request{Policy: ownedQuota.name, Key: "k", Limit: ownedQuota.limit, N: 1 + r.Int64N(3)}
	if r.IntN(3) > 0 {
		o.book.outcome(spectest.Acquire(context.Background(), n, q), q.N)
		return
	}
	q.Hold = 24 * time.Hour
	a := spectest.Acquire(context.Background(), n, q)
	if a.Reason != weir.ReasonNone {
		o.book.outcome(a, q.N)
		return
	}
	lasts(ctx, time.Duration(r.Int64N(int64(5*time.Second))))
	cost, err := q.N, error(nil)
	short, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	switch r.IntN(3) {
	case 0:
		cost, err = 0, n.Settle(short, a.Hold, nil)
	case 1:
		cost = r.Int64N(q.N + 1)
		err = n.Settle(short, a.Hold, []int64{cost})
	}
	if err == nil {
		o.book.note(cost, 0, 0, 0)
		return
	}
	o.book.note(min(cost, q.N), q.N-min(cost, q.N), 0, 0)
}

// check starts one more node, after the traffic, asks it what is left of the quota, and looks whether the limits of the owner
// were kept.
func (o *ownedBy) check() {
	time.Sleep(straggle)
	e := o.registry.engine("another")
	node := must(durable.NewNode(durable.NodeOptions{
		Engine: e, Address: "another", Owner: durable.OwnerOptions{Reserve: o.reserve},
		Dial: func(context.Context, string) (durable.Peer, error) { return nil, errNoPower },
	}))
	asked := store.Charge{Policy: ownedQuota.name, Key: "k", Limit: ownedQuota.limit}
	left, err := store.Inspect(context.Background(), node, asked)
	for range 20 {
		if err != nil {
			left, err = store.Inspect(context.Background(), node, asked)
		}
	}
	_ = node.Close()
	_ = e.Close()
	o.serving.Wait()
	f, _ := o.registry.now()
	_ = f.Close()
	if err != nil {
		o.failf("with all links whole nobody knows what is left of the quota: %v", err)
		return
	}
	k := o.reserve
	if k == 0 {
		k = ownedQuota.limit.Permits() / 10
	}
	if wrong := o.book.wrong(ownedQuota.limit.Permits(), left.Decision.Remaining, o.registry.terms*(k-1)); wrong != "" {
		o.failf("%s: K %d, %d terms, %d left: %s", ownedQuota.name, k, o.registry.terms, left.Decision.Remaining, wrong)
	}
	for _, l := range []ownedLimit{ownedBucket, ownedWindow} {
		if b := bounds.Deposed(o.events[l.name]); b.Broken() {
			o.failf("%s: an owner granted %.0f permits after the next one had granted some, from %v to %v", l.name, b.Permits, b.From, b.To)
		}
		for _, at := range o.registry.strangers {
			// An owner that has never heard of the time goes by its own clock. If that is wrong, all permits may be there once
			// more.
			if o.off > time.Second {
				o.note(l.name, bounds.MayReturn, max(l.limit.Permits(), l.limit.Rate().Permits), at, at+10*time.Second)
			}
		}
		bound := o.bound(l.limit)
		if b := bound.Minted(o.events[l.name]); b.Broken() {
			o.failf("%s: K %d, %d terms, %d of which began without knowing the time: %.2f permits more were granted than %v allows, from %v to %v",
				l.name, k, o.registry.terms, len(o.registry.strangers), b.Permits, bound, b.From, b.To)
		}
	}
}

// bound is what a limit of the owner allows.
func (o *ownedBy) bound(l weir.Limit) bounds.Limit {
	slack := 700 * time.Millisecond // what the time of the limits can go wrong by, with that of messages
	// An owner that returns, and whose clock was set forward by a second at most, is followed: permits of that time come earlier.
	if o.off > time.Second {
		for machine := range 3 {
			for _, set := range newDriftingClock(o.net, fmt.Sprint("machine", machine), false).steps {
				if set.by > 0 && set.by <= time.Second {
					slack += set.by
				}
			}
		}
	}
	if l.Algorithm() == weir.AlgorithmFixedWindow {
		return bounds.Window{Permits: l.Rate().Permits, Length: l.Rate().Period, Segments: 1, Aligned: o.off < time.Second, Offset: o.net.begin.UnixNano(), Slack: slack}
	}
	return bounds.Bucket{Rate: float64(l.Rate().Permits) / l.Rate().Period.Seconds(), Burst: float64(l.Permits()), Slack: slack}
}
