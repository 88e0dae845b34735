package weir

import (
	"github.com/weirhq/weir/algo"
)

// packed applies an algorithm to a state that is kept in some words of a table.
type packed interface { //nolint:interfacebloat // what a key needs of an algorithm
	// words is how many words a state takes.
	words() int
	// law is the algorithm.
	law() any
	// begin makes the words the state of a key that has never been seen; returned is that of a bucket.
	begin(state []uint64, now, returned int64)
	take(state []uint64, now, n int64) algo.Result
	peek(state []uint64, now, n int64) algo.Result
	refund(state []uint64, now, n int64)
	cancel(state []uint64, now, n int64, m algo.Mark)
	// cancelAcross is cancel of permits that were taken from old, and carried to this since.
	cancelAcross(state []uint64, now, n int64, m algo.Mark, old packed)
	charge(state []uint64, now, n, maxDebt int64) int64
	freshAt(state []uint64) int64
	// carry makes a state of old, which has the same algorithm and the same number of words, one of this.
	carry(old packed, state []uint64, now int64)
	// meter answers a meter with the state.
	meter(state []uint64, now int64) meter
	// keep is the inverse of meter.
	keep(m meter, state []uint64)
	// carryMeter is carry for a meter.
	carryMeter(old packed, m meter, now int64) meter
}

// packing is how a state is packed into words, and carried from one limit to another.
type packing[S any, A algo.Algorithm[S]] interface {
	words() int
	unpack(state []uint64, now int64) S
	pack(state []uint64, s S)
	begun(now, returned int64) S
	carried(a, old A, s S, now int64) S
	// across answers the state after the cancellation of n permits that were taken from old.
	across(a, old A, s S, now, n int64, m algo.Mark) S
	metered(a A, s S) meter
	state(m meter) S
}

var (
	_ packing[algo.TokenBucketState, algo.TokenBucket]       = bucketWords{}
	_ packing[algo.TokenBucketState, algo.TokenBucket]       = bucketUnits{}
	_ packing[algo.FixedWindowState, algo.FixedWindow]       = fixedWords{}
	_ packing[algo.SlidingWindowState, algo.SlidingWindow]   = slidingWords{}
	_ packing[algo.SlidingCounterState, algo.SlidingCounter] = counterWords{}
	_ packing[algo.ConcurrencyState, algo.Concurrency]       = inUseWord{}
	_ packing[algo.CalendarWindowState, wallWindow]          = calendarWords{}
)

// packedAs implements packed.
type packedAs[S any, A algo.Algorithm[S], P packing[S, A]] struct {
	algorithm A
	packing   P
}

func (p *packedAs[S, A, P]) words() int { return p.packing.words() }

func (p *packedAs[S, A, P]) law() any { return &p.algorithm } // a pointer, as it would be copied to the heap otherwise

func (p *packedAs[S, A, P]) begin(state []uint64, now, returned int64) {
	p.packing.pack(state, p.packing.begun(now, returned))
}

func (p *packedAs[S, A, P]) take(state []uint64, now, n int64) algo.Result {
	if n == 0 {
		return p.peek(state, now, 0)
	}
	s, r := p.algorithm.Take(p.packing.unpack(state, now), now, n)
	if r.Allowed {
		p.packing.pack(state, s)
	}
	return r
}

func (p *packedAs[S, A, P]) peek(state []uint64, now, n int64) algo.Result {
	return p.algorithm.Peek(p.packing.unpack(state, now), now, n)
}

func (p *packedAs[S, A, P]) refund(state []uint64, now, n int64) {
	p.packing.pack(state, p.algorithm.Refund(p.packing.unpack(state, now), now, n))
}

func (p *packedAs[S, A, P]) cancel(state []uint64, now, n int64, m algo.Mark) {
	p.packing.pack(state, p.algorithm.Cancel(p.packing.unpack(state, now), now, n, m))
}

func (p *packedAs[S, A, P]) cancelAcross(state []uint64, now, n int64, m algo.Mark, old packed) {
	p.packing.pack(state, p.packing.across(p.algorithm, lawOf[A](old), p.packing.unpack(state, now), now, n, m))
}

func (p *packedAs[S, A, P]) charge(state []uint64, now, n, maxDebt int64) int64 {
	s, charged := p.algorithm.Charge(p.packing.unpack(state, now), now, n, maxDebt)
	p.packing.pack(state, s)
	return charged
}

