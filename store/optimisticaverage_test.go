package store_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// TestOptimisticForgottenDebt has more nodes than a debt of one limit can bear: on no interval is more allowed than the
// documentation says.
func TestOptimisticForgottenDebt(t *testing.T) {
	l := weir.TokenBucket(weir.PerSecond(20), 20)
	c := crowd{limit: l, nodes: 6, callers: 2, pause: 10 * time.Millisecond, most: 1, last: 20 * time.Second, drift: 100, idle: true}
	synctest.Test(t, func(t *testing.T) {
		admitted := c.run(t)
		over := int64(c.nodes-1)*l.Permits() - l.Permits() // in each time in which the limit comes back
		worst := int64(0)
		for i := range admitted {
			sum := int64(0)
			for _, a := range admitted[i:] {
				sum += a.n
				d := int64(a.at.Sub(admitted[i].at))
				come := l.Rate().Permits * d / int64(l.Rate().Period)
				if bound := l.Permits() + come + int64(c.nodes-1)*l.Permits() + come/l.Permits()*over; sum > bound {
					t.Fatalf("%d were admitted in %v, which is more than %d", sum, time.Duration(d), bound)
				}
				worst = max(worst, sum-l.Permits()-come-int64(c.nodes-1)*l.Permits())
			}
		}
		t.Logf("admitted %d, up to %d more than if nothing were forgotten", total(admitted), worst)
	})
}

// TestOptimisticNearlyNothingIsRefused compares one hot node with a store that is asked every time: what it refuses is what came
// back while its view was on its way.
func TestOptimisticNearlyNothingIsRefused(t *testing.T) {
	for _, l := range []weir.Limit{weir.TokenBucket(weir.PerSecond(100), 50), weir.TokenBucket(weir.PerSecond(1000), 0)} {
		synctest.Test(t, func(t *testing.T) {
			s, d := node(t, store.OptimisticOptions{})
			defer shut(t, s)
			const there = 5 * time.Millisecond
			d.slow(there)
			exact := newMemory(t, store.MemoryOptions{})
			got, want, behind := int64(0), int64(0), int64(0)
			for start := time.Now(); time.Since(start) < 10*time.Second; {
				for range 3 {
					if take(t, s, "", l, 1).Allowed {
						got++
					}
				}
				for take(t, exact, "", l, 1).Allowed {
					want++
				}
				if time.Since(start) > time.Second { // the burst is used up
					behind = max(behind, want-got)
				}
				_ = rest(t.Context(), time.Millisecond)
			}
			// What came back during a round trip is not in the view, and a request that waits for a call waits for another one. Nothing
			// came back in the first interval, in which the store took the bucket to be full.
			const late = 4*there + 100*time.Millisecond
			bound := l.Rate().Permits*int64(late)/int64(l.Rate().Period) + 2
			t.Logf("%v: granted %d of %d, behind by up to %d, bound %d", l, got, want, behind, bound)
			if got > want || behind > bound {
				t.Errorf("%v: granted %d of %d, behind by up to %d, bound %d", l, got, want, behind, bound)
			}
		})
	}
}
