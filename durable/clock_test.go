package durable_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
)

// wallClock is the clock of a node, which can be set.
type wallClock struct{ off atomic.Int64 }

func (c *wallClock) Now() int64          { return time.Now().UnixNano() + c.off.Load() }
func (c *wallClock) set(d time.Duration) { c.off.Store(int64(d)) }

func (c *wallClock) AfterFunc(time.Duration, func()) func() bool {
	panic("an owner waits by no wall clock")
}

// lines is a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) with(what string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, what) {
			found = append(found, line)
		}
	}
	return found
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// clockLimits are limits that a clock which is wrong by an hour must not bring closer to their next window.
var clockLimits = map[string]weir.Limit{
	"bucket":          weir.TokenBucket(weir.PerSecond(20), 20),
	"slow bucket":     weir.TokenBucket(weir.PerMinute(1), 20),
	"fixed window":    weir.FixedWindow(weir.Per(20, 10*time.Second)),
	"sliding window":  weir.SlidingWindow(weir.Per(20, 10*time.Second), 0),
	"sliding counter": weir.SlidingCounter(weir.Per(20, 10*time.Second)),
}

// most is how many permits a limit may grant in a time.
func most(l weir.Limit, t time.Duration) int64 {
	n := int64(float64(t) / float64(l.Rate().Period) * float64(l.Rate().Permits))
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		return l.Permits() + n + 1
	case weir.AlgorithmFixedWindow:
		return 2*l.Rate().Permits + n
	default:
		return 2 * (2*l.Rate().Permits + n)
	}
}

// TestClockThatWasAheadFreezesNothing: an owner whose clock was wrong grants, another one begins by itself later, with a clock that
// is right. What was refused is granted when it was told to come back, and a waiter gets its permit.
func TestClockThatWasAheadFreezesNothing(t *testing.T) {
	for name, l := range clockLimits {
		for _, ahead := range []time.Duration{5 * time.Second, time.Hour, 12 * 24 * time.Hour, -time.Hour} {
			t.Run(fmt.Sprintf("%s/%v", name, ahead), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := must(durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond}))
					r := spectest.Request{Policy: "api", Limit: l, N: 20, Queue: 100}
					wrong := new(wallClock)
					wrong.set(ahead)
					before, e := owned(t, m, durable.OwnerOptions{Clock: wrong})
					want(t, spectest.Acquire(t.Context(), before, r), weir.ReasonNone)
					if err := before.Stop(t.Context()); err != nil {
						t.Fatal(err)
					}
					_ = e.Close()
					log := new(lines)
					next, _ := owned(t, m, durable.OwnerOptions{Clock: new(wallClock), Logger: log.logger()})
					if r.N = 1; ahead > 0 {
						a := spectest.Acquire(t.Context(), next, r)
						if a.Reason != weir.ReasonLimited || a.RetryAfter > ahead+time.Minute || a.RetryAfter > 70*time.Second {
							t.Fatalf("%v: %+v", a.Reason, a.Decision)
						}
						time.Sleep(a.RetryAfter)
						want(t, spectest.Acquire(t.Context(), next, r), weir.ReasonNone)
					}
					r.Wait = 70 * time.Second
					want(t, spectest.Acquire(t.Context(), next, r), weir.ReasonNone)
					time.Sleep(2 * time.Second)
					told, rewound := log.with("ahead of this one"), int64(0)
					if ahead > 10*time.Second {
						rewound = 1
					}
					if int64(len(told)) != rewound || next.Stats().Rewound != rewound {
						t.Errorf("%q, %+v", told, next.Stats())
					}
					if len(told) == 1 && (!strings.Contains(told[0], "policy=api") || !strings.Contains(told[0], "keys=1")) {
						t.Error(told)
					}
				})
			})
		}
	}
}

// TestClockSetDuringATerm: nothing comes of it but for windows of calendars, and the log says so.
func TestClockSetDuringATerm(t *testing.T) {
	for name, l := range clockLimits {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := must(durable.NewMemory(durable.MemoryOptions{}))
				clock, log := new(wallClock), new(lines)
				o, _ := owned(t, m, durable.OwnerOptions{Clock: clock, Logger: log.logger()})
				begin, granted := time.Now(), int64(0)
				r := spectest.Request{Policy: "api", Limit: l, N: 1}
				for i := range 40 {
					if i%8 == 4 {
						clock.set([]time.Duration{time.Hour, 0, -time.Hour, 12 * 24 * time.Hour, 0}[i/8])
					}
					for range 30 {
						if spectest.Acquire(t.Context(), o, r).Reason == weir.ReasonNone {
							granted++
						}
					}
					time.Sleep(500 * time.Millisecond)
				}
				if bound := most(l, time.Since(begin)); granted > bound {
					t.Errorf("%d granted in %v, want at most %d", granted, time.Since(begin), bound)
				}
				if low := int64(float64(time.Since(begin)) / float64(l.Rate().Period) * float64(l.Rate().Permits) * 2 / 3); granted < low {
					t.Errorf("%d granted in %v, want at least %d", granted, time.Since(begin), low)
				}
				if told := log.with("clock of this node was set"); l.Rate().Period == time.Second && len(told) != 5 {
					t.Errorf("%q", told)
				}
			})
		})
	}
}

