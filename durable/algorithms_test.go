package durable_test

import (
	"testing"
	"testing/synctest"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/store"
)

// TestNodesThatDifferInAnAlgorithm: requests of nodes that have another algorithm for a limit of the same name come in turn, also to
// the next owner. At most what both limits have is allowed, a reset makes the permits of both available, and the history of a key
// has the adjustments of both.
func TestNodesThatDifferInAnAlgorithm(t *testing.T) {
	const n = 100
	limits := []weir.Limit{weir.TokenBucket(weir.PerHour(n), 0), weir.FixedWindow(weir.PerHour(n))}
	synctest.Test(t, func(t *testing.T) {
		m := must(durable.NewMemory(durable.MemoryOptions{}))
		o, _ := owned(t, m, durable.OwnerOptions{})
		allowed := 0
		for i := range 1001 {
			if i == n {
				if err := o.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				o, _ = owned(t, m, durable.OwnerOptions{})
			}
			r := spectest.Acquire(t.Context(), o, spectest.Request{Policy: "p", Key: "k", Limit: limits[i%2], N: 1})
			if r.Reason == weir.ReasonNone {
				allowed++
			}
		}
		if allowed != 2*n {
			t.Errorf("%d of 1001 were allowed, the limits have %d together", allowed, 2*n)
		}
		for i, l := range limits {
			a := durable.Adjustment{Policy: "p", Key: "k", Permits: int64(i + 1), By: "x", Reason: "y"}
			if got, err := o.Adjust(t.Context(), l, a); err != nil || got.Remaining != a.Permits {
				t.Errorf("%v: %+v, %v", l, got, err)
			}
		}
		trail, err := o.Adjustments(t.Context(), "p", "k", 10)
		if err != nil || len(trail) != 2 || trail[0].Permits != 2 {
			t.Errorf("%+v, %v", trail, err)
		}
		if _, err = o.Do(t.Context(), store.Ask{Mode: store.ModeReset}, []store.Charge{{Policy: "p", Key: "k"}}, nil); err != nil {
			t.Fatal(err)
		}
		for _, l := range limits {
			if left, err := spectest.Peek(t.Context(), o, "p", "k", l); err != nil || left.Remaining != n {
				t.Errorf("%v: %+v, %v after a reset", l, left, err)
			}
		}
	})
}
