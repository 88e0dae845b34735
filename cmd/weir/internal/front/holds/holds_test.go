package holds_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

const budget = 1000

// limited returns limits with the policies "p", of a thousand permits a day that come back slowly, and "slots", of three at a time.
func limited(t testing.TB, shared ...policy.Policy) *live.Limits {
	t.Helper()
	set := &policy.Set{Policies: append([]policy.Policy{
		{Name: "p", Key: policy.NamedKey(), Limits: []policy.Limit{{Limit: weir.FixedWindow(weir.Rate{Permits: budget, Period: 300 * 24 * time.Hour})}}},
		{Name: "slots", Key: policy.NamedKey(), Limits: []policy.Limit{{Limit: weir.AtOnce(3)}}},
	}, shared...)}
	var o policy.EngineOptions
	if len(shared) > 0 {
		memory, err := store.NewMemory(store.MemoryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		o.Store = memory
	}
	l, err := live.Fixed(set, o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Engine().Close() })
	return l
}

// reserve reserves permits of a policy, and returns false if they are refused.
func reserve(h *holds.Holds, l *live.Limits, name string, cost int64) (*policy.Verdict, bool) {
	r := policy.Request{Named: &policy.Named{Policy: []byte(name), Key: []byte("key"), Cost: cost}, Context: context.Background()}
	v := h.Verdict()
	l.Engine().Reserve(&r, v)
	if !v.Allowed {
		h.Drop(v)
		return nil, false
	}
	return v, true
}

// someone is a caller.
var someone = netip.MustParseAddr("192.0.2.1")

// keep reserves permits and keeps them.
func keep(t *testing.T, h *holds.Holds, l *live.Limits, name string, cost int64, expiry time.Duration) string {
	t.Helper()
	v, ok := reserve(h, l, name, cost)
	if !ok {
		t.Fatalf("%d of %s are refused", cost, name)
	}
	id, err := h.Keep(v, expiry, someone)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// left is how many permits of a policy there are.
func left(l *live.Limits, name string) int64 {
	var (
		r policy.Request
		v policy.Verdict
	)
	r = policy.Request{Named: &policy.Named{Policy: []byte(name), Key: []byte("key"), Cost: 0}, Context: context.Background()}
	l.Engine().Peek(&r, &v)
	return v.Decision().Remaining
}

func wantLeft(t *testing.T, l *live.Limits, name string, want int64) {
	t.Helper()
	if got := left(l, name); got != want {
		t.Errorf("%d permits of %s are left, want %d", got, name, want)
	}
}

func TestSettlement(t *testing.T) {
	l, h := limited(t), holds.New(holds.Options{})
	defer h.Close()
	committed, canceled, asReserved := keep(t, h, l, "p", 100, 0), keep(t, h, l, "p", 100, 0), keep(t, h, l, "p", 100, 0)
	more, free := keep(t, h, l, "p", 100, 0), keep(t, h, l, "p", 100, 0)
	wantLeft(t, l, "p", 500)
	if n := h.Len(); n != 5 {
		t.Errorf("%d are open", n)
	}
	if err := errors.Join(
		h.Commit(committed, 30), h.Cancel(canceled), h.Commit(asReserved, -1), h.Commit(more, 150), h.Commit(free, 0),
	); err != nil {
		t.Error(err)
	}
	wantLeft(t, l, "p", budget-30-100-150)
	for _, id := range []string{committed, canceled, asReserved, more, free, "", "none"} {
		if err := h.Commit(id, 7); !errors.Is(err, holds.ErrUnknown) {
			t.Errorf("commit of %q: %v", id, err)
		}
		if err := h.Cancel(id); !errors.Is(err, holds.ErrUnknown) {
			t.Errorf("cancel of %q: %v", id, err)
		}
	}
	wantLeft(t, l, "p", budget-30-100-150)
	if n := h.Len(); n != 0 {
		t.Errorf("%d are open", n)
	}
}

func TestIDs(t *testing.T) {
	l, h := limited(t), holds.New(holds.Options{})
	defer h.Close()
	seen := map[string]bool{}
	for range 500 {
		id := keep(t, h, l, "p", 1, 0)
		if seen[id] || len(id) != 26 {
			t.Fatalf("%q is there twice, or has another length", id)
		}
		for _, c := range id {
			if (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
				t.Fatalf("%q has characters that need quotes somewhere", id)
			}
		}
		seen[id] = true
	}
}

// TestExpiry: what is not settled in time is canceled at the time, whatever came before and after it.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, h := limited(t), holds.New(holds.Options{})
		defer h.Close()
		long := keep(t, h, l, "p", 1, time.Hour)
		keep(t, h, l, "p", 10, 2*time.Second)
		keep(t, h, l, "p", 100, time.Second)
		usual := keep(t, h, l, "slots", 3, 0)
		settled := keep(t, h, l, "p", 500, time.Millisecond)
		if err := h.Commit(settled, 0); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			after time.Duration
			open  int
			p     int64
		}{
			{time.Second - 1, 4, budget - 111}, {1, 3, budget - 11}, {time.Second - 1, 3, budget - 11}, {1, 2, budget - 1},
		} {
			time.Sleep(step.after)
			synctest.Wait()
			wantLeft(t, l, "p", step.p)
			if n := h.Len(); n != step.open {
				t.Errorf("%d are open, want %d", n, step.open)
			}
		}
		wantLeft(t, l, "slots", 0)
		time.Sleep(holds.DefaultExpiry)
		synctest.Wait()
		wantLeft(t, l, "slots", 3)
		if err := h.Cancel(usual); !errors.Is(err, holds.ErrUnknown) {
			t.Error(err)
		}
		if err := h.Cancel(long); err != nil {
			t.Error(err)
		}
		wantLeft(t, l, "p", budget)
	})
}

