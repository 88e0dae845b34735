package load

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// draw counts what a source draws.
func draw(o *options, times int) map[uint64]int {
	s := newKeySource(o, 3)
	counts := map[uint64]int{}
	for range times {
		counts[s.number()]++
	}
	return counts
}

// near fails unless n of times is what a probability makes likely: within five standard deviations.
func near(t *testing.T, what string, n, times int, p float64) {
	t.Helper()
	want := p * float64(times)
	if deviation := math.Sqrt(want * (1 - p)); math.Abs(float64(n)-want) > 5*deviation+1 {
		t.Errorf("%s: %d of %d, want about %.1f", what, n, times, want)
	}
}

func TestUniformKeys(t *testing.T) {
	const times = 50_000
	for _, n := range []int64{1, 2, 10, 1000} {
		counts := draw(&options{keys: n, seed: 5}, times)
		if len(counts) != int(n) {
			t.Errorf("%d of %d keys", len(counts), n)
		}
		for k, c := range counts {
			near(t, fmt.Sprintf("key %d of %d", k, n), c, times, 1/float64(n))
		}
	}
}

// TestZipfKeys compares with the probabilities as they are defined, for exponents below 1, of 1, and above.
func TestZipfKeys(t *testing.T) {
	const times = 50_000
	for _, s := range []float64{0.01, 0.99, 1, 1.2, 10} {
		for _, n := range []int64{1, 2, 10, 100_000} {
			sum := 0.0
			for k := range n {
				sum += math.Pow(float64(k+1), -s)
			}
			counts := draw(&options{keys: n, seed: 5, distribution: zipf, zipfS: s}, times)
			tail, tailP := times, 1.0
			for k := range uint64(min(n, 20)) {
				p := math.Pow(float64(k+1), -s) / sum
				near(t, fmt.Sprintf("s %g: key %d of %d", s, k, n), counts[k], times, p)
				tail -= counts[k]
				tailP -= p
			}
			near(t, fmt.Sprintf("s %g: keys from 20 of %d", s, n), tail, times, max(0, tailP))
			for k := range counts {
				if k >= uint64(n) {
					t.Fatalf("s %g: key %d of %d", s, k, n)
				}
			}
		}
	}
}

func TestKeysFollowFromTheSeed(t *testing.T) {
	first := func(seed int64, connection int) string {
		s := newKeySource(&options{keys: 1_000_000, keyPrefix: "user:", seed: seed}, connection)
		var keys []string
		for range 10 {
			keys = append(keys, string(s.next()))
		}
		return strings.Join(keys, " ")
	}
	got := first(1, 0)
	if got != first(1, 0) || got == first(2, 0) || got == first(1, 1) || strings.Count(got, "user:") != 10 {
		t.Errorf("%s\n%s\n%s", got, first(2, 0), first(1, 1))
	}
}

func TestNoAllocationForAKey(t *testing.T) {
	for _, distribution := range []string{uniform, zipf} {
		s := newKeySource(&options{keys: 1_000_000, keyPrefix: "user:", distribution: distribution, zipfS: 0.99}, 0)
		if n := testing.AllocsPerRun(1000, func() { s.next() }); n != 0 {
			t.Errorf("%s: %v allocations", distribution, n)
		}
	}
}

func BenchmarkZipf(b *testing.B) {
	s := newKeySource(&options{keys: 1_000_000, keyPrefix: "user:", distribution: zipf, zipfS: 0.99}, 0)
	for b.Loop() {
		s.next()
	}
}
