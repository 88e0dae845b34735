package migrating_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/examples/migrating/xtimerate"
)

// TestXTimeRate sends the same requests of three clients to both limiters for an hour of virtual time. Each answer is the same.
func TestXTimeRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := xtimerate.NewBefore()
		after, err := xtimerate.NewAfter()
		if err != nil {
			t.Fatal(err)
		}
		defer after.Close()
		random := rand.New(rand.NewPCG(1, 2))
		admitted, asked := 0, 0
		for begin := time.Now(); time.Since(begin) < time.Hour; {
			time.Sleep(time.Duration(random.Int64N(int64(200 * time.Millisecond))))
			for range random.IntN(4) * random.IntN(8) {
				client := fmt.Sprint("client ", random.IntN(3))
				old, now := before.Allow(client), after.Allow(client)
				if asked++; now {
					admitted++
				}
				if old != now {
					t.Fatalf("request %d, %v after the beginning: x/time/rate answers %t, weir %t", asked, time.Since(begin), old, now)
				}
			}
		}
		if admitted < 10_000 || asked-admitted < 10_000 {
			t.Errorf("%d of %d were admitted: that compares too little", admitted, asked)
		}
	})
}

// caller is xtimerate.CallerBefore or CallerAfter.
type caller interface {
	Call(ctx context.Context, call func()) error
}

// callers are both, with a burst and one permit in 100 ms.
func callers(t *testing.T, burst int) (before, after caller) {
	t.Helper()
	bucket, err := weir.New(weir.TokenBucket(weir.PerSecond(10), int64(burst)), weir.Options{QueueLimit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bucket.Close() })
	return &xtimerate.CallerBefore{Limiter: rate.NewLimiter(10, burst)}, &xtimerate.CallerAfter{Limiter: bucket}
}

// TestXTimeRateWaits: those who wait are served at the same times, and a deadline that comes too early is told at once.
func TestXTimeRateWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := callers(t, 5)
		for name, c := range map[string]caller{"before": before, "after": after} {
			begin := time.Now()
			var mu sync.Mutex
			var calls []time.Duration
			var wg sync.WaitGroup
			for range 12 {
				wg.Go(func() {
					err := c.Call(t.Context(), func() {
						mu.Lock()
						calls = append(calls, time.Since(begin))
						mu.Unlock()
					})
					if err != nil {
						t.Error(name, err)
					}
				})
			}
			synctest.Wait()
			early, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // its turn is after 800 ms
			err := c.Call(early, func() { t.Error(name, "called too early") })
			cancel()
			if err == nil || time.Since(begin) != 0 {
				t.Errorf("%s: a deadline that comes too early is told after %v: %v", name, time.Since(begin), err)
			}
			wg.Wait()
			want := make([]time.Duration, 5, 12)
			for i := range 7 {
				want = append(want, time.Duration(i+1)*100*time.Millisecond)
			}
			if !slices.Equal(calls, want) {
				t.Errorf("%s: called after %v, want %v", name, calls, want)
			}
		}
	})
}

// TestXTimeRateGivingUp is the difference: when a caller gives up waiting, those behind it move up. With x/time/rate they wait
// as long as before, and its permit is lost.
func TestXTimeRateGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := callers(t, 1)
		for c, want := range map[caller]time.Duration{before: 200 * time.Millisecond, after: 100 * time.Millisecond} {
			begin := time.Now()
			if err := c.Call(t.Context(), func() {}); err != nil { // the only permit
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := c.Call(ctx, func() { t.Error("called in spite of all") }); err == nil {
					t.Error("who has given up is told that it went well")
				}
			})
			synctest.Wait()
			wg.Go(func() {
				err := c.Call(t.Context(), func() {
					if took := time.Since(begin); took != want {
						t.Errorf("%T: the second one was called after %v, want %v", c, took, want)
					}
				})
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			time.Sleep(50 * time.Millisecond)
			cancel() // the first one gives up
			wg.Wait()
		}
	})
}

// TestXTimeRateQueue is the other one: at most so many can wait as the options say, where x/time/rate lets all wait.
func TestXTimeRateQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := callers(t, 1)
		for c, most := range map[caller]int{before: 1100, after: 1001} {
			var wg sync.WaitGroup
			var mu sync.Mutex
			called := 0
			for range 1100 {
				wg.Go(func() {
					_ = c.Call(t.Context(), func() { // the error of those who are refused is counted below
						mu.Lock()
						called++
						mu.Unlock()
					})
				})
			}
			wg.Wait()
			if called != most {
				t.Errorf("%T: %d were called, want %d", c, called, most)
			}
		}
	})
}
