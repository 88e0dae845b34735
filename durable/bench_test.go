package durable_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/store"
)

// benched is an owner whose writes take so long.
func benched(b *testing.B, latency time.Duration, reserve int64) *durable.Owner {
	b.Helper()
	m := must(durable.NewMemory(durable.MemoryOptions{Latency: latency}))
	e := m.Engine()
	o := must(durable.NewOwner(must(e.Campaign(b.Context(), "here")), durable.OwnerOptions{Reserve: reserve}))
	b.Cleanup(func() {
		_ = o.Stop(context.Background())
		_ = e.Close()
	})
	return o
}

var fast = weir.TokenBucket(weir.PerSecond(1_000_000_000), 1_000_000_000)

// BenchmarkOwner is grants of one busy key, by so many callers, with K = 1 and adaptive, where a write takes so long.
func BenchmarkOwner(b *testing.B) {
	for _, latency := range []time.Duration{0, 300 * time.Microsecond, time.Millisecond} {
		for _, reserve := range []int64{1, 0} {
			for _, callers := range []int{1, 64, 256, 10_000} {
				b.Run(fmt.Sprintf("write=%v/K=%d/callers=%d", latency, reserve, callers), func(b *testing.B) {
					o := benched(b, latency, reserve)
					grantAll(b, o, callers)
				})
			}
		}
	}
}

// grantAll has so many callers take permits of one key.
func grantAll(b *testing.B, o *durable.Owner, callers int) {
	b.Helper()
	charges := []store.Charge{{Policy: "api", Key: "key", Limit: fast, N: 1, Queue: 1_000_000}}
	wait := store.Ask{Wait: time.Minute}
	_, _ = o.Do(b.Context(), wait, charges, make([]weir.Decision, 1))
	var left atomic.Int64
	left.Store(int64(b.N))
	var work sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range callers {
		work.Go(func() {
			d := make([]weir.Decision, 1)
			for left.Add(-1) >= 0 {
				if _, err := o.Do(context.Background(), wait, charges, d); err != nil || !d[0].Allowed {
					b.Error(d[0].Reason, err)
					return
				}
			}
		})
	}
	work.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "grants/s")
}
