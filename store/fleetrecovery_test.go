package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// awayFor has a fleet without other callers lose its store, and get it back when its breaker lets the next call through.
func awayFor(f *store.Fleet, link *outage, meanwhile func()) {
	probe := charge("probe", hourly(1e6), 1, store.ConsistencyCoherent, store.FailClosed)
	ds := make([]weir.Decision, 1)
	repair := link.breaks()
	for f.Stats().Breaker.State == store.BreakerClosed {
		_ = store.Take(context.Background(), f, []store.Charge{probe}, ds)
	}
	meanwhile()
	repair()
	time.Sleep(5 * time.Second)
}

// TestFleetRepaysBeforeItAsks wants the first decision of a store that is back to know what was granted without it, in the same
// instant, and nothing to be told twice.
func TestFleetRepaysBeforeItAsks(t *testing.T) {
	for _, consistency := range []store.Consistency{store.ConsistencyCoherent, store.ConsistencyLeased, store.ConsistencyOptimistic} {
		synctest.Test(t, func(t *testing.T) {
			link := newLink(newMemory(t, store.MemoryOptions{}))
			f := newFleet(t, link, alone())
			defer closing(t, f)
			c := charge("p", hourly(50), 7, consistency, store.FailLocal)
			zero := c
			zero.N = 0
			want := func(left int64, ds []weir.Decision) {
				t.Helper()
				if !ds[0].Allowed || ds[0].Remaining != left {
					t.Errorf("%v: %+v, want %d left", consistency, ds[0], left)
				}
			}
			awayFor(f, link, func() {
				want(43, mustTake(t, f, c))
				want(36, mustTake(t, f, c))
			})
			want(29, mustTake(t, f, c))
			awayFor(f, link, func() { // this process has taken only what the store knows not from it
				want(29, mustTake(t, f, c))
				if err := store.Refund(t.Context(), f, []store.Charge{c}); err != nil {
					t.Error(err)
				}
				want(29, mustTake(t, f, c))
			})
			want(22, mustTake(t, f, zero))
			awayFor(f, link, func() {})
			want(22, mustTake(t, f, zero))
			awayFor(f, link, func() {
				if err := store.Debit(t.Context(), f, []store.Charge{c}, make([]weir.Decision, 1)); err != nil {
					t.Error(err)
				}
			})
			var ds [1]weir.Decision
			if err := store.Peek(t.Context(), f, []store.Charge{zero}, ds[:]); err != nil {
				t.Error(err)
			}
			want(15, ds[:])
			awayFor(f, link, func() {
				want(15, mustTake(t, f, c))
				if err := store.Reset(t.Context(), f, c.Policy, c.Key); !errors.Is(err, store.ErrUnavailable) {
					t.Error(err)
				}
			})
			want(15, mustTake(t, f, zero))
		})
	}
}

// TestFleetGrace holds a process to its share when the store is back, without charging the share for what the store refuses.
func TestFleetGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newMemory(t, store.MemoryOptions{})
		link := newLink(shared)
		f := newFleet(t, link, store.FleetOptions{
			Replicas: store.ReplicasOptions{Disabled: true, Assumed: 2}, Fallback: store.FallbackOptions{Grace: time.Minute},
		})
		defer closing(t, f)
		local := charge("p", hourly(100), 1, store.ConsistencyCoherent, store.FailLocal)
		optimistic := charge("q", hourly(100), 1, store.ConsistencyOptimistic, store.FailLocal)
		slots := charge("s", weir.AtOnce(2), 1, store.ConsistencyCoherent, store.FailLocal)
		awayFor(f, link, func() {})
		mustTake(t, f, charge("probe", hourly(1e6), 1, store.ConsistencyCoherent, store.FailClosed))
		if !f.Stats().Grace {
			t.Fatal("no grace")
		}
		all := local
		all.N = 100
		if !mustTake(t, shared, all)[0].Allowed {
			t.Fatal("it is gone")
		}
		for i := range 100 { // the store refuses each, and so all
			ds := mustTake(t, f, local, optimistic)
			if ds[0].Allowed || !ds[1].Allowed || ds[0].Limit != 100 {
				t.Fatalf("request %d: %+v", i, ds)
			}
			r, err := store.Reserve(t.Context(), f, []store.Charge{local, slots}, ds, time.Minute)
			if err != nil || r.ID != "" {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		if err := store.Reset(t.Context(), shared, local.Policy, local.Key); err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			if i%2 == 0 {
				if ds := mustTake(t, f, optimistic, local); !allGranted(ds) {
					t.Fatalf("request %d: %+v", i, ds)
				}
				continue
			}
			ds := make([]weir.Decision, 2)
			r, err := store.Reserve(t.Context(), f, []store.Charge{slots, local}, ds, time.Minute)
			if err != nil || r.ID == "" || store.Commit(t.Context(), f, r, []int64{1, 1}) != nil {
				t.Fatalf("request %d: %+v, %+v, %v", i, r, ds, err)
			}
		}
		if d := mustTake(t, f, local)[0]; d.Allowed || d.Limit != 50 || d.Reason != weir.ReasonLimited {
			t.Errorf("beyond the share: %+v", d)
		}
		large := local
		large.N = 60
		if d := mustTake(t, f, large)[0]; d.Reason != weir.ReasonUnavailable || d.RetryAfter <= 0 || d.RetryAfter > time.Minute {
			t.Errorf("more than the share: %+v", d)
		}
		time.Sleep(time.Minute + time.Second)
		if f.Stats().Grace {
			t.Error("grace for ever")
		}
		for i := range 50 {
			if d := mustTake(t, f, local)[0]; !d.Allowed || d.Limit != 100 {
				t.Fatalf("request %d after the time of grace: %+v", i, d)
			}
		}
		if d := mustTake(t, f, local)[0]; d.Allowed {
			t.Errorf("%+v", d)
		}
	})
}

