package durable_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
)

// TestAdjustments: what an adjustment gives or takes counts at once, promotes those who wait, and survives with who did it.
func TestAdjustments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond}))
		o, _ := owned(t, m, durable.OwnerOptions{})
		month := weir.CalendarWindow(100, algo.Calendar{Unit: algo.CalendarMonth})
		r := spectest.Request{Policy: "tokens", Key: "acme", Limit: month, N: 100}
		want(t, spectest.Acquire(t.Context(), o, r), weir.ReasonNone)
		r.N, r.Wait, r.Queue = 30, time.Hour, 100
		waiting, _ := collect(o, r)
		time.Sleep(time.Minute)
		given, err := o.Adjust(t.Context(), month, durable.Adjustment{
			Policy: "tokens", Key: "acme", Permits: 50, By: "ops@example.com", Reason: "paid for",
		})
		if err != nil || given.Remaining != 50 {
			t.Fatalf("%+v, %v", given, err)
		}
		time.Sleep(10 * time.Millisecond)
		want(t, waiting.answer(), weir.ReasonNone)
		time.Sleep(time.Second)
		if _, err = o.Adjust(t.Context(), month, durable.Adjustment{
			Policy: "tokens", Key: "acme", Permits: -5, By: "ops@example.com", Reason: "a mistake",
		}); err != nil {
			t.Fatal(err)
		}
		if err = o.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		o, _ = owned(t, m, durable.OwnerOptions{})
		left, err := spectest.Peek(t.Context(), o, "tokens", "acme", month)
		if err != nil || left.Remaining != 15 {
			t.Errorf("%+v, %v", left, err)
		}
		trail, err := o.Adjustments(t.Context(), "tokens", "acme", 10)
		if err != nil || len(trail) != 2 || trail[0].Permits != -5 || trail[1].Reason != "paid for" {
			t.Errorf("%+v, %v", trail, err)
		}
		for _, wrong := range []durable.Adjustment{
			{Policy: "tokens", Key: "acme", Permits: 1, Reason: "nobody"},
			{Policy: "tokens", Key: "acme", Permits: 1, By: "nobody"},
			{Policy: "", Permits: 1, By: "a", Reason: "b"},
			{Policy: "tokens", Permits: 2e15, By: "a", Reason: "b"},
		} {
			if _, err := o.Adjust(t.Context(), month, wrong); err == nil {
				t.Errorf("%+v was accepted", wrong)
			}
		}
	})
}

// TestAdjustmentsSayWhatWasDone: what was not missing, or cannot be owed, is in no trail, and a change that does nothing says so.
func TestAdjustmentsSayWhatWasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{}))
		o, _ := owned(t, m, durable.OwnerOptions{})
		month := weir.CalendarWindow(10, algo.Calendar{Unit: algo.CalendarMonth})
		want(t, spectest.Acquire(t.Context(), o, spectest.Request{Policy: "p", Limit: month, N: 4}), weir.ReasonNone)
		for _, c := range []struct{ asked, done, remaining int64 }{{5, 4, 10}, {1, 0, 10}, {-3, -3, 7}, {-100, -17, 0}, {-1, 0, 0}} {
			a, err := o.Adjust(t.Context(), month, durable.Adjustment{Policy: "p", Permits: c.asked, By: "x", Reason: "y"})
			if err != nil || a.Permits != c.done || a.Remaining != c.remaining {
				t.Errorf("%d: %+v, %v", c.asked, a, err)
			}
			trail, err := o.Adjustments(t.Context(), "p", "", 1)
			if err != nil || len(trail) != 1 || trail[0].Permits != c.done {
				t.Errorf("%d: %+v, %v", c.asked, trail, err)
			}
		}
	})
}
