package weir

import "math/bits"

// divisor divides numbers below 2^63 by one that is known long before, by a multiplication: a division would cost as much as the
// exchange of a word.
//
// It is exact (Granlund and Montgomery, 1994): with 2^(l-1) < d <= 2^l and m the whole number above 2^(63+l) / d, m x d exceeds
// 2^(63+l) by at most 2^l, so that n x m / 2^(63+l) exceeds n / d by less than 1 / d.
type divisor struct {
	m     uint64
	shift uint8
}

// newDivisor returns the divisor by d, from 2 to 2^62.
func newDivisor(d uint64) divisor {
	l := bits.Len64(d - 1)
	m, _ := bits.Div64(1<<(l-1), 0, d)
	return divisor{m + 1, uint8(l - 1)}
}

func (v divisor) of(n uint64) uint64 {
	hi, _ := bits.Mul64(n, v.m)
	return hi >> (v.shift & 63)
}
