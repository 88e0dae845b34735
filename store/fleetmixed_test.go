package store_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/store"
)

// lateTakes is a store that answers Take late, and counts what it is asked.
type lateTakes struct {
	store.Home

	late         atomic.Int64
	takes, lends atomic.Int64
}

func (l *lateTakes) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if ask.Mode == store.ModeTake {
		l.takes.Add(1)
		if late := time.Duration(l.late.Load()); late > 0 {
			time.Sleep(late)
		}
	}
	if ask.Mode == store.ModeLend {
		l.lends.Add(1)
	}
	return l.Home.Do(ctx, ask, charges, decisions)
}

// TestFleetMixedAcrossWindows has a request take permits of a window in memory, and its coherent limit refuse it when the next
// window has begun, and others use that: what it gives back is not had in the next window.
func TestFleetMixedAcrossWindows(t *testing.T) {
	for _, c := range []store.Consistency{store.ConsistencyLeased, store.ConsistencyOptimistic} {
		for _, algorithm := range []weir.Algorithm{weir.AlgorithmFixedWindow, weir.AlgorithmSlidingWindow, weir.AlgorithmSlidingCounter} {
			synctest.Test(t, func(t *testing.T) {
				const n, window = 1600, 10 * time.Second
				m := &lateTakes{Home: newMemory(t, store.MemoryOptions{})}
				f := newFleet(t, m, alone())
				defer closing(t, f)
				l, _ := limits.Of(algorithm, weir.Per(n, window), 0, 0, algo.Calendar{})
				one := charge("memory", l, 1, c, store.FailClosed)
				many := charge("memory", l, 50, c, store.FailClosed)
				empty := charge("empty", hourly(1), 1, store.ConsistencyCoherent, store.FailClosed)
				mustTake(t, f, empty)
				time.Sleep(window - time.Duration(time.Now().UnixNano()%int64(window)) - 200*time.Millisecond)
				for range 100 {
					mustTake(t, f, one)
				}
				m.late.Store(int64(400 * time.Millisecond))
				done := make(chan []weir.Decision)
				go func() { done <- mustTake(t, f, many, empty) }()
				time.Sleep(300 * time.Millisecond) // the next window
				m.late.Store(0)
				granted := int64(0)
				take := func(most int64) {
					for range most {
						if !mustTake(t, f, one)[0].Allowed {
							return
						}
						granted++
					}
				}
				take(100)
				if ds := <-done; !ds[0].Allowed || ds[1].Allowed {
					t.Fatalf("%+v", ds)
				}
				for began := time.Now(); time.Since(began) < 300*time.Millisecond; time.Sleep(time.Millisecond) {
					take(n)
				}
				most := int64(n)
				if algorithm != weir.AlgorithmFixedWindow { // what was taken before counts
					most -= 100 * 9 / 10
				}
				if granted > most || granted < most-n/10 {
					t.Errorf("%v, %v: %d were granted, of %d", c, algorithm, granted, most)
				}
			})
		}
	}
}

// TestFleetMixedAsksOnce: a request for keys that were not used for long is one call of the store, whatever their consistency.
// So it is one step, and a refusal costs the other keys nothing.
func TestFleetMixedAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &lateTakes{Home: newMemory(t, store.MemoryOptions{})}
		f := newFleet(t, m, alone())
		defer closing(t, f)
		window := weir.FixedWindow(weir.Per(20, 1000*time.Hour))
		charges := []store.Charge{
			charge("small", window, 1, store.ConsistencyLeased, store.FailClosed), // too small to be leased
			charge("first", window, 1, store.ConsistencyOptimistic, store.FailClosed),
			charge("empty", hourly(3), 1, store.ConsistencyCoherent, store.FailClosed),
			charge("second", hourly(20), 1, store.ConsistencyOptimistic, store.FailClosed),
		}
		for i := range int64(10) {
			if ds := mustTake(t, f, charges...); allGranted(ds) != (i < 3) {
				t.Errorf("%+v", ds)
			}
			if asked := m.takes.Load(); asked != i+1 || m.lends.Load() != 0 {
				t.Errorf("%d calls for %d requests, and %d loans", asked, i+1, m.lends.Load())
			}
			time.Sleep(time.Minute)
		}
		for i, want := range []int64{17, 17, 0, 17} {
			if s, err := store.Inspect(t.Context(), m, charges[i]); err != nil || s.Decision.Remaining != want {
				t.Errorf("%s: %+v, %v, want %d", charges[i].Policy, s.Decision, err, want)
			}
		}
	})
}

// TestFleetMixedKnownRefusal wants a request that memory refuses to be no call of the store, and no loan.
func TestFleetMixedKnownRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &lateTakes{Home: newMemory(t, store.MemoryOptions{})}
		f := newFleet(t, m, alone())
		defer closing(t, f)
		used := charge("used", hourly(10), 1, store.ConsistencyOptimistic, store.FailClosed)
		for mustTake(t, f, used)[0].Allowed {
			continue
		}
		before := m.takes.Load()
		charges := []store.Charge{
			charge("leased", hourly(1000), 1, store.ConsistencyLeased, store.FailClosed),
			charge("coherent", hourly(10), 1, store.ConsistencyCoherent, store.FailClosed),
			used,
		}
		for range 10 {
			ds := mustTake(t, f, charges...)
			for i, d := range ds {
				if d.Allowed == (i == 2) || i < 2 && d.Remaining != 0 || d.Limit == 0 || d.Policy != charges[i].Policy {
					t.Errorf("%+v", ds)
				}
			}
		}
		if n := m.takes.Load() - before; n != 0 || m.lends.Load() != 0 {
			t.Errorf("%d calls and %d loans", n, m.lends.Load())
		}
	})
}
