package verify_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
)

// TestKeyedCancelAcrossFasterLimit cancels permits of a limit that is in force again, after a faster one has regained them.
func TestKeyedCancelAcrossFasterLimit(t *testing.T) {
	slow, fast := weir.PerMinute(10), weir.PerSecond(10)
	for _, c := range []struct{ slow, fast weir.Limit }{
		{weir.TokenBucket(slow, 10), weir.TokenBucket(weir.PerSecond(100), 10)},
		{weir.FixedWindow(slow), weir.FixedWindow(fast)},
		{weir.SlidingWindow(slow, 0), weir.SlidingWindow(fast, 0)},
		{weir.SlidingCounter(slow), weir.SlidingCounter(fast)},
	} {
		for _, way := range []string{"function", "override"} {
			t.Run(c.slow.Algorithm().String()+"/"+way, func(t *testing.T) {
				var clock manualclock.Clock
				k, limit := chosen(t, c.slow, &clock)
				l := k.TryReserve(0, 10)
				if way == "function" {
					limit(c.fast)
				} else if err := keyset.Of(k).Override(0, c.fast, time.Hour); err != nil {
					t.Fatal(err)
				}
				k.Peek(0, 1)
				clock.Advance(2 * time.Second)
				k.Peek(0, 1)
				if way == "function" {
					limit(weir.Limit{})
				} else {
					keyset.Of(k).Restore(0)
				}
				granted := drained(k)
				l.Cancel()
				if granted += drained(k); granted > 10 {
					t.Errorf("%d permits are granted at one moment, though no limit ever grants more than 10", granted)
				}
			})
		}
	}
}
