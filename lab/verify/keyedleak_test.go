package verify_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/keyset"
)

// TestKeyedCloseAnswersEverybody closes a limiter while callers come for keys and wait for them, and others override, restore
// and settle: every call returns. TestMain finds those that do not.
func TestKeyedCloseAnswersEverybody(t *testing.T) {
	for round := range 30 {
		k := must(weir.NewKeyed[int](weir.TokenBucket(weir.PerHour(1), 2), weir.KeyedOptions{QueueLimit: 100}))
		var callers sync.WaitGroup
		for caller := range 12 {
			callers.Go(func() {
				for {
					l, err := k.Reserve(t.Context(), caller%4, 1)
					switch {
					case errors.Is(err, weir.ErrClosed):
						return
					case err != nil && !errors.Is(err, weir.ErrRefused): // the queue may be full
						t.Error(err)
						return
					}
					if caller%2 == 0 {
						l.Cancel()
					}
				}
			})
		}
		callers.Go(func() {
			for n := int64(0); ; n++ {
				if err := keyset.Of(k).Override(int(n%4), weir.TokenBucket(weir.PerMinute(1), n%5+1), time.Hour); err != nil {
					return
				}
				keyset.Of(k).Restore(int(n % 4))
				k.Reset(int(n % 4))
			}
		})
		for range round % 20 {
			runtime.Gosched()
		}
		callers.Go(func() { _ = k.Close() })
		callers.Wait()
		if s := k.Stats(); s.Waiters != 0 || s.Queued != 0 {
			t.Fatalf("%+v", s)
		}
		for key := range 4 {
			if d := k.Take(key, 1); d.Reason != weir.ReasonClosed {
				t.Fatalf("%+v", d)
			}
		}
	}
}

// TestKeyedNoWaiterIsLost has callers arrive for a few keys, give up and finish at random. In the end every call has returned,
// and every permit is back.
func TestKeyedNoWaiterIsLost(t *testing.T) {
	for _, order := range []bool{false, true} {
		t.Run(strconv.FormatBool(order), func(t *testing.T) {
			out := must(weir.NewKeyedConcurrency[int64](3, weir.KeyedOptions{
				QueueLimit: 200, NewestFirst: order, MaxKeys: 5,
			}))
			timed := must(weir.NewKeyed[int64](weir.TokenBucket(weir.PerSecond(100_000), 3), weir.KeyedOptions{
				QueueLimit: 200, NewestFirst: order, MaxKeys: 5,
			}))
			var callers sync.WaitGroup
			for worker := range int64(32) {
				callers.Go(func() {
					for step := range int64(200) {
						n := (worker*7919 + step*104729) % 1000
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*time.Microsecond)
						reserve, key := timed.Reserve, n%4
						if n%3 == 0 {
							reserve = out.Reserve
						}
						switch n % 50 {
						case 1:
							_ = keyset.Of(timed).Override(key, weir.TokenBucket(weir.PerSecond(50_000), 2), time.Duration(n)*time.Microsecond)
						case 2:
							keyset.Of(timed).Restore(key)
						}
						l, _ := reserve(ctx, key, n%4)
						if n%2 == 0 {
							l.Cancel()
						}
						l.Commit(n % 8)
						cancel()
					}
				})
			}
			callers.Wait()
			for key := range int64(4) {
				keyset.Of(timed).Restore(key)
				if d := out.Peek(key, 3); !d.Allowed || d.Remaining != 3 {
					t.Errorf("permits of key %d are missing: %+v", key, d)
				}
			}
			for _, stats := range []func() weir.Stats{out.Stats, timed.Stats} {
				if s := stats(); s.Queued != 0 || s.Waiters != 0 || s.Overridden != 0 {
					t.Errorf("%+v", s)
				}
			}
		})
	}
}

