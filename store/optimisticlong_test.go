//go:build !race

package store_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// TestOptimisticAverage has nodes ask for more than the limit for a long time: what they allow above the limit is missing
// afterwards, and nothing is lost.
func TestOptimisticAverage(t *testing.T) {
	const last = 12 * time.Second
	for _, l := range optimisticLimits() {
		for _, nodes := range []int{1, 5} {
			c := crowd{limit: l, nodes: nodes, callers: 2, pause: 15 * time.Millisecond, most: 1, last: last}
			synctest.Test(t, func(t *testing.T) {
				admitted := total(c.run(t))
				drift := store.OptimisticOptions{}.DriftOf(l)
				most := int64(nodes-1) * drift
				windows := int64(1)
				switch l.Algorithm() {
				case weir.AlgorithmTokenBucket:
					most += l.Permits() + l.Rate().Permits*int64(last/l.Rate().Period)
				case weir.AlgorithmCalendarWindow:
					most += l.Permits()
				case weir.AlgorithmSlidingWindow, weir.AlgorithmSlidingCounter: // each window may have more, and one is begun
					windows = int64(last/l.Rate().Period) + 1
					most = windows * (l.Rate().Permits + most)
				default:
					windows = int64(last/l.Rate().Period) + 1
					most += windows * l.Rate().Permits
				}
				least := (windows - 1) * l.Rate().Permits
				if l.Algorithm() == weir.AlgorithmTokenBucket || l.Algorithm() == weir.AlgorithmCalendarWindow {
					least = most - int64(nodes-1)*drift
				}
				least = least * 9 / 10
				t.Logf("%v, %d nodes: admitted %d, from %d to %d", l, nodes, admitted, least, most)
				if admitted > most || admitted < least {
					t.Errorf("%v, %d nodes: admitted %d in %v, not from %d to %d", l, nodes, admitted, last, least, most)
				}
			})
		}
	}
}

// TestOptimisticRefusedCostsNoCall counts the calls for a key that is hot and refused, until its RetryAfter and then.
func TestOptimisticRefusedCostsNoCall(t *testing.T) {
	for _, l := range optimisticLimits() {
		t.Run(l.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, d := node(t, store.OptimisticOptions{})
				defer shut(t, s)
				last := weir.Decision{Allowed: true}
				for range 1000 {
					if last = take(t, s, "", l, 1); !last.Allowed {
						break
					}
				}
				if last.Allowed || last.RetryAfter <= 0 {
					t.Fatalf("not refused: %+v", last)
				}
				_ = rest(t.Context(), last.RetryAfter/4) // what was owed has been told, if that is longer than an interval
				before, at := d.calls.Load(), time.Now()
				for wait := last.RetryAfter / 2; wait > 0; wait -= last.RetryAfter / 1000 {
					if got := take(t, s, "", l, 1); got.Allowed || got.Reason != weir.ReasonLimited {
						t.Fatalf("after %v: %+v", time.Since(at), got)
					}
					_ = rest(t.Context(), last.RetryAfter/1000)
				}
				if calls := d.calls.Load() - before; calls > 1 { // that of the interval
					t.Errorf("%d calls", calls)
				}
				_ = rest(t.Context(), last.RetryAfter)
				if got := take(t, s, "", l, 1); !got.Allowed {
					t.Errorf("after RetryAfter %v: %+v", last.RetryAfter, got)
				}
			})
		})
	}
}
