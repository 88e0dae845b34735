package weir

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/inside"
)

// Algorithm is how a [Limit] counts.
type Algorithm uint8

const (
	// AlgorithmTokenBucket is that of a [TokenBucket].
	AlgorithmTokenBucket Algorithm = iota
	// AlgorithmFixedWindow is that of a [FixedWindow].
	AlgorithmFixedWindow
	// AlgorithmSlidingWindow is that of a [SlidingWindow].
	AlgorithmSlidingWindow
	// AlgorithmSlidingCounter is that of a [SlidingCounter].
	AlgorithmSlidingCounter
	// AlgorithmConcurrency is that of [AtOnce].
	AlgorithmConcurrency
	// AlgorithmCalendarWindow is that of a [CalendarWindow].
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

// Limit is what may happen: an algorithm and its parameters. It is a value, made by one constructor for each algorithm:
// [TokenBucket], [FixedWindow], [SlidingWindow], [SlidingCounter], [CalendarWindow], and [AtOnce] for permits that come back when
// they are released. [ParseLimit] reads the text that String writes.
//
// A constructor takes any parameters: those that cannot be used are an error of [Limit.Check], and of [New], [NewKeyed] and all
// others that take a limit. The zero Limit cannot be used. Limits can be compared with ==.
//
// A Limit has the size of a pointer. Those with equal parameters are one for as long as any of them is used, so that what is made
// of a limit is made once in a process.
type Limit struct {
	is *compiled // nil for the zero Limit
}

// parameters are what a limit is made of.
type parameters struct {
	algorithm Algorithm
	segments  int
	rate      Rate
	permits   int64 // 0 for windows of a rate, which have its permits
	calendar  algo.Calendar
}

// compiled is a limit with what packages of this repository have made of it.
type compiled struct {
	parameters

	made inside.Made
}

// Those of the zero Limit, and of all others.
var (
	zeroLimit = new(compiled)
	limits    limitTable
)

// limitTable finds limits by their parameters. One that is not used any more is forgotten.
type limitTable struct {
	lock  sync.RWMutex
	known map[parameters]weak.Pointer[compiled]
	swept int // how many there may be before the next sweep
}

// limit is the limit with these parameters.
func (t *limitTable) limit(p parameters) Limit {
	if p == (parameters{}) {
		return Limit{}
	}
	t.lock.RLock()
	c := t.known[p].Value()
	t.lock.RUnlock()
	if c != nil {
		return Limit{c}
	}
	made := &compiled{parameters: p}
	t.lock.Lock()
	defer t.lock.Unlock()
	if c := t.known[p].Value(); c != nil {
		return Limit{c}
	}
	if len(t.known) >= t.swept { // also before the first
		t.sweep()
	}
	t.known[p] = weak.Make(made)
	return Limit{made}
}

// sweep forgets the limits that are not used any more. It is called once for each doubling of their number, so that a new limit
// costs the looking at two others.
func (t *limitTable) sweep() {
	used := map[parameters]weak.Pointer[compiled]{}
	for p, c := range t.known {
		if c.Value() != nil {
			used[p] = c
		}
	}
	t.known, t.swept = used, max(firstSweep, 2*len(used))
}

// in is the compiled limit.
func (l Limit) in() *compiled {
	if l.is == nil {
		return zeroLimit
	}
	return l.is
}

// TokenBucket is a limit of burst permits that come back evenly at a rate: from 1 to 10^15, such that an empty bucket is full
// again within 18300 days. A burst of 0 stands for the permits of the rate.
//
// It is exact: over any interval t it allows at most burst + rate x t permits, however many goroutines ask at once, and callers
// that keep asking get all of them (TestContention: 64 goroutines at 1 M/s). A permit comes back after exactly 1/rate, fractions
// of a nanosecond included. Only a bucket that holds a single permit loses the rest of the nanosecond in which it comes.
//
// The algorithm is the generic cell rate algorithm (ITU-T I.371), the continuous form of a token bucket.
func TokenBucket(rate Rate, burst int64) Limit {
	if burst == 0 {
		burst = rate.Permits
	}
	return limits.limit(parameters{algorithm: AlgorithmTokenBucket, rate: rate, permits: burst})
}

// FixedWindow is a limit of rate.Permits in each window of the length rate.Period. Windows follow one another without a gap from
// the time at which the limiter was made, however the requests come.
//
// It is the simplest algorithm, and the coarsest: around the border of two windows up to twice the permits are allowed in an
// arbitrarily short time (TestFixedWindowBorder). Where that matters, use a [SlidingWindow] or a [TokenBucket].
func FixedWindow(rate Rate) Limit {
	return limits.limit(parameters{algorithm: AlgorithmFixedWindow, rate: rate})
}

// SlidingWindow is a limit of rate.Permits in a window of the length rate.Period that moves with time, in steps of one segment. A
// permit comes back at most one window after it was taken, when its segment leaves the window. The window is cut into segments,
// from 1 to 64: more are finer, and cost more time and memory. 0 stands for 10.
//
// It never allows more than the permits within the length x (segments-1) / segments, and approaches that for whole windows as
// segments grow finer (TestSlidingWindowBound). So a limit of 10 that must hold in any second has the rate
// Per(10, 1200*time.Millisecond) and 6 segments.
func SlidingWindow(rate Rate, segments int) Limit {
	if segments == 0 {
		segments = defaultSegments
	}
	return limits.limit(parameters{algorithm: AlgorithmSlidingWindow, rate: rate, segments: segments})
}

const defaultSegments = 10

// SlidingCounter is an approximate [SlidingWindow], by two counters: see [algo.SlidingCounter] for what it gets wrong.
func SlidingCounter(rate Rate) Limit {
	return limits.limit(parameters{algorithm: AlgorithmSlidingCounter, rate: rate})
}

// CalendarWindow is a limit of so many permits, from 1 to 10^15, in each window of a calendar, such as [Month]: in each month of
// a zone, however long it is, from its 15th at 08:00, say. RetryAfter and ResetAfter are exact, also where the clocks are
// changed.
//
// Like a [FixedWindow] it allows up to twice the permits in an arbitrarily short time around the border of two windows.
//
// Windows end by the wall clock, which is compared with the process clock once a second and at the end of each window: a
// correction takes effect within a second, for callers that wait as well. One that sets the clock back returns nothing that was
// used in a window that has begun already. See [algo.Window] for corrections by more than a window.
func CalendarWindow(permits int64, c algo.Calendar) Limit {
	return limits.limit(parameters{algorithm: AlgorithmCalendarWindow, permits: permits, calendar: c})
}

// AtOnce is a limit of so many permits at a time, from 1 to 10^15. They come back when they are released, not with time: see
// [Concurrency] and [KeyedConcurrency].
func AtOnce(permits int64) Limit {
	return limits.limit(parameters{algorithm: AlgorithmConcurrency, permits: permits})
}

// Algorithm is how the limit counts.
func (l Limit) Algorithm() Algorithm { return l.in().algorithm }

// Rate is how fast permits come back: of a token bucket evenly, of a window Rate.Permits in each window of the length
// Rate.Period. It is zero for [AtOnce] and [CalendarWindow].
func (l Limit) Rate() Rate { return l.in().rate }

// Permits is how many permits can be taken at once: the burst of a token bucket, the permits of a window, or how many can be out.
func (l Limit) Permits() int64 {
	c := l.in()
	if c.permitsOfRate() {
		return c.rate.Permits
	}
	return c.permits
}

// Segments is into how many segments a [SlidingWindow] is cut, 0 for all others.
func (l Limit) Segments() int { return l.in().segments }

// Calendar says where the windows of a [CalendarWindow] begin. It is zero for all others.
func (l Limit) Calendar() algo.Calendar { return l.in().calendar }

// permitsOfRate reports whether the limit is a window of a rate.
func (p *parameters) permitsOfRate() bool {
	return p.algorithm == AlgorithmFixedWindow || p.algorithm == AlgorithmSlidingWindow || p.algorithm == AlgorithmSlidingCounter
}

// Check returns an *[OptionError] that names the parameter of l that is out of range, or nil.
func (l Limit) Check() error {
	_, err := l.in().law("Limit", 0)
	return err
}

// law checks l, whose name is of in errors. Windows begin at origin, and those of a calendar go by Unix nanoseconds.
func (p *parameters) law(of string, origin int64) (algo.Law, error) { //nolint:ireturn // one for each algorithm
	if p.algorithm >= algorithms {
		return nil, &OptionError{
			of + ".Algorithm", p.algorithm.String(),
			"token-bucket, fixed-window, sliding-window, sliding-counter, concurrency or calendar-window",
		}
	}
	if p.returnsByTime() && p.algorithm != AlgorithmCalendarWindow {
		if err := p.rate.option(of + ".Rate"); err != nil {
			return nil, err
		}
	}
	n, window := p.rate.Permits, p.rate.Period
	switch p.algorithm {
	case AlgorithmTokenBucket:
		a, err := algo.NewTokenBucket(n, window, p.permits)
		return a.Law(), optionError(of, err)
	case AlgorithmFixedWindow:
		a, err := algo.NewFixedWindow(n, window, origin)
		return a.Law(), optionError(of, err)
	case AlgorithmSlidingWindow:
		a, err := p.sliding(of, origin)
		return a.Law(), optionError(of, err)
	case AlgorithmSlidingCounter:
		a, err := algo.NewSlidingCounter(n, window, origin)
		return a.Law(), optionError(of, err)
	case AlgorithmCalendarWindow:
		a, err := p.window(of)
		return a.Law(), err
	default: // AlgorithmConcurrency
		a, err := algo.NewConcurrency(p.permits)
		if err != nil {
			err = &OptionError{of + ".Permits", strconv.FormatInt(p.permits, 10), "from 1 to 10^15"}
		}
		return a.Law(), err
	}
}

// sliding returns the algorithm of a sliding window, whose segments must not be shorter than the clock counts.
func (p *parameters) sliding(of string, origin int64) (a algo.SlidingWindow, err error) {
	if most := int64(p.rate.Period); most < int64(p.segments) && p.segments <= algo.MaxSegments {
		accepted := fmt.Sprintf("from 1 to %d, as a segment is at least 1ns long", most)
		return a, &OptionError{of + ".Segments", strconv.Itoa(p.segments), accepted}
	}
	return algo.NewSlidingWindow(p.rate.Permits, p.rate.Period, p.segments, origin)
}

// returnsByTime reports whether permits come back with time, not when they are released.
func (p *parameters) returnsByTime() bool { return p.algorithm != AlgorithmConcurrency }

// Quota is what the limit promises over a longer time: as many permits as are allowed at once, and the window in which they come
// back: of a token bucket the time in which an empty one regains them, rounded up to a nanosecond. The window is 0 for
// [AtOnce], and for a [CalendarWindow] where windows from now on differ in length, as months do, and days in a
// zone whose clocks are changed. Of a limit that cannot be used the two mean nothing: see [Limit.Check].
func (l Limit) Quota() (permits int64, window time.Duration) {
	c := l.in()
	switch c.algorithm {
	case AlgorithmTokenBucket:
		return c.permits, c.rate.fill(c.permits)
	case AlgorithmConcurrency:
		return c.permits, 0
	case AlgorithmCalendarWindow:
		if c.calendar.Unit > algo.CalendarWeek {
			return c.permits, 0
		}
		return c.permits, c.lengthFrom(time.Now().UnixNano())
	default:
		return c.rate.Permits, c.rate.Period
	}
}

// fill is how long permits take to come back, rounded up, 0 if that is not known.
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

// Day returns the days of a time zone, from midnight, for [CalendarWindow]. A nil zone is UTC. An [algo.Calendar] says more:
// where other units begin, or at another time of day.
func Day(zone *time.Location) algo.Calendar { return algo.Calendar{Unit: algo.CalendarDay, Zone: zone} }

// Week returns the weeks of a time zone, from Monday at midnight, for [CalendarWindow]. See [Day].
func Week(zone *time.Location) algo.Calendar {
	return algo.Calendar{Unit: algo.CalendarWeek, Zone: zone}
}

// Month returns the months of a time zone, from the first at midnight, for [CalendarWindow]. See [Day].
func Month(zone *time.Location) algo.Calendar {
	return algo.Calendar{Unit: algo.CalendarMonth, Zone: zone}
}

// Year returns the years of a time zone, from January 1 at midnight, for [CalendarWindow]. See [Day].
func Year(zone *time.Location) algo.Calendar {
	return algo.Calendar{Unit: algo.CalendarYear, Zone: zone}
}

// window is the algorithm of a calendar window, whose name is of in errors.
func (p *parameters) window(of string) (algo.Window, error) {
	w, err := algo.NewCalendarWindow(p.permits, p.calendar)
	if wrong, ok := errors.AsType[*algo.ParameterError](err); ok {
		option := "Permits"
		if field, named := strings.CutPrefix(wrong.Parameter, "calendar."); named {
			option = "Calendar." + field
		}
		return w, &OptionError{of + "." + option, wrong.Value, wrong.Accepted}
	}
	return w, err
}

// byWall is the law of a calendar window that has been checked, at times of the process clock.
func (p *parameters) byWall(law algo.Law) *wallLaw {
	w, _ := p.window("")
	return &wallLaw{law, w, new(wallClock)}
}

// lengthFrom is how long all windows of a calendar from a time on are, 0 if they differ or it cannot be used.
func (p *parameters) lengthFrom(now int64) time.Duration {
	w, err := p.window("")
	if err != nil {
		return 0
	}
	return w.Length(now)
}

// byRelease is the error of a constructor of limiters whose permits come back with time.
func byRelease(option string, limit Limit) error {
	accepted := "one whose permits come back with time: use NewConcurrency or NewKeyedConcurrency"
	return &OptionError{option, limit.String(), accepted}
}
