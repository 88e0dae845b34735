package weir

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/algo"
)

// Algorithm is how a [Limit] counts.
type Algorithm uint8

const (
	// AlgorithmTokenBucket counts like a [TokenBucket].
	AlgorithmTokenBucket Algorithm = iota
	// AlgorithmFixedWindow counts like a [FixedWindow].
	AlgorithmFixedWindow
	// AlgorithmSlidingWindow counts like a [SlidingWindow], in segments.
	AlgorithmSlidingWindow
	// AlgorithmSlidingCounter counts like a [SlidingWindow] that is approximate, by two counters.
	AlgorithmSlidingCounter
	// AlgorithmConcurrency counts like a [Concurrency].
	AlgorithmConcurrency
	// AlgorithmCalendarWindow counts like a [CalendarWindow].
	AlgorithmCalendarWindow

	algorithms
)

var algorithmNames = [algorithms]string{
	"token-bucket", "fixed-window", "sliding-window", "sliding-counter", "concurrency",
	"calendar-window",
}

// String is the name of the algorithm in lower case, such as "token-bucket".
func (a Algorithm) String() string {
	if a < algorithms {
		return algorithmNames[a]
	}
	return fmt.Sprintf("Algorithm(%d)", uint8(a))
}

// MarshalText is String.
func (a Algorithm) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (a *Algorithm) UnmarshalText(text []byte) error {
	for i, name := range algorithmNames {
		if name == string(text) {
			*a = Algorithm(i)
			return nil
		}
	}
	return fmt.Errorf("weir: unknown algorithm %.40q: must be one of %q", text, algorithmNames)
}

// Limit is an algorithm and its parameters: what a key of a [Keyed] is held to. Limits can be compared with ==.
type Limit struct {
	// Algorithm is how permits are counted. Default: AlgorithmTokenBucket.
	Algorithm Algorithm
	// Rate is how fast permits come back: of a token bucket evenly, of the windows Rate.Permits in each window of the
	// length Rate.Period. Required, except for AlgorithmConcurrency and AlgorithmCalendarWindow, where it must be zero.
	Rate Rate
	// Burst is how many permits a token bucket holds, how many can be out at a time with AlgorithmConcurrency, or how many each
	// window of AlgorithmCalendarWindow has: from 1 to 10^15. Default: the permits of Rate. With the other windows, which
	// hold the permits of Rate, it must be 0.
	Burst int64
	// Segments is into how many segments a sliding window is cut: from 1 to 64. Default: 10. With other algorithms it must
	// be 0.
	Segments int
	// Calendar says where the windows of AlgorithmCalendarWindow begin. With other algorithms it must be zero.
	Calendar Calendar
}

// Check returns an error that says what is wrong with l, or nil.
func (l Limit) Check() error {
	_, err := l.compile("Limit", 0, true)
	return err
}

// String is the limit in words: "10/s, burst 20", "fixed-window 100/min", "1000000 per month from day 15, Europe/Vienna".
func (l Limit) String() string {
	switch l.Algorithm {
	case AlgorithmTokenBucket:
		return fmt.Sprintf("%v, burst %d", l.Rate, l.permits())
	case AlgorithmSlidingWindow:
		return fmt.Sprintf("%v %v in %d segments", l.Algorithm, l.Rate, l.segments())
	case AlgorithmConcurrency:
		return fmt.Sprintf("%v %d", l.Algorithm, l.Burst)
	case AlgorithmFixedWindow, AlgorithmSlidingCounter:
		return fmt.Sprintf("%v %v", l.Algorithm, l.Rate)
	case AlgorithmCalendarWindow:
		return fmt.Sprintf("%d per %v", l.Burst, l.Calendar)
	default:
		return l.Algorithm.String()
	}
}

// permits is the most permits that can be granted at once.
func (l Limit) permits() int64 {
	if l.Burst != 0 {
		return l.Burst
	}
	return l.Rate.Permits
}

func (l Limit) segments() int {
	if l.Segments == 0 {
		return defaultSegments
	}
	return l.Segments
}

