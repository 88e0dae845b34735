package durable_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
)

// TestManyAdjustmentsAtOnce: each of them is written with who did it before it is answered, however many there are.
func TestManyAdjustmentsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{Latency: 100 * time.Millisecond}))
		o, e := owned(t, m, durable.OwnerOptions{WriteTimeout: time.Second})
		want(t, spectest.Acquire(t.Context(), o, ask(1, 0)), weir.ReasonNone)
		var mu sync.Mutex
		answered := 0
		var work sync.WaitGroup
		for range 35 {
			work.Go(func() {
				a := durable.Adjustment{Policy: "api", Permits: -1, By: "x", Reason: "y"}
				if _, err := o.Adjust(t.Context(), perSecond, a); err != nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				if answered++; answered == 1 {
					e.Cut(true) // it dies before it can write again
				}
			})
		}
		work.Wait()
		time.Sleep(5 * time.Second)
		next, _ := owned(t, m, durable.OwnerOptions{})
		if all := must(next.Adjustments(t.Context(), "api", "", 100)); answered == 0 || len(all) < answered {
			t.Errorf("%d adjustments were answered, and %d are known", answered, len(all))
		}
		e.Cut(false)
	})
}
