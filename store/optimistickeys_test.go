package store_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// TestOptimisticManyDirtyKeys has the store told of many keys at once, slowly: few calls are under way, they are not too large,
// and a call for another key does not wait.
func TestOptimisticManyDirtyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 10_000
		s, d := node(t, store.OptimisticOptions{})
		names := make([]string, keys)
		for range 2 {
			for i := range keys {
				names[i] = fmt.Sprint(i)
				take(t, s, names[i], perSecond, 1)
			}
		}
		d.slow(time.Millisecond)
		d.mostCalls.Store(0)
		start := time.Now()
		for i := 0; d.debited.Load() < keys; i++ {
			began := time.Now()
			take(t, s, names[i%keys], perSecond, 0)
			if time.Since(began) > 0 && began.Sub(start) < 200*time.Millisecond {
				t.Fatalf("a request waited for %v, %v after all keys were used", time.Since(began), began.Sub(start))
			}
			_ = rest(t.Context(), time.Millisecond)
			if time.Since(start) > time.Minute {
				t.Fatalf("the store was told of %d permits", d.debited.Load())
			}
		}
		t.Logf("told in %v, with %d calls at a time, of up to %d charges", time.Since(start), d.mostCalls.Load(), d.charges.Load())
		if d.mostCalls.Load() > 5 || d.charges.Load() != store.MostCharges { // 4, and that of the request
			t.Errorf("%d calls at a time, of up to %d charges", d.mostCalls.Load(), d.charges.Load())
		}
		shut(t, s)
		if d.debited.Load() != keys {
			t.Errorf("the store was told of %d permits", d.debited.Load())
		}
	})
}

// TestOptimisticMaxKeys has more keys than are remembered: those of which the store knows everything are forgotten, and if there
// are none the store is asked each time.
func TestOptimisticMaxKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := node(t, store.OptimisticOptions{MaxKeys: 10, Interval: time.Second})
		defer shut(t, s)
		l := weir.TokenBucket(weir.PerDay(10), 0)
		for i := range 1000 { // all known to the store
			take(t, s, fmt.Sprint(i), l, 1)
		}
		if s.Len() != 10 {
			t.Errorf("%d keys", s.Len())
		}
		for i := 990; i < 1000; i++ {
			take(t, s, fmt.Sprint(i), l, 1)
		}
		if got := d.calls.Load(); got != 1000 {
			t.Errorf("%d calls", got)
		}
		d.calls.Store(0)
		for i := range 12 {
			if got := take(t, s, "more", l, 1); got.Allowed != (i < 10) {
				t.Errorf("request %d: %+v", i, got)
			}
		}
		if d.calls.Load() != 12 || s.Len() != 10 {
			t.Errorf("%d calls, %d keys", d.calls.Load(), s.Len())
		}
		_ = rest(t.Context(), 1100*time.Millisecond)
		take(t, s, "other", l, 1)
		take(t, s, "other", l, 1)
		if d.calls.Load() != 12+1+1 { // that of the interval, and the first of the two
			t.Errorf("%d calls", d.calls.Load())
		}
		_ = rest(t.Context(), 10*time.Minute)
		if s.Len() != 0 {
			t.Errorf("%d keys after ten minutes", s.Len())
		}
	})
}

// TestOptimisticTableFull has a store that has no room for a key.
func TestOptimisticTableFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &distant{Home: newMemory(t, store.MemoryOptions{MaxKeys: 1})}
		s := newOptimistic(t, d, store.OptimisticOptions{})
		defer shut(t, s)
		take(t, s, "a", perSecond, 100)
		for range 3 {
			if got := take(t, s, "b", perSecond, 1); got.Reason != weir.ReasonTableFull || got.RetryAfter <= 0 {
				t.Errorf("%+v", got)
			}
		}
		if d.calls.Load() != 2 {
			t.Errorf("%d calls", d.calls.Load())
		}
		_ = rest(t.Context(), 2*time.Second)
		if got := take(t, s, "b", perSecond, 1); !got.Allowed {
			t.Errorf("when there is room: %+v", got)
		}
	})
}

