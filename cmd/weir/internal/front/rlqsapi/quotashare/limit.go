package quotashare

import (
	"math"
	"math/bits"
	"time"

	"github.com/weirhq/weir"
)

const (
	// yearSeconds is the longest fill interval, as proxies take lower rates than a token in a year for that.
	yearSeconds = 365 * 24 * 3600
	// fine is of how many steps a rate should consist at least.
	fine = 10_000
)

// grid is a limit in the units in which an account is kept.
type grid struct {
	seconds int64 // the fill interval of the buckets that are given out
	rate    int64 // tokens in each interval, rounded down
	burst   int64
	unit    int64 // what a token is counted as, so that a rate of n adds n in each millisecond
}

// fillIntervals are tried in this order.
var fillIntervals = [...]int64{1, 10, 60, 600, 3600, 6 * 3600, 24 * 3600, 7 * 24 * 3600, 30 * 24 * 3600, yearSeconds}

// newGrid is that of a token bucket. It chooses the shortest fill interval in which the rate is a whole number that can be
// divided finely, or if there is none the shortest in which it can be divided finely, or the longest.
func newGrid(l weir.Limit) grid {
	seconds := int64(0)
	for _, s := range fillIntervals {
		n, exact := tokensIn(l.Rate(), s)
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
	n, _ := tokensIn(l.Rate(), seconds)
	g := grid{seconds: seconds, rate: n, unit: seconds * 1000}
	g.burst = min(l.Permits(), math.MaxInt64/2/g.unit)
	return g
}

// tokensIn is how many tokens come back in so many seconds.
func tokensIn(rate weir.Rate, seconds int64) (n int64, exact bool) {
	hi, lo := bits.Mul64(uint64(rate.Permits), uint64(seconds*int64(time.Second)))
	if hi >= uint64(rate.Period) {
		return math.MaxInt64, false
	}
	quotient, rest := bits.Div64(hi, lo, uint64(rate.Period))
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
