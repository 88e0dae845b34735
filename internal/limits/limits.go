// Package limits makes limits of their parts, for readers of files and of bytes.
package limits

import (
	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
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