// TestOptimisticLimitChanges raises and lowers a limit while permits of it are owed.
func TestOptimisticLimitChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := node(t, store.OptimisticOptions{})
		defer shut(t, s)
		of := func(n int64) weir.Limit { return weir.TokenBucket(weir.PerDay(n), 0) }
		take(t, s, "", of(20), 10)
		take(t, s, "", of(20), 2)
		if got := take(t, s, "", of(50), 0); !got.Allowed || got.Limit != 50 || got.Remaining != 8 {
			t.Errorf("raised: %+v", got)
		}
		if got := take(t, s, "", of(5), 1); !got.Allowed || got.Limit != 5 || got.Remaining != 4 {
			t.Errorf("lowered: %+v", got)
		}
		if got := take(t, s, "", weir.FixedWindow(weir.PerDay(7)), 1); got.Remaining != 6 {
			t.Errorf("another algorithm: %+v", got)
		}
	})
}

// TestOptimisticAllOrNothing has requests with several charges of which one refuses, in memory or in the store.
func TestOptimisticAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := node(t, store.OptimisticOptions{})
		defer shut(t, s)
		l := weir.TokenBucket(weir.PerDay(20), 0)
		ask := func(keys ...string) []weir.Decision {
			charges := make([]store.Charge, len(keys))
			for i, key := range keys {
				charges[i] = store.Charge{Policy: "p", Key: key, Limit: l, N: 1}
			}
			decisions := make([]weir.Decision, len(keys))
			if err := store.Take(t.Context(), s, charges, decisions); err != nil {
				t.Fatal(err)
			}
			return decisions
		}
		take(t, d.Home, "used up", l, 20)
		take(t, s, "known", l, 1)
		got := ask("known", "used up", "unknown") // the store is asked about two of them
		if !got[0].Allowed || got[0].Remaining != 19 || got[1].Allowed || !got[2].Allowed || got[2].Remaining != 20 {
			t.Errorf("the store refuses: %+v", got)
		}
		d.calls.Store(0)
		got = ask("known", "used up", "never seen")
		if !got[0].Allowed || got[0].Remaining != 19 || got[1].Allowed || !got[2].Allowed || d.calls.Load() != 0 {
			t.Errorf("memory refuses: %+v, %d calls", got, d.calls.Load())
		}
		got = ask("known", "unknown")
		if !got[0].Allowed || got[0].Remaining != 18 || !got[1].Allowed || got[1].Remaining != 19 || d.calls.Load() != 0 {
			t.Errorf("memory grants: %+v, %d calls", got, d.calls.Load())
		}
		_ = rest(t.Context(), time.Second)
		for key, want := range map[string]int64{"known": 18, "used up": 0, "unknown": 19, "never seen": 20} {
			if got := left(t, d, key, l); got != want {
				t.Errorf("%q: %d are left, not %d", key, got, want)
			}
		}
	})
}

