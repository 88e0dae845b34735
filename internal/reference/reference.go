// Package reference holds the algorithms of package algo a second time, written for being obviously right and for nothing
// else: in whole numbers of any size, as literal lists of what was taken, with a search where a formula would be shorter.
// It is slow, it allocates, and tests compare the real algorithms with it answer by answer.
//
// The algorithms here keep their state in themselves. Their constructors trust their arguments.
package reference

import (
	"math/big"
	"time"

	"github.com/weirhq/weir/algo"
)

// Limiter is an algorithm together with its state. The methods mean what those of [algo.Algorithm] mean; the Mark of
// the results is left zero.
type Limiter interface {
	Take(now, n int64) (algo.Result, Mark)
	Peek(now, n int64) algo.Result
	Refund(now, n int64)
	Cancel(now, n int64, m Mark)
	Charge(now, n, maxDebt int64) int64
	Fresh(now int64) bool
}

// Mark is what a limiter remembers of permits that were taken, for Cancel.
type Mark struct {
	at    *big.Int // of windows, the number of the window or segment; of a bucket, when it would have been full again
	moved *big.Int // of a bucket: by how much such times had been brought forward before
	taken int64
}

// whole is v as a number of any size.
func whole(v int64) *big.Int { return big.NewInt(v) }

func plus(a, b *big.Int) *big.Int  { return new(big.Int).Add(a, b) }
func minus(a, b *big.Int) *big.Int { return new(big.Int).Sub(a, b) }
func times(a, b *big.Int) *big.Int { return new(big.Int).Mul(a, b) }

// down is a/b rounded down, for b > 0.
func down(a, b *big.Int) *big.Int { return new(big.Int).Div(a, b) }

// up is a/b rounded up, for b > 0.
func up(a, b *big.Int) *big.Int {
	q := down(new(big.Int).Neg(a), b)

	return q.Neg(q)
}

func less(a, b *big.Int) bool { return a.Cmp(b) < 0 }

func smaller(a, b *big.Int) *big.Int {
	if less(b, a) {
		return b
	}

	return a
}

func larger(a, b *big.Int) *big.Int {
	if less(a, b) {
		return b
	}

	return a
}

// first is the smallest v from 0 to most for which ok holds, if ok holds for all larger ones too and for most.
func first(most *big.Int, ok func(v *big.Int) bool) *big.Int {
	low, high := whole(0), most
	for less(low, high) {
		middle := down(plus(low, high), whole(2))
		if ok(middle) {
			high = middle
		} else {
			low = plus(middle, whole(1))
		}
	}

	return high
}

func duration(v *big.Int) time.Duration { return time.Duration(v.Int64()) }
