package durable_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/store"
)

// TestLostAdjustmentIsTakenBack: an adjustment of which its caller was told that it is not known has not happened in the end, although
// it was written: neither are the permits there, or gone, nor does its record say so, with this owner and the next one.
func TestLostAdjustmentIsTakenBack(t *testing.T) {
	for _, permits := range []int64{3, -3} {
		t.Run(fmt.Sprint(permits), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := must(durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond}))
				d := &deaf{Engine: m.Engine()}
				o := must(durable.NewOwner(must(d.Campaign(t.Context(), "a")), durable.OwnerOptions{}))
				if n := drain(t, o, never(100), 50); n != 50 {
					t.Fatalf("%d", n)
				}
				a := durable.Adjustment{Policy: "p", Permits: permits, By: "x", Reason: "heard of"}
				if _, err := o.Adjust(t.Context(), never(100), a); err != nil {
					t.Fatal(err)
				}
				d.how.Store(deafWritten)
				time.Sleep(time.Second)
				a.Reason = "lost"
				if _, err := o.Adjust(t.Context(), never(100), a); !errors.Is(err, store.ErrUnavailable) {
					t.Fatalf("%v", err)
				}
				if n := len(must(o.Adjustments(t.Context(), "p", "", 10))); n != 2 {
					t.Fatalf("%d adjustments: it was not written", n)
				}
				d.how.Store(deafNot)
				time.Sleep(10 * time.Second) // it is written again by itself
				check := func(o *durable.Owner) {
					t.Helper()
					if all := must(o.Adjustments(t.Context(), "p", "", 10)); len(all) != 1 || all[0].Reason != "heard of" {
						t.Errorf("%+v", all)
					}
					if d, err := spectest.Peek(t.Context(), o, "p", "", never(100)); err != nil || d.Remaining != 50+permits {
						t.Errorf("%d are left, %v", d.Remaining, err)
					}
				}
				check(o)
				if err := o.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				next, _ := owned(t, m, durable.OwnerOptions{})
				check(next)
			})
		})
	}
}
