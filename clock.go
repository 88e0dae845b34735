package weir

import (
	"sync"
	"time"
)

// Clock is where a limiter takes the time from. Limiters that are given none use the monotonic clock of the process,
// which is much the fastest; give one to run a limiter in a time of your own, as a simulation does. To test code that
// waits, testing/synctest needs no Clock at all.
type Clock interface {
	// Now is the time in nanoseconds on any scale, within ±2^62; only differences count. It should not go
	// backward: if it does, no permits are gained or lost, and time goes on from there.
	Now() int64
	// AfterFunc calls f, in a goroutine of its own or not, once d has passed on this clock, unless stop is called
	// first. The limiter never calls stop or AfterFunc while f of the same limiter waits for it.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// processStart anchors the process clock: one reading of time.Since costs half of time.Now, which reads two clocks.
var processStart = time.Now()

func processNow() int64 { return int64(time.Since(processStart)) }

// steadyClock is a clock that never goes backward: when the clock behind it does, it stands for a moment and then goes
// on from there.
type steadyClock struct {
	Clock

	mu           sync.Mutex
	last, behind int64
}

// steady makes c steady, for states that keep a time alone; nil stays nil.
//
//nolint:ireturn // nil stays nil
func steady(c Clock) Clock {
	if c == nil {
		return nil
	}
	return &steadyClock{Clock: c, last: c.Now()}
}

// Now implements [Clock].
func (c *steadyClock) Now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.Clock.Now() + c.behind
	if now < c.last {
		c.behind += c.last - now
		now = c.last
	}
	c.last = now
	return now
}

// ManualClock is a Clock that stands still until it is moved. Its zero value stands at 0. It is safe for concurrent
// use.
type ManualClock struct {
	mu     sync.Mutex
	now    int64
	timers map[*manualTimer]struct{}
}

type manualTimer struct {
	at int64
	f  func()
}

// NewManualClock answers a clock that stands at start nanoseconds.
func NewManualClock(start int64) *ManualClock { return &ManualClock{now: start} }

// Now implements [Clock].
func (c *ManualClock) Now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc implements [Clock]: f is called by the Advance or Set that passes its time.
func (c *ManualClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &manualTimer{at: c.now + int64(max(d, 0)), f: f}
	if c.timers == nil {
		c.timers = make(map[*manualTimer]struct{})
	}
	c.timers[t] = struct{}{}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, pending := c.timers[t]
		delete(c.timers, t)
		return pending
	}
}

// Advance moves the clock forward by d and calls what became due on the way, in order of time, each with the clock at
// its own time. A negative d moves the clock back and calls nothing.
func (c *ManualClock) Advance(d time.Duration) {
	c.Set(c.Now() + int64(d))
}

// Set moves the clock to now, like Advance.
func (c *ManualClock) Set(now int64) {
	for {
		c.mu.Lock()
		var next *manualTimer
		for t := range c.timers {
			if t.at <= now && (next == nil || t.at < next.at) {
				next = t
			}
		}
		if next == nil {
			c.now = now
			c.mu.Unlock()
			return
		}
		delete(c.timers, next)
		c.now = max(c.now, next.at)
		c.mu.Unlock()
		next.f()
	}
}
