package weir_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/manualclock"
)

func mustKeyed[K comparable](t *testing.T, limit weir.Limit, o weir.KeyedOptions) *weir.Keyed[K] {
	t.Helper()
	k, err := weir.NewKeyed[K](limit, o)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestEveryKeyHasItsOwnPermits(t *testing.T) {
	k := mustKeyed[string](t, weir.TokenBucket(weir.PerHour(1), 2), weir.KeyedOptions{Name: "by address"})
	for _, key := range []string{"a", "b", "", "a\x00", "ab"} {
		if !k.Allow(key) || !k.Allow(key) || k.Allow(key) {
			t.Errorf("%q has not two permits", key)
		}
	}
	if got, want := k.Stats(), (weir.Stats{Idle: -1, Limit: 2, Keys: 5, MaxKeys: 1_000_000, Allowed: 10, Refused: 5}); got != want {
		t.Errorf("Stats() = %+v, want %+v", got, want)
	}
	d := k.Take("c", 1)
	if !d.Allowed || d.Limit != 2 || d.Remaining != 1 || d.Policy != "by address" || d.RetryAfter != 0 || d.ResetAfter <= 0 {
		t.Errorf("%+v", d)
	}
}

func TestKeysOfAnyComparableType(t *testing.T) {
	type point struct{ x, y int }
	points := mustKeyed[point](t, weir.TokenBucket(weir.PerHour(1), 0), weir.KeyedOptions{})
	if !points.Allow(point{1, 2}) || points.Allow(point{1, 2}) || !points.Allow(point{2, 1}) {
		t.Error("points")
	}
	anything := mustKeyed[any](t, weir.TokenBucket(weir.PerHour(1), 0), weir.KeyedOptions{})
	if !anything.Allow(1) || anything.Allow(1) || !anything.Allow("1") || !anything.Allow(nil) || anything.Allow("1") {
		t.Error("anything")
	}
}

// TestKeyedDecidesLikeOneBucketForEachKey compares every answer with that of a TokenBucket of the key's own.
func TestKeyedDecidesLikeOneBucketForEachKey(t *testing.T) {
	for _, rate := range []weir.Rate{weir.PerSecond(999999937), weir.Per(7, 3*time.Millisecond), weir.PerMinute(8)} {
		t.Run(rate.String(), func(t *testing.T) {
			anyClock(t, func(t *testing.T, clock weir.Clock) {
				const burst = 5
				keyed := mustKeyed[int](t, weir.TokenBucket(rate, burst), weir.KeyedOptions{Clock: clock})
				var buckets [20]*weir.Limiter
				for i := range buckets {
					buckets[i] = mustBucket(t, weir.TokenBucket(rate, burst), weir.Options{Clock: clock})
				}
				rng := rand.New(rand.NewPCG(1, 2))
				for range 20_000 {
					key, n := rng.IntN(len(buckets)), rng.Int64N(burst+2)
					bucket := buckets[key]
					switch rng.IntN(5) {
					case 0:
						if got, want := keyed.Allow(key), bucket.Allow(); got != want {
							t.Fatalf("Allow(%d) = %v, want %v", key, got, want)
						}
					case 1:
						if got, want := keyed.Peek(key, n), bucket.Peek(n); got != want {
							t.Fatalf("Peek(%d, %d) = %+v, want %+v", key, n, got, want)
						}
					case 2:
						if rng.IntN(10) == 0 {
							keyed.Refund(key, n-1)
							bucket.Refund(n - 1)
						}
					case 3:
						time.Sleep(time.Duration(rng.Int64N(int64(limits.Interval(rate))/2 + 2)))
					default:
						if got, want := keyed.Take(key, n), bucket.TryAcquire(n).Decision(); got != want {
							t.Fatalf("Take(%d, %d) = %+v, want %+v", key, n, got, want)
						}
					}
				}
				var want weir.Stats
				for _, b := range buckets {
					st := b.Stats()
					want.Allowed += st.Allowed
					want.Refused += st.Refused
				}
				if got := keyed.Stats(); got.Allowed != want.Allowed || got.Refused != want.Refused || got.Keys > 20 {
					t.Errorf("%+v, want %+v", got, want)
				}
			})
		})
	}
}

func TestProbeOfAKeyIsNotTracked(t *testing.T) {
	k := mustKeyed[string](t, weir.TokenBucket(weir.PerHour(1), 0), weir.KeyedOptions{})
	for range 3 {
		if d := k.Take("a", 0); !d.Allowed || d.Remaining != 1 {
			t.Errorf("%+v", d)
		}
		if d := k.Peek("a", 1); !d.Allowed || d.Remaining != 1 {
			t.Errorf("%+v", d)
		}
		if d := k.Take("a", 2); d.Allowed || d.Reason != weir.ReasonNever || d.RetryAfter != weir.Never {
			t.Errorf("%+v", d)
		}
		if d := k.Take("a", -1); d.Allowed || d.Reason != weir.ReasonInvalid || d.RetryAfter != weir.Never {
			t.Errorf("%+v", d)
		}
		if d := k.Peek("a", -1); d.Reason != weir.ReasonInvalid {
			t.Errorf("%+v", d)
		}
		k.Refund("a", 5)
		k.Reset("a")
	}
	if got, want := k.Stats(), (weir.Stats{Idle: -1, Limit: 1, MaxKeys: 1_000_000, Refused: 3}); got != want {
		t.Errorf("Stats() = %+v, want %+v", got, want)
	}
	k.Allow("a")
	if d := k.Take("a", 0); d.Allowed || d.RetryAfter <= 0 {
		t.Errorf("%+v", d)
	}
}

func TestResetForgetsAKey(t *testing.T) {
	k := mustKeyed[string](t, weir.TokenBucket(weir.PerHour(1), 0), weir.KeyedOptions{})
	k.Allow("a")
	k.Allow("b")
	k.Reset("a")
	k.Reset("never seen")
	if st := k.Stats(); st.Keys != 1 || !k.Allow("a") || k.Allow("b") {
		t.Errorf("%+v", st)
	}
}

// TestFullTableForgetsOnlyKeysThatAreFull has more keys than the table holds. One that is refused stays refused however many
// others come; its place is free when its permits are back.
func TestFullTableForgetsOnlyKeysThatAreFull(t *testing.T) {
	for _, maxKeys := range []int{1, 2, 7, 30} {
		t.Run(fmt.Sprint(maxKeys), func(t *testing.T) {
			anyClock(t, func(t *testing.T, clock weir.Clock) {
				k := mustKeyed[int](t, weir.TokenBucket(weir.PerSecond(1), 3), weir.KeyedOptions{MaxKeys: maxKeys, Clock: clock})
				for key := range maxKeys {
					if d := k.Take(key, 2); !d.Allowed {
						t.Fatalf("key %d of %d: %+v", key, maxKeys, d)
					}
				}
				time.Sleep(time.Second)
				for key := maxKeys; key < maxKeys+200; key++ {
					d := k.Take(key, 1)
					if d.Allowed || d.Reason != weir.ReasonTableFull || d.RetryAfter != time.Second || d.Limit != 3 {
						t.Fatalf("new key %d: %+v", key, d)
					}
				}
				for key := range maxKeys {
					if d := k.Peek(key, 3); d.Allowed || d.Remaining != 2 {
						t.Fatalf("key %d is forgotten: %+v", key, d)
					}
				}
				if st := k.Stats(); st.Keys != int64(maxKeys) || st.Refused != 200 || st.Untracked != 0 {
					t.Errorf("%+v", st)
				}
				k.Take(0, 2)
				time.Sleep(time.Second)
				// All but key 0 are full again, and make room for as many.
				for key := range maxKeys - 1 {
					if d := k.Take(1000+key, 3); !d.Allowed {
						t.Fatalf("new key %d: %+v", 1000+key, d)
					}
				}
				if d := k.Take(5000, 1); d.Reason != weir.ReasonTableFull {
					t.Errorf("%+v", d)
				}
				if d := k.Peek(0, 3); d.Remaining != 1 {
					t.Errorf("key 0 is forgotten: %+v", d)
				}
				// What the refused were told is enough.
				time.Sleep(3 * time.Second)
				if d := k.Take(5000, 1); !d.Allowed {
					t.Errorf("%+v", d)
				}
			})
		})
	}
}

// TestLargeFullTableFindsRoom has a table of which a new key sees only a part.
func TestLargeFullTableFindsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const maxKeys = 50_000
		k := mustKeyed[int](t, weir.TokenBucket(weir.PerSecond(1), 0), weir.KeyedOptions{MaxKeys: maxKeys})
		for key := range maxKeys {
			k.Allow(key)
		}
		if d := k.Take(-1, 1); d.Reason != weir.ReasonTableFull {
			t.Errorf("%+v", d)
		}
		time.Sleep(time.Second)
		for key := maxKeys; key < maxKeys*3/2; key++ {
			if !k.Allow(key) {
				t.Fatalf("new key %d is refused, though half of the others can be forgotten: %+v", key, k.Stats())
			}
		}
		if st := k.Stats(); st.Keys != maxKeys || st.Untracked != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestFullTableIsForeseen: a probe and Peek of a new key are refused where there is no room, and only there.
func TestFullTableIsForeseen(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 5))
	var clock manualclock.Clock
	k := mustKeyed[int](t, weir.TokenBucket(weir.PerSecond(1), 2), weir.KeyedOptions{MaxKeys: 3, Clock: &clock})
	foreseen := 0
	for range 20_000 {
		clock.Advance(time.Duration(random.Int64N(int64(500 * time.Millisecond))))
		key := random.IntN(10)
		peeked, probed := k.Peek(key, 1), k.Take(key, 0)
		taken := k.Take(key, 1)
		full := taken.Reason == weir.ReasonTableFull
		if peeked.Reason == weir.ReasonTableFull && (peeked != taken || probed != taken) {
			t.Fatalf("Peek said %+v, a probe %+v, and Take %+v", peeked, probed, taken)
		}
		if !full {
			continue
		}
		for _, d := range []weir.Decision{k.Peek(key, 1), k.Peek(key, 0), k.Take(key, 0)} {
			if d != taken {
				t.Fatalf("Take said %+v, and then it is %+v", taken, d)
			}
		}
		if peeked == taken {
			foreseen++
		}
	}
	if foreseen < 1000 {
		t.Errorf("%d refusals were foreseen", foreseen)
	}
	if d := k.Peek(99, 4); d.Reason != weir.ReasonNever {
		t.Errorf("%+v", d)
	}
	full := mustKeyed[int](t, weir.TokenBucket(weir.PerHour(1), 2), weir.KeyedOptions{MaxKeys: 1, AdmitWhenFull: true})
	full.Allow(1)
	if d := full.Peek(2, 2); !d.Allowed || d.Remaining != 0 {
		t.Errorf("%+v", d)
	}
}

