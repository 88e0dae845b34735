//go:build !race

package algo_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/lockstep"
	"github.com/weirhq/weir/internal/reference"
)

const day = 24 * time.Hour

// effort is how many steps a test takes: a tenth of n, with -short a hundredth, and WEIR_EFFORT times as many if that is set. `make
// algo-steps` has it take all of them.
func effort(t *testing.T, n int) int {
	t.Helper()

	n /= 10

	if testing.Short() {
		n /= 10
	}

	if s := os.Getenv("WEIR_EFFORT"); s != "" {
		factor, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatalf("WEIR_EFFORT is %q: must be a factor", s)
		}

		n = int(float64(n) * factor)
	}

	return max(n, 100)
}

// random is a source of decisions that differ in each run, and says how to repeat this one.
func random(t *testing.T) *rand.Rand {
	t.Helper()

	seed := rand.Uint64()

	if s := os.Getenv("WEIR_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("WEIR_SEED is %q: must be a number", s)
		}
	}

	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to repeat: WEIR_SEED=%d", seed)
		}
	})

	return rand.New(rand.NewPCG(seed, 0))
}

// pick is one of the choices.
func pick[T any](src lockstep.Source, choices ...T) T { return choices[src(uint64(len(choices)))] }

// logUniform is a number from 1 to most, of any length alike.
func logUniform(src lockstep.Source, most int64) int64 {
	span := int64(1)
	for bits := src(63); bits > 0 && span < most; bits-- {
		span <<= 1
	}

	return 1 + int64(src(uint64(min(span, most))))
}

func drawLimit(src lockstep.Source) int64 {
	if src(2) == 0 {
		return pick[int64](src, 1, 2, 3, 4, 5, 7, 10, 100, 1000, 999_999_937, algo.MaxPermits, algo.MaxPermits-1)
	}

	return logUniform(src, algo.MaxPermits)
}

func drawWindow(src lockstep.Source) time.Duration {
	if src(2) == 0 {
		return pick(
			src, 1, 2, 7, time.Microsecond, 999_999_937, time.Second, 8*time.Second, time.Minute, time.Hour, day, 30*day,
			algo.MaxPeriod,
		)
	}

	return time.Duration(logUniform(src, int64(algo.MaxPeriod)))
}

// history makes calls of a pair until one answer is wrong, more says that it is enough, or no time is left.
func history[S comparable](
	src lockstep.Source, scale lockstep.Scale, p *lockstep.Pair[S], forward bool, more func() bool,
) (steps int, err error) {
	for now := src.Start(); more(); steps++ {
		c := lockstep.Next(src, scale, p, now, forward)
		if err := p.Do(c); err != nil {
			return steps, fmt.Errorf("step %d: %w", steps, err)
		}

		now = c.Now
	}

	return steps, nil
}

// stepsPerHistory is how many calls are made before other parameters are drawn.
const stepsPerHistory = 400

func times(n int) func() bool {
	return func() bool { n--; return n >= 0 }
}

// TestHistoriesEqualReference makes random calls of every algorithm at random times, forward and backward, and of a
// reference that has all the digits, and wants every answer to be the same.
func TestHistoriesEqualReference(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(lockstep.Source, func() bool) (int, error)
		// steps is how many calls are made. All of them take about 20 seconds.
		steps int
	}{
		{"TokenBucket", tokenBucketHistory, 3_000_000},
		{"FixedWindow", fixedWindowHistory, 500_000},
		{"SlidingWindow", slidingWindowHistory, 800_000},
		{"SlidingCounter", slidingCounterHistory, 300_000},
		{"Concurrency", concurrencyHistory, 2_000_000},
		{"CalendarWindow", calendarHistory, 20_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := random(t)
			steps, histories := 0, 0

			for want := effort(t, c.steps); steps < want; histories++ {
				n, err := c.run(rng.Uint64N, times(stepsPerHistory))
				if err != nil {
					t.Fatal(err)
				}

				steps += n
			}

			t.Logf("%d steps in %d histories", steps, histories)
		})
	}
}

// unlucky is what a history answers for parameters that the constructor refuses.
const unlucky = 0