// TestOptimisticRest are the calls that go to the store: it knows everything then.
func TestOptimisticRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := node(t, store.OptimisticOptions{Interval: time.Minute})
		defer shut(t, s)
		ctx, l := t.Context(), weir.TokenBucket(weir.Per(20, 24*time.Hour), 0)
		decisions := make([]weir.Decision, 1)
		of := func(n int64) []store.Charge { return []store.Charge{{Policy: "p", Limit: l, N: n}} }
		expect := func(what string, err error, want int64) {
			t.Helper()
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			if got := take(t, s, "", l, 0); got.Remaining != want {
				t.Errorf("%s: %d are left, not %d", what, got.Remaining, want)
			}
		}
		take(t, s, "", l, 1)
		take(t, s, "", l, 2)
		r, err := store.Reserve(ctx, s, of(5), decisions, time.Hour)
		expect("Reserve", err, 12)
		expect("Refund of what the store does not know", store.Refund(ctx, s, nil), 12)
		take(t, s, "", l, 1)
		expect("Refund", store.Refund(ctx, s, of(3)), 14)
		expect("Commit", store.Commit(ctx, s, r, []int64{1}), 18)
		take(t, s, "", l, 2)
		loan, decision, err := store.Lend(ctx, s, of(30)[0], 1)
		if decision.Remaining != 0 || loan.Lent() != 16 {
			t.Errorf("Lend: %+v, %+v", loan, decision)
		}
		expect("Lend", err, 0)
		none, err := store.Reserve(ctx, s, of(1), decisions, time.Hour)
		if err != nil || none.ID != "" || decisions[0].Allowed {
			t.Errorf("Reserve of what is lent: %+v, %+v, %v", none, decisions, err)
		}
		expect("Return", store.Return(ctx, s, loan, 15), 15)
		r, err = store.Reserve(ctx, s, of(15), decisions, time.Hour)
		expect("Reserve of the rest", err, 0)
		expect("Cancel", store.Cancel(ctx, s, r), 15)
		take(t, s, "", l, 1)
		expect("Debit", store.Debit(ctx, s, of(4), decisions), 10)
		take(t, s, "", l, 2)
		state, err := store.Inspect(ctx, s, of(0)[0])
		if state.Decision.Remaining != 8 || !state.Known {
			t.Errorf("Inspect: %+v", state)
		}
		expect("Inspect", err, 8)
		take(t, s, "", l, 2)
		d.calls.Store(0)
		err = store.Peek(ctx, s, of(7), decisions)
		if err != nil || decisions[0].Allowed || decisions[0].Remaining != 6 {
			t.Errorf("Peek: %+v, %v", decisions, err)
		}
		err = store.Peek(ctx, s, of(1), decisions)
		if err != nil || !decisions[0].Allowed || decisions[0].Remaining != 6 || d.calls.Load() > 0 {
			t.Errorf("Peek: %+v, %v, %d calls", decisions, err, d.calls.Load())
		}
		expect("Reset", store.Reset(ctx, s, "p", ""), 20)
		in := []store.Charge{{Policy: "c", Limit: weir.AtOnce(2), N: 1}}
		for i := range 3 {
			if _, err := store.Reserve(ctx, s, in, decisions, time.Hour); err != nil || decisions[0].Allowed != (i < 2) {
				t.Errorf("concurrency %d: %+v, %v", i, decisions, err)
			}
		}
	})
}

// TestOptimisticContention has 64 callers want the permits of a few keys, one or several at a time: a single node never exceeds.
func TestOptimisticContention(t *testing.T) {
	const callers, keys, limit = 64, 4, 2000
	s, d := node(t, store.OptimisticOptions{Interval: time.Millisecond})
	l := hourly(limit)
	var granted [keys]atomic.Int64
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			decisions := make([]weir.Decision, keys)
			for j := range 400 {
				var charges []store.Charge
				for k := range keys {
					if (i+j)%(k+2) != 0 {
						charges = append(charges, store.Charge{Policy: "p", Key: fmt.Sprint(k), Limit: l, N: int64(1 + j%3*((i+k)%150))})
					}
				}
				if err := store.Take(context.Background(), s, charges, decisions[:len(charges)]); err != nil {
					t.Error(err)
					return
				}
				for _, c := range charges {
					if at := store.Binding(decisions[:len(charges)]); decisions[at].Allowed {
						granted[c.Key[0]-'0'].Add(c.N)
					}
				}
			}
		})
	}
	all.Wait()
	shut(t, s)
	for k := range keys {
		key := fmt.Sprint(k)
		if got, rest := granted[k].Load(), left(t, d, key, l); got+rest != limit {
			t.Errorf("key %s: %d were granted, %d are left of %d", key, got, rest, limit)
		}
	}
}
