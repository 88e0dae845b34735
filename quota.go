package weir

import (
	"math/bits"
	"time"

	"github.com/weirhq/weir/algo"
)

// Quota is what the limit promises over a longer time: as many permits as are allowed at once, and the window in which they come
// back: of a token bucket the time in which an empty one regains them, rounded up to a nanosecond. The window is 0 for
// [AtOnce], and for a [CalendarWindow] where windows from now on differ in length, as months do, and days in a
// zone whose clocks are changed. It is 0 as well for a limit that cannot be used: see [Limit.Check].
func (l Limit) Quota() (permits int64, window time.Duration) {
	switch l.algorithm {
	case AlgorithmTokenBucket:
		return l.permits, l.rate.fill(l.permits)
	case AlgorithmConcurrency:
		return l.permits, 0
	case AlgorithmCalendarWindow:
		if l.calendar.Unit > algo.CalendarWeek {
			return l.permits, 0
		}
		return l.permits, l.lengthFrom(time.Now().UnixNano())
	default:
		return l.rate.Permits, l.rate.Period
	}
}

// fill is how long permits take to come back, rounded up, 0 if that cannot be told.
func (r Rate) fill(permits int64) time.Duration {
	if r.Permits <= 0 || r.Period <= 0 || permits <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(permits), uint64(r.Period))
	if hi >= uint64(r.Permits) {
		return 0
	}
	d, rest := bits.Div64(hi, lo, uint64(r.Permits))
	if rest > 0 {
		d++
	}
	if d >= uint64(Never) {
		return 0
	}
	return time.Duration(d)
}
