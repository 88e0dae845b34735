package durable_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
)

// TestAdjustmentsOfOneInstant: several of them are written, one after the other and at once, while the clock of the owner is behind
// that of the one before, so that for its records no time passes.
func TestAdjustmentsOfOneInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond}))
		o, _ := owned(t, m, durable.OwnerOptions{})
		want(t, spectest.Acquire(t.Context(), o, ask(5, 0)), weir.ReasonNone)
		if err := o.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		next, _ := owned(t, m, durable.OwnerOptions{})
		durable.SetClock(next, -time.Hour)
		for i := range 4 {
			ended := make(chan error, 2)
			for range 2 {
				go func() {
					_, err := next.Adjust(t.Context(), perSecond, durable.Adjustment{Policy: "api", Permits: 1, By: "x", Reason: "y"})
					ended <- err
				}()
			}
			for range 2 {
				if err := <-ended; err != nil {
					t.Fatalf("round %d: %v", i, err)
				}
			}
		}
		if all := must(next.Adjustments(t.Context(), "api", "", 100)); len(all) != 8 || all[0].Remaining != 5 || all[7].Remaining != 1 {
			t.Errorf("%d: %+v", len(all), all)
		}
	})
}
