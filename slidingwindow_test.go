package weir_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

func mustSliding(t *testing.T, limit weir.Limit, o weir.Options) *weir.Limiter {
	t.Helper()
	w, err := weir.New(limit, o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestSlidingWindowWalksItsSegments has a limit of 4 in 8 s, in four segments: three permits are taken in segment 0, and one in
// segment 1.
func TestSlidingWindowWalksItsSegments(t *testing.T) {
	anyClock(t, func(t *testing.T, clock weir.Clock) {
		w := mustSliding(t, weir.SlidingWindow(weir.Per(4, 8*time.Second), 4), weir.Options{Clock: clock})
		w.TryAcquire(3)
		time.Sleep(2 * time.Second)
		w.TryAcquire(1)
		for _, c := range []struct {
			n    int64
			want time.Duration
		}{
			{0, 6 * time.Second},
			{1, 6 * time.Second},
			{2, 6 * time.Second}, // three are back when segment 0 leaves the window
			{3, 6 * time.Second},
			{4, 8 * time.Second},
			{5, weir.Never},
		} {
			if d := w.TryAcquire(c.n).Decision(); d.Allowed || d.RetryAfter != c.want || d.Remaining != 0 || d.ResetAfter != 8*time.Second {
				t.Errorf("%d permits: %+v, want RetryAfter %v", c.n, d, c.want)
			}
		}
		time.Sleep(6*time.Second - 1)
		if d := w.TryAcquire(2).Decision(); d.Allowed || d.RetryAfter != 1 {
			t.Errorf("a nanosecond early: %+v", d)
		}
		time.Sleep(1)
		if d := w.TryAcquire(2).Decision(); !d.Allowed || d.Remaining != 1 {
			t.Errorf("in time: %+v", d)
		}
	})
}

func TestPermitsComeBackOneWindowAfterTheirSegment(t *testing.T) {
	for _, c := range []struct {
		window   time.Duration
		segments int
	}{
		{8 * time.Second, 4},
		{time.Second, 7}, // segments of 142857142.857 ns
		{50, 3},
		{64, 64},
		{time.Hour, 0},
		{time.Minute, 1},
	} {
		t.Run(fmt.Sprintf("%v in %d", c.window, c.segments), func(t *testing.T) {
			anyClock(t, func(t *testing.T, clock weir.Clock) {
				time.Sleep(987654321)
				limit := weir.SlidingWindow(weir.Per(50, c.window), c.segments)
				w := mustSliding(t, limit, weir.Options{Clock: clock})
				segments := int64(limit.Segments())
				start := time.Now()
				segment := func(at time.Duration) int64 { return int64(at) * segments / int64(c.window) }
				rng := rand.New(rand.NewPCG(1, 2))
				used := map[int64]int64{}
				for range 3000 {
					passed := time.Since(start)
					now, sum := segment(passed), int64(0)
					for i := range segments {
						sum += used[now-i]
					}
					n := rng.Int64N(6)
					d := w.TryAcquire(n).Decision()
					if want := sum+max(n, 1) <= 50; d.Allowed != want {
						t.Fatalf("after %v, with %d of 50 in the window: %d permits: %+v", passed, sum, n, d)
					}
					if d.Allowed {
						used[now] += n
					} else {
						at := segment(passed + d.RetryAfter)
						if before := segment(passed + d.RetryAfter - 1); before == at || at <= now || at > now+segments {
							t.Fatalf("after %v, in segment %d, RetryAfter is %v: segment %d", passed, now, d.RetryAfter, at)
						}
					}
					time.Sleep(time.Duration(rng.Int64N(int64(c.window)/segments*2/3 + 2)))
				}
			})
		})
	}
}

// TestEverySegmentOfAStallIsMoved lets more or less than a window pass without a call.
func TestEverySegmentOfAStallIsMoved(t *testing.T) {
	for _, segments := range []int{1, 4, 10, 64} {
		anyClock(t, func(t *testing.T, clock weir.Clock) {
			const window = 64 * time.Second
			length := window / time.Duration(segments)
			for stall := range segments + 70 {
				w := mustSliding(t, weir.SlidingWindow(weir.Per(int64(segments), window), segments), weir.Options{Clock: clock})
				for range segments { // one in each segment
					if !w.Allow() {
						t.Fatal("refused")
					}
					time.Sleep(length)
				}
				time.Sleep(length * time.Duration(stall))
				if got, want := w.Stats().Remaining, int64(min(stall+1, segments)); got != want {
					t.Errorf("%d segments, %d passed: %d permits are back, want %d", segments, stall, got, want)
				}
			}
		})
	}
}

// TestSlidingWindowBound holds the bound of the type's comment, and that it is reached: the limit passes at the end of a segment, and
// again when that segment has left the window.
func TestSlidingWindowBound(t *testing.T) {
	for _, segments := range []int{1, 2, 3, 10, 64} {
		t.Run(fmt.Sprintf("%d segments", segments), func(t *testing.T) {
			anyClock(t, func(t *testing.T, clock weir.Clock) {
				const (
					limit  = 20
					window = 192 * time.Second
				)
				bound := window * time.Duration(segments-1) / time.Duration(segments)
				w := mustSliding(t, weir.SlidingWindow(weir.Per(limit, window), segments), weir.Options{Clock: clock})
				start := time.Now()
				rng := rand.New(rand.NewPCG(uint64(segments), 2))
				var grants []charge
				for range 2000 {
					n := 1 + rng.Int64N(limit)
					if w.TryAcquire(n).Allowed() {
						grants = append(grants, charge{time.Since(start), n})
					}
					if rng.IntN(3) > 0 {
						time.Sleep(time.Duration(rng.Int64N(int64(window / 20))))
					}
				}
				for i, from := range grants {
					var inBound, inWindow int64
					for _, to := range grants[i:] {
						if to.at-from.at <= bound {
							inBound += to.n
						}
						if to.at-from.at < window {
							inWindow += to.n
						}
					}
					if segments > 1 && inBound > limit || inWindow > 2*limit {
						t.Fatalf("from %v on %d permits in %v, %d in %v", from.at, inBound, bound, inWindow, window)
					}
				}

				again := mustSliding(t, weir.SlidingWindow(weir.Per(limit, window), segments), weir.Options{Clock: clock})
				time.Sleep(window/time.Duration(segments) - 1)
				first := again.TryAcquire(limit).Allowed()
				time.Sleep(bound)
				tooEarly := again.Allow()
				time.Sleep(1)
				if second := again.TryAcquire(limit).Allowed(); !first || tooEarly || !second {
					t.Errorf("the limit: %v, %v later one more: %v, a nanosecond later the limit: %v", first, bound, tooEarly, second)
				}
			})
		})
	}
}

// TestSlidingWindowGrantsItsLimitInEveryWindow shows the other side: a caller that keeps asking gets the limit in each window.
func TestSlidingWindowGrantsItsLimitInEveryWindow(t *testing.T) {
	for _, segments := range []int{1, 4, 10, 64} {
		synctest.Test(t, func(t *testing.T) {
			const limit = 20
			w := mustSliding(t, weir.SlidingWindow(weir.Per(limit, 64*time.Second), segments), weir.Options{})
			granted := 0
			for range 6400 {
				for w.Allow() {
					granted++
				}
				time.Sleep(100 * time.Millisecond)
			}
			if granted != limit*10 {
				t.Errorf("%d segments: %d permits in ten windows, want %d", segments, granted, limit*10)
			}
		})
	}
}

func TestSlidingWindowOfOneSegmentIsAFixedWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sliding := mustSliding(t, weir.SlidingWindow(weir.PerSecond(5), 1), weir.Options{})
		fixed := mustFixed(t, weir.FixedWindow(weir.PerSecond(5)), weir.Options{})
		rng := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			n := rng.Int64N(7)
			if a, b := sliding.TryAcquire(n).Decision(), fixed.TryAcquire(n).Decision(); a != b {
				t.Fatalf("%d permits: %+v and %+v", n, a, b)
			}
			time.Sleep(time.Duration(rng.Int64N(int64(time.Second / 2))))
		}
	})
}

