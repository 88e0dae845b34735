package weir_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
)

// BenchmarkCall measures calls of one goroutine, beside what they must do at least: read the clock, and exchange words.
func BenchmarkCall(b *testing.B) {
	var words [4]atomic.Int64
	start := time.Now()
	clock := func() int64 { return int64(time.Since(start)) }
	exchange := func(i int, now int64) {
		old := words[i].Load()
		words[i].CompareAndSwap(old, max(old, now)+1)
	}
	limiter := func() *weir.Limiter { return hot(b, 1e9) }
	one, pool := limiter(), must(weir.NewConcurrency(10, weir.Options{}))
	chain := must(weir.NewChain(limiter(), limiter()))
	spent := must(weir.New(weir.TokenBucket(weir.PerDay(1), 1), weir.Options{}))
	spent.Allow()
	for _, c := range []struct {
		name string
		call func()
	}{
		{"clock", func() { clock() }},
		{"clock+count", func() { clock(); words[0].Add(1) }},
		{"clock+CAS", func() { exchange(0, clock()) }},
		{"clock+2CAS", func() { now := clock(); exchange(0, now); exchange(1, now) }},
		{"2CAS", func() { exchange(0, 1); exchange(0, 1) }},
		{"Allow", func() { one.Allow() }},
		{"Allow/refused", func() { spent.Allow() }},
		{"TryAcquire", func() { one.TryAcquire(1) }},
		{"Take", func() { one.Take(1) }},
		{"Reserve+Commit", func() { one.TryReserve(10).Commit(10) }},
		{"Reserve+Commit less", func() { one.TryReserve(10).Commit(5) }},
		{"Concurrency", func() { pool.TryAcquire(1).Release() }},
		{"Chain", func() { chain.TryAcquire(1) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				c.call()
			}
		})
	}
}

// must is v, which needs no error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
