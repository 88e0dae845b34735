package store_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// partly is a store of which a part can be away, as of a cluster one of whose masters has died: calls about its keys fail, after
// what concerns the others was done.
type partly struct {
	store.Home

	away atomic.Bool
	why  error // errGone if it is nil
}

// there are the charges that are not about keys that are away.
func (p *partly) there(charges []store.Charge) (rest []store.Charge, err error) {
	if !p.away.Load() {
		return charges, nil
	}
	for _, c := range charges {
		if strings.HasPrefix(c.Key, "dead") {
			err = cmp.Or(p.why, errGone)
		} else {
			rest = append(rest, c)
		}
	}
	return rest, err
}

func (p *partly) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	rest, err := p.there(charges)
	switch {
	case err == nil || ask.Mode != store.ModeTake && ask.Mode != store.ModePeek && ask.Mode != store.ModeDebit || ask.States != nil:
		return p.Home.Do(ctx, ask, charges, decisions)
	case ask.Mode == store.ModeDebit:
		if failed := store.Debit(ctx, p.Home, rest, make([]weir.Decision, len(rest))); failed != nil {
			return store.Hold{}, failed
		}
	}
	return store.Hold{}, err
}

func (p *partly) Settle(ctx context.Context, h store.Hold, actual []int64) error {
	if _, err := p.there(h.Charges); err != nil && actual != nil {
		return err
	}
	return p.Home.Settle(ctx, h, actual)
}

// TestPartOfTheStoreIsAway has a part of a store fail for a minute. What is owed of keys that the rest of the store has is told to
// it, at most once more than it should be, and not again and again until nothing is left; and what is reserved there is settled.
func TestPartOfTheStoreIsAway(t *testing.T) {
	window := weir.FixedWindow(weir.Per(1000, 1000*time.Hour))
	on := func(key string, c store.Consistency) store.Charge {
		return store.Charge{Policy: "p", Key: key, Limit: window, N: 10, Consistency: c, Fail: store.FailLocal}
	}
	left := func(t *testing.T, s store.Home, key string) int64 {
		t.Helper()
		state, err := store.Inspect(t.Context(), s, on(key, 0))
		if err != nil {
			t.Fatal(err)
		}
		return state.Decision.Remaining
	}
	for _, requests := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &partly{Home: newMemory(t, store.MemoryOptions{})}
			link := newLink(p)
			f := newFleet(t, link, alone())
			defer closing(t, f)
			keys := []string{"dead", "dead 2", "a", "b", "c", "d"}
			var held []store.Hold
			for _, key := range keys {
				r, err := store.Reserve(t.Context(), f, []store.Charge{on("settled "+key, 0)}, make([]weir.Decision, 1), time.Hour)
				if strings.HasPrefix(key, "dead") {
					r, err = store.Reserve(t.Context(), f, []store.Charge{on(key+" settled", 0)}, make([]weir.Decision, 1), time.Hour)
				}
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, r)
			}
			awayFor(f, link, func() {
				for _, key := range keys {
					mustTake(t, f, on(key, store.ConsistencyCoherent))
				}
				p.away.Store(true)
				for _, r := range held {
					_ = store.Commit(t.Context(), f, r, []int64{5}) // the fleet tries again
				}
			})
			var all []store.Charge
			for _, key := range keys {
				all = append(all, on(key, store.ConsistencyCoherent))
				all[len(all)-1].N = 0
			}
			for range 600 {
				mustTake(t, f, charge("probe", hourly(1e6), 1, store.ConsistencyCoherent, store.FailClosed))
				if requests {
					mustTake(t, f, all...)
				}
				time.Sleep(100 * time.Millisecond)
			}
			for _, key := range keys[2:] {
				if n := left(t, p, key); n > 990 || n < 980 {
					t.Errorf("%d are left of %s", n, key)
				}
				if n := left(t, p, "settled "+key); n != 995 {
					t.Errorf("%d are left of what was reserved of %s", n, key)
				}
			}
			p.away.Store(false)
			for range 100 {
				mustTake(t, f, charge("probe", hourly(1e6), 1, store.ConsistencyCoherent, store.FailClosed))
				time.Sleep(100 * time.Millisecond)
			}
			for _, key := range keys[:2] {
				if n := left(t, p, key); n != 990 {
					t.Errorf("%d are left of %s", n, key)
				}
			}
			if s := f.Stats(); s.Fallback.Owed != 0 || s.Unsettled != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// errPart is what a store says of which a part is away.
var errPart = fmt.Errorf("%w: gone", store.ErrPartUnavailable)

