package weir

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/clock"
)

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
func (c *wallClock) apart(now int64, w algo.CalendarWindow) int64 {
	r := c.reading.Load()
	if r == nil || uint64(now-r.at) >= uint64(r.lasts) {
		r = c.read(r, w)
	}
	return r.apart
}

func (c *wallClock) read(old *wallReading, w algo.CalendarWindow) *wallReading {
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

// wallWindow is algo.CalendarWindow at times of the process clock, or, without a wallClock, at times that are nanoseconds since
// 1970 already.
type wallWindow struct {
	algo.CalendarWindow

	wall *wallClock
}

var _ algo.Algorithm[algo.CalendarWindowState] = wallWindow{}

func (w wallWindow) unix(now int64) int64 {
	if w.wall == nil {
		return now
	}
	return now + w.wall.apart(now, w.CalendarWindow)
}

// Take implements [algo.Algorithm].
func (w wallWindow) Take(s algo.CalendarWindowState, now, n int64) (algo.CalendarWindowState, algo.Result) {
	return w.CalendarWindow.Take(s, w.unix(now), n)
}

// Peek implements [algo.Algorithm].
func (w wallWindow) Peek(s algo.CalendarWindowState, now, n int64) algo.Result {
	return w.CalendarWindow.Peek(s, w.unix(now), n)
}

// Refund implements [algo.Algorithm].
func (w wallWindow) Refund(s algo.CalendarWindowState, now, n int64) algo.CalendarWindowState {
	return w.CalendarWindow.Refund(s, w.unix(now), n)
}

// Cancel implements [algo.Algorithm].
func (w wallWindow) Cancel(s algo.CalendarWindowState, now, n int64, m algo.Mark) algo.CalendarWindowState {
	return w.CalendarWindow.Cancel(s, w.unix(now), n, m)
}

// Charge implements [algo.Algorithm].
func (w wallWindow) Charge(s algo.CalendarWindowState, now, n, maxDebt int64) (algo.CalendarWindowState, int64) {
	return w.CalendarWindow.Charge(s, w.unix(now), n, maxDebt)
}

// Fresh implements [algo.Algorithm].
func (w wallWindow) Fresh(s algo.CalendarWindowState, now int64) bool {
	return w.CalendarWindow.Fresh(s, w.unix(now))
}

// FreshAt implements [algo.Algorithm].
func (w wallWindow) FreshAt(s algo.CalendarWindowState) int64 {
	at := w.CalendarWindow.FreshAt(s)
	if w.wall == nil || at == math.MinInt64 || at == math.MaxInt64 {
		return at
	}
	r := w.wall.reading.Load()
	if r == nil {
		r = w.wall.read(nil, w.CalendarWindow)
	}
	return at - r.apart
}

// calendarMeter is metered for a window that may end earlier or later than was planned, as the wall clock is corrected.
type calendarMeter struct {
	metered[algo.CalendarWindowState, wallWindow]
}

// corrected reports whether the wall clock counts.
func (m *calendarMeter) corrected() bool { return m.algorithm.wall != nil }
