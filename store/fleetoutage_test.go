package store_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// deaf is a link whose answers are lost, sometimes.
type deaf struct {
	*outage

	deaf atomic.Bool
}

func (d *deaf) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	h, err := d.outage.Do(ctx, ask, charges, decisions)
	if err != nil || !d.deaf.Load() || ask.Hold != 0 || ask.Mode != store.ModeTake && ask.Mode != store.ModeLend {
		return h, err
	}
	clear(decisions)
	return store.Hold{}, errGone
}

// TestContentionFleet has 64 callers of two processes while the store comes and goes: what is granted of a limit that is closed is
// never more than there is, and of one that is local at most twice as much.
func TestContentionFleet(t *testing.T) {
	const n, callers = 2000, 64
	limit := weir.FixedWindow(weir.Per(n, 80_000*time.Hour))
	shared := newMemory(t, store.MemoryOptions{})
	o := store.FleetOptions{
		Breaker:  store.BreakerOptions{Cooldown: time.Millisecond, MaxCooldown: 4 * time.Millisecond},
		Replicas: store.ReplicasOptions{Disabled: true, Assumed: 2}, Fallback: store.FallbackOptions{Grace: 20 * time.Millisecond},
	}
	links := []*outage{newLink(shared), newLink(shared)}
	fleets := []*store.Fleet{newFleet(t, links[0], o), newFleet(t, links[1], o)}
	for _, consistency := range []store.Consistency{store.ConsistencyCoherent, store.ConsistencyLeased, store.ConsistencyOptimistic} {
		closed := charge("closed-"+consistency.String(), limit, 1, consistency, store.FailClosed)
		local := charge("local-"+consistency.String(), limit, 1, consistency, store.FailLocal)
		var gotClosed, gotLocal atomic.Int64
		var all, cutting sync.WaitGroup
		done := make(chan struct{})
		cutting.Go(func() {
			for i := 0; ; i++ {
				timer := time.NewTimer(time.Duration(1+i%7) * time.Millisecond)
				select {
				case <-timer.C:
					links[i%2].down.Store(i%3 != 0)
				case <-done:
					links[0].down.Store(false)
					links[1].down.Store(false)
					return
				}
			}
		})
		for i := range callers {
			all.Go(func() {
				f := fleets[i%2]
				for range 300 {
					if mustTake(t, f, closed)[0].Allowed {
						gotClosed.Add(1)
					}
					if mustTake(t, f, local)[0].Allowed {
						gotLocal.Add(1)
					}
					if ds := mustTake(t, f, local, closed); allGranted(ds) {
						gotClosed.Add(1)
						gotLocal.Add(1)
					}
				}
			})
		}
		all.Wait()
		close(done)
		cutting.Wait()
		drift := int64(0)
		if consistency == store.ConsistencyOptimistic {
			drift = store.OptimisticOptions{}.DriftOf(limit)
		}
		if got := gotClosed.Load(); got > n+drift || got == 0 {
			t.Errorf("%v: %d were granted of %d", consistency, got, n)
		}
		if got := gotLocal.Load(); got > 2*n+drift || got == 0 {
			t.Errorf("%v: %d were granted of %d, twice", consistency, got, n)
		}
		t.Logf("%v: closed %d, local %d of %d", consistency, gotClosed.Load(), gotLocal.Load(), n)
	}
	for _, f := range fleets { // which can tell the store what they owe once their breakers let calls through
		for f.Stats().Breaker.State != store.BreakerClosed {
			mustTake(t, f, charge("probe", hourly(1e6), 1, store.ConsistencyCoherent, store.FailClosed))
		}
		closing(t, f)
	}
}

// TestFleetDoesNotAllocate wants charges of one consistency to be passed on as they are.
func TestFleetDoesNotAllocate(t *testing.T) {
	f := newFleet(t, newMemory(t, store.MemoryOptions{}), alone())
	defer closing(t, f)
	for _, consistency := range []store.Consistency{store.ConsistencyCoherent, store.ConsistencyLeased, store.ConsistencyOptimistic} {
		charges := []store.Charge{charge(consistency.String(), weir.TokenBucket(weir.PerSecond(1e9), 0), 1, consistency, store.FailLocal)}
		ds := make([]weir.Decision, 1)
		if n := testing.AllocsPerRun(1000, func() {
			if err := store.Take(context.Background(), f, charges, ds); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations", consistency, n)
		}
	}
}

func BenchmarkFleetTake(b *testing.B) {
	m, err := store.NewMemory(store.MemoryOptions{})
	if err != nil {
		b.Fatal(err)
	}
	f := newFleet(b, m, alone())
	defer closing(b, f)
	l := weir.TokenBucket(weir.PerSecond(1e9), 0)
	coherent, leased := store.ConsistencyCoherent, store.ConsistencyLeased
	for _, c := range []struct {
		name    string
		store   store.Home
		charges []store.Charge
	}{
		{"memory", m, []store.Charge{charge("m", l, 1, coherent, store.FailLocal)}},
		{"coherent", f, []store.Charge{charge("c", l, 1, coherent, store.FailLocal)}},
		{"leased", f, []store.Charge{charge("l", l, 1, leased, store.FailLocal)}},
		{"optimistic", f, []store.Charge{charge("o", l, 1, store.ConsistencyOptimistic, store.FailLocal)}},
		{"mixed", f, []store.Charge{charge("c", l, 1, coherent, store.FailLocal), charge("l", l, 1, leased, store.FailLocal)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			ds := make([]weir.Decision, len(c.charges))
			b.ReportAllocs()
			for b.Loop() {
				if err := store.Take(context.Background(), c.store, c.charges, ds); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, fail := range []store.Fail{store.FailClosed, store.FailOpen, store.FailLocal} {
		b.Run("away/"+fail.String(), func(b *testing.B) {
			o := alone()
			o.Breaker = store.BreakerOptions{Failures: 1, Cooldown: time.Hour}
			link := newLink(nil)
			link.breaks()
			f := newFleet(b, link, o)
			defer closing(b, f)
			charges, ds := []store.Charge{charge("c", l, 1, coherent, fail)}, make([]weir.Decision, 1)
			b.ReportAllocs()
			for b.Loop() {
				if err := store.Take(context.Background(), f, charges, ds); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
