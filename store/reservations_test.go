//go:build !race

package store_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// TestReservationsOfAKeyAreBounded reserves until a record is full.
func TestReservationsOfAKeyAreBounded(t *testing.T) {
	clock := newVirtual()
	for _, s := range []store.Home{
		newMemory(t, store.MemoryOptions{Clock: clock}),
	} {
		c := []store.Charge{{Policy: "p", Key: "k", Limit: weir.AtOnce(1e15), N: 1}}
		ds := make([]weir.Decision, 1)
		var last store.Hold
		for i := range store.MostReservations {
			var err error
			if last, err = store.Reserve(t.Context(), s, c, ds, time.Minute); err != nil || !ds[0].Allowed {
				t.Fatalf("%d: %+v, %v", i, ds, err)
			}
		}
		if _, err := store.Reserve(t.Context(), s, c, ds, time.Minute); err != nil || ds[0].Reason != weir.ReasonTableFull || ds[0].RetryAfter != time.Minute {
			t.Errorf("%+v, %v", ds, err)
		}
		if err := store.Commit(t.Context(), s, last, []int64{1}); err != nil {
			t.Error(err)
		}
		if _, err := store.Reserve(t.Context(), s, c, ds, time.Minute); err != nil || !ds[0].Allowed {
			t.Errorf("%+v, %v", ds, err)
		}
	}
}
