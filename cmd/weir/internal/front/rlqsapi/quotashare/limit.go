package quotashare

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Limit is what an account is held to: a token bucket of Burst tokens that regains Permits in each Period, evenly.
type Limit struct {
	// Permits come back in each Period: from 1 to 10^15 in 1 ns to 3660 days, at most 10^9 in a second.
	Permits int64
	Period  time.Duration
	// Burst is how many tokens there are at most: from 1 to 10^15.
	Burst int64
}

const (
	mostPermits = 1_000_000_000_000_000
	longest     = 3660 * 24 * time.Hour
	// yearSeconds is the longest fill interval, as proxies take lower rates than a token in a year for that.
	yearSeconds = 365 * 24 * 3600
	// fine is of how many steps a rate should consist at least.
	fine = 10_000
)

func (l Limit) check() error {
	switch {
	case l.Permits < 1 || l.Permits > mostPermits:
		return fmt.Errorf("weir: Limit.Permits of %d: must be from 1 to 10^15", l.Permits)
	case l.Period < 1 || l.Period > longest:
		return fmt.Errorf("weir: Limit.Period of %v: must be from 1ns to 87840h", l.Period)
	case l.Permits > int64(l.Period):
		return fmt.Errorf("weir: Limit.Permits of %d in %v: must be at most 10^9 in a second", l.Permits, l.Period)
	case l.Burst < 1 || l.Burst > mostPermits:
		return fmt.Errorf("weir: Limit.Burst of %d: must be from 1 to 10^15", l.Burst)
	}
	return nil
}

// grid is a limit in the units in which an account is kept.
type grid struct {
	seconds int64 // the fill interval of the buckets that are given out
	rate    int64 // tokens in each interval, rounded down
	burst   int64
	unit    int64 // what a token is counted as, so that a rate of n adds n in each millisecond
}

// fillIntervals are tried in this order.
var fillIntervals = [...]int64{1, 10, 60, 600, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600, 30 * 24 * 3600, yearSeconds}

// newGrid chooses the shortest fill interval in which the rate is a whole number that can be divided finely, or if there
// is none the shortest in which it can be divided finely, or the longest.
func newGrid(l Limit) grid {
	seconds := int64(0)
	for _, s := range fillIntervals {
		n, exact := l.in(s)
		if n < fine {
			continue
		}
		if n > math.MaxUint32 && seconds != 0 {
			break
		}
		if seconds == 0 || exact {
			seconds = s
		}
		if exact {
			break
		}
	}
	if seconds == 0 {
		seconds = yearSeconds
	}
	n, _ := l.in(seconds)
	g := grid{seconds: seconds, rate: n, unit: seconds * 1000}
	g.burst = min(l.Burst, math.MaxInt64/2/g.unit)
	return g
}

// in is how many permits come back in so many seconds.
func (l Limit) in(seconds int64) (n int64, exact bool) {
	hi, lo := bits.Mul64(uint64(l.Permits), uint64(seconds*int64(time.Second)))
	if hi >= uint64(l.Period) {
		return math.MaxInt64, false
	}
	quotient, rest := bits.Div64(hi, lo, uint64(l.Period))
	return int64(min(quotient, math.MaxInt64)), rest == 0
}

// perSecond is a rate of the grid in tokens a second.
func (g *grid) perSecond(rate int64) float64 { return float64(rate) / float64(g.seconds) }

// steps is the rate of the grid that is not above so many tokens a second.
func (g *grid) steps(perSecond float64) int64 {
	n := math.Floor(perSecond*float64(g.seconds) + 1e-6)
	return int64(max(0, min(n, math.MaxUint32, float64(g.rate))))
}

// counts is what a rate of n in so many seconds counts here, rounded up.
func (g *grid) counts(n uint32, seconds int64) int64 {
	if seconds == g.seconds {
		return int64(n)
	}
	hi, lo := bits.Mul64(uint64(n), uint64(g.seconds))
	quotient, rest := bits.Div64(hi, lo, uint64(seconds)) // n and both intervals are below 2^32
	if rest > 0 {
		quotient++
	}
	return int64(quotient)
}
