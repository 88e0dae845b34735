package algo

// latest is the latest time that a state may have, and earliest the earliest.
const (
	latest   = 1 << 62
	earliest = -latest
)

// validTime reports whether a time, or the number of a window, is one that a clock may show.
func validTime(w uint64) bool { return earliest <= int64(w) && int64(w) <= latest }

// validPermits reports whether a count of permits is one that a limit can reach, debt included.
func validPermits(w uint64) bool { return w <= 1<<52 }

// bucketWords is into how many parts a nanosecond is divided.
type bucketWords int64

func (bucketWords) words() int { return 4 }

func (bucketWords) load(w []uint64, _ int64) TokenBucketState {
	return TokenBucketState{Last: int64(w[0]), Ahead: int64(w[1]), Part: int64(w[2]), Returned: int64(w[3])}
}

func (bucketWords) save(w []uint64, s TokenBucketState) {
	w[0], w[1], w[2], w[3] = uint64(s.Last), uint64(s.Ahead), uint64(s.Part), uint64(s.Returned)
}

// valid: what is missing to full, debt included, never takes longer than twice the max time of filling.
func (num bucketWords) valid(w []uint64) bool {
	return validTime(w[0]) && w[1] <= 2*uint64(MaxFill) && w[2] < uint64(num)
}

// windowWords reports whether the windows are those of a calendar, which may begin at the ends of the range.
type windowWords bool

func (windowWords) words() int { return 3 }

func (windowWords) load(w []uint64, _ int64) WindowState {
	return WindowState{Window: int64(w[0]), Used: int64(w[1]), Excess: int64(w[2])}
}

func (windowWords) save(w []uint64, s WindowState) {
	w[0], w[1], w[2] = uint64(s.Window), uint64(s.Used), uint64(s.Excess)
}

func (calendar windowWords) valid(w []uint64) bool {
	return (bool(calendar) || validTime(w[0])) && validPermits(w[1]) && validPermits(w[2])
}

type counterWords struct{}

func (counterWords) words() int { return 3 }

func (counterWords) load(w []uint64, _ int64) SlidingCounterState {
	return SlidingCounterState{Window: int64(w[0]), Cur: int64(w[1]), Prev: int64(w[2])}
}

func (counterWords) save(w []uint64, s SlidingCounterState) {
	w[0], w[1], w[2] = uint64(s.Window), uint64(s.Cur), uint64(s.Prev)
}

func (counterWords) valid(w []uint64) bool { return windowWords(false).valid(w) }

type inUseWord struct{}

func (inUseWord) words() int { return 1 }

func (inUseWord) load(w []uint64, _ int64) ConcurrencyState {
	return ConcurrencyState{InUse: int64(w[0])}
}

func (inUseWord) save(w []uint64, s ConcurrencyState) { w[0] = uint64(s.InUse) }

func (inUseWord) valid(w []uint64) bool { return validPermits(w[0]) }

// totalWords is how many segments there are, whose words have the total as well.
type totalWords int64

func (p totalWords) words() int { return 2 + int(p) }

func (p totalWords) load(w []uint64, _ int64) (s SlidingWindowState) {
	copy(s[:2+p], w)
	return s
}

func (p totalWords) save(w []uint64, s SlidingWindowState) { copy(w, s[:2+p]) }

func (p totalWords) valid(w []uint64) bool {
	total, ok := sum(w[2 : 2+p])
	return validTime(w[0]) && ok && total == w[1]
}

// slidingWords is how many segments there are.
type slidingWords int64

func (p slidingWords) words() int { return 1 + int(p) }

func (p slidingWords) load(w []uint64, _ int64) (s SlidingWindowState) {
	s[0] = w[0]
	for _, used := range s[2 : 2+copy(s[2:], w[1:1+p])] {
		s[1] += used
	}
	return s
}

func (p slidingWords) save(w []uint64, s SlidingWindowState) {
	w[0] = s[0]
	copy(w[1:1+p], s[2:])
}

func (p slidingWords) valid(w []uint64) bool {
	_, ok := sum(w[1 : 1+p])
	return validTime(w[0]) && ok
}

// sum is the permits taken in all segments, if a limit can reach so many.
func sum(used []uint64) (total uint64, ok bool) {
	for _, n := range used {
		if total += n; !validPermits(n) || !validPermits(total) {
			return 0, false
		}
	}
	return total, true
}

func (TokenBucket) begin(now, returned int64) TokenBucketState {
	return TokenBucketState{Last: now, Returned: returned}
}

func (Window) begin(_, _ int64) (s WindowState)                 { return s }
func (SlidingWindow) begin(_, _ int64) (s SlidingWindowState)   { return s }
func (SlidingCounter) begin(_, _ int64) (s SlidingCounterState) { return s }
func (Concurrency) begin(_, _ int64) (s ConcurrencyState)       { return s }

func (TokenBucket) mark(s TokenBucketState) Mark       { return s.Mark() }
func (Window) mark(s WindowState) Mark                 { return Mark{At: s.Window} }
func (SlidingWindow) mark(s SlidingWindowState) Mark   { return Mark{At: s.Segment()} }
func (SlidingCounter) mark(s SlidingCounterState) Mark { return Mark{At: s.Window} }
func (Concurrency) mark(ConcurrencyState) Mark         { return Mark{} }