func (p *packedAs[S, A, P]) freshAt(state []uint64) int64 {
	return p.algorithm.FreshAt(p.packing.unpack(state, beforeAll))
}

func (p *packedAs[S, A, P]) carry(old packed, state []uint64, now int64) {
	p.packing.pack(state, p.packing.carried(p.algorithm, lawOf[A](old), p.packing.unpack(state, now), now))
}

func (p *packedAs[S, A, P]) meter(state []uint64, now int64) meter { //nolint:ireturn // meters differ
	return p.packing.metered(p.algorithm, p.packing.unpack(state, now))
}

func (p *packedAs[S, A, P]) keep(m meter, state []uint64) {
	p.packing.pack(state, p.packing.state(m))
}

func (p *packedAs[S, A, P]) carryMeter(old packed, m meter, now int64) meter { //nolint:ireturn // meters differ
	return p.packing.metered(p.algorithm, p.packing.carried(p.algorithm, lawOf[A](old), p.packing.state(m), now))
}

// lawOf is the algorithm of another state of the same Keyed, whose keys all have the same.
func lawOf[A any](p packed) A { return *p.law().(*A) } //nolint:errcheck,forcetypeassert // see above

// beforeAll is a time before any that a clock shows.
const beforeAll = -1 << 62

// bucketWords is a token bucket in three words: the time at which it is full in nanoseconds, the part of one, and what the
// state's Returned is.
type bucketWords struct{}

type packedBucket = packedAs[algo.TokenBucketState, algo.TokenBucket, bucketWords]

func (bucketWords) words() int { return 3 }

func (bucketWords) unpack(state []uint64, now int64) algo.TokenBucketState {
	return bucketState(int64(state[0]), int64(state[1]), int64(state[2]), now)
}

func bucketState(fullAt, part, returned, now int64) algo.TokenBucketState {
	s := algo.TokenBucketState{Last: now, Returned: returned}
	if ahead := fullAt - now; ahead >= 0 {
		s.Ahead, s.Part = ahead, part
	}
	return s
}

func (bucketWords) pack(state []uint64, s algo.TokenBucketState) {
	state[0], state[1], state[2] = uint64(s.Last+s.Ahead), uint64(s.Part), uint64(s.Returned)
}

func (bucketWords) begun(now, returned int64) algo.TokenBucketState {
	return algo.TokenBucketState{Last: now, Returned: returned}
}

func (bucketWords) carried(a, old algo.TokenBucket, s algo.TokenBucketState, now int64) algo.TokenBucketState {
	return a.Carry(old, old.Drop(s), now)
}

func (bucketWords) across(a, old algo.TokenBucket, s algo.TokenBucketState, now, n int64, m algo.Mark) algo.TokenBucketState {
	return a.CancelAcross(old, s, now, n, m)
}

func (bucketWords) metered(a algo.TokenBucket, s algo.TokenBucketState) meter { //nolint:ireturn // meters differ
	return &metered[algo.TokenBucketState, algo.TokenBucket]{algorithm: a, state: s}
}

func (bucketWords) state(m meter) algo.TokenBucketState {
	return m.(*metered[algo.TokenBucketState, algo.TokenBucket]).state //nolint:errcheck,forcetypeassert // it made the meter
}

// bucketUnits is a token bucket in two words, for rates of few permits in lowest terms: the time at which it is full in
// units of 1/num nanosecond, and what the state's Returned is.
type bucketUnits struct {
	bucketWords

	num int64
}

type packedUnits = packedAs[algo.TokenBucketState, algo.TokenBucket, bucketUnits]

// mostUnits is the largest num of bucketUnits: times reach 36 years.
const mostUnits = 8

func (bucketUnits) words() int { return 2 }

func (p bucketUnits) unpack(state []uint64, now int64) algo.TokenBucketState {
	at, part := int64(state[0]), int64(0)
	if p.num > 1 {
		at, part = at/p.num, at%p.num
		if part < 0 {
			at, part = at-1, part+p.num
		}
	}
	return bucketState(at, part, int64(state[1]), now)
}

func (p bucketUnits) pack(state []uint64, s algo.TokenBucketState) {
	state[0], state[1] = uint64((s.Last+s.Ahead)*p.num+s.Part), uint64(s.Returned)
}

