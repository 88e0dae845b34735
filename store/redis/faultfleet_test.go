package redis

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// nodes are three processes, each with a link to the server of its own.
type nodes struct {
	tb     testing.TB
	links  []*link
	fleets []store.Home
}

var loadsOfFleets atomic.Int64 // that were started, as keys must not be used twice

const (
	nodesOfFleet   = 3
	timeoutOfFleet = 250 * time.Millisecond
)

// startNodes starts them, and waits until each has counted the others. Without target they have no links.
func startNodes(tb testing.TB, target string, o Options) *nodes {
	tb.Helper()
	n := &nodes{tb: tb}
	for range nodesOfFleet {
		if target != "" {
			n.links = append(n.links, startLink(tb, target))
			o.Addresses = []string{n.links[len(n.links)-1].address()}
		}
		o.Timeout = timeoutOfFleet
		s := open(tb, o) // to be closed twice is nothing to it
		f, err := store.NewFleet(s, store.FleetOptions{
			Breaker:  store.BreakerOptions{MaxCooldown: 400 * time.Millisecond},
			Replicas: store.ReplicasOptions{Interval: 200 * time.Millisecond, Expiry: time.Minute, Assumed: nodesOfFleet},
			Fallback: store.FallbackOptions{Grace: 1600 * time.Millisecond}, // a second more than those two, as by default
		})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = f.Close() })
		n.fleets = append(n.fleets, f)
	}
	until(tb, "the nodes have counted each other", func() bool {
		for _, s := range n.fleets {
			if f, ok := s.(*store.Fleet); !ok || f.Stats().Replicas != nodesOfFleet {
				return false
			}
		}
		return true
	})
	return n
}

// fleetLoad is a load of charges of one mode.
type fleetLoad struct {
	*load

	name        string
	consistency store.Consistency
	fail        store.Fail
}

// loads are of every mode, with policies that no other has.
func (n *nodes) loads(fault string) []*fleetLoad {
	round := loadsOfFleets.Add(1)
	var all []*fleetLoad
	for _, consistency := range []store.Consistency{store.ConsistencyCoherent, store.ConsistencyLeased, store.ConsistencyOptimistic} {
		for _, fail := range []store.Fail{store.FailClosed, store.FailLocal, store.FailOpen} {
			charges := faultCharges(100, 1200)
			for i := range charges {
				c := &charges[i]
				c.Policy = fmt.Sprint(c.Policy, " ", consistency, " ", fail, " ", round)
				c.Consistency, c.Fail = consistency, fail
			}
			f := &fleetLoad{newLoad(n.tb, charges, n.fleets...), fmt.Sprint(fault, ", ", consistency, ", ", fail), consistency, fail}
			f.pause = 5 * time.Millisecond
			f.start(nodesOfFleet)
			all = append(all, f)
		}
	}
	more(all, 250)
	return all
}

// more waits until n more calls of each have been answered.
func more(loads []*fleetLoad, n int64) {
	goals := make([]int64, len(loads))
	for i, f := range loads {
		goals[i] = f.answers() + n
	}
	for i, f := range loads {
		until(f.tb, "calls are answered", func() bool { return f.answers() >= goals[i] })
	}
}

// goOn lets the load run for a while.
func goOn(loads []*fleetLoad, d time.Duration) {
	loads[0].goOn(d)
}

// recovered waits until every node is answered about charges that need the store.
func recovered(loads []*fleetLoad) time.Duration {
	began := time.Now()
	for _, f := range loads {
		if f.fail == store.FailClosed && f.consistency == store.ConsistencyCoherent {
			f.recovery(0, 1, 2)
		}
	}
	took := time.Since(began)
	more(loads, 250)
	return took
}

