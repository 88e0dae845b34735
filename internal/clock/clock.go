// Package clock has the clock of the process, and makes steady clocks of those that a caller gives.
package clock

import (
	"context"
	"math"
	"sync"
	"time"
)

// Clock is weir.Clock, which says what it must do.
type Clock interface {
	Now() int64
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// start anchors the clock of the process: one reading of time.Since costs half of time.Now, which reads two clocks.
var start = time.Now()

// Now returns the time of the process clock, which never goes backward.
func Now() int64 { return int64(time.Since(start)) }

// Of returns what the process clock shows at t, which has a monotonic reading.
func Of(t time.Time) int64 { return int64(t.Sub(start)) }

// Sleep waits for d, and reports whether it has passed before ctx has ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// After returns t + d, held at the end of the range.
func After(t int64, d time.Duration) int64 {
	if sum := t + int64(d); sum >= t {
		return sum
	}
	return math.MaxInt64
}

// Steady is a clock that never goes backward: when the clock behind it does, it stands for a moment and then goes on from
// there. So no state ever sees a time before one that it has seen, and loses nothing that it had regained by then.
type Steady struct {
	clock Clock
	timer func(at int64, f func()) (stop func() bool) // nil for AfterFunc of the clock

	mu           sync.Mutex
	last, behind int64
}

// New makes c steady; nil stays nil, which stands for the process clock.
func New(c Clock) *Steady {
	if c == nil {
		return nil
	}
	return &Steady{clock: c, last: c.Now()}
}

// NewAt is New for a clock that has timers for a given time, which makes no difference if the clock is moved meanwhile.
func NewAt(c Clock, timer func(at int64, f func()) (stop func() bool)) *Steady {
	s := New(c)
	s.timer = timer
	return s
}

// Now returns the time. That of a nil clock is the time of the process clock.
func (c *Steady) Now() int64 {
	if c == nil {
		return Now()
	}
	return c.steady()
}

func (c *Steady) steady() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now() + c.behind
	if now < c.last {
		c.behind += c.last - now
		now = c.last
	}
	c.last = now
	return now
}

// At calls f when this clock shows the time at.
func (c *Steady) At(at int64, f func()) (stop func() bool) {
	now := c.Now()
	if c == nil {
		return time.AfterFunc(time.Duration(at-now), f).Stop
	}
	if c.timer == nil {
		return c.clock.AfterFunc(time.Duration(at-now), f)
	}
	c.mu.Lock()
	at -= c.behind
	c.mu.Unlock()
	return c.timer(at, f)
}