// TestExpiryOfMany: all that expire at a moment are canceled, more than are canceled at the same time.
func TestExpiryOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, h := limited(t), holds.New(holds.Options{})
		defer h.Close()
		for i := range budget {
			keep(t, h, l, "p", 1, time.Duration(1+i%7)*time.Second)
		}
		for second := range 7 {
			time.Sleep(time.Second)
			synctest.Wait()
			if got, want := left(l, "p"), int64(budget-h.Len()); got != want || h.Len() > budget*(6-second)/7+7 {
				t.Errorf("%d are left with %d open", got, h.Len())
			}
		}
		wantLeft(t, l, "p", budget)
	})
}

func TestExpiryRange(t *testing.T) {
	l, h := limited(t), holds.New(holds.Options{})
	defer h.Close()
	for _, expiry := range []time.Duration{-1, 1, time.Millisecond - 1, 24*time.Hour + 1} {
		v, _ := reserve(h, l, "p", 5)
		if id, err := h.Keep(v, expiry, someone); err == nil || id != "" {
			t.Errorf("%v is accepted", expiry)
		}
	}
	wantLeft(t, l, "p", budget)
}

// TestOneCallerCannotTakeAllReservations: nine in ten are left to one address, or a /64 of IPv6, and the rest to others.
func TestOneCallerCannotTakeAllReservations(t *testing.T) {
	l, h := limited(t), holds.New(holds.Options{Most: 20})
	defer h.Close()
	keepAs := func(caller string) (string, error) {
		v, ok := reserve(h, l, "p", 0)
		if !ok {
			t.Fatal("refused")
		}
		return h.Keep(v, 0, netip.MustParseAddr(caller))
	}
	greedy := []string{"2001:db8::1", "2001:db8::2", "2001:db8::3%eth0"}
	var first string
	for i := range 18 {
		id, err := keepAs(greedy[i%len(greedy)])
		if err != nil {
			t.Fatalf("reservation %d: %v", i, err)
		}
		first = id
	}
	for _, caller := range greedy {
		if _, err := keepAs(caller); !errors.Is(err, holds.ErrShare) || !errors.Is(err, holds.ErrTooMany) {
			t.Errorf("%s beyond its share: %v", caller, err)
		}
	}
	if _, err := keepAs("192.0.2.1"); err != nil {
		t.Errorf("another caller: %v", err)
	}
	if err := h.Cancel(first); err != nil {
		t.Fatal(err)
	}
	if _, err := keepAs(greedy[0]); err != nil {
		t.Errorf("after one was settled: %v", err)
	}
	if _, err := keepAs("192.0.2.2"); err != nil {
		t.Errorf("a third caller: %v", err)
	}
	if _, err := keepAs("192.0.2.2"); !errors.Is(err, holds.ErrTooMany) || errors.Is(err, holds.ErrShare) {
		t.Errorf("beyond all: %v", err)
	}
}

