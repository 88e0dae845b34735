//go:build !race

package algo_test

import (
	"math/big"
	"testing"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/lockstep"
)

// grant is permits that were taken or charged at a time.
type grant struct{ at, n int64 }

// randomly asks at random times, all of them later than the one before or the same, and charges up to maxDebt.
func randomly[S any](src lockstep.Source, a algo.Algorithm[S], scale lockstep.Scale, maxDebt int64, count int) []grant {
	var (
		s   S
		all []grant
	)

	for now := src.Start(); len(all) < count && now <= 1<<62; {
		n := pick(src, 1, 1, 1, 2, 1+int64(src(uint64(scale.Limit))), scale.Limit)
		n = min(n, scale.Limit)

		var r algo.Result
		if s, r = a.Take(s, now, n); r.Allowed {
			all = append(all, grant{now, n})
		} else if maxDebt > 0 && src(4) == 0 {
			var charged int64

			s, charged = a.Charge(s, now, n, maxDebt)
			all = append(all, grant{now, charged})
		}

		switch src(8) {
		case 0:
			now += int64(src(uint64(scale.Tick) + 1))
		case 1:
			now += int64(r.RetryAfter)
		case 2:
			now += int64(src(uint64(scale.Long)/8 + 1))
		case 3:
			now += int64(src(uint64(scale.Long) + 1))
		}
	}

	return all
}

// greedily asks for one permit after the other, as if at every nanosecond.
func greedily[S any](src lockstep.Source, a algo.Algorithm[S], count int) []grant {
	var (
		s   S
		all []grant
	)

	for now := int64(src(1 << 50)); len(all) < count && now < 1<<62; {
		var r algo.Result
		if s, r = a.Take(s, now, 1); r.Allowed {
			all = append(all, grant{now, 1})
		} else {
			now += int64(r.RetryAfter)
		}
	}

	return all
}

// most is the most permits that were granted between two grants of which the second is less than span after the first,
// or, if closed, not more than span.
func most(all []grant, span *big.Rat, closed bool) int64 {
	var sum, top int64

	first := 0
	for _, g := range all {
		sum += g.n

		for ; ; first++ {
			order := new(big.Rat).SetInt64(g.at - all[first].at).Cmp(span)
			if order < 0 || closed && order == 0 {
				break
			}

			sum -= all[first].n
		}

		top = max(top, sum)
	}

	return top
}

func span(d time.Duration) *big.Rat { return new(big.Rat).SetInt64(int64(d)) }

// least is the fewest permits that were granted in a span of time, from the first grant to the last.
func least(all []grant, d time.Duration) int64 {
	var (
		sum    int64
		bottom = int64(1 << 62)
	)

	end := 0
	for _, g := range all { // the spans that begin right after g
		for end < len(all) && all[end].at <= g.at+int64(d) {
			sum += all[end].n
			end++
		}

		if end == len(all) {
			return bottom
		}

		sum -= g.n
		bottom = min(bottom, sum)
	}

	return bottom
}

// checkRate wants over any interval t no more than burst + rate x t permits, and if greedy no less than rate x t - 1.
func checkRate(t *testing.T, all []grant, permits int64, period time.Duration, burst int64, greedy bool) {
	t.Helper()

	// What was granted until then less rate x t, in parts of which a permit has period.
	granted, lowest, highest := new(big.Int), new(big.Int), new(big.Int)
	unit := big.NewInt(int64(period))

	for i, g := range all {
		lead := new(big.Int).Sub(granted, new(big.Int).Mul(big.NewInt(g.at-all[0].at), big.NewInt(permits)))

		if i == 0 || lead.Cmp(lowest) < 0 {
			lowest = lead
		}

		// Up to the nanosecond before this grant, time being whole nanoseconds.
		behind := new(big.Int).Sub(highest, lead)
		if behind.Sub(behind, big.NewInt(permits)); greedy && behind.Cmp(unit) > 0 {
			t.Fatalf("grant %d at %d comes when more than one permit is due", i, g.at)
		}

		granted.Add(granted, new(big.Int).Mul(big.NewInt(g.n), unit))

		lead = new(big.Int).Add(lead, new(big.Int).Mul(big.NewInt(g.n), unit))
		if ahead := new(big.Int).Sub(lead, lowest); ahead.Cmp(new(big.Int).Mul(big.NewInt(burst), unit)) > 0 {
			t.Fatalf("grant %d at %d of %d exceeds burst + rate x t by %v permits", i, g.at, g.n,
				new(big.Rat).Sub(new(big.Rat).SetFrac(ahead, unit), new(big.Rat).SetInt64(burst)))
		}

		if lead.Cmp(highest) > 0 || i == 0 {
			highest = lead
		}
	}
}

func TestTokenBucketBounds(t *testing.T) {
	src := lockstep.Source(random(t).Uint64N)

	for range effort(t, 600) {
		permits, period, burst := drawBucket(src)

		b, err := algo.NewTokenBucket(permits, period, burst)
		if err != nil {
			continue
		}

		num, per := b.Rate()
		scale := lockstep.Scale{Limit: burst, Tick: max(1, per/num), Long: int64(fillTime(b))}
		debt := int64(src(2)) * logUniform(src, burst)

		checkRate(t, randomly(src, b, scale, debt, 300), permits, period, burst+debt, false)
		greedy := greedily(src, b, int(min(burst, 200))+100)
		checkRate(t, greedy, permits, period, burst, burst > 1)

		if burst == 1 { // the fraction of a nanosecond that the caller comes late cannot be saved
			checkRate(t, greedy, 1, time.Duration((per-1)/num+1), burst, true)
		}
	}
}

