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

// distant is a store that takes time to reach, counts its calls, and can be cut off.
type distant struct {
	store.Home

	delay     atomic.Pointer[func() time.Duration] // there, and back; nil for none
	down      atomic.Bool                          // calls do not get there
	deaf      atomic.Bool                          // calls get there, but answers do not come back
	calls     atomic.Int64
	debited   atomic.Int64 // permits
	charges   atomic.Int64 // the most in a call of Debit
	underway  atomic.Int64
	mostCalls atomic.Int64
}

// granted is when the store has granted a request, which is found by the context of the request.
type granted struct{ at time.Time }

type grantedKey struct{}

// call does what a call to the store does.
func (d *distant) call(ctx context.Context, do func() error) error {
	d.calls.Add(1)
	raise(&d.mostCalls, d.underway.Add(1))
	defer d.underway.Add(-1)
	if err := d.travel(ctx); err != nil {
		return err
	}
	if d.down.Load() {
		return store.ErrUnavailable
	}
	err := do()
	if d.deaf.Load() {
		return store.ErrUnavailable
	}
	if late := d.travel(ctx); late != nil {
		return late
	}
	return err
}

func raise(most *atomic.Int64, n int64) {
	for {
		if old := most.Load(); n <= old || most.CompareAndSwap(old, n) {
			return
		}
	}
}

func (d *distant) travel(ctx context.Context) error {
	delay := d.delay.Load()
	if delay == nil {
		return nil
	}
	return rest(ctx, (*delay)())
}

// slow has every call take twice as long as that.
func (d *distant) slow(there time.Duration) {
	delay := func() time.Duration { return there }
	d.delay.Store(&delay)
}

// rest lets time pass.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
}

func (d *distant) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if ask.Mode != store.ModeTake && ask.Mode != store.ModePeek && ask.Mode != store.ModeDebit || ask.Hold != 0 || ask.States != nil {
		return d.Home.Do(ctx, ask, charges, decisions)
	}
	return store.Hold{}, d.call(ctx, func() error {
		if g, ok := ctx.Value(grantedKey{}).(*granted); ok && ask.Mode == store.ModeTake {
			g.at = time.Now()
		}
		if ask.Mode == store.ModeDebit {
			raise(&d.charges, int64(len(charges)))
			for i := range charges {
				d.debited.Add(charges[i].N)
			}
		}
		_, err := d.Home.Do(ctx, ask, charges, decisions)
		return err
	})
}

func newOptimistic(t testing.TB, inner store.Home, o store.OptimisticOptions) *store.Optimistic {
	t.Helper()
	s, err := store.NewOptimistic(inner, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// shut closes a store and fails the test if that fails.
func shut(t *testing.T, s store.Home) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// node is an Optimistic over a distant Memory of its own.
func node(t *testing.T, o store.OptimisticOptions) (*store.Optimistic, *distant) {
	t.Helper()
	d := &distant{Home: newMemory(t, store.MemoryOptions{})}
	return newOptimistic(t, d, o), d
}

// take takes n permits of a key.
func take(t *testing.T, s store.Home, key string, l weir.Limit, n int64) weir.Decision {
	t.Helper()
	d := make([]weir.Decision, 1)
	if err := store.Take(t.Context(), s, []store.Charge{{Policy: "p", Key: key, Limit: l, N: n}}, d); err != nil {
		t.Fatal(err)
	}
	return d[0]
}

var perSecond = weir.TokenBucket(weir.PerSecond(100), 0)

// TestOptimisticRecheck is a refusal that is believed for a second only.
func TestOptimisticRecheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := node(t, store.OptimisticOptions{Recheck: time.Second})
		defer shut(t, s)
		l := weir.TokenBucket(weir.PerDay(10), 0)
		take(t, s, "", l, 10)
		if err := store.Reset(t.Context(), d, "p", ""); err != nil {
			t.Fatal(err)
		}
		if take(t, s, "", l, 1).Allowed {
			t.Error("granted before the store was asked")
		}
		_ = rest(t.Context(), 1100*time.Millisecond)
		if !take(t, s, "", l, 1).Allowed {
			t.Error("refused although another process has reset the key")
		}
	})
}

// TestOptimisticOneCallForAll has 64 callers ask at once for a key that is new: the store is asked once.
func TestOptimisticOneCallForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := node(t, store.OptimisticOptions{Drift: 100})
		defer shut(t, s)
		d.slow(10 * time.Millisecond)
		var allowed atomic.Int64
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				if take(t, s, "", perSecond, 1).Allowed {
					allowed.Add(1)
				}
			})
		}
		all.Wait()
		if allowed.Load() != 64 || d.calls.Load() != 1 {
			t.Errorf("%d of 64 were allowed, with %d calls", allowed.Load(), d.calls.Load())
		}
		_ = rest(t.Context(), time.Minute)
		d.calls.Store(0)
		start := time.Now()
		if !take(t, s, "", perSecond, 1).Allowed || d.calls.Load() != 1 || time.Since(start) != 20*time.Millisecond {
			t.Errorf("the first request for an idle key made %d calls, in %v", d.calls.Load(), time.Since(start))
		}
	})
}

