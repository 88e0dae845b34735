package verify_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir"
)

// TestKeyedCancelAcrossFasterLimit cancels permits of a limit that is in force again, after a faster one has regained them.
func TestKeyedCancelAcrossFasterLimit(t *testing.T) {
	for _, c := range []struct {
		algorithm weir.Algorithm
		fast      weir.Rate
	}{
		{weir.AlgorithmTokenBucket, weir.PerSecond(100)},
		{weir.AlgorithmFixedWindow, weir.PerSecond(10)},
		{weir.AlgorithmSlidingWindow, weir.PerSecond(10)},
		{weir.AlgorithmSlidingCounter, weir.PerSecond(10)},
	} {
		for _, way := range []string{"function", "override"} {
			t.Run(c.algorithm.String()+"/"+way, func(t *testing.T) {
				var clock weir.ManualClock
				o := weir.KeyedOptions{Algorithm: c.algorithm, Rate: weir.PerMinute(10)}
				fast := weir.Limit{Algorithm: c.algorithm, Rate: c.fast}
				if c.algorithm == weir.AlgorithmTokenBucket {
					o.Burst, fast.Burst = 10, 10
				}
				k, limit := chosen(t, o, &clock)
				l := k.TryReserve(0, 10)
				if way == "function" {
					limit(fast)
				} else if err := k.Override(0, fast, time.Hour); err != nil {
					t.Fatal(err)
				}
				k.Peek(0, 1)
				clock.Advance(2 * time.Second)
				k.Peek(0, 1)
				if way == "function" {
					limit(weir.Limit{})
				} else {
					k.Restore(0)
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
