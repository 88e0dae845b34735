//go:build !race

package algo_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/algo"
)

func TestSlidingWindowSegments(t *testing.T) {
	for _, segments := range []int{-1, 0, algo.MaxSegments + 1} {
		_, err := algo.NewSlidingWindow(1, time.Second, segments, 0)
		refuses(t, "NewSlidingWindow", "segments", err)
	}

	if _, err := algo.NewSlidingWindow(1, 3, 3, 0); err != nil {
		t.Error(err)
	}

	_, err := algo.NewSlidingWindow(1, 3, 4, 0)
	refuses(t, "more segments than nanoseconds", "segments", err)
}

// TestSlidingWindowRetryAfterWalksTheSegments is the case that tells the wait for a deficit from the wait for the next
// segment: of 4 permits in 8 s and 4 segments, three are taken in the first segment and one in the second, and two
// more can be had when the first segment leaves the window, 6 s later.
func TestSlidingWindowRetryAfterWalksTheSegments(t *testing.T) {
	w := must(algo.NewSlidingWindow(4, 8*time.Second, 4, 0))

	s, first := w.Take(algo.SlidingWindowState{}, 0, 3)
	s, second := w.Take(s, int64(2*time.Second), 1)
	s, r := w.Take(s, int64(2*time.Second), 2)

	if !first.Allowed || !second.Allowed || r.Allowed {
		t.Fatalf("%+v, %+v, %+v, want two grants and a refusal", first, second, r)
	}

	if r.RetryAfter != 6*time.Second {
		t.Errorf("RetryAfter is %v, want 6s", r.RetryAfter)
	}

	if r := w.Peek(s, int64(2*time.Second), 4); r.RetryAfter != 8*time.Second {
		t.Errorf("RetryAfter of all four is %v, want 8s", r.RetryAfter)
	}

	if r := w.Peek(s, int64(8*time.Second), 2); !r.Allowed || r.Remaining != 3 {
		t.Errorf("6 s later: %+v, want 3 permits", r)
	}
}

// TestSlidingWindowAfterAStall wants every segment that has passed to be moved, not only one.
func TestSlidingWindowAfterAStall(t *testing.T) {
	w := must(algo.NewSlidingWindow(6, 60, 6, 0))

	var s algo.SlidingWindowState

	for now := int64(5); now < 60; now += 10 {
		s, _ = w.Take(s, now, 1)
	}

	for now, want := range map[int64]int64{59: 0, 60: 1, 75: 2, 89: 3, 109: 5, 110: 6, 1000: 6, 1 << 61: 6} {
		if got := w.Peek(s, now, 1).Remaining; got != want {
			t.Errorf("%d permits at %d, want %d", got, now, want)
		}
	}
}

func FuzzSlidingWindowHistory(f *testing.F) {
	fuzzHistories(f, slidingWindowHistory)
}
