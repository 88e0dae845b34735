package weir

import (
	"sync"
	"time"

	"github.com/weirhq/weir/internal/clock"
)

// Clock is where a limiter takes the time from. Limiters that are given none use the monotonic clock of the process,
// which is much the fastest; give one to run a limiter in a time of your own, as a simulation does. To test code that
// waits, testing/synctest needs no Clock at all.
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
	if manual, ok := c.(*ManualClock); ok {
		return clock.NewAt(manual, manual.at)
	}
	return clock.New(c)
}

// ManualClock is a Clock that stands still until it is moved. Its zero value stands at 0. It is safe for concurrent
// use: when several goroutines advance it, it moves by the sum.
type ManualClock struct {
	mu     sync.Mutex
	now    int64
	timers map[*manualTimer]struct{}
	made   uint64
}

type manualTimer struct {
	at    int64
	order uint64 // in which timers were made
	f     func()
}

// NewManualClock returns a clock that stands at start nanoseconds.
func NewManualClock(start int64) *ManualClock { return &ManualClock{now: start} }

// Now implements [Clock].
func (c *ManualClock) Now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc implements [Clock]: f is called by the Advance or Set that passes its time, also if d is 0 or less.
func (c *ManualClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set(clock.After(c.now, max(d, 0)), f)
}

// at is AfterFunc for a given time, which makes no difference if the clock is moved meanwhile.
func (c *ManualClock) at(at int64, f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set(at, f)
}

func (c *ManualClock) set(at int64, f func()) (stop func() bool) {
	c.made++
	t := &manualTimer{at: at, order: c.made, f: f}
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

// Advance moves the clock forward by d and calls what became due on the way, in order of time, and at the same time in
// the order in which it was set, each with the clock at its own time. A negative d moves the clock back and calls
// nothing; what is to be called later then still is as far away as before.
func (c *ManualClock) Advance(d time.Duration) {
	for c.step(&d) {
	}
}

// Set moves the clock to now, like Advance. If it is moved beyond now meanwhile, by another goroutine or by what is
// called, it stays there.
func (c *ManualClock) Set(now int64) {
	for d := time.Duration(now - c.Now()); c.step(&d); {
		d = time.Duration(max(now-c.Now(), 0))
	}
}

// step moves the clock by d, or to the next timer and takes as much from d. It reports whether something is left to do.
func (c *ManualClock) step(d *time.Duration) bool {
	c.mu.Lock()
	if *d < 0 {
		c.now += int64(*d)
		for t := range c.timers {
			t.at += int64(*d)
		}
		c.mu.Unlock()
		return false
	}
	end := clock.After(c.now, *d)
	var next *manualTimer
	for t := range c.timers {
		if t.at <= end && (next == nil || t.at < next.at || t.at == next.at && t.order < next.order) {
			next = t
		}
	}
	if next == nil {
		c.now = end
		c.mu.Unlock()
		return false
	}
	delete(c.timers, next)
	if next.at > c.now {
		*d -= time.Duration(next.at - c.now)
		c.now = next.at
	}
	c.mu.Unlock()
	next.f()
	return true
}
