package store

import (
	"math"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// law applies the algorithm of a limit to a state that is kept in words. Word 0 is the place of the state in time: a time, or
// the number or the beginning of a window.
type law interface { //nolint:interfacebloat // what a record needs of an algorithm
	words() int
	// take changes the state only if n > 0 permits are granted.
	take(state []int64, now, n int64) algo.Result
	peek(state []int64, now, n int64) algo.Result
	refund(state []int64, now, n int64)
	cancel(state []int64, now, n int64, m mark)
	charge(state []int64, now, n, maxDebt int64) int64
	fresh(state []int64, now int64) bool
	freshAt(state []int64) int64
	// mark is that of the permits which were the last to be taken.
	mark(state []int64) mark
	// markAt is a mark of permits that were taken at a time; of a bucket it says nothing.
	markAt(t int64) mark
	// regained is when everything has come back that was taken until a time, debts aside.
	regained(t int64) int64
	// carry answers a state of old, which has the same algorithm, as one of this; mapped is what becomes of marks.
	carry(old law, state []int64, now int64) (carried []int64, mapped marks)
	// valid reports whether the words can be a state.
	valid(state []int64) bool
}

// mark is an [algo.Mark] that can be written down.
type mark struct{ at, part, taken int64 }

// marks is what becomes of marks when a state is carried to another limit.
type marks struct {
	kind marksKind
	// from and to are places in time: of marksCounted those from which on permits still counted, and where they count now.
	from, to int64
}

type marksKind uint8

const (
	marksKept    marksKind = iota // they are good as they are
	marksCounted                  // those from a place on are good at another place, others are worthless
	marksAcross                   // those of a bucket whose rate has changed
)

// form is how a state is kept in words, and what an algorithm says of another one of its kind.
type form[S any, A algo.Algorithm[S]] struct {
	load    func(words []int64) S
	save    func(words []int64, s S)
	mark    func(s S) mark
	carry   func(a, old A, s S, now int64) S
	same    func(a, old A) marksKind
	counted func(words []int64) int64 // from which place on permits count in the state
	valid   func(words []int64) bool
}

// lawOf implements law.
type lawOf[S any, A algo.Algorithm[S]] struct {
	algorithm A
	count     int
	form      *form[S, A]
}

func (l *lawOf[S, A]) words() int { return l.count }

func (l *lawOf[S, A]) take(state []int64, now, n int64) algo.Result {
	s, r := l.algorithm.Take(l.form.load(state), now, n)
	if r.Allowed && n > 0 {
		l.form.save(state, s)
	}
	return r
}

func (l *lawOf[S, A]) peek(state []int64, now, n int64) algo.Result {
	return l.algorithm.Peek(l.form.load(state), now, n)
}

func (l *lawOf[S, A]) refund(state []int64, now, n int64) {
	l.form.save(state, l.algorithm.Refund(l.form.load(state), now, n))
}

func (l *lawOf[S, A]) cancel(state []int64, now, n int64, m mark) {
	l.form.save(state, l.algorithm.Cancel(l.form.load(state), now, n, m.algo()))
}

func (l *lawOf[S, A]) charge(state []int64, now, n, maxDebt int64) int64 {
	s, charged := l.algorithm.Charge(l.form.load(state), now, n, maxDebt)
	l.form.save(state, s)
	return charged
}

func (l *lawOf[S, A]) fresh(state []int64, now int64) bool {
	return l.algorithm.Fresh(l.form.load(state), now)
}

func (l *lawOf[S, A]) freshAt(state []int64) int64 { return l.algorithm.FreshAt(l.form.load(state)) }

func (l *lawOf[S, A]) mark(state []int64) mark { return l.form.mark(l.form.load(state)) }

func (l *lawOf[S, A]) markAt(t int64) mark {
	var zero S
	s, _ := l.algorithm.Take(zero, t, 1)
	return l.form.mark(s)
}

func (l *lawOf[S, A]) regained(t int64) int64 {
	var zero S
	s, _ := l.algorithm.Take(zero, t, l.algorithm.Limit())
	return l.algorithm.FreshAt(s)
}

func (l *lawOf[S, A]) valid(state []int64) bool { return l.form.valid(state) }

func (l *lawOf[S, A]) carry(old law, state []int64, now int64) (carried []int64, mapped marks) {
	from := old.(*lawOf[S, A]) //nolint:errcheck,forcetypeassert // the algorithm is the same
	if mapped.kind = l.form.same(l.algorithm, from.algorithm); mapped.kind == marksCounted {
		from.refund(state, now, 0) // moves it to now
		mapped.from = from.form.counted(state)
	}
	carried = make([]int64, l.count)
	l.form.save(carried, l.form.carry(l.algorithm, from.algorithm, from.form.load(state), now))
	mapped.to = carried[0]
	return carried, mapped
}

// algo is the mark as the algorithms know it.
func (m mark) algo() algo.Mark {
	return algo.TokenBucketState{Last: m.taken, Ahead: m.at - m.taken, Part: m.part}.Mark()
}

// place is the word in which a state says where in time it is, which is that of the permits just taken.
func place(words []int64) int64 { return words[0] }

func atPlace(at int64) mark { return mark{at: at} }

func keptIf(same bool) marksKind {
	if same {
		return marksKept
	}
	return marksCounted
}

var bucketForm = form[algo.TokenBucketState, algo.TokenBucket]{
	load: func(w []int64) algo.TokenBucketState {
		return algo.TokenBucketState{Last: w[0], Ahead: w[1], Part: w[2], Returned: w[3]}
	},
	save: func(w []int64, s algo.TokenBucketState) { w[0], w[1], w[2], w[3] = s.Last, s.Ahead, s.Part, s.Returned },
	mark: func(s algo.TokenBucketState) mark {
		return mark{s.Last + s.Ahead + s.Returned, s.Part, s.Last}
	},
	carry: func(a, old algo.TokenBucket, s algo.TokenBucketState, now int64) algo.TokenBucketState {
		return a.Carry(old, old.Drop(s), now)
	},
	same: func(_, _ algo.TokenBucket) marksKind { return marksAcross },
}

// validBucket reports whether the words can be a state of the bucket.
func validBucket(b algo.TokenBucket) func(w []int64) bool {
	num, _ := b.Rate()
	// What is missing to full, debt included, never takes longer than twice the longest time of filling.
	return func(w []int64) bool {
		return validTime(w[0]) && w[1] >= 0 && w[1] <= 2*int64(algo.MaxFill) && w[2] >= 0 && w[2] < num
	}
}

var fixedForm = form[algo.FixedWindowState, algo.FixedWindow]{
	load: func(w []int64) algo.FixedWindowState {
		return algo.FixedWindowState{Window: w[0], Used: w[1], Excess: w[2]}
	},
	save:    func(w []int64, s algo.FixedWindowState) { w[0], w[1], w[2] = s.Window, s.Used, s.Excess },
	mark:    func(s algo.FixedWindowState) mark { return atPlace(s.Window) },
	carry:   algo.FixedWindow.Carry,
	same:    func(a, old algo.FixedWindow) marksKind { return keptIf(a.SameWindows(old)) },
	counted: place,
	valid:   validWindow,
}

func validWindow(w []int64) bool { return validTime(w[0]) && validPermits(w[1]) && validPermits(w[2]) }

var slidingForm = form[algo.SlidingWindowState, algo.SlidingWindow]{
	load: func(w []int64) (s algo.SlidingWindowState) {
		s.Segment = w[0]
		for i, used := range w[1:] {
			s.Used[i] = used
			s.Total += used
		}
		return s
	},
	save: func(w []int64, s algo.SlidingWindowState) {
		w[0] = s.Segment
		copy(w[1:], s.Used[:])
	},
	mark:    func(s algo.SlidingWindowState) mark { return atPlace(s.Segment) },
	carry:   algo.SlidingWindow.Carry,
	same:    func(a, old algo.SlidingWindow) marksKind { return keptIf(a.SameWindows(old)) },
	counted: func(w []int64) int64 { return w[0] - int64(len(w)-2) },
	valid: func(w []int64) bool {
		total := int64(0)
		for _, used := range w[1:] {
			if !validPermits(used) {
				return false
			}
			total += used
		}
		return validTime(w[0]) && validPermits(total)
	},
}

var counterForm = form[algo.SlidingCounterState, algo.SlidingCounter]{
	load: func(w []int64) algo.SlidingCounterState {
		return algo.SlidingCounterState{Window: w[0], Cur: w[1], Prev: w[2]}
	},
	save:    func(w []int64, s algo.SlidingCounterState) { w[0], w[1], w[2] = s.Window, s.Cur, s.Prev },
	mark:    func(s algo.SlidingCounterState) mark { return atPlace(s.Window) },
	carry:   algo.SlidingCounter.Carry,
	same:    func(a, old algo.SlidingCounter) marksKind { return keptIf(a.SameWindows(old)) },
	counted: place,
	valid:   validWindow,
}

var inUseForm = form[algo.ConcurrencyState, algo.Concurrency]{
	load:  func(w []int64) algo.ConcurrencyState { return algo.ConcurrencyState{InUse: w[0]} },
	save:  func(w []int64, s algo.ConcurrencyState) { w[0] = s.InUse },
	mark:  func(algo.ConcurrencyState) mark { return mark{} },
	carry: func(_, _ algo.Concurrency, s algo.ConcurrencyState, _ int64) algo.ConcurrencyState { return s },
	same:  func(_, _ algo.Concurrency) marksKind { return marksKept },
	valid: func(w []int64) bool { return validPermits(w[0]) },
}

var calendarForm = form[algo.CalendarWindowState, algo.CalendarWindow]{
	load: func(w []int64) algo.CalendarWindowState {
		return algo.CalendarWindowState{Start: w[0], Used: w[1], Excess: w[2]}
	},
	save:    func(w []int64, s algo.CalendarWindowState) { w[0], w[1], w[2] = s.Start, s.Used, s.Excess },
	mark:    func(s algo.CalendarWindowState) mark { return atPlace(s.Start) },
	carry:   algo.CalendarWindow.Carry,
	same:    func(a, old algo.CalendarWindow) marksKind { return keptIf(a.SameWindows(old)) },
	counted: place,
	valid: func(w []int64) bool { // a window may begin at the ends of the range
		return validPermits(w[1]) && validPermits(w[2])
	},
}

// validTime reports whether a time, or the number of a window, is one that a clock may show.
func validTime(t int64) bool { return -latest <= t && t <= latest }

// validPermits reports whether a count of permits is one that a limit can reach, debt included.
func validPermits(n int64) bool { return n >= 0 && n <= 1<<52 }

// newLaw is the law of a checked limit, whose defaults are filled in. Windows begin at multiples of their length since 1970.
func newLaw(l weir.Limit) (law, error) { //nolint:ireturn // one for each algorithm
	n, window := l.Rate().Permits, l.Rate().Period
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		a, err := algo.NewTokenBucket(n, window, l.Permits())
		f := bucketForm
		f.valid = validBucket(a)
		return &lawOf[algo.TokenBucketState, algo.TokenBucket]{a, 4, &f}, err
	case weir.AlgorithmFixedWindow:
		a, err := algo.NewFixedWindow(n, window, 0)
		return &lawOf[algo.FixedWindowState, algo.FixedWindow]{a, 3, &fixedForm}, err
	case weir.AlgorithmSlidingWindow:
		a, err := algo.NewSlidingWindow(n, window, l.Segments(), 0)
		return &lawOf[algo.SlidingWindowState, algo.SlidingWindow]{a, 1 + l.Segments(), &slidingForm}, err
	case weir.AlgorithmSlidingCounter:
		a, err := algo.NewSlidingCounter(n, window, 0)
		return &lawOf[algo.SlidingCounterState, algo.SlidingCounter]{a, 3, &counterForm}, err
	case weir.AlgorithmConcurrency:
		a, err := algo.NewConcurrency(l.Permits())
		return &lawOf[algo.ConcurrencyState, algo.Concurrency]{a, 1, &inUseForm}, err
	default: // weir.AlgorithmCalendarWindow
		a, err := algo.NewCalendarWindow(l.Permits(), l.Calendar())
		return &lawOf[algo.CalendarWindowState, algo.CalendarWindow]{a, 3, &calendarForm}, err
	}
}

// acrossLaw cancels n permits that a bucket of the rate granted, in a state that was carried to another one since.
func acrossLaw(to law, rate weir.Rate, state []int64, now, n int64, m mark) {
	b, err := algo.NewTokenBucket(rate.Permits, rate.Period, 1)
	l, ok := to.(*lawOf[algo.TokenBucketState, algo.TokenBucket])
	if err != nil || !ok {
		return
	}
	l.form.save(state, l.algorithm.CancelAcross(b, l.form.load(state), now, n, m.algo()))
}

// latest is the latest time that a clock may show.
const latest = 1 << 62

// never is a time that does not come.
const never = math.MaxInt64
