package store

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/weirhq/weir"
)

func newLeased(t testing.TB, inner Home, o LeasedOptions) *Leased {
	t.Helper()
	l, err := NewLeased(inner, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func newMemoryStore(t testing.TB) *Memory {
	t.Helper()
	m, err := NewMemory(MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// BenchmarkLeasedTake decides about a hot key: one that is granted, one that is refused, and one that is granted to 256 callers.
// The share that was granted, and how many calls of the inner store a decision took, are reported beside the time.
func BenchmarkLeasedTake(b *testing.B) {
	plenty := weir.TokenBucket(weir.PerSecond(1e9), 2e9)
	scarce := weir.TokenBucket(weir.PerSecond(1000), 0)
	for _, c := range []struct {
		name    string
		limit   weir.Limit
		callers int
	}{{"granted", plenty, 1}, {"refused", scarce, 1}, {"granted-256", plenty, 256}, {"refused-256", scarce, 256}} {
		b.Run(c.name, func(b *testing.B) {
			l := newLeased(b, newMemoryStore(b), LeasedOptions{})
			var granted atomic.Int64
			take := func(decide func() bool) {
				charges, decisions := []Charge{{Policy: "p", Key: "k", Limit: c.limit, N: 1}}, make([]weir.Decision, 1)
				allowed := int64(0)
				for decide() {
					if err := Take(b.Context(), l, charges, decisions); err != nil {
						b.Error(err)
						return
					}
					if decisions[0].Allowed {
						allowed++
					}
				}
				granted.Add(allowed)
			}
			b.ReportAllocs()
			if c.callers == 1 {
				take(b.Loop)
			} else {
				b.SetParallelism(c.callers / 2)
				b.RunParallel(func(pb *testing.PB) { take(pb.Next) })
			}
			b.ReportMetric(float64(granted.Load())/float64(b.N), "granted/op")
			b.ReportMetric(float64(l.Stats().Lends)/float64(b.N), "calls/op")
		})
	}
}

// BenchmarkLeasedTakeCharges decides about requests with several charges, all of which are in hand.
func BenchmarkLeasedTakeCharges(b *testing.B) {
	l := newLeased(b, newMemoryStore(b), LeasedOptions{})
	charges, decisions := make([]Charge, 3), make([]weir.Decision, 3)
	for i := range charges {
		charges[i] = Charge{Policy: fmt.Sprint(i), Key: "k", Limit: weir.TokenBucket(weir.PerSecond(1e9), 2e9), N: 1}
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := Take(b.Context(), l, charges, decisions); err != nil {
			b.Fatal(err)
		}
	}
}
