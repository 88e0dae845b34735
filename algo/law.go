package algo

// Law is an algorithm for callers that keep states as words: in the slot of a table, in a record. It has all methods of
// [Algorithm], on a state in place. It is safe for concurrent use; a state is not.
//
// Two laws can have the same algorithm and other words. Carry, CancelAcross and SameMarks require an old law of the same
// algorithm.
type Law interface { //nolint:interfacebloat // what the algorithms have in common
	// Words is how many words a state takes.
	Words() int
	// Limit is the max number of permits that can be taken at once.
	Limit() int64
	// Begin makes words a fresh state at a time. Of a bucket, returned is the Returned of [TokenBucketState].
	Begin(words []uint64, now, returned int64)
	// Take is that of [Algorithm]. A probe leaves the state as it is. A refusal moves it to now at most.
	Take(words []uint64, now, n int64) Result
	// Grant is Take of one permit for callers that need only Allowed.
	Grant(words []uint64, now int64) bool
	Peek(words []uint64, now, n int64) Result
	Refund(words []uint64, now, n int64)
	Cancel(words []uint64, now, n int64, m Mark)
	// CancelAcross is Cancel for a Mark of the law old, whose state Carry has made one of this since.
	CancelAcross(old Law, words []uint64, now, n int64, m Mark)
	Charge(words []uint64, now, n, maxDebt int64) (charged int64)
	Fresh(words []uint64, now int64) bool
	FreshAt(words []uint64) int64
	// Mark is the Mark of permits that were the last to be taken.
	Mark(words []uint64) Mark
	// Carry makes words, which may be those of from, the state from of the law old, as one of this law at time now.
	Carry(words []uint64, old Law, from []uint64, now int64)
	// SameMarks reports whether a Mark of the law old is good for this one.
	SameMarks(old Law) bool
	// Valid reports whether the words can be a state.
	Valid(words []uint64) bool
}

// Law is the bucket with states of four words: Last, Ahead, Part and Returned.
func (b TokenBucket) Law() Law { //nolint:ireturn // one for each algorithm
	return &bucketLaw{law[TokenBucketState, TokenBucket, bucketWords]{b, bucketWords(b.num)}}
}

// Law is the window with states of three words: Window, Used and Excess.
func (w Window) Law() Law { //nolint:ireturn // as above
	return &windowLaw{law[WindowState, Window, windowWords]{w, windowWords(w.calendar != nil)}}
}

// Law is the window with states of one word for Segment, and one for each segment.
func (w SlidingWindow) Law() Law { //nolint:ireturn // as above
	return &slidingLaw{law[SlidingWindowState, SlidingWindow, slidingWords]{w, slidingWords(w.segments)}}
}

// LawWithTotal is Law with one more word, for the permits taken in all segments: it is faster.
func (w SlidingWindow) LawWithTotal() Law { //nolint:ireturn // as above
	return &totalLaw{law[SlidingWindowState, SlidingWindow, totalWords]{w, totalWords(w.segments)}}
}

// Law is the window with states of three words: Window, Cur and Prev.
func (w SlidingCounter) Law() Law { //nolint:ireturn // as above
	return &counterLaw{law[SlidingCounterState, SlidingCounter, counterWords]{algorithm: w}}
}

// Law is the limit with states of one word: InUse.
func (c Concurrency) Law() Law { //nolint:ireturn // as above
	return &law[ConcurrencyState, Concurrency, inUseWord]{algorithm: c}
}

// carrier is an algorithm whose states can be carried from one limit to another.
type carrier[S, A any] interface {
	Algorithm[S]
	begin(now, returned int64) S
	mark(s S) Mark // of the permits that were the last to be taken
	Carry(old A, s S, now int64) S
	CancelAcross(old A, s S, now, n int64, m Mark) S
	sameMarks(old A) bool
}

// layout says how states lie in words.
type layout[S any] interface {
	words() int
	// load reads a state at a time, which a layout may need that leaves something out.
	load(words []uint64, now int64) S
	save(words []uint64, s S)
	valid(words []uint64) bool
}

// law implements Law.
type law[S any, A carrier[S, A], L layout[S]] struct {
	algorithm A
	layout    L
}

func (l *law[S, A, L]) Words() int { return l.layout.words() }

func (l *law[S, A, L]) Limit() int64 { return l.algorithm.Limit() }

func (l *law[S, A, L]) Begin(words []uint64, now, returned int64) {
	l.layout.save(words, l.algorithm.begin(now, returned))
}

func (l *law[S, A, L]) Take(words []uint64, now, n int64) Result {
	s, r := l.algorithm.Take(l.layout.load(words, now), now, n)
	if n > 0 {
		l.layout.save(words, s)
	}
	return r
}

func (l *law[S, A, L]) Grant(words []uint64, now int64) bool { return l.Take(words, now, 1).Allowed }