func tokenBucketHistory(src lockstep.Source, more func() bool) (int, error) {
	permits, period, burst := drawBucket(src)

	b, err := algo.NewTokenBucket(permits, period, burst)
	if err != nil {
		return unlucky, nil //nolint:nilerr // drawn beyond the range
	}

	num, per := b.Rate()
	scale := lockstep.Scale{Limit: burst, Tick: max(1, per/num), Long: int64(fillTime(b))}
	p := &lockstep.Pair[algo.TokenBucketState]{Algorithm: &b, Reference: reference.NewTokenBucket(permits, period, burst)}

	return history(src, scale, p, src(2) == 0, more)
}

// drawBucket draws rates from 1 in 3660 days to 10^9 a second.
func drawBucket(src lockstep.Source) (permits int64, period time.Duration, burst int64) {
	type rate struct {
		permits int64
		period  time.Duration
	}

	r := pick(
		src,
		rate{1, day},
		rate{8, time.Minute},
		rate{7, 3 * time.Millisecond},
		rate{1_234_567, 30 * day},
		rate{999_999_937, time.Second},
		rate{1_000_000_000, time.Second},
		rate{1, 1},
		rate{1, algo.MaxPeriod},
		rate{algo.MaxPermits, algo.MaxPeriod},
		rate{algo.MaxPermits - 1, algo.MaxPeriod},
		rate{999_999_999_999_989, algo.MaxPeriod - 1},
		rate{},
		rate{},
		rate{},
	)

	if r.permits == 0 {
		r.period = time.Duration(logUniform(src, int64(algo.MaxPeriod)))
		r.permits = logUniform(src, min(int64(r.period), algo.MaxPermits))
	}

	if burst = drawLimit(src); src(2) == 0 {
		burst = 1 + burst%16
	}

	return r.permits, r.period, burst
}

func fillTime(b algo.TokenBucket) time.Duration {
	_, r := b.Take(algo.TokenBucketState{}, 0, b.Burst())

	return r.ResetAfter
}

func fixedWindowHistory(src lockstep.Source, more func() bool) (int, error) {
	limit, window, origin := drawLimit(src), drawWindow(src), drawOrigin(src)

	w, err := algo.NewFixedWindow(limit, window, origin)
	if err != nil {
		return unlucky, err
	}

	scale := lockstep.Scale{Limit: limit, Tick: int64(window), Long: int64(window)}
	p := &lockstep.Pair[algo.WindowState]{Algorithm: &w, Reference: reference.NewFixedWindow(limit, window, origin)}

	return history(src, scale, p, src(2) == 0, more)
}

func drawOrigin(src lockstep.Source) int64 {
	return pick(src, 0, 1, -1, int64(time.Hour), -int64(time.Hour), 1_700_000_000_123_456_789, 1<<62, -1<<62)
}

func slidingWindowHistory(src lockstep.Source, more func() bool) (int, error) {
	limit, window, origin := drawLimit(src), drawWindow(src), drawOrigin(src)
	segments := 1 + int(src(uint64(min(int64(window), algo.MaxSegments))))

	w, err := algo.NewSlidingWindow(limit, window, segments, origin)
	if err != nil {
		return unlucky, err
	}

	scale := lockstep.Scale{Limit: limit, Tick: int64(window) / int64(segments), Long: int64(window)}
	p := &lockstep.Pair[algo.SlidingWindowState]{
		Algorithm: &w, Reference: reference.NewSlidingWindow(limit, window, segments, origin),
	}

	return history(src, scale, p, src(2) == 0, more)
}

func slidingCounterHistory(src lockstep.Source, more func() bool) (int, error) {
	limit, window, origin := drawLimit(src), drawWindow(src), drawOrigin(src)

	w, err := algo.NewSlidingCounter(limit, window, origin)
	if err != nil {
		return unlucky, err
	}

	scale := lockstep.Scale{Limit: limit, Tick: max(1, int64(window)/limit), Long: int64(window)}
	p := &lockstep.Pair[algo.SlidingCounterState]{
		Algorithm: &w, Reference: reference.NewSlidingCounter(limit, window, origin),
	}

	return history(src, scale, p, src(2) == 0, more)
}

func concurrencyHistory(src lockstep.Source, more func() bool) (int, error) {
	limit := drawLimit(src)

	c, err := algo.NewConcurrency(limit)
	if err != nil {
		return unlucky, err
	}

	scale := lockstep.Scale{Limit: limit, Tick: 1, Long: math.MaxInt32}
	p := &lockstep.Pair[algo.ConcurrencyState]{Algorithm: c, Reference: reference.NewConcurrency(limit)}

	return history(src, scale, p, src(2) == 0, more)
}