func TestTooMany(t *testing.T) {
	l, h := limited(t), holds.New(holds.Options{Most: 2})
	defer h.Close()
	first := keep(t, h, l, "p", 1, 0)
	keep(t, h, l, "p", 1, 0)
	v, _ := reserve(h, l, "p", 7)
	if id, err := h.Keep(v, 0, someone); !errors.Is(err, holds.ErrTooMany) || id != "" {
		t.Errorf("%q, %v", id, err)
	}
	wantLeft(t, l, "p", budget-2)
	if err := h.Cancel(first); err != nil {
		t.Fatal(err)
	}
	keep(t, h, l, "p", 1, 0)
}

// TestClose: what is open is canceled, and nothing goes on.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, h := limited(t), holds.New(holds.Options{})
		id := keep(t, h, l, "p", 1, time.Second)
		for range 100 {
			keep(t, h, l, "p", 1, time.Hour)
		}
		h.Close()
		h.Close()
		wantLeft(t, l, "p", budget)
		if err := h.Commit(id, 1); !errors.Is(err, holds.ErrUnknown) || h.Len() != 0 {
			t.Errorf("%v, %d open", err, h.Len())
		}
		v, _ := reserve(h, l, "p", 5)
		if _, err := h.Keep(v, 0, someone); !errors.Is(err, holds.ErrClosed) {
			t.Error(err)
		}
		wantLeft(t, l, "p", budget)
		// A timer that still ran, or a goroutine, would keep the test from ending.
	})
}

// TestSharedPolicies: a reservation of limits that a store keeps ends before the store ends it, and then exactly.
func TestSharedPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := policy.Policy{
			Name: "shared", Key: policy.NamedKey(), Consistency: policy.ConsistencyCoherent, Hold: 10 * time.Second,
			Limits: []policy.Limit{{Limit: weir.AtOnce(3)}},
		}
		usual := shared
		usual.Name, usual.Hold = "usual", 0
		l, h := limited(t, shared, usual), holds.New(holds.Options{})
		defer h.Close()
		for name, want := range map[string]time.Duration{"shared": 9 * time.Second, "usual": 59 * time.Second, "p": holds.MostExpiry} {
			v, _ := reserve(h, l, name, 1)
			if got := holds.Longest(v); got != want {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
			h.Drop(v)
		}
		id := keep(t, h, l, "shared", 2, time.Hour)
		wantLeft(t, l, "shared", 1)
		time.Sleep(9*time.Second - 1)
		synctest.Wait()
		wantLeft(t, l, "shared", 1)
		time.Sleep(1)
		synctest.Wait()
		wantLeft(t, l, "shared", 3)
		if err := h.Commit(id, 1); !errors.Is(err, holds.ErrUnknown) {
			t.Error(err)
		}
	})
}

// TestContentionNeitherLosesNorMints: many make reservations, settle their own and those of others, and leave some to expire, and
// in the end there is what was not committed.
func TestContentionNeitherLosesNorMints(t *testing.T) {
	// On a slow machine all but the last may have expired before they are settled.
	expiries := []time.Duration{time.Millisecond, 7 * time.Millisecond, 20 * time.Millisecond, time.Hour}
	l, h := limited(t), holds.New(holds.Options{Most: 40})
	defer h.Close()
	var (
		wait               sync.WaitGroup
		spent, kept, ended atomic.Int64
		ids                = make(chan string, 1000)
	)
	for worker := range 8 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(worker)))
			for range 400 {
				if v, ok := reserve(h, l, "p", 1+random.Int64N(20)); ok {
					id, err := h.Keep(v, expiries[random.IntN(len(expiries))], someone)
					if err == nil {
						kept.Add(1)
						ids <- id
						if random.IntN(4) == 0 {
							ids <- id // to be settled twice
						}
					} else if !errors.Is(err, holds.ErrTooMany) {
						t.Error(err)
					}
				}
				for len(ids) > 20 {
					id, actual := <-ids, random.Int64N(2)
					var err error
					if random.IntN(2) == 0 {
						err = h.Cancel(id)
						actual = 0
					} else {
						err = h.Commit(id, actual)
					}
					switch {
					case err == nil:
						spent.Add(actual)
						ended.Add(1)
					case !errors.Is(err, holds.ErrUnknown):
						t.Error(err)
					}
				}
				if n := left(l, "p"); n < 0 || n > budget {
					t.Errorf("%d are left", n)
				}
			}
		})
	}
	wait.Wait()
	close(ids)
	for id := range ids {
		if err := h.Cancel(id); err != nil && !errors.Is(err, holds.ErrUnknown) {
			t.Error(err)
		}
	}
	for deadline := time.Now().Add(2 * time.Minute); h.Len() > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	h.Close() // waits for those that are being canceled
	wantLeft(t, l, "p", budget-spent.Load())
	if kept.Load() == 0 || ended.Load() == 0 || spent.Load() == 0 || ended.Load() >= kept.Load() {
		t.Errorf("%d kept, %d ended, %d spent", kept.Load(), ended.Load(), spent.Load())
	}
}

