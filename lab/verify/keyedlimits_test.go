package verify_test

import (
	"testing"
	"time"

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
