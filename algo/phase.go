package algo

import (
	"math"
	"math/bits"
	"time"
)

// phase is where the windows of an algorithm begin: window i covers the times from origin + i x length on.
type phase struct{ origin, length int64 }

// index is the window that now lies in.
func (p phase) index(now int64) int64 {
	d := now - p.origin
	i := d / p.length
	if d%p.length < 0 {
		i--
	}
	return i
}

// start is when window i begins, held at the ends of the range.
func (p phase) start(i int64) int64 {
	hi, lo := bits.Mul64(magnitude(i), uint64(p.length))
	if hi != 0 || lo > math.MaxInt64 {
		if i < 0 {
			return math.MinInt64
		}
		return math.MaxInt64
	}
	if i < 0 {
		return p.origin - int64(lo)
	}
	return after(p.origin, int64(lo))
}

func magnitude(i int64) uint64 {
	if i < 0 {
		return -uint64(i)
	}
	return uint64(i)
}

func newPhase(window time.Duration, origin int64) phase {
	p := phase{length: int64(window)}
	if p.origin = origin % p.length; p.origin < 0 {
		p.origin += p.length
	}
	return p
}