func TestFullTableThatAdmits(t *testing.T) {
	k := mustKeyed[string](t, weir.TokenBucket(weir.PerHour(1), 0), weir.KeyedOptions{MaxKeys: 1, AdmitWhenFull: true})
	k.Allow("a")
	for range 5 {
		if !k.Allow("b") {
			t.Error("a key that is not tracked is refused")
		}
	}
	if k.Allow("a") {
		t.Error("a key that is tracked is not limited")
	}
	if got, want := k.Stats(), (weir.Stats{Idle: -1, Limit: 1, Keys: 1, MaxKeys: 1, Allowed: 6, Refused: 1, Untracked: 5}); got != want {
		t.Errorf("Stats() = %+v, want %+v", got, want)
	}
}

func TestClosedKeyed(t *testing.T) {
	k := mustKeyed[string](t, weir.TokenBucket(weir.PerHour(1), 0), weir.KeyedOptions{Name: "p"})
	for range 2 {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
		for _, d := range []weir.Decision{k.Take("a", 1), k.Take("a", 0), k.Peek("a", 1), k.Take("a", 9)} {
			if d.Allowed || d.Reason != weir.ReasonClosed || d.RetryAfter != weir.Never || d.Policy != "p" || d.Limit != 1 {
				t.Errorf("%+v", d)
			}
		}
		if k.Allow("a") {
			t.Error("allowed")
		}
	}
	k.Refund("a", 1)
	k.Reset("a")
	if got, want := k.Stats(), (weir.Stats{Idle: -1, Limit: 1, MaxKeys: 1_000_000, Refused: 6}); got != want {
		t.Errorf("Stats() = %+v, want %+v", got, want)
	}
}

