//go:build !race

package verify_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
)

// TestKeyedManyLimits gives ever new keys ever new limits, more than there can be at a time: once the keys are fresh, others get
// their limits.
func TestKeyedManyLimits(t *testing.T) {
	for _, whenFull := range []bool{false, true} {
		t.Run(strconv.FormatBool(whenFull), func(t *testing.T) {
			var clock manualclock.Clock
			k := must(weir.NewKeyedFunc(weir.TokenBucket(weir.PerSecond(1), 0), weir.KeyedOptions{AdmitWhenFull: whenFull, Clock: &clock}, func(key int) weir.Limit {
				return weir.TokenBucket(weir.PerSecond(1), int64(key)+2)
			}))
			defer func() { _ = k.Close() }()
			for key := range mostLimits {
				if !k.Allow(key) {
					t.Fatalf("key %d is refused: %+v", key, k.Peek(key, 1))
				}
			}
			d := k.Take(mostLimits, 1)
			if !whenFull && d.Reason != weir.ReasonTableFull || whenFull && !d.Allowed {
				t.Errorf("the limit for which there is no tag: %+v", d)
			}
			clock.Advance(time.Hour)
			for key := mostLimits; key < 70_000; key++ {
				if d := k.Take(key, 1); !d.Allowed || d.Limit != int64(key)+2 {
					t.Fatalf("key %d is told %+v, though all others can be forgotten", key, d)
				}
			}
		})
	}
}

// TestKeyedLimitsAreRecycled gives one key 70,000 different limits, one after the other. Its permits are carried along, also
// those of reservations whose limit is long gone.
func TestKeyedLimitsAreRecycled(t *testing.T) {
	const burst = 1_000_000
	var clock manualclock.Clock
	k, limit := chosen(t, weir.TokenBucket(weir.PerSecond(1), burst), &clock)
	left := int64(burst)
	var out []weir.Lease
	for n := range int64(70_000) {
		limit(weir.TokenBucket(weir.PerSecond(1), burst+n))
		l := k.TryReserve(0, 2)
		left -= 2
		if d := l.Decision(); !d.Allowed || d.Limit != burst+n || d.Remaining != left {
			t.Fatalf("limit %d: %+v, want %d left", n, d, left)
		}
		if out = append(out, l); len(out) > 3000 {
			out[0].Cancel()
			left += 2
			if d := k.Peek(0, 1); d.Remaining != left {
				t.Fatalf("limit %d: %d are left after a cancellation, want %d", n, d.Remaining, left)
			}
			out = out[1:]
		}
	}
}
