package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// erratic is a link to a store whose calls take time, and of which some fail, before they have taken effect or afterwards.
type erratic struct {
	*outage

	failing atomic.Int64 // per cent of the calls
}

func (e *erratic) up(ctx context.Context) error {
	timer := time.NewTimer(rand.N(3 * time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
	return e.fails()
}

func (e *erratic) fails() error {
	if rand.Int64N(200) < e.failing.Load() {
		return errGone
	}
	return nil
}

func (e *erratic) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if ask.Mode != store.ModeTake && ask.Mode != store.ModeDebit && ask.Mode != store.ModeLend {
		return e.outage.Do(ctx, ask, charges, decisions)
	}
	if err := e.up(ctx); err != nil {
		return store.Hold{}, err
	}
	h, err := e.outage.Do(ctx, ask, charges, decisions)
	if failed := errors.Join(err, e.fails()); failed != nil {
		return store.Hold{}, failed
	}
	return h, nil
}

func (e *erratic) Settle(ctx context.Context, h store.Hold, actual []int64) error {
	if h.Lent() == 0 {
		return e.outage.Settle(ctx, h, actual)
	}
	if err := e.up(ctx); err != nil {
		return err
	}
	return errors.Join(e.outage.Settle(ctx, h, actual), e.fails())
}

// TestContentionFleetMixed has nodes take all kinds of charges together, with calls that fail, callers who go away, and nodes that
// are closed in the middle of it: what is granted of each limit is within its bound, the store knows of all of it, and what was
// refused has cost next to nothing, and of what is coherent nothing, if nothing has failed.
func TestContentionFleetMixed(t *testing.T) {
	for _, failing := range []int64{0, 20} {
		for _, round := range []int{0, 4} {
			synctest.Test(t, func(t *testing.T) { fleetMixed(t, failing, round) })
		}
	}
}

func fleetMixed(t *testing.T, failing int64, round int) {
	const nodes, workers, limit = 3, 6, 2000
	shared := newMemory(t, store.MemoryOptions{})
	window := weir.FixedWindow(weir.Per(limit, 10_000*time.Hour))
	small := weir.FixedWindow(weir.Per(60, 10_000*time.Hour))
	all := []store.Charge{
		charge("leased", window, 1, store.ConsistencyLeased, store.FailClosed),
		charge("optimistic", window, 1, store.ConsistencyOptimistic, store.FailClosed),
		charge("coherent", window, 1, store.ConsistencyCoherent, store.FailClosed),
		charge("leased 2", window, 3, store.ConsistencyLeased, store.FailClosed),
		charge("optimistic 2", window, 2, store.ConsistencyOptimistic, store.FailClosed),
		charge("small", small, 1, store.ConsistencyLeased, store.FailClosed),
		charge("few", small, 1, store.ConsistencyCoherent, store.FailClosed),
	}
	granted := make([]atomic.Int64, len(all))
	fleets := make([]*store.Fleet, nodes)
	var done sync.WaitGroup
	for i := range fleets {
		link := &erratic{outage: newLink(shared)}
		link.failing.Store(failing)
		fleets[i] = newFleet(t, link, alone())
		for range workers {
			done.Go(func() {
				for range 1500 {
					places := rand.Perm(len(all))[:1+rand.N(4)]
					var charges []store.Charge
					for _, at := range places {
						charges = append(charges, all[at])
					}
					ctx, cancel := context.Background(), context.CancelFunc(func() {})
					if failing > 0 && rand.N(5) == 0 {
						ctx, cancel = context.WithTimeout(ctx, rand.N(5*time.Millisecond)+1)
					}
					ds := make([]weir.Decision, len(charges))
					err := store.Take(ctx, fleets[i], charges, ds)
					cancel()
					if err == nil && allGranted(ds) {
						for j, at := range places {
							granted[at].Add(charges[j].N)
						}
					}
					if rand.N(3) == 0 {
						time.Sleep(rand.N(50 * time.Millisecond))
					}
				}
			})
		}
	}
	if round > 2 {
		time.Sleep(time.Duration(round) * 200 * time.Millisecond)
		if err := fleets[0].Close(); err != nil && failing == 0 {
			t.Error(err)
		}
	}
	done.Wait()
	for _, f := range fleets {
		if err := f.Close(); err != nil && failing == 0 {
			t.Error(err)
		}
	}
	for i := range all {
		c := all[i]
		c.N = 0
		s, err := store.Inspect(t.Context(), shared, c)
		if err != nil {
			t.Fatal(err)
		}
		n, most := granted[i].Load(), s.Decision.Limit
		if c.Consistency == store.ConsistencyOptimistic {
			most += (nodes - 1) * store.OptimisticOptions{}.DriftOf(c.Limit)
		}
		if n > most {
			t.Errorf("%s: %d granted, at most %d may be", c.Policy, n, most)
		}
		known := s.Decision.Limit - s.Decision.Remaining
		lost, few := known-min(n, s.Decision.Limit), int64(limit/100) // what has come from blocks that are forgotten, or was told
		if c.Consistency == store.ConsistencyCoherent {
			few = 0
		}
		if failing == 0 && (lost < 0 || lost > few) {
			t.Errorf("%s: %d granted, and the store knows of %d", c.Policy, n, known)
		}
	}
}
