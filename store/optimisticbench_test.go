package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// hotLimits are two under which everything is granted, and two under which nothing is.
func hotLimits() []weir.Limit {
	return []weir.Limit{
		weir.TokenBucket(weir.PerSecond(1e9), 0),
		weir.FixedWindow(weir.PerDay(1e13)),
		weir.TokenBucket(weir.PerDay(1), 0),
		weir.FixedWindow(weir.PerDay(1)),
	}
}

// TestOptimisticAllocatesNothing counts the allocations of decisions about keys that are in use.
func TestOptimisticAllocatesNothing(t *testing.T) {
	for _, l := range hotLimits() {
		s := newOptimistic(t, newMemory(t, store.MemoryOptions{}), store.OptimisticOptions{Interval: time.Minute})
		charges := []store.Charge{{Policy: "a", Key: "key", Limit: l, N: 1}, {Policy: "b", Key: "key", Limit: l, N: 1}}
		decisions := make([]weir.Decision, 2)
		for i := range charges {
			if err := store.Take(context.Background(), s, charges[i:i+1], decisions[:1]); err != nil {
				t.Fatal(err)
			}
		}
		for n := 1; n <= 2; n++ {
			got := testing.AllocsPerRun(100, func() {
				if err := store.Take(context.Background(), s, charges[:n], decisions[:n]); err != nil {
					t.Error(err)
				}
			})
			if got != 0 {
				t.Errorf("%v: %v allocations for %d charges", l, got, n)
			}
		}
		shut(t, s)
	}
}

// BenchmarkOptimisticTake is a decision about a key in use, granted or refused, and one about two such keys.
func BenchmarkOptimisticTake(b *testing.B) {
	for i, l := range hotLimits() {
		name := l.String()
		for n := 1; n <= 2-i%2; n++ {
			b.Run(name, func(b *testing.B) { benchmarkOptimistic(b, l, n) })
			name += " twice"
		}
	}
}

func benchmarkOptimistic(b *testing.B, l weir.Limit, n int) {
	b.Helper()
	m, err := store.NewMemory(store.MemoryOptions{})
	if err != nil {
		b.Fatal(err)
	}
	s := newOptimistic(b, m, store.OptimisticOptions{})
	defer func() { _ = s.Close() }()
	charges := []store.Charge{
		{Policy: "policy", Key: "203.0.113.77", Limit: l, N: 1}, {Policy: "other", Key: "203.0.113.77", Limit: l, N: 1},
	}
	decisions, refused := make([]weir.Decision, 2), 0
	b.ReportAllocs()
	for b.Loop() {
		if err := store.Take(context.Background(), s, charges[:n], decisions[:n]); err != nil {
			b.Fatal(err)
		}
		if !decisions[0].Allowed {
			refused++
		}
	}
	b.ReportMetric(float64(refused)/float64(b.N), "refused/op")
}
