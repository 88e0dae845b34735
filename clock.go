package weir

import (
	"time"

	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/manualclock"
)

// Clock is where a limiter takes the time from. Limiters that are given none use the monotonic clock of the process,
// which is much the fastest; give one to run a limiter in a time of your own, as a simulation does. To test code that
// waits, testing/synctest needs no Clock at all. Package manualclock has one that a program moves.
type Clock interface {
	// Now is the time in nanoseconds on any scale, within ±2^62; only differences count. It should not go
	// backward: if it does, no permits are gained or lost, and time goes on from there.
	Now() int64
	// AfterFunc calls f, in a goroutine of its own or not, once d has passed on this clock, unless stop is called
	// first; never before AfterFunc has returned. f may have to wait for callers of the limiter, which may be in Now,
	// AfterFunc or stop at that moment: so a clock must not hold a lock that these need while it calls f, and stop
	// must not wait for an f that has begun. f may call all three.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// steady returns a clock that never goes backward, nil for the process clock if c is nil.
func steady(c Clock) *clock.Steady {
	if manual, ok := c.(*manualclock.Clock); ok {
		return clock.NewAt(manual, manual.At)
	}
	return clock.New(c)
}