// fixedWords is a fixed window in three words.
type fixedWords struct{}

type packedFixed = packedAs[algo.FixedWindowState, algo.FixedWindow, fixedWords]

func (fixedWords) words() int { return 3 }

func (fixedWords) unpack(state []uint64, _ int64) algo.FixedWindowState {
	return algo.FixedWindowState{Window: int64(state[0]), Used: int64(state[1]), Excess: int64(state[2])}
}

func (fixedWords) pack(state []uint64, s algo.FixedWindowState) {
	state[0], state[1], state[2] = uint64(s.Window), uint64(s.Used), uint64(s.Excess)
}

func (fixedWords) begun(_, _ int64) algo.FixedWindowState { return algo.FixedWindowState{} }

func (fixedWords) carried(a, old algo.FixedWindow, s algo.FixedWindowState, now int64) algo.FixedWindowState {
	return a.Carry(old, s, now)
}

func (fixedWords) across(
	a, old algo.FixedWindow, s algo.FixedWindowState, now, n int64, m algo.Mark,
) algo.FixedWindowState {
	if !a.SameWindows(old) {
		return s
	}
	return a.Cancel(s, now, n, m)
}

func (fixedWords) metered(a algo.FixedWindow, s algo.FixedWindowState) meter { //nolint:ireturn // meters differ
	return &metered[algo.FixedWindowState, algo.FixedWindow]{algorithm: a, state: s}
}

func (fixedWords) state(m meter) algo.FixedWindowState {
	return m.(*metered[algo.FixedWindowState, algo.FixedWindow]).state //nolint:errcheck,forcetypeassert // it made the meter
}

// slidingWords is a sliding window in one word and one for each segment.
type slidingWords struct{ segments int }

type packedSliding = packedAs[algo.SlidingWindowState, algo.SlidingWindow, slidingWords]

func (p slidingWords) words() int { return 1 + p.segments }

func (p slidingWords) unpack(state []uint64, _ int64) (s algo.SlidingWindowState) {
	s.Segment = int64(state[0])
	for i, used := range state[1 : 1+p.segments] {
		s.Used[i] = int64(used)
		s.Total += int64(used)
	}
	return s
}

func (p slidingWords) pack(state []uint64, s algo.SlidingWindowState) {
	state[0] = uint64(s.Segment)
	for i := range state[1 : 1+p.segments] {
		state[1+i] = uint64(s.Used[i])
	}
}

func (slidingWords) begun(_, _ int64) (s algo.SlidingWindowState) { return s }

func (slidingWords) carried(a, old algo.SlidingWindow, s algo.SlidingWindowState, now int64) algo.SlidingWindowState {
	return a.Carry(old, s, now)
}

func (slidingWords) across(
	a, old algo.SlidingWindow, s algo.SlidingWindowState, now, n int64, m algo.Mark,
) algo.SlidingWindowState {
	if !a.SameWindows(old) {
		return s
	}
	return a.Cancel(s, now, n, m)
}

func (slidingWords) metered(a algo.SlidingWindow, s algo.SlidingWindowState) meter { //nolint:ireturn // meters differ
	return &slidingMeter{metered[algo.SlidingWindowState, algo.SlidingWindow]{algorithm: a, state: s}}
}

func (slidingWords) state(m meter) algo.SlidingWindowState {
	return m.(*slidingMeter).state //nolint:errcheck,forcetypeassert // it made the meter
}

// counterWords is a sliding counter in three words.
type counterWords struct{}

type packedCounter = packedAs[algo.SlidingCounterState, algo.SlidingCounter, counterWords]

func (counterWords) words() int { return 3 }

func (counterWords) unpack(state []uint64, _ int64) algo.SlidingCounterState {
	return algo.SlidingCounterState{Window: int64(state[0]), Cur: int64(state[1]), Prev: int64(state[2])}
}

func (counterWords) pack(state []uint64, s algo.SlidingCounterState) {
	state[0], state[1], state[2] = uint64(s.Window), uint64(s.Cur), uint64(s.Prev)
}

func (counterWords) begun(_, _ int64) algo.SlidingCounterState { return algo.SlidingCounterState{} }

func (counterWords) carried(a, old algo.SlidingCounter, s algo.SlidingCounterState, now int64) algo.SlidingCounterState {
	return a.Carry(old, s, now)
}

