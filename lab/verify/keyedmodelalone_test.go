//go:build !race

package verify_test

import (
	"fmt"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
)

// TestKeyedIsPlainForEachKey compares three keys of a Keyed with three limiters, call by call, in all algorithms, with a Clock and
// without, where states are packed differently.
func TestKeyedIsPlainForEachKey(t *testing.T) {
	histories(t, "400")
	for algorithm := weir.AlgorithmTokenBucket; algorithm <= weir.AlgorithmCalendarWindow; algorithm++ {
		for _, clocked := range []bool{false, true} {
			for _, chosen := range []bool{false, true} {
				if clocked && chosen {
					continue // packed as with one of them
				}
				t.Run(fmt.Sprintf("%v/clock %v/function %v", algorithm, clocked, chosen), func(t *testing.T) {
					rapid.Check(t, func(r *rapid.T) {
						bubble(t, func() { alongside(r, algorithm, clocked, chosen) })
					})
				})
			}
		}
	}
}

// TestKeyedChangesNeverMint takes from a key whose limit changes all the time, by the function and by overrides, and adds up in
// exact fractions what was granted in any span of time: no more than the largest burst and the fastest rate allow.
func TestKeyedChangesNeverMint(t *testing.T) {
	limits := []weir.Limit{
		weir.TokenBucket(weir.PerSecond(1), 6),
		weir.TokenBucket(weir.PerSecond(3), 2),
		weir.TokenBucket(weir.PerMinute(7), 9),
		weir.TokenBucket(weir.Per(999_999_937, time.Hour), 4),
		weir.TokenBucket(weir.Per(1, 3660*24*time.Hour), 5),
	}
	rapid.Check(t, func(r *rapid.T) {
		var clock manualclock.Clock
		var limit weir.Limit
		used := map[weir.Limit]bool{limits[0]: true}
		k := must(weir.NewKeyedFunc(limits[0], weir.KeyedOptions{Clock: &clock}, func(int) weir.Limit { return limit }))
		defer func() { _ = k.Close() }()
		type grant struct{ at, n int64 }
		var all []grant
		k.Take(0, 1) // a key that was never seen has all permits of any limit
		all = append(all, grant{0, 1})
		left, last := limits[0].Permits()-1, int64(0) // what was available, and when
		some := rapid.SampledFrom(limits)
		r.Repeat(map[string]func(*rapid.T){
			"time": func(t *rapid.T) {
				clock.Advance(time.Duration(rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, 3*second)).Draw(t, "ns")))
			},
			"change":  func(t *rapid.T) { limit = some.Draw(t, "limit"); used[limit] = true },
			"restore": func(*rapid.T) { keyset.Of(k).Restore(0) },
			"override": func(t *rapid.T) {
				l := some.Draw(t, "limit")
				used[l] = true
				if err := keyset.Of(k).Override(0, l, time.Duration(rapid.Int64Range(1, 2*second).Draw(t, "for"))); err != nil {
					t.Fatal(err)
				}
			},
			"take": func(t *rapid.T) {
				n := rapid.Int64Range(1, 4).Draw(t, "n")
				if k.Take(0, n).Allowed {
					all = append(all, grant{clock.Now(), n})
				}
			},
			"": func(t *rapid.T) {
				now := k.Peek(0, 1).Remaining
				if clock.Now() == last && now > left {
					t.Fatalf("%d permits are available where %d were at the same time", now, left)
				}
				left, last = now, clock.Now()
				burst, rate := int64(0), new(big.Rat)
				for l := range used {
					burst = max(burst, l.Permits())
					if of := big.NewRat(l.Rate().Permits, int64(l.Rate().Period)); of.Cmp(rate) > 0 {
						rate = of
					}
				}
				for from := range all {
					sum := int64(0)
					for _, g := range all[from:] {
						sum += g.n
						may := new(big.Rat).Mul(rate, big.NewRat(g.at-all[from].at, 1))
						if may.Add(may, big.NewRat(burst, 1)).Cmp(big.NewRat(sum, 1)) < 0 {
							t.Fatalf("%d were granted from %d to %d, more than %v", sum, all[from].at, g.at, may)
						}
					}
				}
			},
		})
	})
}
