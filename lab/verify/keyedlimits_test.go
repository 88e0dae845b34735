package verify_test

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir"
	parts "github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
)

// chosen is a limiter whose keys have the limit that the test says at the moment.
func chosen(t *testing.T, first weir.Limit, clock *manualclock.Clock) (k *weir.Keyed[int], limit func(weir.Limit)) {
	t.Helper()
	var now weir.Limit
	k = must(weir.NewKeyedFunc(first, weir.KeyedOptions{Clock: clock}, func(int) weir.Limit { return now }))
	t.Cleanup(func() { _ = k.Close() })
	return k, func(l weir.Limit) { now = l }
}

// drained is how many single permits of key 0 are granted now.
func drained(k *weir.Keyed[int]) (granted int64) {
	for k.Allow(0) {
		granted++
	}
	return granted
}

// TestKeyedWindowKeepsWhatIsTaken lowers the limit of a key in the middle of a window and raises it again, in both ways in which
// limits change: what was taken in the window stays taken, and nothing is owed by the next one.
func TestKeyedWindowKeepsWhatIsTaken(t *testing.T) {
	rate := weir.PerMinute(100)
	for _, wide := range []weir.Limit{weir.FixedWindow(rate), weir.SlidingWindow(rate, 0), weir.SlidingCounter(rate)} {
		narrow := parts.WithPermits(wide, 10)
		for _, way := range []string{"function", "override"} {
			t.Run(wide.Algorithm().String()+"/"+way, func(t *testing.T) {
				var clock manualclock.Clock
				k, limit := chosen(t, wide, &clock)
				granted := drained(k)
				if way == "function" {
					limit(narrow)
				} else if err := keyset.Of(k).Override(0, narrow, time.Second); err != nil {
					t.Fatal(err)
				}
				granted += drained(k)
				if way == "function" {
					limit(wide)
				} else {
					keyset.Of(k).Restore(0)
				}
				granted += drained(k)
				if granted != 100 {
					t.Errorf("%d permits are granted in a window, want 100", granted)
				}
				limit(narrow)
				k.Peek(0, 1)
				clock.Advance(2 * time.Minute)
				if again := drained(k); again != 10 {
					t.Errorf("%d permits are granted two windows later, want 10", again)
				}
			})
		}
	}
}

// TestKeyedDebtStaysOwed charges a key much more than the limit that it has later would let it owe.
func TestKeyedDebtStaysOwed(t *testing.T) {
	for _, way := range []string{"function", "override"} {
		t.Run(way, func(t *testing.T) {
			var clock manualclock.Clock
			k, limit := chosen(t, weir.TokenBucket(weir.PerSecond(10), 1000), &clock)
			l := k.TryReserve(0, 1000)
			l.Commit(2000)
			narrow := weir.TokenBucket(weir.PerSecond(10), 10)
			if way == "function" {
				limit(narrow)
			} else if err := keyset.Of(k).Override(0, narrow, time.Hour); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if d := k.Peek(0, 1); d.RetryAfter != 100100*time.Millisecond {
					t.Fatalf("%v until a permit comes, though 1000 are owed at 10/s", d.RetryAfter)
				}
			}
			limit(weir.Limit{})
			keyset.Of(k).Restore(0)
			for range 3 {
				if d := k.Take(0, 1); d.RetryAfter != 100100*time.Millisecond {
					t.Fatalf("%v until a permit comes, though 1000 are owed at 10/s", d.RetryAfter)
				}
			}
		})
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