// compile checks l, whose name is of in errors. Windows begin at origin.
// Buckets take two words where they can if they may be narrow.
func (l Limit) compile(of string, origin int64, narrow bool) (*terms, error) {
	if l.Algorithm >= algorithms {
		return nil, &OptionError{
			of + ".Algorithm", l.Algorithm.String(),
			"token-bucket, fixed-window, sliding-window, sliding-counter, concurrency or calendar-window",
		}
	}
	if err := l.checkRate(of + ".Rate"); err != nil {
		return nil, err
	}
	if l.Segments != 0 && l.Algorithm != AlgorithmSlidingWindow {
		return nil, &OptionError{of + ".Segments", fmt.Sprint(l.Segments), "0 with " + l.Algorithm.String()}
	}
	if l.Calendar != (Calendar{}) && l.Algorithm != AlgorithmCalendarWindow {
		return nil, &OptionError{of + ".Calendar", l.Calendar.String(), "zero with " + l.Algorithm.String()}
	}
	if l.Burst != 0 && l.Rate != (Rate{}) && l.Algorithm != AlgorithmTokenBucket {
		return nil, &OptionError{
			of + ".Burst", fmt.Sprint(l.Burst), "0 with " + l.Algorithm.String() + ", which holds the permits of Rate",
		}
	}
	var err error
	t := &terms{limit: l, permits: l.permits(), refill: l.Rate.Period}
	n, window := l.Rate.Permits, l.Rate.Period
	switch l.Algorithm {
	case AlgorithmTokenBucket:
		if t.bucket, err = algo.NewTokenBucket(n, window, t.permits); err == nil {
			t.refill = t.bucket.FillTime()
			t.packed = packBucket(t.bucket, narrow)
			t.wide.init(t)
		}
	case AlgorithmFixedWindow:
		p := new(packedFixed)
		p.algorithm, err = algo.NewFixedWindow(n, window, origin)
		t.packed = p
	case AlgorithmSlidingWindow:
		p := &packedSliding{packing: slidingWords{l.segments()}}
		p.algorithm, err = algo.NewSlidingWindow(n, window, l.segments(), origin)
		t.packed = p
	case AlgorithmSlidingCounter:
		p := new(packedCounter)
		p.algorithm, err = algo.NewSlidingCounter(n, window, origin)
		t.packed, t.refill = p, 2*window
	case AlgorithmCalendarWindow:
		p := new(packedCalendar)
		if p.algorithm, err = newCalendarWindow(of, "Burst", l.Burst, l.Calendar, false); err != nil {
			return nil, err
		}
		t.packed, t.refill = p, p.algorithm.Length(time.Now().UnixNano())
	default: // AlgorithmConcurrency
		p := new(packedInUse)
		if p.algorithm, err = algo.NewConcurrency(l.Burst); err != nil {
			return nil, &OptionError{of + ".Burst", fmt.Sprint(l.Burst), "from 1 to 10^15"}
		}
		t.packed = p
	}
	if err != nil {
		return nil, optionError(of, err)
	}
	return t, nil
}

// checkRate checks the rate, whose name is option in errors.
func (l Limit) checkRate(option string) error {
	var accepted string
	switch l.Algorithm {
	case AlgorithmConcurrency:
		accepted = "zero with concurrency, where permits come back when they are released"
	case AlgorithmCalendarWindow:
		accepted = "zero with calendar-window, where Burst permits come back when a window of Calendar begins"
	default:
		return l.Rate.option(option)
	}
	if l.Rate != (Rate{}) {
		return &OptionError{option, l.Rate.String(), accepted}
	}
	return nil
}

// packBucket packs the states of a bucket, into two words if it can and may.
func packBucket(b algo.TokenBucket, narrow bool) packed { //nolint:ireturn // one of two
	if num, _ := b.Rate(); narrow && num <= mostUnits {
		return &packedUnits{b, bucketUnits{num: num}}
	}
	return &packedBucket{algorithm: b}
}

// terms are a limit that has been checked.
type terms struct {
	limit   Limit
	permits int64
	refill  time.Duration // in which all permits come back
	packed  packed
	bucket  algo.TokenBucket
	wide    wideBucket
	most    int64 // nanoseconds that a bucket can lack; 0 for all others

	tag   uint16       // under which keys refer to it
	users atomic.Int64 // how many keys do; negative once the tag may be given to others
	next  atomic.Pointer[succession]
	idle  *atomic.Int64
}

// follow has windows of a calendar go by a clock that was given, and shows now.
func (t *terms) follow(now int64) {
	if p, ok := t.packed.(*packedCalendar); ok {
		p.algorithm.wall = nil
		t.refill = p.algorithm.Length(now)
	}
}
