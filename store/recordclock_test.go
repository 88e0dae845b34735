//go:build !race

package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/store"
)

// steppedLimit is a limit, and what it guarantees by a clock that is right.
type steppedLimit struct {
	weir.Limit

	most   int64
	window time.Duration // after which everything has come back that was taken
	edges  bool          // windows begin by the clock, so that a step may bring the next one nearer
}

func steppedLimits() map[string]steppedLimit {
	calendar := func(u algo.CalendarUnit, window time.Duration) steppedLimit {
		return steppedLimit{
			weir.CalendarWindow(10, algo.Calendar{Unit: u}), 10, window, true,
		}
	}
	return map[string]steppedLimit{
		"bucket":          {weir.TokenBucket(weir.PerSecond(2), 10), 10, 5 * time.Second, false},
		"slow bucket":     {weir.TokenBucket(weir.PerHour(1), 10), 10, 10 * time.Hour, false},
		"fixed window":    {weir.FixedWindow(weir.PerMinute(10)), 10, time.Minute, true},
		"sliding window":  {weir.SlidingWindow(weir.PerMinute(10), 0), 10, 66 * time.Second, true},
		"sliding counter": {weir.SlidingCounter(weir.PerMinute(10)), 10, 2 * time.Minute, true},
		"minute":          calendar(algo.CalendarMinute, 2*time.Minute),
		"hour":            calendar(algo.CalendarHour, 2*time.Hour),
		"day":             calendar(algo.CalendarDay, 48*time.Hour),
		"month":           calendar(algo.CalendarMonth, 62*24*time.Hour),
	}
}

// bound is how many permits may be granted in a time, if the clock is right.
func (l *steppedLimit) bound(t time.Duration) int64 {
	switch l.Algorithm() {
	case weir.AlgorithmTokenBucket:
		return l.most + int64(float64(t)*float64(l.Rate().Permits)/float64(l.Rate().Period)) + 1
	case weir.AlgorithmCalendarWindow:
		return l.most * (2 + int64(2*t/l.window))
	default:
		return l.most * (2 + 2*int64(t/time.Minute))
	}
}

// someStep is by how much a clock is set.
func someStep(rng *rand.Rand) time.Duration {
	steps := []time.Duration{time.Second, store.MostAhead, 11 * time.Second, time.Minute, time.Hour, 12 * 24 * time.Hour, 9000 * time.Hour}
	d := steps[rng.IntN(len(steps))]
	if rng.IntN(2) == 0 {
		return -d
	}
	return d
}

// TestStepsOfAClock sets a clock back and forth between any two calls. Each step gives at most the limit once, and one that sets a
// bucket back gives nothing; what was refused is granted when it was told to come back, and not a moment before; and whatever
// has happened, everything has come back soon after the last step.
func TestStepsOfAClock(t *testing.T) {
	for name, l := range steppedLimits() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(300) {
				rng := rand.New(rand.NewPCG(seed, 1))
				begin := time.Date(2026, 11, 22, 10, 7, 3, 1, time.UTC).UnixNano()
				now, off := begin, int64(0) // true time, and how far the clock is off it
				r := must(store.NewRecord(l.Limit, now))
				granted, steps := int64(0), int64(0)
				at := func() int64 { return now + off }
				advance := func() { _ = must(r.Advance(at(), l.Limit)) }
				for range 60 {
					now += rng.Int64N(int64(20 * time.Second))
					if rng.IntN(3) == 0 {
						d := someStep(rng)
						off += int64(d)
						if d > 0 || l.edges {
							steps++
						}
					}
					advance()
					for range rng.IntN(12) {
						if _, result := r.Take(1); result.Allowed {
							granted++
							continue
						}
						if rng.IntN(10) == 0 {
							r = comesBack(t, r, &l, at())
						}
						break
					}
					if most := l.bound(time.Duration(now-begin)) + steps*l.most; granted > most {
						t.Fatalf("seed %d: %d granted in %v with %d steps, want at most %d", seed, granted, time.Duration(now-begin), steps, most)
					}
					if rng.IntN(4) == 0 { // it was written, and read by another
						r = must(store.ParseRecord(must(r.AppendBinary(nil))))
						advance()
					}
				}
				now += int64(store.MostAhead + l.window)
				advance()
				if left := r.Peek(0).Remaining; left != l.most {
					t.Fatalf("seed %d: %d of %d have come back %v after the last step", seed, left, l.most, store.MostAhead+l.window)
				}
			}
		})
	}
}

// comesBack checks when a refused request is told to come back.
func comesBack(t *testing.T, r *store.Record, l *steppedLimit, now int64) *store.Record {
	t.Helper()
	bytes := must(r.AppendBinary(nil))
	again := must(store.ParseRecord(bytes))
	_ = must(again.Advance(now, l.Limit))
	wait := again.Peek(1).RetryAfter
	if wait <= 0 || wait > store.MostAhead+l.window {
		t.Fatalf("refused for %v", wait)
	}
	_ = must(again.Advance(now+int64(wait)-1, l.Limit))
	if again.Peek(1).Allowed {
		t.Errorf("told to come back after %v, but the permits are there before", wait)
	}
	_ = must(again.Advance(now+int64(wait), l.Limit))
	if !again.Peek(1).Allowed {
		t.Errorf("told to come back after %v, and refused then", wait)
	}
	r = must(store.ParseRecord(bytes))
	_ = must(r.Advance(now, l.Limit))
	return r
}

