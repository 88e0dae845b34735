package weir_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir"
)

// BenchmarkAcquire measures calls that may wait and need not: permits are there, or the call is refused at once.
func BenchmarkAcquire(b *testing.B) {
	enough, err := weir.New(weir.TokenBucket(weir.Rate{Permits: 1e9, Period: time.Second}, 1e9), weir.Options{})
	if err != nil {
		b.Fatal(err)
	}
	spent, err := weir.New(weir.TokenBucket(weir.Rate{Permits: 1, Period: time.Hour}, 0), weir.Options{})
	if err != nil {
		b.Fatal(err)
	}
	spent.Allow()
	pool, err := weir.NewConcurrency(10, weir.Options{})
	if err != nil {
		b.Fatal(err)
	}
	keyed, err := weir.NewKeyed[string](weir.TokenBucket(weir.Rate{Permits: 1e9, Period: time.Second}, 1e9), weir.KeyedOptions{})
	if err != nil {
		b.Fatal(err)
	}
	weights, err := weir.NewKeyed[float64](weir.TokenBucket(weir.Rate{Permits: 1e9, Period: time.Second}, 1e9), weir.KeyedOptions{})
	if err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	for _, c := range []struct {
		name string
		call func()
	}{
		{"Allow", func() { enough.Allow() }},
		{"TryAcquire", func() { enough.TryAcquire(1) }},
		{"TryAcquire/refused", func() { spent.TryAcquire(1) }},
		{"Acquire", func() { _, _ = enough.Acquire(ctx, 1) }},
		{"Acquire/refused", func() { _, _ = spent.Acquire(ctx, 1) }},
		{"Concurrency", func() { l, _ := pool.Acquire(ctx, 1); l.Release() }},
		{"Keyed/TryAcquire", func() { keyed.TryAcquire("key", 1) }},
		{"Keyed/Acquire", func() { _, _ = keyed.Acquire(ctx, "key", 1) }},
		{"Keyed/float64", func() { weights.Allow(1.5) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				c.call()
			}
		})
	}
}
