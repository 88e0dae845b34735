package store

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

// TestLeasedCheckSeesFlaws breaks what the proof stands on, a clock that runs evenly, and finds the flaw by the same check.
func TestLeasedCheckSeesFlaws(t *testing.T) {
	for i, limit := range leasedLimits(rand.New(rand.NewPCG(1, 1))) {
		if limit.Algorithm() == weir.AlgorithmCalendarWindow || i == 1 {
			continue // take long to come to their limit
		}
		found := false
		for seed := uint64(0); seed < 20 && !found; seed++ {
			rng := rand.New(rand.NewPCG(seed, 9))
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, limit, 16, LeasedOptions{}, 0, 20)
				f.traffic(t, rng, 6*time.Second, 300*time.Millisecond)
				f.hoard(t, time.Second, 20, 150*time.Millisecond)
				f.close()
				found = f.flaw() != ""
			})
		}
		if !found {
			t.Errorf("%v: nothing was found", limit)
		}
	}
}

// TestLeasedBucketIsLoweredForWhatIsHeld has processes hold blocks while the bucket is filled again: that is what its burst is
// lowered for.
func TestLeasedBucketIsLoweredForWhatIsHeld(t *testing.T) {
	limit := weir.TokenBucket(weir.PerSecond(100), 400)
	if b := (LeasedOptions{}).Bound(limit); b.Lowered != 299 || b.Block != 18 || b.Term != time.Second {
		t.Fatalf("%+v", b)
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, limit, 4, LeasedOptions{}, 0, 1)
		burst := f.hoard(t, time.Second, 4, 210*time.Millisecond)
		f.close()
		if flaw := f.flaw(); flaw != "" || burst < 299+20 {
			t.Errorf("%d at once, of which more was held than the bucket had; %s", burst, flaw)
		}
	})
}

// spans calls check for each interval from the beginning of one admission to the end of another, with the permits of all that
// lie in it for sure, until it answers what is wrong.
func (f *fleet) spans(check func(from, to, n int64) string) string {
	slices.SortFunc(f.seen, func(a, b admission) int { return cmp.Compare(a.to, b.to) })
	starts := make([]int64, len(f.seen))
	for i, a := range f.seen {
		starts[i] = a.from
	}
	slices.Sort(starts)
	for _, from := range slices.Compact(starts) {
		n := int64(0)
		for i, a := range f.seen {
			if a.from < from {
				continue
			}
			n += a.n
			if i+1 < len(f.seen) && f.seen[i+1].to == a.to {
				continue
			}
			if flaw := check(from, a.to, n); flaw != "" {
				return flaw
			}
		}
	}
	return ""
}

// flaw says where more was granted than the limit allows, or "".
func (f *fleet) flaw() string {
	l := f.limit
	window, limit := int64(l.Rate().Period), l.Rate().Permits
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		return f.spans(func(from, to, n int64) string {
			if (n-l.Permits())*window > limit*(to-from) {
				return fmt.Sprintf("%d in %v", n, time.Duration(to-from))
			}
			return ""
		})
	case weir.AlgorithmSlidingWindow:
		step, segments := window/int64(l.Segments()), int64(l.Segments())
		return f.spans(func(from, to, n int64) string {
			rows := (to/step-from/step)/segments + 1
			if n > rows*limit {
				return fmt.Sprintf("%d in %d segments", n, to/step-from/step+1)
			}
			return ""
		})
	case weir.AlgorithmSlidingCounter:
		return f.counterFlaw(window, limit)
	case weir.AlgorithmCalendarWindow:
		window, limit = int64(time.Minute), l.Permits()
	default:
	}
	return f.spans(func(from, to, n int64) string {
		if windows := to/window - from/window + 1; n > windows*limit {
			return fmt.Sprintf("%d in %d windows", n, windows)
		}
		return ""
	})
}

// counterFlaw counts at the end of each admission what was granted for sure in its window and in the one before.
func (f *fleet) counterFlaw(window, limit int64) string {
	for _, last := range f.seen {
		at := last.to / window
		current, before := int64(0), int64(0)
		for _, a := range f.seen {
			switch {
			case a.from/window == at && a.to <= last.to:
				current += a.n
			case a.from/window == at-1 && a.to/window == at-1:
				before += a.n
			}
		}
		rest := window - last.to%window
		if weighs := (before*rest + window - 1) / window; current+weighs > limit {
			return fmt.Sprintf("%d and %d of %d before", current, weighs, before)
		}
	}
	return ""
}
