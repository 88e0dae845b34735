package lockstep

import (
	"math"
	"time"
)

// Source makes the decisions that a history consists of: it returns a number below n, which is not 0.
type Source func(n uint64) uint64

// Bytes is a Source that reads its decisions from data, few bytes for small numbers, and returns 0 at the end. The
// second function reports whether data has come to its end.
func Bytes(data []byte) (src Source, ended func() bool) {
	src = func(n uint64) uint64 {
		v := uint64(0)
		for rest := n - 1; rest > 0 && len(data) > 0; rest >>= 8 {
			v = v<<8 | uint64(data[0])
			data = data[1:]
		}

		return v % n
	}

	return src, func() bool { return len(data) == 0 }
}

// between is a number from low to high.
func (src Source) between(low, high int64) int64 {
	if low >= high {
		return low
	}

	if span := uint64(high) - uint64(low); span < math.MaxUint64 {
		return int64(uint64(low) + src(span+1))
	}

	return int64(src(math.MaxUint64))
}

// Scale is what the numbers of a history are measured by.
type Scale struct {
	Limit int64
	Tick  int64 // ns: in which something happens: the time of one permit, or a segment
	Long  int64 // ns: after which all is forgotten: the time to fill up, or the window
}

// latest is the latest time that algorithms are meant for, and -latest the earliest.
const latest = int64(1) << 62

const tenYears = 3653 * 24 * int64(time.Hour)

// Start is a time to begin at.
func (src Source) Start() int64 {
	switch src(6) {
	case 0:
		return 0
	case 1:
		return src.between(-latest, latest)
	case 2:
		return -latest
	case 3:
		return latest
	case 4:
		return src.between(0, tenYears)
	default:
		return 1_700_000_000_000_000_000
	}
}

// Next is a call at a time that may follow on now.
func Next[S comparable](src Source, scale Scale, p *Pair[S], now int64, forward bool) Call {
	c := Call{Now: src.clock(scale, p, now, forward)}

	switch k := src(16); {
	case k < 9:
		c.Kind, c.N = Take, src.permits(scale.Limit)
	case k < 11:
		c.Kind, c.N = Peek, src.permits(scale.Limit)
	case k < 13 && p.Marks() > 0:
		c.Kind, c.Mark = Cancel, int(src(uint64(p.Marks())))
		c.N = p.Marked(c.Mark)

		if src(4) == 0 {
			c.N = src.permits(c.N)
		}
	case k < 14:
		c.Kind, c.N = Refund, src.permits(scale.Limit)
	case k < 15:
		c.Kind, c.N, c.MaxDebt = Charge, src.permits(scale.Limit), src.permits(scale.Limit)
	default:
		c.Kind, c.N = Take, 1
	}

	return c
}

func (src Source) permits(limit int64) int64 {
	switch src(16) {
	case 0:
		return 0
	case 1:
		return limit
	case 2:
		return src.between(0, limit)
	case 3:
		return src.between(0, limit/2)
	case 4:
		return src.between(0, limit/16)
	case 5:
		return []int64{limit + 1, math.MaxInt64, -1, math.MinInt64, limit * 2, -limit}[src(6)]
	case 6, 7, 8:
		return src.between(1, 4)
	default:
		return 1
	}
}

// waits is how long the last call was told to wait, and until all is fresh.
type waits interface {
	last() (retry, reset int64)
}

// clock moves now.
func (src Source) clock(scale Scale, p waits, now int64, forward bool) int64 {
	retry, reset := p.last()
	d := int64(0)

	switch k := src(20); {
	case k < 5:
	case k < 6:
		d = 1
	case k < 9:
		d = src.between(0, scale.Tick)
	case k < 10:
		d = scale.Tick
	case k < 12:
		d = src.between(0, 4*min(scale.Tick, tenYears))
	case k < 13:
		d = src.between(0, scale.Long)
	case k < 14:
		d = src.between(0, 2*min(scale.Long, tenYears*5))
	case k < 15:
		d = retry
	case k < 16:
		d = max(retry-1, 0)
	case k < 17:
		d = max(reset-int64(src(2)), 0)
	case k < 18:
		d = []int64{tenYears, int64(time.Second), scale.Long, scale.Long + 1}[src(4)]
	default:
		if !forward {
			d = -[]int64{1, src.between(0, scale.Tick), src.between(0, scale.Long), scale.Long, tenYears, latest}[src(6)]
		}
	}

	return min(max(now+d, -latest), latest)
}

// last is the waits of the last result, 0 where there are none.
func (p *Pair[S]) last() (retry, reset int64) {
	retry, reset = int64(p.Last.RetryAfter), int64(p.Last.ResetAfter)
	if retry == math.MaxInt64 {
		retry = 0
	}

	return retry, reset
}
