package algo

// Carry converts a state of the window old into one of w. Permits that are still in the window stay taken. If the segments are
// not the same, they count as taken in the newest segment of w. A Mark from before is good for w if the segments are the same.
func (w SlidingWindow) Carry(old SlidingWindow, s SlidingWindowState, now int64) SlidingWindowState {
	x := old.in(&s)
	old.advance(x, now)
	if w.SameWindows(old) {
		return s
	}
	return SlidingWindowState{uint64(w.index(now)), x[1], x[1]}
}

// SameWindows reports whether the segments of w and x are the same, so that a Mark of one is good for the other.
func (w SlidingWindow) SameWindows(x SlidingWindow) bool {
	w.limit = x.limit
	return w == x
}

// CancelAcross is Cancel for a Mark of the window old, whose state Carry has made one of w since. It does nothing if that
// Mark is not good for w.
func (w SlidingWindow) CancelAcross(old SlidingWindow, s SlidingWindowState, now, n int64, m Mark) SlidingWindowState {
	if !w.SameWindows(old) {
		return s
	}
	return w.Cancel(s, now, n, m)
}

// Carry converts a state of the window old into one of w. What was taken weighs as much at time now as it did before. If the
// windows do not begin at the same times, it counts as taken in the current window of w. A Mark from before is good for w if they
// do.
func (w SlidingCounter) Carry(old SlidingCounter, s SlidingCounterState, now int64) SlidingCounterState {
	x := old.at(s, now)
	if w.SameWindows(old) {
		return x
	}
	return SlidingCounterState{Window: w.window.index(now), Cur: x.Cur + old.weighted(x, now)}
}

// SameWindows reports whether the windows of w and x begin at the same times, so that a Mark of one is good for the other.
func (w SlidingCounter) SameWindows(x SlidingCounter) bool { return w.window == x.window }

// CancelAcross is Cancel for a Mark of the window old, whose state Carry has made one of w since. It does nothing if that
// Mark is not good for w.
func (w SlidingCounter) CancelAcross(old SlidingCounter, s SlidingCounterState, now, n int64, m Mark) SlidingCounterState {
	if !w.SameWindows(old) {
		return s
	}
	return w.Cancel(s, now, n, m)
}

// CancelAcross is Cancel for a Mark of the bucket old, whose state Carry has made one of b since. It is not known how many of the
// n permits were regained meanwhile. So it gives back only what would still be missing at the faster of the two rates.
func (b TokenBucket) CancelAcross(old TokenBucket, s TokenBucketState, now, n int64, m Mark) TokenBucketState {
	t := elapsed(m.Taken, now)
	return b.Refund(s, now, min(old.unregained(n, t), b.unregained(n, t)))
}

// unregained is how many whole permits of n are not yet regained t after they were taken from a full bucket.
func (b *TokenBucket) unregained(n, t int64) int64 {
	cost, ok := b.cost(n)
	if !ok || cost.ns < t {
		return 0
	}
	return b.permits(span{cost.ns - t, cost.part})
}

// Carry is the state: permits stay out under another limit.
func (c Concurrency) Carry(_ Concurrency, s ConcurrencyState, _ int64) ConcurrencyState { return s }

// CancelAcross is Cancel.
func (c Concurrency) CancelAcross(_ Concurrency, s ConcurrencyState, now, n int64, m Mark) ConcurrencyState {
	return c.Cancel(s, now, n, m)
}

func (TokenBucket) sameMarks(TokenBucket) bool             { return false }
func (w Window) sameMarks(old Window) bool                 { return w.SameWindows(old) }
func (w SlidingWindow) sameMarks(old SlidingWindow) bool   { return w.SameWindows(old) }
func (w SlidingCounter) sameMarks(old SlidingCounter) bool { return w.SameWindows(old) }
func (Concurrency) sameMarks(Concurrency) bool             { return true }