// live is the memory that is in use.
func live() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestKeyedQueuesLeaveNothing waits once for each of many keys, all at the same time, and overrides each: afterwards they cost
// no more than keys that no caller ever waited for, but for the tables of the gates, which stay as large as they were.
func TestKeyedQueuesLeaveNothing(t *testing.T) {
	keys := 100_000
	if race.Enabled || testing.Short() {
		keys = 10_000
	}
	fill := func(use func(t *testing.T, k *weir.Keyed[int])) (perKey int64) {
		synctest.Test(t, func(t *testing.T) {
			k := must(weir.NewKeyed[int](weir.TokenBucket(weir.PerSecond(1), 1), weir.KeyedOptions{QueueLimit: 1}))
			// The runtime keeps what it made of goroutines for others.
			done := make(chan struct{})
			for range 2 * min(keys, 50_000) {
				go func() { <-done }()
			}
			synctest.Wait()
			close(done)
			synctest.Wait()
			before := live()
			for key := range keys {
				k.Allow(key)
			}
			use(t, k)
			time.Sleep(time.Minute)
			synctest.Wait()
			if s := k.Stats(); s.Waiters != 0 || s.Overridden != 0 {
				t.Errorf("%+v", s)
			}
			perKey = (live() - before) / int64(keys)
			runtime.KeepAlive(k)
			_ = k.Close()
		})
		return perKey
	}
	plain := fill(func(*testing.T, *weir.Keyed[int]) {})
	waited := fill(func(t *testing.T, k *weir.Keyed[int]) {
		for from := 0; from < keys; from += 10_000 {
			for key := range 10_000 {
				go func() {
					if l, err := k.Acquire(t.Context(), from+key, 1); err != nil || !l.Allowed() {
						t.Errorf("key %d: %+v %v", from+key, l.Decision(), err)
					}
				}()
			}
			synctest.Wait()
			time.Sleep(time.Second)
			synctest.Wait()
		}
	})
	overridden := fill(func(t *testing.T, k *weir.Keyed[int]) {
		for key := range min(keys, 50_000) {
			if err := keyset.Of(k).Override(key, weir.TokenBucket(weir.PerSecond(3), 2), time.Second); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Logf("bytes for each key: %d, once waited for %d, once overridden %d", plain, waited, overridden)
	if waited > plain+150 || overridden > plain+150 {
		t.Errorf("a key costs %d bytes, %d once it was waited for, and %d once it was overridden", plain, waited, overridden)
	}
}

// TestKeyedOverridesEnd expects the timers of overrides to end with them, whether they are restored, replaced, or cut off by
// Close.
func TestKeyedOverridesEnd(t *testing.T) {
	var clock timers
	k := must(weir.NewKeyed[int](weir.TokenBucket(weir.PerSecond(1), 5), weir.KeyedOptions{QueueLimit: 5, Clock: &clock}))
	wide := weir.TokenBucket(weir.PerSecond(2), 9)
	for key := range 10 {
		for range 3 {
			if err := keyset.Of(k).Override(key, wide, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
	}
	if clock.pending != 10 {
		t.Errorf("%d timers for 10 overrides", clock.pending)
	}
	for key := range 5 {
		keyset.Of(k).Restore(key)
	}
	if clock.pending != 5 {
		t.Errorf("%d timers for 5 overrides", clock.pending)
	}
	_ = k.Close()
	if clock.pending != 0 {
		t.Errorf("%d timers of a limiter that is closed", clock.pending)
	}
	if err := keyset.Of(k).Override(1, wide, time.Hour); err == nil || clock.pending != 0 {
		t.Errorf("%v, %d timers", err, clock.pending)
	}
}

// timers is a clock that stands, and counts what it is to call. One goroutine may use it.
type timers struct{ pending int }

func (*timers) Now() int64 { return 0 }

func (c *timers) AfterFunc(time.Duration, func()) func() bool {
	c.pending++
	ended := false
	return func() bool {
		if !ended {
			c.pending--
		}
		ended = true
		return true
	}
}
