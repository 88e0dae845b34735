package durable_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
)

// TestFailedAdjustment: an adjustment that could not be written leaves what there was, however much it was to give or to take, and
// never more, whenever it turns out to have failed.
func TestFailedAdjustment(t *testing.T) {
	for name, limit := range map[string]weir.Limit{
		"bucket":   never(100),
		"window":   weir.FixedWindow(weir.Per(100, 400*time.Hour)),
		"sliding":  weir.SlidingWindow(weir.Per(100, 400*time.Hour), 10),
		"counter":  weir.SlidingCounter(weir.Per(100, 400*time.Hour)),
		"calendar": weir.CalendarWindow(100, algo.Calendar{Unit: algo.CalendarYear}),
	} {
		for _, used := range []int64{1, 40, 100} {
			for _, permits := range []int64{-1e15, -150, -20, 20, 150, 1e15} {
				t.Run(fmt.Sprintf("%s, %d used, %d", name, used, permits), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						m := must(durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond}))
						o, e := owned(t, m, durable.OwnerOptions{Reserve: 1})
						r := spectest.Request{Policy: "p", Limit: limit, N: used}
						want(t, spectest.Acquire(t.Context(), o, r), weir.ReasonNone)
						e.Fail(errors.New("the disk is full"))
						a := durable.Adjustment{Policy: "p", Permits: permits, By: "x", Reason: "y"}
						if _, err := o.Adjust(t.Context(), limit, a); err == nil {
							t.Fatal("it was adjusted")
						}
						e.Fail(nil)
						time.Sleep(time.Second)
						d, err := spectest.Peek(t.Context(), o, "p", "", limit)
						if err != nil || d.Remaining != 100-used {
							t.Errorf("%d are left, %v", d.Remaining, err)
						}
					})
				})
			}
		}
	}
}
