// Package manualclock has a clock that a program moves: to replay a history, to simulate, or to test without waiting. To test
// code that waits, testing/synctest needs no clock at all.
package manualclock

import (
	"sync"
	"time"

	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/heap"
)

// Clock is a weir.Clock that stands still until it is moved. Its zero value stands at 0. It is safe for concurrent
// use: when several goroutines advance it, it moves by the sum.
type Clock struct {
	mu     sync.Mutex
	now    int64
	timers heap.Heap[*timer]
	made   uint64
}

type timer struct {
	at    int64
	order uint64 // in which timers were made
	place int    // in the heap
	f     func()
}

// Before implements [heap.Item].
func (t *timer) Before(u *timer) bool { return t.at < u.at || t.at == u.at && t.order < u.order }

// Placed implements [heap.Item].
func (t *timer) Placed(at int) { t.place = at }

// New returns a clock that stands at start nanoseconds.
func New(start int64) *Clock { return &Clock{now: start} }

// Now implements weir.Clock.
func (c *Clock) Now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc implements weir.Clock: f is called by the Advance or Set that passes its time, also if d is 0 or less.
func (c *Clock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set("AfterFunc", clock.After(c.now, max(d, 0)), f)
}

// At calls f as AfterFunc does, when the clock is at at. It makes no difference if the clock is moved meanwhile.
func (c *Clock) At(at int64, f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set("At", at, f)
}

func (c *Clock) set(call string, at int64, f func()) (stop func() bool) {
	if f == nil {
		panic("weir: manualclock: " + call + ": nil function")
	}
	c.made++
	t := &timer{at: at, order: c.made, f: f}
	c.timers.Push(t)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if t.place < 0 {
			return false
		}
		c.timers.Remove(t.place)
		return true
	}
}

// Advance moves the clock forward by d and calls what became due on the way, in order of time, and at the same time in
// the order in which it was set, each with the clock at its own time. A negative d moves the clock back and calls
// nothing; what is to be called later then still is as far away as before.
func (c *Clock) Advance(d time.Duration) {
	for {
		c.mu.Lock()
		if d < 0 {
			c.back(c.now + int64(d))
			c.mu.Unlock()
			return
		}
		from := c.now
		due := c.forward(clock.After(from, d))
		d -= time.Duration(c.now - from)
		c.mu.Unlock()
		if due == nil {
			return
		}
		due.f()
	}
}

// Set moves the clock to now, like Advance. If it is moved beyond now meanwhile, by another goroutine or by what is
// called, it stays there.
func (c *Clock) Set(now int64) {
	c.mu.Lock()
	if now < c.now {
		c.back(now)
		c.mu.Unlock()
		return
	}
	for {
		due := c.forward(max(now, c.now))
		c.mu.Unlock()
		if due == nil {
			return
		}
		due.f()
		c.mu.Lock()
	}
}

// back moves the clock to a time before it. The order of the timers stays.
func (c *Clock) back(now int64) {
	for _, t := range c.timers {
		t.at += now - c.now
	}
	c.now = now
}

// forward moves the clock to end and returns nil, or only to the next timer that is due by then, which it returns.
func (c *Clock) forward(end int64) *timer {
	if len(c.timers) == 0 || c.timers[0].at > end {
		c.now = end
		return nil
	}
	next := c.timers.Pop()
	c.now = max(c.now, next.at)
	return next
}
