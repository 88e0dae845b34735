//go:build !race

package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// TestFleetOutage has processes that share limits lose the store together, for short and long, with callers who never stop
// asking: from before the outage until long after it no more than the documented bound is granted, at any time, and when the
// store is back there is no burst.
func TestFleetOutage(t *testing.T) {
	const nodes, burst, rate = 4, 100, 10
	second := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	for _, algorithm := range []weir.Limit{
		weir.TokenBucket(weir.PerSecond(rate), burst),
		weir.FixedWindow(weir.Per(burst, 10*time.Second)),
		weir.SlidingWindow(weir.Per(burst, 10*time.Second), 0),
	} {
		for _, consistency := range []store.Consistency{store.ConsistencyCoherent, store.ConsistencyLeased, store.ConsistencyOptimistic} {
			for _, length := range []time.Duration{second(0.5), second(7), second(30)} {
				synctest.Test(t, func(t *testing.T) {
					shared := newMemory(t, store.MemoryOptions{})
					var links [nodes]*outage
					var fleets [nodes]*store.Fleet
					for i := range fleets {
						links[i] = newLink(shared)
						fleets[i] = newFleet(t, links[i], store.FleetOptions{})
						t.Cleanup(func() { closing(t, fleets[i]) })
					}
					const start, grace = 7 * time.Second, 8 * time.Second
					time.Sleep(start) // until they have counted one another
					const before, after = 20 * time.Second, 50 * time.Second
					const step = 20 * time.Millisecond
					lost, back := before, before+length
					var log []int64 // granted in each step
					for at := time.Duration(0); at < back+after; at += step {
						if at == lost || at == back {
							for _, l := range links {
								l.down.Store(at == lost)
							}
						}
						n := int64(0)
						for _, i := range rand.Perm(nodes) {
							for range 30 {
								if !mustTake(t, fleets[i], charge("p", algorithm, 1, consistency, store.FailLocal))[0].Allowed {
									break
								}
								n++
							}
						}
						log = append(log, n)
						time.Sleep(step)
					}
					drift := int64(0)
					if consistency == store.ConsistencyOptimistic {
						drift = (nodes - 1) * store.OptimisticOptions{}.DriftOf(algorithm)
					}
					bound := func(d time.Duration) int64 { // of what is granted in any time d
						return 2*burst + int64(rate*(d+grace)/time.Second) + 1 + drift
					}
					until := []int64{0} // granted until each step
					for _, n := range log {
						until = append(until, until[len(until)-1]+n)
					}
					most := func(from, to, d, aligned time.Duration) (most int64) { // in any time d that begins at a multiple of aligned
						for at := from; at < to; at += step {
							if (at+start)%aligned == 0 {
								most = max(most, until[min(at+d, to)/step]-until[at/step])
							}
						}
						return most
					}
					what := fmt.Sprintf("%v, %v, away for %v", algorithm, consistency, length)
					check := func(d, aligned time.Duration, bound int64) {
						if got := most(0, back+after, d, aligned); got > bound {
							t.Errorf("%s: %d were granted within %v, want at most %d", what, got, d, bound)
						}
					}
					switch algorithm.Algorithm() {
					case weir.AlgorithmTokenBucket:
						for _, d := range []time.Duration{step, second(1), second(10), length + second(1), length + second(20), back + after} {
							check(d, step, bound(d))
						}
					case weir.AlgorithmFixedWindow:
						check(10*time.Second, 10*time.Second, 2*burst+drift)
					default: // in any ten segments
						check(10*time.Second, time.Second, 2*burst+drift)
					}
					// No burst: around recovery no more than the limit would grant to one who comes for the first time.
					recovery := most(back-second(0.1), back+second(6), second(1), step)
					if most := burst + rate + drift; recovery > most {
						t.Errorf("%s: %d were granted within a second of the recovery", what, recovery)
					}
					if quiet := most(back+second(15), back+after, second(30), step); quiet < 30*rate*8/10 {
						t.Errorf("%s: only %d in 30s after the recovery", what, quiet)
					}
					// What was refused until the window ends is not asked meanwhile.
					noticed := consistency != store.ConsistencyOptimistic || length > 10*time.Second
					s := fleets[0].Stats()
					if s.Fallback.Owed != 0 || (s.Breaker.Opened == 0 || s.Fallback.LocalAllowed == 0) && noticed || s.Grace || s.Replicas != nodes {
						t.Errorf("%s: %+v", what, s)
					}
					t.Logf("%s: %d in all in %v, of which %d within a second of the recovery", what, until[len(log)], back+after, recovery)
				})
			}
		}
	}
}

// TestFleetClosedKeepsTheLimit breaks the links of processes at random, with calls that fail before or after they took effect:
// FailClosed never grants more than the limit.
func TestFleetClosedKeepsTheLimit(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			const nodes = 3
			burst := 10 + r.Int64N(300)
			limit := weir.TokenBucket(weir.Per(burst, 30*time.Second), burst)
			if r.IntN(2) == 0 {
				limit = weir.FixedWindow(weir.Per(burst, 1000*time.Hour))
			}
			shared := newMemory(t, store.MemoryOptions{})
			var links [nodes]*deaf
			var fleets [nodes]*store.Fleet
			for i := range fleets {
				links[i] = &deaf{outage: newLink(shared)}
				fleets[i] = newFleet(t, links[i], store.FleetOptions{})
				t.Cleanup(func() { fleets[i].Close() }) // which may fail to tell the store everything
			}
			began := time.Now()
			total := int64(0)
			for range 3000 {
				i := r.IntN(nodes)
				if r.IntN(50) == 0 {
					links[i].down.Store(r.IntN(2) == 0)
					links[i].deaf.Store(r.IntN(2) == 0)
				}
				c := charge("p", limit, r.Int64N(4), store.Consistency(seed%2), store.FailClosed) // coherent, or leased
				charges := []store.Charge{c}
				if r.IntN(3) == 0 { // which never refuses, but for the third one
					charges = append(charges, charge("q", hourly(1e9), 1, store.Consistency(r.IntN(3)), store.Fail(r.IntN(3))))
				}
				if ds := mustTake(t, fleets[i], charges...); allGranted(ds) {
					total += c.N
				}
				if r.IntN(4) == 0 {
					time.Sleep(time.Duration(r.Int64N(int64(20 * time.Millisecond))))
				}
				bound := burst
				if limit.Algorithm() == weir.AlgorithmTokenBucket {
					bound += int64(time.Since(began)) * burst / int64(30*time.Second)
				}
				if total > bound {
					t.Fatalf("seed %d: %v: %d were granted in %v", seed, limit, total, time.Since(began))
				}
			}
			if total == 0 {
				t.Errorf("seed %d: nothing was granted", seed)
			}
		})
	}
}
