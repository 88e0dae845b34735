// Package limits makes limits of their parts, for readers of files and of bytes, and has what packages of this repository need to
// know of limits, rates and chains.
package limits

import (
	"cmp"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/inside"
)

// Of is the limit of these parts. Parts that an algorithm does not have are ignored, and so is permits for the windows of a rate.
// An unknown algorithm is no limit: ok is false.
func Of(a weir.Algorithm, rate weir.Rate, permits int64, segments int, c algo.Calendar) (l weir.Limit, ok bool) {
	switch a {
	case weir.AlgorithmTokenBucket:
		return weir.TokenBucket(rate, permits), true
	case weir.AlgorithmFixedWindow:
		return weir.FixedWindow(rate), true
	case weir.AlgorithmSlidingWindow:
		return weir.SlidingWindow(rate, segments), true
	case weir.AlgorithmSlidingCounter:
		return weir.SlidingCounter(rate), true
	case weir.AlgorithmConcurrency:
		return weir.AtOnce(permits), true
	case weir.AlgorithmCalendarWindow:
		return weir.CalendarWindow(permits, c), true
	default:
		return weir.Limit{}, false
	}
}

// letters stand for the algorithms, in their order.
const letters = "TFSACK"

// Algorithms is how many algorithms there are.
const Algorithms = weir.Algorithm(len(letters))

// Prefix begins the name of a record of an algorithm, and of no other: it is a capital letter, or nothing for a token bucket.
func Prefix(a weir.Algorithm) string {
	if a == weir.AlgorithmTokenBucket {
		return ""
	}
	return letters[a : a+1]
}

// CutPrefix is the algorithm of a name that begins with its Prefix and then with no letter, and what follows.
func CutPrefix(name string) (a weir.Algorithm, rest string) {
	if name != "" {
		if i := strings.IndexByte(letters, name[0]); i > 0 {
			return weir.Algorithm(i), name[1:]
		}
	}
	return weir.AlgorithmTokenBucket, name
}

// Own are the permits of a limit that are not those of its rate: a burst, or how many a window of a calendar has, or how many can
// be out at a time; 0 for the windows of a rate.
func Own(l weir.Limit) int64 {
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket, weir.AlgorithmConcurrency, weir.AlgorithmCalendarWindow:
		return l.Permits()
	default:
		return 0
	}
}

// WithPermits is l with n permits at once: another burst of a token bucket, more or fewer permits in a window, or at a time. With
// an n of 0 or less it cannot be used.
func WithPermits(l weir.Limit, n int64) weir.Limit {
	rate := l.Rate()
	if l.Algorithm() == weir.AlgorithmTokenBucket {
		n = cmp.Or(n, -1) // 0 would stand for the permits of the rate
	} else {
		rate.Permits = n
	}
	l, _ = Of(l.Algorithm(), rate, n, l.Segments(), l.Calendar())
	return l
}

// WithRate is l with another rate. A token bucket keeps its burst. A limit without a rate stays as it is.
func WithRate(l weir.Limit, rate weir.Rate) weir.Limit {
	l, _ = Of(l.Algorithm(), rate, cmp.Or(Own(l), -1), l.Segments(), l.Calendar())
	return l
}

// PerSecond is a rate in permits per second, as a float for showing.
func PerSecond(r weir.Rate) float64 { return float64(r.Permits) / r.Period.Seconds() }

// Interval is the time between two permits of a rate, rounded up to a nanosecond.
func Interval(r weir.Rate) time.Duration {
	if r.Permits <= 0 {
		return weir.Never
	}
	interval := r.Period / time.Duration(r.Permits)
	if r.Period%time.Duration(r.Permits) > 0 {
		interval++
	}
	return interval
}

//nolint:errcheck,forcetypeassert,gochecknoglobals // package weir has set it, which is initialized before
var lawOf = inside.Law.(func(weir.Limit) (algo.Law, error))

// Law is how a limit counts, by Unix nanoseconds: windows begin at multiples of their length since 1970. The error is an
// *[weir.OptionError].
func Law(l weir.Limit) (algo.Law, error) { return lawOf(l) } //nolint:ireturn // one for each algorithm

//nolint:errcheck,forcetypeassert,gochecknoglobals // as above
var membersOf = inside.Members.(func(limiter any) (members []weir.Acquirer, ok bool))

// Members returns the limiters of a chain, in its order. The slice is a copy. ok is false for all that is no chain.
func Members(limiter any) (members []weir.Acquirer, ok bool) { return membersOf(limiter) }

//nolint:errcheck,forcetypeassert,gochecknoglobals // as above
var madeOf = inside.MadeOf.(func(weir.Limit) *inside.Made)

// Made returns what f makes of a limit, or has made of it before: all calls for a place have the same f. Nothing is remembered
// of an error.
func Made[T any](l weir.Limit, place int, f func(weir.Limit) (*T, error)) (*T, error) {
	at := &madeOf(l)[place]
	if made := at.Load(); made != nil {
		return made.(*T), nil //nolint:errcheck,forcetypeassert // of the same f
	}
	made, err := f(l)
	if err != nil {
		return nil, err
	}
	at.CompareAndSwap(nil, made)
	return at.Load().(*T), nil //nolint:errcheck,forcetypeassert // of the same f
}
