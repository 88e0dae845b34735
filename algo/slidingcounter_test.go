//go:build !race

package algo_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/algo"
)

// TestSlidingCounterWeighs is the approximation at numbers that can be done in the head.
func TestSlidingCounterWeighs(t *testing.T) {
	w := must(algo.NewSlidingCounter(100, time.Minute, 0))
	s, _ := w.Take(algo.SlidingCounterState{}, 0, 84)
	s, _ = w.Take(s, int64(75*time.Second), 36)

	for _, c := range []struct {
		now       time.Duration
		remaining int64
	}{
		{75 * time.Second, 1},    // 36 and three quarters of 84
		{90 * time.Second, 22},   // 36 and a half of 84
		{91 * time.Second, 23},   // 36 and 40.6
		{120 * time.Second, 64},  // 36
		{150 * time.Second, 82},  // a half of 36
		{180 * time.Second, 100}, // none
	} {
		if got := w.Peek(s, int64(c.now), 1).Remaining; got != c.remaining {
			t.Errorf("%d permits at %v, want %d", got, c.now, c.remaining)
		}
	}

	// 84 x (60 s - passed) / 60 s is at most 14 when passed is 50 s.
	if r := w.Peek(s, int64(75*time.Second), 50); r.RetryAfter != 35*time.Second {
		t.Errorf("RetryAfter of 50 is %v, want 35s", r.RetryAfter)
	}

	// 36 x (60 s - passed) / 60 s is at most 9 when passed is 45 s, in the window after that.
	if r := w.Peek(s, int64(75*time.Second), 91); r.RetryAfter != 90*time.Second {
		t.Errorf("RetryAfter of 91 is %v, want 1m30s", r.RetryAfter)
	}
}

func FuzzSlidingCounterHistory(f *testing.F) {
	fuzzHistories(f, slidingCounterHistory)
}
