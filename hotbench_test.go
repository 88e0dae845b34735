package weir_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
)

// BenchmarkHot measures one limiter that several goroutines ask, beside the word that one compare-and-swap exchanges.
func BenchmarkHot(b *testing.B) {
	var clock atomic.Int64
	start := time.Now()
	for _, c := range []struct {
		name string
		call func() func() bool
	}{
		{"Clock+CAS", func() func() bool {
			return func() bool {
				for {
					old, now := clock.Load(), int64(time.Since(start))
					if clock.CompareAndSwap(old, max(old, now)+1) {
						return true
					}
				}
			}
		}},
		{"Allow", func() func() bool { return hot(b, 1e9).Allow }},
		{"burst 100", func() func() bool { return hot(b, 100).Allow }},
		{"burst 1000", func() func() bool { return hot(b, 1000).Allow }},
		{"Allow+Take", func() func() bool {
			l := hot(b, 1e9)
			return func() bool { return l.Allow() && l.Take(1).Allowed }
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			call := c.call()
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					call()
				}
			})
		})
	}
}

func hot(b *testing.B, burst int64) *weir.Limiter {
	b.Helper()
	l, err := weir.New(weir.TokenBucket(weir.PerSecond(1e9), burst), weir.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return l
}
