package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

func takeOne(t *testing.T, s store.Home, key string, l weir.Limit) weir.Decision {
	t.Helper()
	ds := make([]weir.Decision, 1)
	if err := store.Take(t.Context(), s, []store.Charge{{Policy: "p", Key: key, Limit: l, N: 1}}, ds); err != nil {
		t.Fatal(err)
	}
	return ds[0]
}

// TestMemoryIsBounded fills the table: keys that are in use are not forgotten for new ones, those that are fresh are.
func TestMemoryIsBounded(t *testing.T) {
	const most = 100
	clock := newVirtual()
	m := newMemory(t, store.MemoryOptions{Clock: clock, MaxKeys: most})
	l := weir.TokenBucket(weir.PerSecond(1), 10)
	for i := range most {
		if d := takeOne(t, m, fmt.Sprint(i), l); !d.Allowed {
			t.Fatalf("key %d: %+v", i, d)
		}
		clock.Advance(time.Millisecond)
	}
	d := takeOne(t, m, "new", l)
	if want := time.Second - most*time.Millisecond; d.Allowed || d.Reason != weir.ReasonTableFull || d.RetryAfter != want || d.Limit != 10 {
		t.Errorf("a new key: %+v, want a wait of %v", d, want)
	}
	if known := takeOne(t, m, "7", l); !known.Allowed {
		t.Errorf("a key that is known: %+v", known)
	}
	ds := make([]weir.Decision, 2)
	charges := []store.Charge{{Policy: "p", Key: "8", Limit: l, N: 1}, {Policy: "p", Key: "new", Limit: l, N: 1}}
	if err := store.Take(t.Context(), m, charges, ds); err != nil || !ds[0].Allowed || ds[0].Remaining != 9 || ds[1].Reason != weir.ReasonTableFull {
		t.Errorf("%+v, %v", ds, err)
	}
	if _, err := store.Reserve(t.Context(), m, charges[1:], ds[1:], time.Minute); err != nil || ds[1].Reason != weir.ReasonTableFull {
		t.Errorf("%+v, %v", ds, err)
	}
	if err := store.Peek(t.Context(), m, charges[1:], ds[1:]); err != nil || ds[1].Reason != weir.ReasonTableFull {
		t.Errorf("%+v, %v", ds, err)
	}
	charges[1].N = 0
	if err := store.Take(t.Context(), m, charges[1:], ds[1:]); err != nil || !ds[1].Allowed {
		t.Errorf("a probe: %+v, %v", ds, err)
	}
	clock.Advance(d.RetryAfter)
	if d = takeOne(t, m, "new", l); !d.Allowed {
		t.Errorf("after RetryAfter: %+v", d)
	}
	if d = takeOne(t, m, "newer", l); d.Allowed {
		t.Errorf("another new key: %+v", d)
	}
	if n := m.Len(); n != most {
		t.Errorf("%d keys are kept, of %d", n, most)
	}
}

// TestMemoryIsBoundedForOneRequest asks for more keys at once than there is ever room for.
func TestMemoryIsBoundedForOneRequest(t *testing.T) {
	m := newMemory(t, store.MemoryOptions{MaxKeys: 1})
	l := weir.TokenBucket(weir.PerHour(10), 0)
	ds := make([]weir.Decision, 2)
	err := store.Take(t.Context(), m, []store.Charge{{Policy: "p", Key: "a", Limit: l, N: 1}, {Policy: "p", Key: "b", Limit: l, N: 1}}, ds)
	if err != nil || !ds[0].Allowed || ds[1].Reason != weir.ReasonTableFull || ds[1].RetryAfter != weir.Never || m.Len() != 0 {
		t.Errorf("%+v, %v", ds, err)
	}
}

// TestMemoryForgets takes from keys that come and go: only keys in use are kept.
func TestMemoryForgets(t *testing.T) {
	clock := newVirtual()
	m := newMemory(t, store.MemoryOptions{Clock: clock})
	l := weir.TokenBucket(weir.PerSecond(1), 10)
	for i := range 10_000 {
		takeOne(t, m, fmt.Sprint(i), l)
		if i%5 == 0 { // and some are used again
			takeOne(t, m, fmt.Sprint(max(0, i-10)), l)
		}
		clock.Advance(10 * time.Millisecond)
	}
	if n := m.Len(); n > 500 {
		t.Errorf("%d keys are kept", n)
	}
}