func TestKeyedOnAClockThatGoesBack(t *testing.T) {
	for _, jump := range []time.Duration{1, time.Second, time.Hour, 30 * 365 * day} {
		var clock manualclock.Clock
		k := mustKeyed[string](t, weir.TokenBucket(weir.PerSecond(1), 4), weir.KeyedOptions{Clock: &clock})
		clock.Advance(time.Hour)
		k.Take("a", 3)
		clock.Advance(-jump)
		if d := k.Peek("a", 1); d.Remaining != 1 {
			t.Errorf("%v back: %+v", jump, d)
		}
		clock.Advance(2 * time.Second)
		if d := k.Peek("a", 1); d.Remaining != 3 {
			t.Errorf("%v back, 2 s on: %+v", jump, d)
		}
		clock.Advance(100 * 365 * day)
		if d := k.Take("a", 4); !d.Allowed {
			t.Errorf("%v back, far on: %+v", jump, d)
		}
	}
}

// TestKeyedOfAProgramIsUsedInBubbles is TestLimiterOfAProgramIsUsedInBubbles.
func TestKeyedOfAProgramIsUsedInBubbles(t *testing.T) {
	k := mustKeyed[string](t, weir.TokenBucket(weir.PerHour(1), 2), weir.KeyedOptions{})
	use := func(t *testing.T) {
		t.Helper()
		granted := 0
		for range 5 {
			if k.Allow("a") {
				granted++
			}
		}
		if granted > 2 {
			t.Errorf("%d of 2 permits are granted", granted)
		}
	}
	for range 3 {
		use(t)
		synctest.Test(t, func(t *testing.T) {
			use(t)
			d := k.Take("a", 2)
			if d.Allowed || d.RetryAfter > 2*time.Hour {
				t.Errorf("%+v", d)
			}
			time.Sleep(d.RetryAfter)
			if !k.Take("a", 2).Allowed {
				t.Error("refused after RetryAfter")
			}
		})
	}
}

func TestKeyedUnderLoad(t *testing.T) {
	const burst = 50
	k := mustKeyed[int](t, weir.TokenBucket(weir.PerDay(1), burst), weir.KeyedOptions{MaxKeys: 10_000})
	var granted [100]atomic.Int64
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for range 5000 {
				key := rng.IntN(len(granted))
				if k.Take(key, 1).Allowed {
					granted[key].Add(1)
				}
			}
		})
	}
	all.Wait()
	for key := range granted {
		if got := granted[key].Load(); got != burst {
			t.Errorf("key %d was granted %d permits, want %d", key, got, burst)
		}
	}
	if st := k.Stats(); st.Allowed != 100*burst || st.Allowed+st.Refused != 8*5000 || st.Keys != 100 {
		t.Errorf("%+v", st)
	}
}
