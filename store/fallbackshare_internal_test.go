//go:build !race

package store

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/limits"
)

// TestDividedLimitIsAShare wants any limit that can be shared out to be shared out: it is valid, no more than the limit in all, and the
// rate of a bucket is exact unless its period would be too long.
func TestDividedLimitIsAShare(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		period := time.Duration(1 + r.Int64N(int64(1)<<r.IntN(58)))
		rate := weir.Per(1+r.Int64N(min(int64(period), 1e15)), period)
		l, _ := limits.Of(weir.Algorithm(r.IntN(4)), rate, 1+r.Int64N(1<<r.IntN(40)), 0, algo.Calendar{})
		if l.Check() != nil {
			continue
		}
		by := 2 + r.Int64N(1<<r.IntN(13))
		d := dividedLimit(l, by)
		if err := d.Check(); err != nil {
			t.Fatalf("%v by %d is %v: %v", l, by, d, err)
		}
		was, is := l.Rate().Permits, d.Rate().Permits
		if l.Algorithm() == weir.AlgorithmTokenBucket {
			was, is = l.Permits(), d.Permits()
			exact := big.NewRat(l.Rate().Permits, int64(l.Rate().Period))
			share := new(big.Rat).Mul(big.NewRat(d.Rate().Permits, int64(d.Rate().Period)), big.NewRat(by, 1))
			if fits := int64(l.Rate().Period) <= int64(algo.MaxPeriod)/by; fits && share.Cmp(exact) != 0 {
				t.Fatalf("%v by %d is %v, which is another rate", l, by, d)
			}
		}
		if is != max(was/by, 1) {
			t.Fatalf("%v by %d is %v", l, by, d)
		}
	}
}