func (counterWords) across(
	a, old algo.SlidingCounter, s algo.SlidingCounterState, now, n int64, m algo.Mark,
) algo.SlidingCounterState {
	if !a.SameWindows(old) {
		return s
	}
	return a.Cancel(s, now, n, m)
}

func (counterWords) metered(a algo.SlidingCounter, s algo.SlidingCounterState) meter { //nolint:ireturn // meters differ
	return &counterMeter{metered[algo.SlidingCounterState, algo.SlidingCounter]{algorithm: a, state: s}}
}

func (counterWords) state(m meter) algo.SlidingCounterState {
	return m.(*counterMeter).state //nolint:errcheck,forcetypeassert // it made the meter
}

// inUseWord is the permits that are out in one word.
type inUseWord struct{}

type packedInUse = packedAs[algo.ConcurrencyState, algo.Concurrency, inUseWord]

func (inUseWord) words() int { return 1 }

func (inUseWord) unpack(state []uint64, _ int64) algo.ConcurrencyState {
	return algo.ConcurrencyState{InUse: int64(state[0])}
}

func (inUseWord) pack(state []uint64, s algo.ConcurrencyState) { state[0] = uint64(s.InUse) }

func (inUseWord) begun(_, _ int64) algo.ConcurrencyState { return algo.ConcurrencyState{} }

func (inUseWord) carried(_, _ algo.Concurrency, s algo.ConcurrencyState, _ int64) algo.ConcurrencyState {
	return s
}

func (inUseWord) across(a, _ algo.Concurrency, s algo.ConcurrencyState, now, n int64, m algo.Mark) algo.ConcurrencyState {
	return a.Cancel(s, now, n, m)
}

func (inUseWord) metered(a algo.Concurrency, s algo.ConcurrencyState) meter { //nolint:ireturn // meters differ
	return &metered[algo.ConcurrencyState, algo.Concurrency]{algorithm: a, state: s}
}

func (inUseWord) state(m meter) algo.ConcurrencyState {
	return m.(*metered[algo.ConcurrencyState, algo.Concurrency]).state //nolint:errcheck,forcetypeassert // it made the meter
}

// calendarWords is a calendar window in three words.
type calendarWords struct{}

// packedCalendar keeps states also when a refusal has taken them to an earlier window: see algo.CalendarWindow.
type packedCalendar struct {
	packedAs[algo.CalendarWindowState, wallWindow, calendarWords]
}

func (p *packedCalendar) take(state []uint64, now, n int64) algo.Result {
	if n == 0 {
		return p.peek(state, now, 0)
	}
	s := p.packing.unpack(state, now)
	x, r := p.algorithm.Take(s, now, n)
	if r.Allowed || x.Start < s.Start {
		p.packing.pack(state, x)
	}
	return r
}

func (calendarWords) words() int { return 3 }

func (calendarWords) unpack(state []uint64, _ int64) algo.CalendarWindowState {
	return algo.CalendarWindowState{Start: int64(state[0]), Used: int64(state[1]), Excess: int64(state[2])}
}

func (calendarWords) pack(state []uint64, s algo.CalendarWindowState) {
	state[0], state[1], state[2] = uint64(s.Start), uint64(s.Used), uint64(s.Excess)
}

func (calendarWords) begun(_, _ int64) algo.CalendarWindowState { return algo.CalendarWindowState{} }

func (calendarWords) carried(a, old wallWindow, s algo.CalendarWindowState, now int64) algo.CalendarWindowState {
	return a.Carry(old.CalendarWindow, s, a.unix(now))
}

func (calendarWords) across(
	a, old wallWindow, s algo.CalendarWindowState, now, n int64, m algo.Mark,
) algo.CalendarWindowState {
	if !a.SameWindows(old.CalendarWindow) {
		return s
	}
	return a.Cancel(s, now, n, m)
}

func (calendarWords) metered(a wallWindow, s algo.CalendarWindowState) meter { //nolint:ireturn // meters differ
	return &calendarMeter{metered[algo.CalendarWindowState, wallWindow]{algorithm: a, state: s}}
}

func (calendarWords) state(m meter) algo.CalendarWindowState {
	return m.(*calendarMeter).state //nolint:errcheck,forcetypeassert // it made the meter
}