// TestQuotaOfAClockThatWasAhead: a month that a clock has begun too early is not granted again when it is set right, and neither
// is the month that really goes on.
func TestQuotaOfAClockThatWasAhead(t *testing.T) {
	l := weir.CalendarWindow(1000, algo.Calendar{Unit: algo.CalendarMonth})
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	december, january := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	r := must(store.NewRecord(l, now.UnixNano()))
	take := func(at time.Time, n int64, want bool) algo.Result {
		t.Helper()
		_ = must(r.Advance(at.UnixNano(), l))
		_, result := r.Take(n)
		if result.Allowed != want {
			t.Errorf("%d at %v: %+v", n, at, result)
		}
		return result
	}
	take(now, 900, true)
	take(now.Add(12*24*time.Hour), 50, true) // December has begun, by this clock
	take(now, 951, false)
	take(now, 950, true) // what is left of December, as what was used of November is not known any more
	if result := take(now, 1, false); result.RetryAfter != january.Sub(now) {
		t.Errorf("refused for %v", result.RetryAfter)
	}
	take(december, 1, false)
	take(january, 1000, true)
}

// TestLockedClocks has processes whose clocks are apart for good share limits: each of them gives the limit a few times more at most,
// however often they take turns, and permits come back for all of them.
func TestLockedClocks(t *testing.T) {
	apart := map[string][]time.Duration{
		"one ahead":  {0, 0, time.Hour},
		"one behind": {0, 0, -time.Hour},
		"three":      {0, time.Hour, -2 * time.Hour},
		"days":       {0, 12 * 24 * time.Hour},
		"a little":   {0, 15 * time.Second, 40 * time.Second},
	}
	for kind, l := range steppedLimits() {
		for name, clocks := range apart {
			t.Run(kind+"/"+name, func(t *testing.T) {
				for seed := range uint64(5) {
					lockedClocks(t, rand.New(rand.NewPCG(seed, 2)), &l, clocks)
				}
			})
		}
	}
}

func lockedClocks(t *testing.T, rng *rand.Rand, l *steppedLimit, apart []time.Duration) {
	t.Helper()
	begin := time.Date(2026, 11, 22, 10, 7, 3, 1, time.UTC).UnixNano()
	clock := newVirtual()
	clock.now.Store(begin)
	locks := store.NewMemoryLocks(clock)
	var all []*store.Locked
	for _, d := range apart {
		all = append(all, newLocked(t, locks, patient(ahead{clock, d})))
	}
	c := []store.Charge{{Policy: "p", Key: "k", Limit: l.Limit, N: 1}}
	d := make([]weir.Decision, 1)
	granted := int64(0)
	take := func(s *store.Locked) bool {
		if err := store.Take(context.Background(), s, c, d); err != nil {
			t.Fatal(err)
		}
		if d[0].Allowed {
			granted++
		}
		return d[0].Allowed
	}
	for range 400 {
		clock.Advance(time.Duration(rng.Int64N(int64(2 * time.Second))))
		s := all[rng.IntN(len(all))]
		for range rng.IntN(4) {
			take(s)
		}
	}
	passed := time.Duration(clock.Now() - begin)
	if most := l.bound(passed) + 3*int64(len(apart))*l.most; granted > most {
		t.Fatalf("%d granted in %v, want at most %d", granted, passed, most)
	}
	spread := 2 * (slices.Max(apart) - slices.Min(apart) + store.MostAhead) // what a key that is not asked for can lose
	clock.Advance(store.MostAhead + l.window + spread)
	for i, s := range all {
		if err := store.Peek(context.Background(), s, c, d); err != nil || d[0].Remaining != l.most {
			t.Fatalf("the process %v off has %d of %d: %v", apart[i], d[0].Remaining, l.most, err)
		}
	}
}

// TestLockedClockThatWasAheadOnce: a process whose clock was an hour ahead and is set right freezes nothing.
func TestLockedClockThatWasAheadOnce(t *testing.T) {
	for kind, l := range steppedLimits() {
		if l.window > time.Hour {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			clock := manualclock.New(time.Date(2026, 11, 22, 10, 7, 3, 1, time.UTC).UnixNano())
			s := newLocked(t, store.NewMemoryLocks(nil), patient(clock))
			c := []store.Charge{{Policy: "p", Key: "k", Limit: l.Limit, N: 10}}
			d := make([]weir.Decision, 1)
			for round := range 5 {
				clock.Advance(time.Hour)
				if err := store.Take(t.Context(), s, c, d); err != nil || !d[0].Allowed {
					t.Fatalf("round %d: %+v, %v", round, d[0], err)
				}
				clock.Advance(-time.Hour)
				if err := store.Take(t.Context(), s, c, d); err != nil || d[0].Allowed || d[0].RetryAfter > l.window {
					t.Fatalf("round %d: %+v, %v", round, d[0], err)
				}
				clock.Advance(d[0].RetryAfter)
				if err := store.Take(t.Context(), s, c, d); err != nil || !d[0].Allowed {
					t.Fatalf("round %d: %s", round, fmt.Sprintf("%+v, %v", d[0], err))
				}
				clock.Advance(l.window)
			}
		})
	}
}