func (l *law[S, A, L]) Peek(words []uint64, now, n int64) Result {
	return l.algorithm.Peek(l.layout.load(words, now), now, n)
}

func (l *law[S, A, L]) Refund(words []uint64, now, n int64) {
	l.layout.save(words, l.algorithm.Refund(l.layout.load(words, now), now, n))
}

func (l *law[S, A, L]) Cancel(words []uint64, now, n int64, m Mark) {
	l.layout.save(words, l.algorithm.Cancel(l.layout.load(words, now), now, n, m))
}

func (l *law[S, A, L]) CancelAcross(old Law, words []uint64, now, n int64, m Mark) {
	l.layout.save(words, l.algorithm.CancelAcross(algorithmOf[A](old), l.layout.load(words, now), now, n, m))
}

func (l *law[S, A, L]) Charge(words []uint64, now, n, maxDebt int64) int64 {
	s, charged := l.algorithm.Charge(l.layout.load(words, now), now, n, maxDebt)
	l.layout.save(words, s)
	return charged
}

func (l *law[S, A, L]) Fresh(words []uint64, now int64) bool {
	return l.algorithm.Fresh(l.layout.load(words, now), now)
}

func (l *law[S, A, L]) FreshAt(words []uint64) int64 {
	return l.algorithm.FreshAt(l.layout.load(words, earliest))
}

func (l *law[S, A, L]) Mark(words []uint64) Mark {
	return l.algorithm.mark(l.layout.load(words, earliest))
}

func (l *law[S, A, L]) Carry(words []uint64, old Law, from []uint64, now int64) {
	s := old.(loader[S]).state(from, now) //nolint:errcheck,forcetypeassert // the algorithm is the same
	l.layout.save(words, l.algorithm.Carry(algorithmOf[A](old), s, now))
}

func (l *law[S, A, L]) SameMarks(old Law) bool { return l.algorithm.sameMarks(algorithmOf[A](old)) }

func (l *law[S, A, L]) Valid(words []uint64) bool { return l.layout.valid(words) }

// loader is a law of the state S.
type loader[S any] interface {
	state(words []uint64, now int64) S
	of() any
}

func (l *law[S, A, L]) state(words []uint64, now int64) S { return l.layout.load(words, now) }

func (l *law[S, A, L]) of() any { return &l.algorithm } // a pointer, as it would be copied to the heap otherwise

// algorithmOf is the algorithm of another law with the same.
func algorithmOf[A any](l Law) A {
	return *l.(interface{ of() any }).of().(*A) //nolint:errcheck,forcetypeassert // see above
}

// bucketLaw takes in place, without a copy of the bucket.
type bucketLaw struct {
	law[TokenBucketState, TokenBucket, bucketWords]
}

func (l *bucketLaw) Take(words []uint64, now, n int64) Result {
	s := l.layout.load(words, now)
	r := l.algorithm.TakeIn(&s, now, n)
	if n > 0 {
		l.layout.save(words, s)
	}
	return r
}

// windowLaw takes in place, too.
type windowLaw struct {
	law[WindowState, Window, windowWords]
}

func (l *windowLaw) Take(words []uint64, now, n int64) Result {
	s := l.layout.load(words, now)
	r := l.algorithm.takeIn(&s, now, n)
	if n > 0 {
		l.layout.save(words, s)
	}
	return r
}

func (l *windowLaw) Grant(words []uint64, now int64) bool { return l.Take(words, now, 1).Allowed }

// slidingLaw takes in place, as a state is large.
type slidingLaw struct {
	law[SlidingWindowState, SlidingWindow, slidingWords]
}

func (l *slidingLaw) Take(words []uint64, now, n int64) Result {
	s := l.layout.load(words, now)
	r := l.algorithm.take(l.algorithm.in(&s), now, n)
	if n > 0 {
		words[0] = s[0]
		copy(words[1:1+l.layout], s[2:])
	}
	return r
}

// totalLaw is slidingLaw with words that need not be summed up.
type totalLaw struct {
	law[SlidingWindowState, SlidingWindow, totalWords]
}

func (l *totalLaw) Take(words []uint64, now, n int64) Result {
	if n <= 0 {
		return l.Peek(words, now, n)
	}
	return l.algorithm.take(words, now, n)
}

func (l *totalLaw) Grant(words []uint64, now int64) bool { return l.algorithm.grant(words, now, 1) }

// counterLaw has a shorter way to a bare answer.
type counterLaw struct {
	law[SlidingCounterState, SlidingCounter, counterWords]
}

func (l *counterLaw) Grant(words []uint64, now int64) bool {
	s := l.layout.load(words, now)
	allowed := l.algorithm.Grant(&s, now, 1)
	l.layout.save(words, s)
	return allowed
}