// slowDebits is a link over which debits take a while.
type slowDebits struct {
	*outage

	debits  atomic.Int64
	failing atomic.Bool
}

func (s *slowDebits) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if ask.Mode == store.ModeDebit {
		s.debits.Add(1)
		timer := time.NewTimer(50 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return store.Hold{}, fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
		}
		if s.failing.Load() {
			return store.Hold{}, store.ErrUnavailable
		}
	}
	return s.outage.Do(ctx, ask, charges, decisions)
}

// TestContentionFleetRepays has 64 callers ask for a key of which the store has to be told. One tells it, and the others wait,
// unless that one is the probe. If the one that tells gives up, another one does it.
func TestContentionFleetRepays(t *testing.T) {
	for _, probe := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			shared := newMemory(t, store.MemoryOptions{})
			link := &slowDebits{outage: newLink(shared)}
			f := newFleet(t, link, alone())
			defer closing(t, f)
			c := charge("p", hourly(1000), 1, store.ConsistencyCoherent, store.FailLocal)
			// The background tells the store first, but for what is granted in the same tick.
			awayFor(f, link.outage, func() {
				for range 200 {
					mustTake(t, f, c)
				}
			})
			if !probe {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				mustTake(t, f, charge("probe", hourly(1e6), 1, store.ConsistencyCoherent, store.FailClosed))
				ds := make([]weir.Decision, 1)
				if err := store.Take(ctx, f, []store.Charge{c}, ds); err != nil { // decided here, as the deadline is over
					t.Error(err)
				}
				cancel()
			}
			local := f.Stats().Fallback.LocalAllowed
			link.debits.Store(0)
			began := time.Now()
			var all sync.WaitGroup
			for range 64 {
				all.Go(func() { mustTake(t, f, c) })
			}
			all.Wait()
			want, took := local, 50*time.Millisecond
			if probe {
				want += 63
			}
			if got := f.Stats().Fallback.LocalAllowed; got != want || link.debits.Load() != 1 || time.Since(began) != took {
				t.Errorf("probe %v: %d were decided here, want %d; %d debits in %v", probe, got, want, link.debits.Load(), time.Since(began))
			}
			time.Sleep(time.Second)
			c.N = 0
			taken := int64(200 + 64)
			if !probe {
				taken++
			}
			if d := mustTake(t, shared, c)[0]; d.Limit-d.Remaining != taken {
				t.Errorf("probe %v: the store knows of %d, want %d", probe, d.Limit-d.Remaining, taken)
			}
		})
	}
}

// TestFleetWaitsForOneDebit has the background tell a slow store of keys each of which needs a call of its own, as a call for all has
// failed: a request for one of them does not wait for the calls of the others.
func TestFleetWaitsForOneDebit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 20
		shared := newMemory(t, store.MemoryOptions{})
		link := &slowDebits{outage: newLink(shared)}
		f := newFleet(t, link, alone())
		defer closing(t, f)
		of := func(i int) store.Charge {
			c := charge("p", hourly(100), 3, store.ConsistencyCoherent, store.FailLocal)
			c.Key = fmt.Sprint(i)
			return c
		}
		awayFor(f, link.outage, func() {
			for i := range keys {
				mustTake(t, f, of(i))
			}
		})
		link.failing.Store(true)
		mustTake(t, f, charge("probe", hourly(1e6), 1, store.ConsistencyCoherent, store.FailClosed))
		for link.debits.Load() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond)
		link.failing.Store(false)
		for i := range keys {
			time.Sleep(time.Millisecond)
			began := time.Now()
			mustTake(t, f, of(i))
			if took := time.Since(began); took > 100*time.Millisecond { // the call that is under way, and its own
				t.Errorf("request %d has waited for %v", i, took)
			}
		}
		time.Sleep(time.Second)
		for i := range keys {
			c := of(i)
			c.N = 0
			if d := mustTake(t, shared, c)[0]; d.Limit-d.Remaining != 6 {
				t.Errorf("key %d: %+v", i, d)
			}
		}
	})
}

// TestFleetTellsInTheBackground has many keys that are not used any more: the store is told of all of them, so many in each
// tick.
func TestFleetTellsInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 5000
		shared := newMemory(t, store.MemoryOptions{})
		link := newLink(shared)
		f := newFleet(t, link, alone())
		defer closing(t, f)
		of := func(i int) store.Charge {
			window := weir.FixedWindow(weir.Per(100, 1000*time.Hour))
			c := charge("p", window, 3, store.Consistency(i%3), store.FailLocal)
			c.Key = fmt.Sprint(i)
			return c
		}
		awayFor(f, link, func() {
			for i := range keys {
				mustTake(t, f, of(i))
			}
		})
		mustTake(t, f, charge("probe", hourly(1e6), 1, store.ConsistencyCoherent, store.FailClosed))
		for ticks := 0; f.Stats().Fallback.Owed > 0; ticks++ {
			synctest.Wait()
			before := f.Stats().Fallback.Owed
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if told := before - f.Stats().Fallback.Owed; told > 16*64 || ticks > 10 {
				t.Fatalf("%d keys told in tick %d", told, ticks)
			}
		}
		for i := range keys {
			c := of(i)
			c.N = 0
			if d := mustTake(t, shared, c)[0]; d.Limit-d.Remaining != 3 {
				t.Fatalf("key %d: %+v", i, d)
			}
		}
	})
}
