package manualclock_test

import (
	"math"
	"math/bits"
	"sync"
	"testing"

	"github.com/weirhq/weir/manualclock"
)

// TestSetMovesToTheTimeItIsGiven sets a clock from far away, where the difference is no duration.
func TestSetMovesToTheTimeItIsGiven(t *testing.T) {
	for _, from := range []int64{math.MinInt64, -5, 0, 5, math.MaxInt64} {
		for _, to := range []int64{math.MinInt64, -1 << 62, -5, 0, 5, 1 << 62, math.MaxInt64} {
			c := manualclock.New(from)
			if c.Set(to); c.Now() != to {
				t.Errorf("set from %d to %d, it shows %d", from, to, c.Now())
			}
		}
	}
}

// TestSetsDoNotAddUp sets a clock in several goroutines at once. It shows one of the times that it was set to.
func TestSetsDoNotAddUp(t *testing.T) {
	c := manualclock.New(0)
	var setters sync.WaitGroup
	for i := range 8 {
		setters.Go(func() {
			for j := range 20_000 {
				c.Set(1 << ((i + j) % 40))
				if now := c.Now(); bits.OnesCount64(uint64(now)) > 1 {
					t.Errorf("it shows %#x", now)
					return
				}
			}
		})
	}
	setters.Wait()
}
