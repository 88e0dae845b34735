package weir

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestDivisorIsExact at the borders of all quotients, where a multiplication is wrong first.
func TestDivisorIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	divisors := []uint64{2, 3, 4, 5, 7, 127, 128, 129, 1e9 << 7, 1<<57 - 1, 1 << 57, 1<<62 - 1, 1 << 62}
	for range 2000 {
		divisors = append(divisors, 2+rng.Uint64N(1<<(1+rng.Uint64N(61))))
	}
	for _, d := range divisors {
		by := newDivisor(d)
		check := func(n uint64) {
			if got := by.of(n); got != n/d {
				t.Fatalf("%d / %d = %d, want %d", n, d, got, n/d)
			}
		}
		check(0)
		check(math.MaxInt64)
		for range 100 {
			n := rng.Uint64N(1<<63) >> rng.Uint64N(63)
			check(n)
			border := n / d * d
			check(border)
			if border > 0 {
				check(border - 1)
			}
		}
		last := math.MaxInt64 / d * d
		check(last)
		check(last - 1)
	}
}
