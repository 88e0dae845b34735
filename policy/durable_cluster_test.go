package policy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/policy"
)

// cluster is nodes in this process that find each other, and share what is durable.
type cluster struct {
	memory *durable.Memory

	lock  sync.Mutex
	nodes map[string]*durable.Node
	done  sync.WaitGroup
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	m, err := durable.NewMemory(durable.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{memory: m, nodes: map[string]*durable.Node{}}
}

// newNode is one more node, which ends with the test if it has not before.
func newNode(t testing.TB, c *cluster, change func(o *durable.NodeOptions)) *durable.Node {
	t.Helper()
	c.lock.Lock()
	defer c.lock.Unlock()
	e := c.memory.Engine()
	o := durable.NodeOptions{Engine: e, Address: fmt.Sprint("node ", len(c.nodes)), Dial: c.dial, OwnerWait: time.Minute}
	if change != nil {
		change(&o)
	}
	n, err := durable.NewNode(o)
	if err != nil {
		t.Fatal(err)
	}
	c.nodes[o.Address] = n
	t.Cleanup(func() {
		_ = n.Close()
		_ = e.Close()
		c.done.Wait()
	})
	return n
}

// dial connects to a node.
func (c *cluster) dial(_ context.Context, address string) (durable.Peer, error) {
	c.lock.Lock()
	to := c.nodes[address]
	c.lock.Unlock()
	if to == nil {
		return nil, errors.New("there is no such node")
	}
	a, b, end, once := make(chan []byte, 16), make(chan []byte, 16), make(chan struct{}), new(sync.Once)
	//nolint:contextcheck // a stream outlasts the dialing
	c.done.Go(func() { _ = to.Serve(context.Background(), &wire{b, a, end, once}) })
	return durable.NewStreamPeer(&wire{a, b, end, once}), nil
}

// wire is one end of a stream in memory.
type wire struct {
	in, out chan []byte
	end     chan struct{}
	once    *sync.Once
}

func (w *wire) Send(m []byte) error {
	select {
	case w.out <- m:
		return nil
	case <-w.end:
		return io.ErrClosedPipe
	}
}

func (w *wire) Receive() ([]byte, error) {
	select {
	case m := <-w.in:
		return m, nil
	case <-w.end:
		return nil, io.EOF
	}
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.end) })
	return nil
}

// TestDurableClusterIsOneLimiter: engines of two nodes, one of which owns the limits.
func TestDurableClusterIsOneLimiter(t *testing.T) {
	enginesAreOneLimiter(t, durably, func(t *testing.T, clock weir.Clock) func(*policy.Set) *policy.Engine {
		c, nodes := newCluster(t), 0
		return func(set *policy.Set) *policy.Engine {
			nodes++
			n := newNode(t, c, func(o *durable.NodeOptions) { o.Follower = nodes > 1 })
			return ownedBy(t, n, nil, clock, set)
		}
	})
}

// TestDurableBudgetOfAMonth: what a tenant has used of a month is known to every node, survives that the owner is replaced, and is
// forgotten when the month of its zone ends.
func TestDurableBudgetOfAMonth(t *testing.T) {
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) { // which begins at the turn of a year, five hours before that of New York
		c := newCluster(t)
		set := &policy.Set{
			Policies: durably(policy.Policy{
				Name: "budget", Key: policy.HostText(), QueueLimit: 1000, MaxWait: time.Hour,
				Limits: one(weir.CalendarWindow(1000, algo.Calendar{Unit: algo.CalendarMonth, Zone: zone})),
			}),
			Rules: []policy.Rule{{Name: "all", Limits: uses("budget")}},
		}
		first := newNode(t, c, nil)
		second := newNode(t, c, nil)
		a, b := ownedBy(t, first, nil, nil, set), ownedBy(t, second, nil, nil, set)
		ask := func(e *policy.Engine, cost int64) *policy.Verdict {
			v := new(policy.Verdict)
			e.Take(&policy.Request{Host: "acme", Cost: cost}, v)
			return v
		}
		if v := ask(a, 400); !v.Allowed || v.Decision().Remaining != 600 {
			t.Errorf("%+v", v.Decision())
		}
		if v := ask(b, 500); !v.Allowed || v.Decision().Remaining != 100 {
			t.Errorf("%+v", v.Decision())
		}
		v := new(policy.Verdict)
		if b.Reserve(&policy.Request{Host: "acme", Cost: 90}, v); !v.Allowed {
			t.Errorf("%+v", v.Decision())
		}
		v.Commit(func(*policy.Part) int64 { return 50 })
		if r := b.Report().Policies[0]; r.Unsettled+r.Expired+r.Unavailable != 0 {
			t.Errorf("%+v", r)
		}
		if err := first.Close(); err != nil {
			t.Error(err)
		}
		if v = ask(a, 1); v.Allowed || v.Decision().Reason != weir.ReasonClosed {
			t.Errorf("its node has left: %+v", v.Decision())
		}
		time.Sleep(2 * time.Second) // the other one takes over
		wantStored(t, b, "budget", "", "acme", 50)
		if v = ask(b, 51); v.Allowed || v.Decision().Reason != weir.ReasonLimited || v.Decision().RetryAfter <= 4*time.Hour ||
			v.Decision().RetryAfter > 5*time.Hour {
			t.Errorf("%+v", v.Decision())
		}
		if err := verdictOf(b.Wait(t.Context(), &policy.Request{Host: "acme", Cost: 51}, v), v); err != nil || v.Allowed || v.Decision().Reason != weir.ReasonDeadline {
			t.Errorf("%v, %+v", err, v.Decision())
		}
		short, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := verdictOf(b.Wait(short, &policy.Request{Host: "acme", Cost: 51}, v), v)
		cancel()
		if d := v.Decision(); err != nil || v.Allowed || d.Reason != weir.ReasonDeadline || d.Limit != 1000 || d.RetryAfter < time.Hour {
			t.Errorf("its deadline was its own: %v, %+v", err, d)
		}
		time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 0, 0, 0, zone)) - 30*time.Minute)
		began := time.Now()
		if err := verdictOf(b.Wait(t.Context(), &policy.Request{Host: "acme", Cost: 51}, v), v); err != nil || !v.Allowed || v.Decision().Remaining != 949 ||
			time.Since(began) != 30*time.Minute {
			t.Errorf("%v after %v, %+v", err, time.Since(began), v.Decision())
		}
		if v = ask(b, 1001); v.Decision().Reason != weir.ReasonNever {
			t.Errorf("%+v", v.Decision())
		}
	})
}