// TestOptimisticHotKeyStaysLocal has a key asked for every millisecond: only the first call waits for the store.
func TestOptimisticHotKeyStaysLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := node(t, store.OptimisticOptions{})
		defer shut(t, s)
		d.slow(20 * time.Millisecond)
		l := weir.TokenBucket(weir.PerSecond(10_000), 0)
		take(t, s, "", l, 1)
		d.calls.Store(0)
		for range 5000 {
			start := time.Now()
			if got := take(t, s, "", l, 1); !got.Allowed || time.Since(start) != 0 {
				t.Fatalf("%+v after %v", got, time.Since(start))
			}
			_ = rest(t.Context(), time.Millisecond)
		}
		if calls := d.calls.Load(); calls < 49 || calls > 51 {
			t.Errorf("%d calls in 5 s", calls)
		}
		_ = rest(t.Context(), 200*time.Millisecond)
		if got := d.debited.Load(); got != 5000 {
			t.Errorf("the store was told of %d permits", got)
		}
	})
}

// TestOptimisticEdges are probes, and requests that can never be granted, or are misuse.
func TestOptimisticEdges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := node(t, store.OptimisticOptions{})
		defer shut(t, s)
		for range 2 {
			if got := take(t, s, "", perSecond, 0); !got.Allowed || got.Remaining != 100 {
				t.Errorf("probe: %+v", got)
			}
			if got := take(t, s, "", perSecond, 101); got.Reason != weir.ReasonNever || got.RetryAfter != weir.Never {
				t.Errorf("oversized: %+v", got)
			}
		}
		if d.calls.Load() != 1 {
			t.Errorf("%d calls", d.calls.Load())
		}
		if got := take(t, s, "", perSecond, 60); !got.Allowed || got.Remaining != 40 { // more than the drift
			t.Errorf("60: %+v", got)
		}
		if got := take(t, s, "", perSecond, 60); got.Allowed || got.Remaining != 40 || got.RetryAfter != 200*time.Millisecond {
			t.Errorf("60 more: %+v", got)
		}
		decision := make([]weir.Decision, 1)
		for _, bad := range [][]store.Charge{
			{{Policy: "p", Limit: perSecond, N: -1}},
			{{Policy: "", Limit: perSecond, N: 1}},
			{{Policy: "p", N: 1}},
			{{Policy: "p", Limit: perSecond}, {Policy: "p", Limit: perSecond}},
			{{Policy: "c", Limit: weir.AtOnce(3), N: 1}},
		} {
			if _, ok := errors.AsType[*weir.OptionError](store.Take(t.Context(), s, bad, decision)); !ok {
				t.Errorf("%+v: no error about an option", bad)
			}
		}
		if err := store.Take(t.Context(), s, nil, nil); err != nil {
			t.Errorf("no charges: %v", err)
		}
	})
}

// TestOptimisticOptions are those that are refused.
func TestOptimisticOptions(t *testing.T) {
	m := newMemory(t, store.MemoryOptions{})
	for _, o := range []store.OptimisticOptions{
		{Interval: -1}, {Interval: time.Hour}, {Drift: -1}, {Drift: 101}, {MaxKeys: -1}, {Timeout: time.Microsecond}, {Recheck: 1},
	} {
		if _, err := store.NewOptimistic(m, o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
		if o.DriftOf(perSecond) != 0 {
			t.Errorf("%+v has a drift", o)
		}
	}
	if _, err := store.NewOptimistic(nil, store.OptimisticOptions{}); err == nil {
		t.Error("no store is accepted")
	}
	for _, c := range []struct {
		o     store.OptimisticOptions
		l     weir.Limit
		drift int64
		text  string
	}{
		{
			l: perSecond, drift: 10,
			text: "optimistic: up to 10 x (instances - 1) permits above the limit, paid back afterwards with up to 11 instances",
		},
		{
			l: weir.TokenBucket(weir.PerSecond(3), 0), drift: 1,
			text: "optimistic: up to 1 x (instances - 1) permits above the limit, paid back afterwards with up to 4 instances",
		},
		{
			o: store.OptimisticOptions{Drift: 50}, l: weir.TokenBucket(weir.PerSecond(3), 9), drift: 4,
			text: "optimistic: up to 4 x (instances - 1) permits above the limit, paid back afterwards with up to 3 instances",
		},
		{
			l:    weir.AtOnce(100),
			text: "coherent: never above the limit, as every decision asks the store",
		},
	} {
		if got := c.o.DriftOf(c.l); got != c.drift {
			t.Errorf("%v: a drift of %d", c.l, got)
		}
		if got := c.o.Describe(c.l); got != c.text {
			t.Errorf("%v: %s", c.l, got)
		}
	}
}
