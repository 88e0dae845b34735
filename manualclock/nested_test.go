package manualclock_test

import (
	"testing"

	"github.com/weirhq/weir/manualclock"
)

// TestManualClockIsMovedByWhatItCalls moves the clock from a function that it calls: it does not go back afterwards.
func TestManualClockIsMovedByWhatItCalls(t *testing.T) {
	for name, c := range map[string]struct {
		inner, outer func(*manualclock.Clock)
		want         int64
	}{
		"Advance in Advance": {
			func(c *manualclock.Clock) { c.Advance(20) }, func(c *manualclock.Clock) { c.Advance(10) }, 30,
		},
		"Advance in Set": {
			func(c *manualclock.Clock) { c.Advance(20) }, func(c *manualclock.Clock) { c.Set(10) }, 25,
		},
		"Set in Advance": {
			func(c *manualclock.Clock) { c.Set(20) }, func(c *manualclock.Clock) { c.Advance(10) }, 25,
		},
		"Set in Set": {
			func(c *manualclock.Clock) { c.Set(20) }, func(c *manualclock.Clock) { c.Set(10) }, 20,
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock := manualclock.New(0)
			clock.AfterFunc(5, func() { c.inner(clock) })
			clock.AfterFunc(19, func() {
				if now := clock.Now(); now != 19 {
					t.Errorf("called at %d", now)
				}
			})
			c.outer(clock)
			if now := clock.Now(); now != c.want {
				t.Errorf("it is %d, want %d", now, c.want)
			}
			clock.Set(7)
			if now := clock.Now(); now != 7 {
				t.Errorf("it is %d after Set(7)", now)
			}
		})
	}
}