// check stops the loads and compares what was allowed, with what was left, with what the limit permits. If the server has lost
// its data, lost more limits may be granted. The fleets are closed then.
func (n *nodes) check(s *Store, lost int64, rounds ...[]*fleetLoad) {
	n.tb.Helper()
	for _, loads := range rounds {
		for _, f := range loads {
			f.stop()
		}
	}
	untold := int64(0)
	for _, s := range n.fleets { // tells the store everything, and gives back what was leased
		until(n.tb, "the store has been told what was granted", func() bool {
			f, ok := s.(*store.Fleet)
			return ok && f.Stats().Fallback.Owed == 0 && f.Stats().Breaker.State == store.BreakerClosed
		})
		if err := s.Close(); err != nil { // the machine may be too busy
			n.tb.Log(err)
			untold++
		}
	}
	for _, loads := range rounds {
		for _, f := range loads {
			sum := f.drain(s)
			f.report(f.name, sum)
			if f.fail == store.FailOpen {
				if f.failed.Load() > 0 {
					n.tb.Errorf("%s: %d calls failed", f.name, f.failed.Load())
				}
				continue
			}
			if f.failed.Load() > 0 && f.fail == store.FailLocal {
				n.tb.Errorf("%s: %d calls failed", f.name, f.failed.Load())
			}
			for i, admitted := range sum.each {
				limit := f.charges[i].Limit
				most := (1 + lost) * permitsOf(limit)
				if f.consistency == store.ConsistencyOptimistic {
					most += (nodesOfFleet - 1 + untold) * store.OptimisticOptions{}.DriftOf(limit)
				}
				if f.fail == store.FailLocal {
					most += permitsOf(limit)
				}
				if admitted > most {
					n.tb.Errorf("%s: %v: admitted %d, want at most %d", f.name, limit, admitted, most)
				}
			}
		}
	}
}

func permitsOf(l weir.Limit) int64 {
	if l.Permits() > 0 {
		return l.Permits()
	}
	return l.Rate().Permits
}

// TestFleetFaults has three processes share limits of every consistency and policy of failure, while the server stands still, is
// killed with its data on disk, and while the links are cut: what is coherent or leased is never above the limit, and what is
// optimistic by the drift of the other processes at most. Where a process goes on by itself without the store, it is one limit
// more.
func TestFleetFaults(t *testing.T) {
	t.Parallel()
	server := startServer(t, "--appendonly", "yes", "--appendfsync", "always")
	for round := range rounds(t) {
		o := Options{Prefix: fmt.Sprintf("round %d:", round)} // those of the round before are not counted
		n := startNodes(t, server.address(), o)
		var all [][]*fleetLoad
		fault := func(name string, begin func(), lasts time.Duration, end func()) {
			t.Helper()
			loads := n.loads(name)
			begin()
			goOn(loads, lasts)
			end()
			t.Logf("%s: every process is answered again after %v", name, recovered(loads).Round(time.Millisecond))
			for _, f := range loads {
				f.stop()
			}
			all = append(all, loads)
		}
		set := func(how cut, which ...int) func() {
			return func() {
				for _, i := range which {
					n.links[i].set(how)
				}
			}
		}
		fault("stopped for 5 s", server.stop, 5*time.Second, server.resume)
		fault("killed, data kept", server.kill, time.Second, server.start)
		fault("a link silent", set(silent, 1), 2*time.Second, set(whole, 1))
		fault("all links cut", set(refused, 0, 1, 2), time.Second, set(whole, 0, 1, 2))
		s := server.open(o)
		n.check(s, 0, all...)
		_ = s.Close()
	}
}

// TestFleetLosesData kills a server that keeps nothing on disk: the limits of three processes begin anew with it, and not more
// often.
func TestFleetLosesData(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	for range rounds(t) {
		n := startNodes(t, server.address(), Options{})
		loads := n.loads("killed, data lost")
		server.kill()
		goOn(loads, time.Second)
		server.start()
		t.Logf("killed, data lost: every process is answered again after %v", recovered(loads).Round(time.Millisecond))
		n.check(server.open(Options{}), 1, loads)
	}
}

// TestFleetFailover kills the master that three processes share under load: a replica takes over.
func TestFleetFailover(t *testing.T) {
	t.Parallel()
	w := startSentinels(t, 1)
	n := startNodes(t, "", Options{URL: w.url()})
	loads := n.loads("fail-over")
	old := w.master()
	old.kill()
	w.elect(true)
	began := time.Now()
	w.agree(old)
	elected := time.Since(began)
	recovered(loads)
	t.Logf("fail-over: a new master after %v, every process is answered again after %v",
		elected.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	n.check(w.open(t, Options{}), w.epoch(), loads)
}
