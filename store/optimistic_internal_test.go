package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

// TestOptimisticGivesBack undoes requests before and after the store was told of them.
func TestOptimisticGivesBack(t *testing.T) {
	for _, algorithm := range []weir.Algorithm{weir.AlgorithmTokenBucket, weir.AlgorithmFixedWindow} {
		synctest.Test(t, func(t *testing.T) {
			inner, err := NewMemory(MemoryOptions{})
			if err != nil {
				t.Fatal(err)
			}
			o, err := NewOptimistic(inner, OptimisticOptions{})
			if err != nil {
				t.Fatal(err)
			}
			charges := []Charge{{Policy: "p", Limit: weir.Limit{Algorithm: algorithm, Rate: weir.PerDay(100)}, N: 10}}
			decisions := make([]weir.Decision, 1)
			take := func(want int64) {
				t.Helper()
				if err := o.Take(t.Context(), charges, decisions); err != nil || !decisions[0].Allowed || decisions[0].Remaining != want {
					t.Fatalf("%+v, %v, want %d", decisions, err, want)
				}
			}
			told := func(want int64) {
				t.Helper()
				time.Sleep(150 * time.Millisecond)
				s, err := inner.Inspect(t.Context(), charges[0])
				if err != nil || s.Decision.Remaining != want {
					t.Errorf("the store has %+v, %v, want %d", s.Decision, err, want)
				}
			}
			take(90) // by the store
			take(80)
			o.giveBack(charges) // of which the store has not heard
			take(80)
			told(80)
			o.giveBack(charges) // of which it has
			told(90)
			take(80)
			told(80)
			o.giveBack(charges)
			take(80) // one for the other
			told(80)
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
