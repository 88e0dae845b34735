package durable_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
)

// TestSlowWritesAreFewer: where writes take long, records are ahead by more, so that a busy limit does not wait for each of them, and
// one of a few requests a second still writes each of these.
func TestSlowWritesAreFewer(t *testing.T) {
	for _, c := range []struct {
		latency, every time.Duration
		atLeast        int // grants in 20 s
		mostWrites     int64
	}{
		{time.Millisecond, time.Millisecond, 19_000, 450},
		{80 * time.Millisecond, time.Millisecond, 16_000, 120},
		{500 * time.Millisecond, time.Millisecond, 10_000, 40},
		{time.Millisecond, 200 * time.Millisecond, 99, 101},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := must(durable.NewMemory(durable.MemoryOptions{Latency: c.latency, TTL: time.Minute}))
			o, _ := owned(t, m, durable.OwnerOptions{})
			r := spectest.Request{
				Policy: "p", Limit: weir.TokenBucket(weir.PerSecond(1_000_000), 1_000_000), N: 1, Wait: time.Minute, Queue: 10,
			}
			granted := 0
			for begin := time.Now(); time.Since(begin) < 20*time.Second; granted++ {
				want(t, spectest.Acquire(t.Context(), o, r), weir.ReasonNone)
				time.Sleep(c.every)
			}
			if granted < c.atLeast || m.Writes() > c.mostWrites {
				t.Errorf("writes of %v: %d grants with %d writes in 20 s", c.latency, granted, m.Writes())
			}
		})
	}
}