// TestMemoryForgetsNothingThatCounts compares a store that is nearly always full with one that never is.
func TestMemoryForgetsNothingThatCounts(t *testing.T) {
	clock := newVirtual()
	small := newMemory(t, store.MemoryOptions{Clock: clock, MaxKeys: 20})
	large := newMemory(t, store.MemoryOptions{Clock: clock})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	full := 0
	limits := []weir.Limit{
		weir.TokenBucket(weir.PerSecond(1), 3),
		weir.FixedWindow(weir.PerSecond(2)),
		weir.SlidingWindow(weir.Per(2, 2*time.Second), 0),
	}
	type reserved struct{ a, b store.Hold }
	var held []reserved
	for range 20_000 {
		clock.Advance(time.Duration(rng.Int64N(int64(60 * time.Millisecond))))
		key := rng.IntN(40)
		c := []store.Charge{{Policy: "p", Key: fmt.Sprint(key), Limit: limits[key%len(limits)], N: 1 + rng.Int64N(2)}}
		var a, b [1]weir.Decision
		switch rng.IntN(4) {
		case 0:
			ra, errA := store.Reserve(t.Context(), small, c, a[:], 3*time.Second)
			if a[0].Reason == weir.ReasonTableFull {
				full++
				continue
			}
			rb, errB := store.Reserve(t.Context(), large, c, b[:], 3*time.Second)
			if errA != nil || errB != nil {
				t.Fatal(errA, errB)
			}
			if a[0].Allowed {
				held = append(held, reserved{ra, rb})
			}
		case 1:
			if len(held) == 0 {
				continue
			}
			r := held[0]
			held = held[1:]
			errA, errB := store.Cancel(t.Context(), small, r.a), store.Cancel(t.Context(), large, r.b)
			if !errors.Is(errA, errB) {
				t.Fatalf("%v and %v", errA, errB)
			}
			continue
		default:
			if err := store.Take(t.Context(), small, c, a[:]); err != nil {
				t.Fatal(err)
			}
			if a[0].Reason == weir.ReasonTableFull {
				full++
				continue
			}
			if err := store.Take(t.Context(), large, c, b[:]); err != nil {
				t.Fatal(err)
			}
		}
		if a != b {
			t.Fatalf("%+v, and without the bound %+v", a, b)
		}
	}
	if full == 0 {
		t.Error("the table was never full")
	}
	t.Logf("full %d times", full)
}

