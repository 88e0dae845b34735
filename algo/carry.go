package algo

// Carry converts a state of the windows old into one of w. Permits taken in the current window stay taken, in the window of w
// that is current at time now. A debt stays owed, and no more remains than the new limit. A Mark from before is good for w if
// both windows have the same length and phase.
func (w FixedWindow) Carry(old FixedWindow, s FixedWindowState, now int64) FixedWindowState {
	x := old.at(s, now)
	debt := max(0, x.Used-old.limit)
	taken := x.Used - debt + x.Excess
	used := min(taken, w.limit)
	return FixedWindowState{Window: w.window.index(now), Used: used + debt, Excess: taken - used}
}

// SameWindows reports whether the windows of w and x begin at the same times, so that a Mark of one is good for the other.
func (w FixedWindow) SameWindows(x FixedWindow) bool { return w.window == x.window }

// Carry converts a state of the window old into one of w. Permits that are still in the window stay taken. If the segments are
// not the same, they count as taken in the newest segment of w. A Mark from before is good for w if the segments are the same.
func (w SlidingWindow) Carry(old SlidingWindow, s SlidingWindowState, now int64) SlidingWindowState {
	old.advance(&s, now)
	if w.SameWindows(old) {
		return s
	}
	x := SlidingWindowState{Segment: w.index(now), Total: s.Total}
	x.Used[0] = s.Total
	return x
}

// SameWindows reports whether the segments of w and x are the same, so that a Mark of one is good for the other.
func (w SlidingWindow) SameWindows(x SlidingWindow) bool {
	w.limit = x.limit
	return w == x
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

// CancelAcross is Cancel for a Mark of the bucket old, whose state Carry has made one of b since. It is not known how many of the
// n permits were regained meanwhile. So it gives back only what would still be missing at the faster of the two rates.
func (b TokenBucket) CancelAcross(old TokenBucket, s TokenBucketState, now, n int64, m Mark) TokenBucketState {
	t := elapsed(m.taken, now)
	return b.Refund(s, now, min(old.unregained(n, t), b.unregained(n, t)))
}

// unregained is how many whole permits of n are not yet regained t after they were taken from a full bucket.
func (b TokenBucket) unregained(n, t int64) int64 {
	cost, ok := b.cost(n)
	if !ok || cost.ns < t {
		return 0
	}
	return b.permits(span{cost.ns - t, cost.part})
}

// Drop makes every Mark from before worthless to Cancel, except for what CancelAcross gives.
func (b TokenBucket) Drop(s TokenBucketState) TokenBucketState {
	s.Returned += s.Ahead + 1
	return s
}
