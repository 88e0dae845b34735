package weir

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/algo"
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

// wallClock tells what the wall clock shows at a time of the process clock. It compares the two once a second, and when a window
// ends, so that it follows a wall clock that is corrected; in between they go alike.
type wallClock struct {
	reading atomic.Pointer[wallReading]
	look    func() time.Time // nil for time.Now
}

// wallReading is how far the clocks were apart, and for how long that is taken for granted.
type wallReading struct{ at, lasts, apart int64 }

const wallCheck = time.Second

// apart is the wall clock less the process clock. It is known for now, but now may also be a time that is planned for.
func (c *wallClock) apart(now int64, w algo.Window) int64 {
	r := c.reading.Load()
	if r == nil || uint64(now-r.at) >= uint64(r.lasts) {
		r = c.read(r, w)
	}
	return r.apart
}

func (c *wallClock) read(old *wallReading, w algo.Window) *wallReading {
	if old != nil && uint64(clock.Now()-old.at) < uint64(old.lasts) {
		return old
	}
	t := time.Now()
	wall := t.UnixNano()
	if c.look != nil {
		wall = c.look().UnixNano()
	}
	r := &wallReading{at: clock.Of(t), lasts: int64(wallCheck)}
	r.apart = wall - r.at
	if _, end := w.Window(wall); end > wall {
		r.lasts = min(r.lasts, end-wall)
	}
	if c.reading.CompareAndSwap(old, r) {
		return r
	}
	return c.reading.Load() // that of a caller that was faster
}

// wallLaw is the law of a calendar window at times of the process clock. Its windows may end earlier or later than was planned,
// as the wall clock is corrected.
type wallLaw struct {
	algo.Law

	window algo.Window
	wall   *wallClock
}

func (l *wallLaw) unix(now int64) int64 { return now + l.wall.apart(now, l.window) }

// sameClock is another law of the table as the algorithm knows it.
func sameClock(l algo.Law) algo.Law { //nolint:ireturn // as above
	if w, ok := l.(*wallLaw); ok {
		return w.Law
	}
	return l
}

// Take implements [algo.Law].
func (l *wallLaw) Take(state []uint64, now, n int64) algo.Result {
	return l.Law.Take(state, l.unix(now), n)
}

// Grant implements [algo.Law].
func (l *wallLaw) Grant(state []uint64, now int64) bool { return l.Law.Grant(state, l.unix(now)) }

// Peek implements [algo.Law].
func (l *wallLaw) Peek(state []uint64, now, n int64) algo.Result {
	return l.Law.Peek(state, l.unix(now), n)
}

// Refund implements [algo.Law].
func (l *wallLaw) Refund(state []uint64, now, n int64) { l.Law.Refund(state, l.unix(now), n) }

// Cancel implements [algo.Law].
func (l *wallLaw) Cancel(state []uint64, now, n int64, m algo.Mark) {
	l.Law.Cancel(state, l.unix(now), n, m)
}

// CancelAcross implements [algo.Law].
func (l *wallLaw) CancelAcross(old algo.Law, state []uint64, now, n int64, m algo.Mark) {
	l.Law.CancelAcross(sameClock(old), state, l.unix(now), n, m)
}

// Charge implements [algo.Law].
func (l *wallLaw) Charge(state []uint64, now, n, mostDebt int64) int64 {
	return l.Law.Charge(state, l.unix(now), n, mostDebt)
}

// Fresh implements [algo.Law].
func (l *wallLaw) Fresh(state []uint64, now int64) bool { return l.Law.Fresh(state, l.unix(now)) }

// FreshAt implements [algo.Law].
func (l *wallLaw) FreshAt(state []uint64) int64 {
	at := l.Law.FreshAt(state)
	if at == math.MinInt64 || at == math.MaxInt64 {
		return at
	}
	r := l.wall.reading.Load()
	if r == nil {
		r = l.wall.read(nil, l.window)
	}
	return at - r.apart
}

// Carry implements [algo.Law].
func (l *wallLaw) Carry(state []uint64, old algo.Law, from []uint64, now int64) {
	l.Law.Carry(state, sameClock(old), from, l.unix(now))
}

// SameMarks implements [algo.Law].
func (l *wallLaw) SameMarks(old algo.Law) bool { return l.Law.SameMarks(sameClock(old)) }