// BenchmarkKeep is a reservation that is kept and committed, beside 50,000 open ones.
func BenchmarkKeep(b *testing.B) {
	l, h := limited(b), holds.New(holds.Options{})
	defer h.Close()
	one := func() string {
		v, ok := reserve(h, l, "p", 0)
		if !ok {
			b.Fatal("refused")
		}
		id, err := h.Keep(v, 0, someone)
		if err != nil {
			b.Fatal(err)
		}
		return id
	}
	for range 50_000 {
		one()
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := h.Commit(one(), -1); err != nil {
			b.Fatal(err)
		}
	}
}

// slow is a store that is told of the end of reservations with a delay.
type slow struct {
	store.Home

	by time.Duration
}

func (s slow) Settle(ctx context.Context, h store.Hold, actual []int64) error {
	if actual != nil {
		time.Sleep(s.by)
	}
	return s.Home.Settle(ctx, h, actual)
}

// TestCommitThatComesTooLate: where the store has given back what was held when the commit arrives there, it is told that nothing was
// charged.
func TestCommitThatComesTooLate(t *testing.T) {
	for _, c := range []struct {
		by   time.Duration
		want error
		left int64
	}{{0, nil, 7}, {2 * time.Second, holds.ErrUnknown, 10}} {
		synctest.Test(t, func(t *testing.T) {
			memory, err := store.NewMemory(store.MemoryOptions{})
			if err != nil {
				t.Fatal(err)
			}
			l, err := live.Fixed(&policy.Set{Policies: []policy.Policy{{
				Name: "shared", Key: policy.NamedKey(), Consistency: policy.ConsistencyCoherent, Hold: time.Second,
				Limits: []policy.Limit{{Limit: weir.FixedWindow(weir.Rate{Permits: 10, Period: 24 * time.Hour})}},
			}}}, policy.EngineOptions{Store: slow{memory, c.by}}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Engine().Close()
			h := holds.New(holds.Options{})
			defer h.Close()
			id := keep(t, h, l, "shared", 5, 0)
			if err := h.Commit(id, 3); !errors.Is(err, c.want) {
				t.Errorf("late by %v: %v, want %v", c.by, err, c.want)
			}
			wantLeft(t, l, "shared", c.left)
		})
	}
}

// gone is an owner that takes, and cannot be reached when reservations end.
type gone struct{ store.Home }

func (gone) Settle(context.Context, store.Hold, []int64) error { return store.ErrUnavailable }

// TestCommitThatOwnerDoesNotHear: where the owner of durable limits cannot be told what it cost, the client does not hear that it was
// committed. A Fleet tells its store later.
func TestCommitThatOwnerDoesNotHear(t *testing.T) {
	memory, err := store.NewMemory(store.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		durability  policy.Durability
		consistency policy.Consistency
		want        error
	}{
		{policy.DurabilityCluster, policy.ConsistencyLocal, holds.ErrUnsettled},
		{policy.DurabilityMemory, policy.ConsistencyCoherent, nil},
	} {
		l, err := live.Fixed(&policy.Set{Policies: []policy.Policy{{
			Name: "p", Key: policy.NamedKey(), Durability: c.durability, Consistency: c.consistency, Hold: time.Second,
			Limits: []policy.Limit{{Limit: weir.FixedWindow(weir.Rate{Permits: 100, Period: 24 * time.Hour})}},
		}}}, policy.EngineOptions{Store: gone{memory}, Durable: gone{memory}}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		h := holds.New(holds.Options{})
		if err := h.Commit(keep(t, h, l, "p", 5, 0), 3); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.durability, err, c.want)
		}
		if err := h.Cancel(keep(t, h, l, "p", 5, 0)); err != nil {
			t.Errorf("%s, canceled: %v", c.durability, err)
		}
		h.Close()
		l.Engine().Close()
	}
}