// windowOf is the number of the window that at lies in.
func windowOf(at int64, window time.Duration, origin int64) int64 {
	since := new(big.Int).Sub(big.NewInt(at), big.NewInt(origin))

	return since.Div(since, big.NewInt(int64(window))).Int64()
}

func TestFixedWindowBounds(t *testing.T) {
	src := lockstep.Source(random(t).Uint64N)

	for range effort(t, 600) {
		limit, window, origin := 1+int64(src(50)), drawWindow(src), drawOrigin(src)
		w := must(algo.NewFixedWindow(limit, window, origin))
		scale := lockstep.Scale{Limit: limit, Tick: 1 + int64(window)/limit, Long: int64(window)}

		for _, all := range [][]grant{randomly(src, w, scale, 0, 300), greedily(src, w, 300)} {
			if got := most(all, span(window), false); got > 2*limit {
				t.Fatalf("%d permits in less than a window of %d: %+v", got, limit, w)
			}
		}

		if got := least(greedily(src, w, 300), window); got < limit {
			t.Fatalf("a greedy caller gets %d in a window of %d: %+v", got, limit, w)
		}

		// With debt, any number of whole windows together grant no more than their limits and the debt.
		debt := 1 + int64(src(100))
		all := randomly(src, w, scale, debt, 300)
		lead, lowest := int64(0), int64(0) // granted less limit for each window that has begun
		for i, g := range all {
			if i > 0 {
				passed := windowOf(g.at, window, origin) - windowOf(all[i-1].at, window, origin)
				lead -= min(passed, 1<<40) * limit
			}

			lowest = min(lowest, lead)
			if lead += g.n; lead-lowest > limit+debt {
				t.Fatalf("%d permits more than limits of %d and a debt of %d allow: %+v", lead-lowest-limit-debt, limit, debt, w)
			}
		}
	}
}

func TestSlidingWindowBounds(t *testing.T) {
	src := lockstep.Source(random(t).Uint64N)

	for range effort(t, 600) {
		limit, window, origin := 1+int64(src(50)), drawWindow(src), drawOrigin(src)
		segments := 1 + int64(src(uint64(min(int64(window), algo.MaxSegments))))
		w := must(algo.NewSlidingWindow(limit, window, int(segments), origin))
		scale := lockstep.Scale{Limit: limit, Tick: 1 + int64(window)/limit, Long: int64(window)}
		exact := new(big.Rat).Mul(span(window), big.NewRat(segments-1, segments))
		greedy := greedily(src, w, 300)

		for _, all := range [][]grant{randomly(src, w, scale, 0, 300), greedy} {
			if got := most(all, exact, true); got > limit {
				t.Fatalf("%d permits in %v ns: %+v", got, exact, w)
			}

			if got := most(all, span(window), true); got > 2*limit {
				t.Fatalf("%d permits in a window: %+v", got, w)
			}
		}

		if got := least(greedy, window); got < limit {
			t.Fatalf("a greedy caller gets %d in a window: %+v", got, w)
		}

		debt := 1 + int64(src(100))
		if got := most(randomly(src, w, scale, debt, 300), exact, true); got > limit+debt {
			t.Fatalf("%d permits in %v ns with a debt of %d: %+v", got, exact, debt, w)
		}
	}
}

func TestSlidingCounterBounds(t *testing.T) {
	src := lockstep.Source(random(t).Uint64N)
	worst := false

	for range effort(t, 600) {
		limit, window, origin := 1+int64(src(50)), drawWindow(src), drawOrigin(src)
		w := must(algo.NewSlidingCounter(limit, window, origin))
		scale := lockstep.Scale{Limit: limit, Tick: 1 + int64(window)/limit, Long: int64(window)}
		greedy := greedily(src, w, 300)

		for _, all := range [][]grant{randomly(src, w, scale, 0, 300), greedy} {
			got := most(all, span(window), false)
			if got > 2*limit-1 {
				t.Fatalf("%d permits in a window: %+v", got, w)
			}

			worst = worst || limit > 1 && got == 2*limit-1
		}

		// Whole windows, without the last one, in which the history ends.
		perWindow := map[int64]int64{}
		for _, g := range greedy {
			perWindow[windowOf(g.at, window, origin)] += g.n
		}

		begin, end := windowOf(greedy[0].at, window, origin), windowOf(greedy[len(greedy)-1].at, window, origin)
		weight := 1 + (limit-1)/int64(window) // of the permits of the window before, in its last nanosecond

		for i := begin + 1; i < end; i++ {
			if got := perWindow[i]; got < limit-weight || perWindow[i-1]+got == 0 {
				t.Fatalf("a greedy caller gets %d in window %d: %+v", got, i-begin, w)
			}
		}
	}

	if !worst {
		t.Error("no history reached 2 x limit - 1: is the bound right?")
	}
}

func TestConcurrencyBounds(t *testing.T) {
	src := lockstep.Source(random(t).Uint64N)

	for range effort(t, 600) {
		limit := drawLimit(src)
		c := must(algo.NewConcurrency(limit))

		var (
			s    algo.ConcurrencyState
			out  int64
			held []int64
		)

		for range 200 {
			if len(held) > 0 && src(3) == 0 {
				i := int(src(uint64(len(held))))
				s = c.Cancel(s, 0, held[i], algo.Mark{})
				out -= held[i]
				held = append(held[:i], held[i+1:]...)

				continue
			}

			n := 1 + int64(src(uint64(limit)))

			var r algo.Result
			if s, r = c.Take(s, 0, n); r.Allowed {
				out += n
				held = append(held, n)
			} else if out+n <= limit {
				t.Fatalf("%d refused with %d of %d out", n, out, limit)
			}

			if out > limit || s.InUse != out {
				t.Fatalf("%d of %d permits are out: %+v", out, limit, s)
			}
		}
	}
}