// TestMemoryClockThatGoesBack sets the clock back and forth: nothing is minted, nothing freezes, and the two agree again.
func TestMemoryClockThatGoesBack(t *testing.T) {
	clock := newVirtual()
	m := newMemory(t, store.MemoryOptions{Clock: clock})
	l := weir.TokenBucket(weir.PerSecond(1), 3)
	granted := 0
	take := func() {
		for takeOne(t, m, "k", l).Allowed {
			granted++
		}
	}
	take()
	for range 20 {
		clock.Advance(-time.Hour)
		take()
	}
	if granted != 3 {
		t.Errorf("%d were granted of 3", granted)
	}
	for range 100 {
		clock.Advance(time.Second)
		take()
	}
	if granted < 3+100*14/16 || granted > 103 {
		t.Errorf("%d were granted in 100 s of 1/s, after the clock was set back", granted)
	}
	// After sixteen times as long the two agree again: a window ends when the clock says so.
	clock.Advance(17 * 20 * time.Hour)
	take()
	fixed := weir.FixedWindow(weir.PerHour(1))
	takeOne(t, m, "window", fixed)
	want := time.Hour - time.Duration(clock.Now()%int64(time.Hour))
	if d := takeOne(t, m, "window", fixed); d.RetryAfter != want {
		t.Errorf("the window ends in %v, want %v", d.RetryAfter, want)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for option, err := range map[string]error{
		"MemoryOptions.MaxKeys": second(store.NewMemory(store.MemoryOptions{MaxKeys: -1})),
		"LockedOptions.Lease":   second(store.NewLocked(nil, store.LockedOptions{Lease: time.Millisecond})),
		"LockedOptions.Wait":    second(store.NewLocked(nil, store.LockedOptions{Wait: 2 * time.Hour})),
		"LockedOptions.Skew":    second(store.NewLocked(nil, store.LockedOptions{Skew: -1})),
	} {
		var misuse *weir.OptionError
		if !errors.As(err, &misuse) || misuse.Option != option {
			t.Errorf("%s: %v", option, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestMemoryTakeAllocatesNothing takes from keys that are known.
func TestMemoryTakeAllocatesNothing(t *testing.T) {
	m := newMemory(t, store.MemoryOptions{})
	for _, n := range []int{1, 3} {
		charges := make([]store.Charge, n)
		for i := range charges {
			charges[i] = store.Charge{Policy: "p", Key: fmt.Sprint(i), Limit: weir.TokenBucket(weir.PerSecond(1e9), 1e9), N: 1}
		}
		ds := make([]weir.Decision, n)
		ctx := t.Context()
		if got := testing.AllocsPerRun(100, func() {
			if err := store.Take(ctx, m, charges, ds); err != nil || !ds[0].Allowed {
				t.Fatal(err)
			}
		}); got != 0 {
			t.Errorf("%d charges: %v allocations", n, got)
		}
	}
}

func BenchmarkMemoryTake(b *testing.B) {
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprintf("charges=%d", n), func(b *testing.B) { benchmarkTake(b, n, 1) })
	}
	b.Run("keys=1M", func(b *testing.B) { benchmarkTake(b, 1, 1_000_000) })
}

func benchmarkTake(b *testing.B, n, keys int) {
	m, err := store.NewMemory(store.MemoryOptions{MaxKeys: 2_000_000})
	if err != nil {
		b.Fatal(err)
	}
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("client-%08d", i)
	}
	for _, name := range names {
		c := []store.Charge{{Policy: "policy0", Key: name, Limit: weir.TokenBucket(weir.PerHour(1), 1e5), N: 1}}
		if err := store.Take(b.Context(), m, c, make([]weir.Decision, 1)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		charges, ds := make([]store.Charge, n), make([]weir.Decision, n)
		for i := range charges {
			charges[i] = store.Charge{Policy: fmt.Sprint("policy", i), Limit: weir.TokenBucket(weir.PerHour(1), 1e5), N: 1}
		}
		for pb.Next() {
			key := names[rand.IntN(keys)]
			for i := range charges {
				charges[i].Key = key
			}
			if err := store.Take(b.Context(), m, charges, ds); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkMemoryRefuse(b *testing.B) {
	m, err := store.NewMemory(store.MemoryOptions{})
	if err != nil {
		b.Fatal(err)
	}
	charges := []store.Charge{{Policy: "p", Key: "k", Limit: weir.TokenBucket(weir.PerHour(1), 0), N: 1}}
	ds := make([]weir.Decision, 1)
	b.ReportAllocs()
	for b.Loop() {
		if err := store.Take(b.Context(), m, charges, ds); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMemoryReserveCommit(b *testing.B) {
	m, err := store.NewMemory(store.MemoryOptions{})
	if err != nil {
		b.Fatal(err)
	}
	charges := []store.Charge{{Policy: "p", Key: "k", Limit: weir.TokenBucket(weir.PerSecond(1e9), 1e9), N: 10}}
	ds := make([]weir.Decision, 1)
	b.ReportAllocs()
	for b.Loop() {
		r, err := store.Reserve(b.Context(), m, charges, ds, time.Minute)
		if err == nil {
			err = store.Commit(b.Context(), m, r, []int64{5})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLockedTake(b *testing.B) {
	s, err := store.NewLocked(store.NewMemoryLocks(nil), store.LockedOptions{})
	if err != nil {
		b.Fatal(err)
	}
	charges := []store.Charge{{Policy: "p", Key: "k", Limit: weir.TokenBucket(weir.PerSecond(1e9), 1e9), N: 1}}
	ds := make([]weir.Decision, 1)
	b.ReportAllocs()
	for b.Loop() {
		if err := store.Take(b.Context(), s, charges, ds); err != nil {
			b.Fatal(err)
		}
	}
}
