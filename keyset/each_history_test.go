//go:build !race

package keyset_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
)

// TestEachIsOneByOne compares batches with the same calls made one by one at the same time: keys that stand in a batch several
// times and change their plan in it, overridden ones, full tables, and what cannot be used.
func TestEachIsOneByOne(t *testing.T) {
	bucket := weir.TokenBucket
	for name, c := range map[string]struct {
		base    weir.Limit
		limits  []weir.Limit
		maxKeys int
		clock   bool
	}{
		"buckets":  {bucket(weir.PerSecond(1), 0), []weir.Limit{{}, bucket(weir.PerSecond(7), 3), bucket(every(time.Minute), 20)}, 1000, false},
		"few keys": {bucket(weir.PerSecond(1), 0), []weir.Limit{bucket(weir.PerSecond(3), 3), bucket(every(time.Minute), 5)}, 9, false},
		"a clock":  {bucket(weir.PerSecond(1), 0), []weir.Limit{{}, bucket(weir.PerSecond(7), 3)}, 1000, true},
		"windows":  {weir.FixedWindow(weir.Rate{Permits: 5, Period: time.Second}), []weir.Limit{{}, weir.FixedWindow(weir.Rate{Permits: 9, Period: 4 * time.Second})}, 12, false},
		"sliding":  {weir.SlidingWindow(weir.Rate{Permits: 5, Period: time.Second}, 4), []weir.Limit{{}, weir.SlidingWindow(weir.Rate{Permits: 9, Period: 4 * time.Second}, 4)}, 12, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := manualclock.New(1)
				o := weir.KeyedOptions{MaxKeys: c.maxKeys}
				if c.clock {
					o.Clock = clock
				}
				a := newAsked(t, c.base, o, c.limits...)
				defer a.limiters[0].Close()
				defer a.limiters[1].Close()
				random := rand.New(rand.NewPCG(3, 4))
				var s keyset.Batch
				var got [keyset.MostCharges]weir.Decision
				for range 2000 {
					n := 1 + random.IntN(keyset.MostCharges)
					var want []weir.Decision
					for i := range n {
						key := []byte(strconv.Itoa(random.IntN(20)))
						plan, cost := random.IntN(len(c.limits)), []int64{0, 1, 1, 1, 1, 2, 30, -1}[random.IntN(8)]
						s.Add(a.plans[0][plan], key, cost, &got[i])
						want = append(want, a.plans[1][plan].TakeBytes(key, cost))
					}
					s.Take()
					for i := range want {
						if got[i] != want[i] {
							t.Fatalf("call %d of %d: %+v, want %+v", i, n, got[i], want[i])
						}
					}
					if random.IntN(8) == 0 {
						key, d := strconv.Itoa(random.IntN(20)), time.Duration(1+random.IntN(int(time.Second)))
						for _, k := range a.limiters {
							_ = keyset.Of(k).Override(key, c.limits[len(c.limits)-1], d)
						}
					}
					d := time.Duration(random.ExpFloat64() * float64(300*time.Millisecond))
					clock.Advance(d)
					time.Sleep(d)
				}
				if x, y := a.limiters[0].Stats(), a.limiters[1].Stats(); x != y {
					t.Errorf("%+v, want %+v", x, y)
				}
			})
		})
	}
}