// TestPartOfTheStoreDoesNotOpenTheBreaker has a store say that a part of it is away, when there are debts of many of its keys: the
// store goes on being asked about all others, is told what is owed of theirs, and settles their reservations. The part is told too
// as soon as it is back.
func TestPartOfTheStoreDoesNotOpenTheBreaker(t *testing.T) {
	window := weir.FixedWindow(weir.Per(1000, 1000*time.Hour))
	for _, consistency := range []store.Consistency{store.ConsistencyCoherent, store.ConsistencyLeased, store.ConsistencyOptimistic} {
		synctest.Test(t, func(t *testing.T) {
			on := func(key string) store.Charge {
				return store.Charge{Policy: "p", Key: key, Limit: window, N: 10, Consistency: consistency, Fail: store.FailLocal}
			}
			reserved := func(f *store.Fleet, key string) store.Hold {
				r, err := store.Reserve(t.Context(), f, []store.Charge{on(key)}, make([]weir.Decision, 1), time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			p := &partly{Home: newMemory(t, store.MemoryOptions{}), why: errPart}
			link := newLink(p)
			f := newFleet(t, link, alone())
			defer closing(t, f)
			var held []store.Hold
			for i := range 100 {
				held = append(held, reserved(f, fmt.Sprint("dead held ", i)))
			}
			held = append(held, reserved(f, "held"))
			awayFor(f, link, func() {
				for i := range 100 {
					mustTake(t, f, on(fmt.Sprint("dead ", i)))
					if i < 10 {
						mustTake(t, f, on(fmt.Sprint("live ", i)))
					}
				}
				p.away.Store(true)
				for _, r := range held {
					_ = store.Commit(t.Context(), f, r, []int64{5}) // the fleet tries again
				}
			})
			local := func(s store.FallbackStats) uint64 { return s.LocalAllowed + s.LocalRefused }
			before := local(f.Stats().Fallback)
			probe := on("dead probe")
			probe.Consistency = store.ConsistencyCoherent
			for range 100 {
				mustTake(t, f, charge("probe", hourly(1e6), 1, store.ConsistencyCoherent, store.FailClosed))
				for range 10 { // in a row
					mustTake(t, f, probe)
				}
				time.Sleep(100 * time.Millisecond)
			}
			s := f.Stats()
			if s.Breaker.State != store.BreakerClosed || s.Breaker.Opened != 1 || local(s.Fallback) != before+1000 {
				t.Errorf("%v: %+v", consistency, s)
			}
			if s.Fallback.Owed != 101 || s.Unsettled != 100 {
				t.Errorf("%v: %d keys are owed and %d unsettled, want those of the part that is away", consistency, s.Fallback.Owed, s.Unsettled)
			}
			p.away.Store(false)
			time.Sleep(3 * time.Second)
			if s := f.Stats(); s.Fallback.Owed != 0 || s.Unsettled != 0 || s.Breaker.Opened != 1 {
				t.Errorf("%v, when it is back: %+v", consistency, s)
			}
		})
	}
}

// TestOptimisticPartOfTheStoreIsAway is the same for what is granted from memory.
func TestOptimisticPartOfTheStoreIsAway(t *testing.T) {
	window := weir.FixedWindow(weir.Per(1000, 1000*time.Hour))
	for _, requests := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &partly{Home: newMemory(t, store.MemoryOptions{})}
			o := newOptimistic(t, p, store.OptimisticOptions{})
			on := func(key string, n int64) store.Charge {
				return store.Charge{Policy: "p", Key: key, Limit: window, N: n}
			}
			var all []store.Charge
			for _, key := range []string{"a", "b", "c", "dead", "dead 2"} {
				mustTake(t, o, on(key, 10))
				all = append(all, on(key, 10))
			}
			mustTake(t, o, all...) // from memory
			p.away.Store(true)
			if requests {
				time.Sleep(time.Second) // nothing is granted from memory any more
			}
			for range 600 {
				if requests {
					_ = store.Take(t.Context(), o, all, make([]weir.Decision, len(all)))
				}
				time.Sleep(100 * time.Millisecond)
			}
			for _, c := range all[:3] {
				c.N = 0
				if s, err := store.Inspect(t.Context(), p, c); err != nil || s.Decision.Remaining > 980 || s.Decision.Remaining < 970 {
					t.Errorf("%v, %s: %+v, %v", requests, c.Key, s.Decision, err)
				}
			}
			p.away.Store(false)
			time.Sleep(20 * time.Second)
			for _, c := range all[3:] {
				if s, err := store.Inspect(t.Context(), p, c); err != nil || s.Decision.Remaining != 980 {
					t.Errorf("%s: %+v, %v", c.Key, s.Decision, err)
				}
			}
			if err := o.Close(); err != nil {
				t.Error(fmt.Errorf("closing: %w", err))
			}
		})
	}
}