// TestDurableOwnerEndsWhileSomebodyWaits: a waiting request is refused at once, and can come back.
func TestDurableOwnerEndsWhileSomebodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		set := &policy.Set{
			Policies: append(durably(policy.Policy{Name: "p", Limits: one(perHour(1)), QueueLimit: 10, MaxWait: time.Hour}),
				policy.Policy{Name: "use", Limits: one(weir.AtOnce(2))}),
			Rules: []policy.Rule{{Name: "all", Limits: uses("use", "p")}},
		}
		first := newNode(t, c, nil)
		e := ownedBy(t, first, nil, nil, set)
		var v policy.Verdict
		if e.Take(&policy.Request{}, &v); !v.Allowed {
			t.Fatalf("%+v", v)
		}
		v.Release()
		time.AfterFunc(10*time.Minute, func() { _ = first.Close() })
		began := time.Now()
		err := verdictOf(e.Wait(t.Context(), &policy.Request{}, &v), &v)
		if took := time.Since(began); err != nil || v.Allowed || v.Decision().Reason != weir.ReasonUnavailable || v.Decision().RetryAfter != time.Second ||
			took > 10*time.Minute+time.Second {
			t.Errorf("%v after %v: %+v", err, took, v.Decision())
		}
		wantLeft(t, e, "use", "", 2)
		other := ownedBy(t, newNode(t, c, nil), nil, nil, set)
		time.Sleep(2 * time.Second) // it takes over
		if err := verdictOf(other.Wait(t.Context(), &policy.Request{}, &v), &v); err != nil || !v.Allowed || time.Since(began).Round(time.Minute) != time.Hour {
			t.Errorf("%v after %v: %+v", err, time.Since(began), v.Decision())
		}
	})
}

// TestDurableClusterContention: two nodes, a store and limits of each process, asked in every way at a time: every permit that is gone
// afterwards was granted, once.
func TestDurableClusterContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const goroutines, requests, most = 6, 200, 600
		c, s := newCluster(t), memory(t, nil)
		set := &policy.Set{
			Policies: append(append(shared(policy.Policy{Name: "shared", Limits: one(perHour(most)), Key: policy.HostText()}),
				durably(
					policy.Policy{Name: "durable", Limits: one(perHour(most / 2)), Key: policy.MethodText(), QueueLimit: 10, MaxWait: time.Millisecond},
					policy.Policy{Name: "total", Limits: one(perHour(2 * most))},
				)...), policy.Policy{Name: "local", Limits: one(perHour(most / 2)), Key: policy.HostText()}),
			Rules: []policy.Rule{{Name: "all", Limits: uses("shared", "local", "durable", "total")}},
		}
		var engines []*policy.Engine
		for range 2 {
			engines = append(engines, ownedBy(t, newNode(t, c, nil), s, nil, set))
		}
		var spent atomic.Int64
		var all sync.WaitGroup
		for g := range goroutines {
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 7))
				spent.Add(askAtRandom(t, engines[g%2], r, requests))
			})
		}
		all.Wait()
		for name, keys := range map[string][]string{"shared": {"h0", "h1"}, "durable": {"M0", "M1", "M2", "M3"}, "total": {""}} {
			gone := int64(0)
			for _, key := range keys {
				st, err := engines[1].Inspect(t.Context(), name, "", key)
				if err != nil || st.Reserved != 0 {
					t.Errorf("%s %s: %+v, %v", name, key, st, err)
				}
				gone += st.Decision.Limit - st.Decision.Remaining
			}
			if gone != spent.Load() || gone == 0 {
				t.Errorf("%d are gone of %s, %d were granted", gone, name, spent.Load())
			}
		}
		for _, e := range engines {
			for _, p := range e.Report().Policies {
				if p.Unavailable+p.Unsettled+p.Expired != 0 {
					t.Errorf("%+v", p)
				}
			}
		}
	})
}
