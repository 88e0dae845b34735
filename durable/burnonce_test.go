package durable_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
)

// TestCrashBurnsOnce: what the owner after a crash says is left is still there when it has ended in an orderly way although it has
// granted nothing, whether the key stayed in its memory or made room for another one.
func TestCrashBurnsOnce(t *testing.T) {
	for _, dropped := range []bool{false, true} {
		t.Run(fmt.Sprintf("dropped %v", dropped), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := must(durable.NewMemory(durable.MemoryOptions{Latency: 100 * time.Microsecond, TTL: 10 * time.Second}))
				e := m.Engine()
				o := must(durable.NewOwner(must(e.Campaign(t.Context(), "dies")), durable.OwnerOptions{Reserve: 33}))
				limit := weir.TokenBucket(weir.PerSecond(1), 1000)
				for o.Stats().PermitsAhead < 20 {
					if drain(t, o, limit, 1) == 0 {
						t.Fatal("no record came to be ahead")
					}
				}
				r := spectest.Request{Policy: "p", Limit: limit, N: inspected(t, o, limit)}
				want(t, spectest.Acquire(t.Context(), o, r), weir.ReasonNone)
				if n := o.Stats().PermitsAhead; n < 20 {
					t.Fatalf("%d permits ahead", n)
				}
				e.Cut(true)
				time.Sleep(11 * time.Second)
				_ = o.Stop(t.Context())
				next := must(durable.NewOwner(must(m.Engine().Campaign(t.Context(), "next")), durable.OwnerOptions{MaxKeys: 1}))
				inspected(t, next, limit) // which burns all that has come back
				if n := next.Stats().PermitsAhead; n < 20 {
					t.Errorf("%d permits ahead, of 20 and more that another crash would burn once more", n)
				}
				time.Sleep(30 * time.Second)
				left := inspected(t, next, limit)
				if left == 0 || left > 30 {
					t.Errorf("%d are left, of 30 that have come back", left)
				}
				for r.N, r.Key = 1, "other"; dropped && spectest.Acquire(t.Context(), next, r).Reason != weir.ReasonNone; {
					time.Sleep(10 * time.Millisecond) // until there is room
				}
				if err := next.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				last, _ := owned(t, m, durable.OwnerOptions{})
				if now := inspected(t, last, limit); now != left {
					t.Errorf("%d are left, and were %d before an orderly end", now, left)
				}
			})
		})
	}
}