// TestApproximateWindowWeighsThePreviousOne has the example of the two counters: a quarter into the window, three quarters
// of the previous one count.
func TestApproximateWindowWeighsThePreviousOne(t *testing.T) {
	anyClock(t, func(t *testing.T, clock weir.Clock) {
		w := mustSliding(t, weir.SlidingCounter(weir.Per(8, 8*time.Second)), weir.Options{Clock: clock})
		w.TryAcquire(8)
		time.Sleep(8 * time.Second)
		for eighth := range int64(8) {
			d := w.Peek(1)
			if d.Remaining != eighth {
				t.Errorf("after %d s of the window %+v, want %d", eighth, d, eighth)
			}
			time.Sleep(time.Second - 1)
			if d := w.Peek(1); d.Remaining != eighth { // rounded down
				t.Errorf("just before %d s of the window %+v, want %d", eighth+1, d, eighth)
			}
			time.Sleep(1)
		}
		if d := w.Peek(8); !d.Allowed {
			t.Errorf("after two windows: %+v", d)
		}
	})
}

// TestApproximateWindowIsBoundedByTwiceItsLimit holds what algo.SlidingCounter allows, at worst, in a window.
func TestApproximateWindowIsBoundedByTwiceItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const (
			limit  = 10
			window = 10 * time.Second
		)
		w := mustSliding(t, weir.SlidingCounter(weir.Per(limit, window)), weir.Options{})
		start := time.Now()
		rng := rand.New(rand.NewPCG(7, 8))
		var grants []charge
		for range 3000 {
			n := 1 + rng.Int64N(limit)
			if w.TryAcquire(n).Allowed() {
				grants = append(grants, charge{time.Since(start), n})
			}
			time.Sleep(time.Duration(rng.Int64N(int64(window / 8))))
		}
		for i, from := range grants {
			sum := int64(0)
			for _, to := range grants[i:] {
				if to.at-from.at < window {
					sum += to.n
				}
			}
			if sum > 2*limit-1 {
				t.Fatalf("from %v on %d permits in %v", from.at, sum, window)
			}
		}
	})
}
