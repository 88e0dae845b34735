//go:build !race

package store

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// TestCopiesDecideAlike plays random histories with copies of keys, which decide without the lock, and without. It is about
// Optimistic: a Leased with copies gives back what is not used at other times. TestLeasedNeverAbove and TestLeasedContention have
// copies too.
func TestCopiesDecideAlike(t *testing.T) {
	seed := rand.Uint64()
	for _, limit := range copyLimits() {
		synctest.Test(t, func(t *testing.T) {
			var homes [2]Home
			var opened [2]*Optimistic
			for i, patience := range []int{1, math.MaxInt} {
				o, err := NewOptimistic(newMemoryStore(t), OptimisticOptions{})
				if err != nil {
					t.Fatal(err)
				}
				o.patience, homes[i], opened[i] = patience, o, o
			}
			defer opened[0].Close()
			defer opened[1].Close()
			letPass(time.Second / 3)
			allowed, refused := copyHistory(t, rand.New(rand.NewPCG(seed, 1)), limit, homes)
			t.Logf("%v: %d allowed, %d refused", limit, allowed, refused)
			if allowed < 20 || refused < 20 {
				t.Error("that shows nothing")
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
