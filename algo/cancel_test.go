//go:build !race

package algo_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/lockstep"
	"github.com/weirhq/weir/internal/reference"
)

// event is permits that were taken or charged.
type event struct{ now, n int64 }

// withoutCanceled is the state that events lead to if each takes what is left of it after cancellations.
func withoutCanceled(r reference.Limiter, events []event) reference.Limiter {
	for _, e := range events {
		r.Charge(e.now, e.n, algo.MaxPermits)
	}

	return r
}

// cancelHistory takes, charges and cancels in whole and in part, and compares what is available with what would be if the
// canceled permits had never been taken: never more, and the same where exact says so.
func cancelHistory[S comparable](
	src lockstep.Source, scale lockstep.Scale, p *lockstep.Pair[S], anew func() reference.Limiter, debts, exact bool,
) error {
	var (
		events []event
		open   []int // of events, those that can be canceled; the latest last
		now    = int64(src(1 << 40))
	)

	for range 60 {
		now += pick(src, 0, 0, 1, int64(src(uint64(scale.Tick)+1)), scale.Tick, int64(src(uint64(scale.Long)+1)))
		c := lockstep.Call{Kind: lockstep.Take, Now: now, N: 1 + int64(src(uint64(scale.Limit)))}

		switch k := src(8); {
		case k < 4 && p.Marks() > 0:
			c.Kind, c.Mark = lockstep.Cancel, int(src(uint64(p.Marks())))
			if c.N = p.Marked(c.Mark); src(3) == 0 {
				c.N = 1 + int64(src(uint64(c.N)))
			}
		case k == 4 && debts:
			c.Kind, c.MaxDebt = lockstep.Charge, int64(src(uint64(scale.Limit)))
		case k == 5:
			c.N = 1
		}

		if err := p.Do(c); err != nil {
			return err
		}

		switch c.Kind {
		case lockstep.Take:
			if p.Last.Allowed {
				events = append(events, event{now, c.N})
				open = append(open, len(events)-1)
				open = open[max(0, len(open)-p.Marks()):]
			}

			continue
		case lockstep.Charge:
			events = append(events, event{now, p.Charged})

			continue
		case lockstep.Cancel:
			i := len(open) - 1 - c.Mark
			events[open[i]].n -= c.N
			open = append(open[:i:i], open[i+1:]...)
		default:
		}

		r := withoutCanceled(anew(), events)
		for _, at := range []int64{now, now + 1, now + scale.Tick, now + int64(src(uint64(scale.Long)+1))} {
			got, most := p.Algorithm.Peek(p.State, at, scale.Limit), r.Peek(at, scale.Limit)
			if got.Remaining > most.Remaining || got.RetryAfter < most.RetryAfter || got.ResetAfter < most.ResetAfter {
				return fmt.Errorf("%v: at %d there is %+v, but without what was canceled %+v", c, at, got, most)
			}

			if exact && got != most {
				return fmt.Errorf("%v: at %d there is %+v, and without what was canceled %+v", c, at, got, most)
			}
		}
	}

	return nil
}

// TestCancelNeverMints holds every algorithm to what Cancel promises: however takes, charges and cancellations
// follow one another, no more is available than if the canceled permits had never been taken. In windows it is the same.
func TestCancelNeverMints(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(src lockstep.Source, limit int64, window time.Duration) error
	}{
		{"TokenBucket", func(src lockstep.Source, limit int64, window time.Duration) error {
			permits := 1 + int64(src(uint64(min(2*limit, int64(window)))))
			anew := func() reference.Limiter { return reference.NewTokenBucket(permits, window, limit) }

			b, err := algo.NewTokenBucket(permits, window, limit)
			if err != nil {
				return err
			}

			scale := lockstep.Scale{Limit: limit, Tick: max(1, int64(window)/permits), Long: int64(fillTime(b))}
			p := &lockstep.Pair[algo.TokenBucketState]{Algorithm: b, Reference: anew()}

			return cancelHistory(src, scale, p, anew, true, false)
		}},
		{"FixedWindow", func(src lockstep.Source, limit int64, window time.Duration) error {
			anew := func() reference.Limiter { return reference.NewFixedWindow(limit, window, 0) }

			w, err := algo.NewFixedWindow(limit, window, 0)
			if err != nil {
				return err
			}

			scale := lockstep.Scale{Limit: limit, Tick: max(1, int64(window)/8), Long: int64(window)}
			p := &lockstep.Pair[algo.WindowState]{Algorithm: w, Reference: anew()}
			debts := src(2) == 0 // which outlast the permits that made them

			return cancelHistory(src, scale, p, anew, debts, !debts)
		}},
		{"CalendarWindow", func(src lockstep.Source, limit int64, _ time.Duration) error {
			c := algo.Calendar{Unit: pick(src, algo.CalendarMinute, algo.CalendarHour, algo.CalendarDay)}
			anew := func() reference.Limiter { return reference.NewCalendarWindow(limit, c) }
			w := must(algo.NewCalendarWindow(limit, c))
			window := int64(w.Length(0))
			p := &lockstep.Pair[algo.WindowState]{Algorithm: w, Reference: anew()}
			debts := src(2) == 0

			return cancelHistory(src, lockstep.Scale{Limit: limit, Tick: window / 8, Long: window}, p, anew, debts, !debts)
		}},
		{"SlidingWindow", func(src lockstep.Source, limit int64, window time.Duration) error {
			segments := 1 + int(src(uint64(min(10, int64(window)))))
			anew := func() reference.Limiter { return reference.NewSlidingWindow(limit, window, segments, 0) }

			w, err := algo.NewSlidingWindow(limit, window, segments, 0)
			if err != nil {
				return err
			}

			scale := lockstep.Scale{Limit: limit, Tick: max(1, int64(window)/8), Long: int64(window)}
			p := &lockstep.Pair[algo.SlidingWindowState]{Algorithm: w, Reference: anew()}

			return cancelHistory(src, scale, p, anew, true, true)
		}},
		{"SlidingCounter", func(src lockstep.Source, limit int64, window time.Duration) error {
			anew := func() reference.Limiter { return reference.NewSlidingCounter(limit, window, 0) }

			w, err := algo.NewSlidingCounter(limit, window, 0)
			if err != nil {
				return err
			}

			scale := lockstep.Scale{Limit: limit, Tick: max(1, int64(window)/8), Long: int64(window)}
			p := &lockstep.Pair[algo.SlidingCounterState]{Algorithm: w, Reference: anew()}

			return cancelHistory(src, scale, p, anew, true, true)
		}},
		{"Concurrency", func(src lockstep.Source, limit int64, window time.Duration) error {
			anew := func() reference.Limiter { return reference.NewConcurrency(limit) }

			c, err := algo.NewConcurrency(limit)
			if err != nil {
				return err
			}

			p := &lockstep.Pair[algo.ConcurrencyState]{Algorithm: c, Reference: anew()}

			return cancelHistory(src, lockstep.Scale{Limit: limit, Tick: 1, Long: int64(window)}, p, anew, true, true)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := lockstep.Source(random(t).Uint64N)

			for range effort(t, 1000) {
				limit := pick[int64](src, 1, 2, 3, 5, 10, 16, 100, 1_000_003)
				window := pick[time.Duration](src, 10, 64, 1000, 7919, time.Second, time.Minute)

				if err := c.run(src, limit, window); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