// clocked is a cluster whose nodes have clocks of their own.
type clocked struct {
	memory  *durable.Memory
	log     *lines
	clocks  map[string]*wallClock
	nodes   map[string]*durable.Node
	engines map[string]*durable.MemoryEngine
	serving sync.WaitGroup
	mu      sync.Mutex
}

func newClocked(t *testing.T, names ...string) *clocked {
	t.Helper()
	c := &clocked{
		memory: must(durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond})), log: new(lines),
		clocks: map[string]*wallClock{}, nodes: map[string]*durable.Node{}, engines: map[string]*durable.MemoryEngine{},
	}
	for _, name := range names {
		c.clocks[name] = new(wallClock)
		c.start(name)
	}
	t.Cleanup(func() {
		for _, name := range names {
			c.stop(name)
		}
		c.serving.Wait()
	})
	return c
}

func (c *clocked) node(name string) *durable.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[name]
}

func (c *clocked) start(name string) {
	engine := c.memory.Engine()
	node := must(durable.NewNode(durable.NodeOptions{
		Engine: engine, Address: name, Requeue: true,
		Owner: durable.OwnerOptions{Clock: c.clocks[name], Logger: c.log.logger(), Reserve: 1},
		Dial: func(_ context.Context, address string) (durable.Peer, error) {
			mine, other := newPipe()
			to := c.node(address)
			c.serving.Go(func() { //nolint:contextcheck // it lasts until the pipe is closed
				_ = to.Serve(context.Background(), &halfPipe{pipe: other, left: make(chan struct{})})
				_ = other.Close()
			})
			return durable.NewStreamPeer(mine), nil
		},
	}))
	c.mu.Lock()
	c.nodes[name], c.engines[name] = node, engine
	c.mu.Unlock()
	synctest.Wait()
}

func (c *clocked) stop(name string) {
	_ = c.node(name).Close()
	_ = c.engines[name].Close()
}

// owner is the name of the node that is the owner, "" if none is.
func (c *clocked) owner() string {
	for name := range c.nodes {
		if c.node(name).Owner() != nil {
			return name
		}
	}
	return ""
}

// TestHandOverBetweenClocks has nodes whose clocks are set back and forth by hours and days hand the limits over to one another, in
// order and not. Nothing is granted above the limit by the time that really passes, and permits come back all the while.
func TestHandOverBetweenClocks(t *testing.T) {
	for name, l := range clockLimits {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(4) {
				synctest.Test(t, func(t *testing.T) { handOver(t, rand.New(rand.NewPCG(seed, 3)), l) })
			}
		})
	}
}

func handOver(t *testing.T, rng *rand.Rand, l weir.Limit) {
	t.Helper()
	names := []string{"a", "b", "c"}
	c := newClocked(t, names...)
	time.Sleep(2 * time.Second) // the owner has told the others what the time is
	var granted atomic.Int64
	begin := time.Now()
	r := spectest.Request{Policy: "api", Limit: l, N: 1}
	steps := []time.Duration{0, time.Hour, -time.Hour, 12 * 24 * time.Hour, -9000 * time.Hour, 11 * time.Second}
	for range 25 {
		if rng.IntN(2) == 0 {
			c.clocks[names[rng.IntN(3)]].set(steps[rng.IntN(len(steps))])
		}
		if owner := c.owner(); owner != "" && rng.IntN(3) == 0 {
			if rng.IntN(2) == 0 {
				c.stop(owner)
				c.start(owner)
			} else {
				c.engines[owner].Cut(true)
				time.Sleep(1500 * time.Millisecond)
				c.engines[owner].Cut(false)
			}
		}
		for range 30 {
			if spectest.Acquire(t.Context(), c.node(names[rng.IntN(3)]), r).Reason == weir.ReasonNone {
				granted.Add(1)
			}
		}
		time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
	}
	passed := time.Since(begin)
	if bound := most(l, passed); granted.Load() > bound {
		t.Errorf("%d granted in %v, want at most %d", granted.Load(), passed, bound)
	}
	r.Wait, r.Queue = 80*time.Second, 100
	want(t, spectest.Acquire(t.Context(), c.node("a"), r), weir.ReasonNone)
}
