package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

// handClock lets a test hold functions that have become due back, as a goroutine is held back that the clock has started.
type handClock struct {
	mu     sync.Mutex
	now    int64
	timers []*handTimer
}

type handTimer struct {
	at int64
	f  func()
}

func (c *handClock) Now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &handTimer{c.now + int64(d), f}
	c.timers = append(c.timers, t)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.timers, t)
		if i >= 0 {
			c.timers = slices.Delete(c.timers, i, i+1)
		}
		return i >= 0
	}
}

func (c *handClock) pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}

// advance moves the clock and returns what is due, which cannot be stopped any more.
func (c *handClock) advance(d time.Duration) (due []func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += int64(d)
	c.timers = slices.DeleteFunc(c.timers, func(t *handTimer) bool {
		if t.at > c.now {
			return false
		}
		due = append(due, t.f)
		return true
	})
	return due
}

// TestOneTimerHoweverLateItsCallIs moves the timer of a queue each time while the call of the last one is on its way.
func TestOneTimerHoweverLateItsCallIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &handClock{}
		b, err := weir.New(weir.TokenBucket(weir.PerSecond(1), 2), weir.Options{
			QueueLimit: 1000, Clock: clock,
		})
		if err != nil {
			t.Fatal(err)
		}
		b.TryAcquire(2)
		for range 100 {
			go func() { _, _ = b.Acquire(t.Context(), 2) }()
		}
		synctest.Wait()
		for round := range 20 {
			due := clock.advance(2 * time.Second)
			clock.advance(time.Millisecond)
			b.Refund(1)
			for _, f := range due {
				f()
			}
			if n := clock.pending(); n != 1 {
				t.Fatalf("round %d: the queue has %d timers", round, n)
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if n := clock.pending(); n != 0 {
			t.Errorf("%d timers are left of a closed limiter", n)
		}
	})
}

// TestLateTimerLosesNothingToThoseWhoCall has others use the limiter before a timer that is 5 ms late. They must not
// change what those who wait were owed by then.
func TestLateTimerLosesNothingToThoseWhoCall(t *testing.T) {
	calls := map[string]func(b *weir.Limiter, c *weir.Chain, l weir.Lease){
		"nothing":     func(*weir.Limiter, *weir.Chain, weir.Lease) {},
		"Peek":        func(b *weir.Limiter, _ *weir.Chain, _ weir.Lease) { b.Peek(1) },
		"Commit":      func(_ *weir.Limiter, _ *weir.Chain, l weir.Lease) { l.Commit(1) },
		"TryAcquire":  func(b *weir.Limiter, _ *weir.Chain, _ weir.Lease) { b.TryAcquire(1) },
		"Allow":       func(b *weir.Limiter, _ *weir.Chain, _ weir.Lease) { b.Allow() },
		"Chain":       func(_ *weir.Limiter, c *weir.Chain, _ weir.Lease) { c.TryAcquire(1) },
		"Chain, Peek": func(_ *weir.Limiter, c *weir.Chain, _ weir.Lease) { c.Peek(1) },
		"Refund of 1": func(b *weir.Limiter, _ *weir.Chain, _ weir.Lease) { b.Refund(1) },
	}
	for name, call := range calls {
		for _, order := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, %v", name, order), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					clock := &handClock{}
					b, err := weir.New(weir.TokenBucket(weir.PerSecond(1000), 1), weir.Options{
						QueueLimit: 100, NewestFirst: order, Clock: clock,
					})
					if err != nil {
						t.Fatal(err)
					}
					chain, err := weir.NewChain(b)
					if err != nil {
						t.Fatal(err)
					}
					lease := b.TryReserve(1)
					for range 100 {
						go func() { _, _ = b.Acquire(t.Context(), 1) }()
					}
					synctest.Wait()
					due := clock.advance(6 * time.Millisecond)
					call(b, chain, lease)
					for _, f := range due {
						f()
					}
					want := int64(6)
					if name == "Refund of 1" {
						want++
					}
					if served := b.Stats().Allowed - 1; served != want {
						t.Errorf("%d are served, want %d", served, want)
					}
					if err := b.Close(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// TestRetryAfterCountsWhatAStallHasLost holds the timer up for longer than what is made up for. Those behind are served
// later than was foreseen when they came, and so are newcomers.
func TestRetryAfterCountsWhatAStallHasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &handClock{}
		b, err := weir.New(weir.TokenBucket(weir.PerSecond(1000), 1), weir.Options{
			QueueLimit: 1000, Clock: clock,
		})
		if err != nil {
			t.Fatal(err)
		}
		b.Allow()
		for range 300 {
			go func() { _, _ = b.Acquire(t.Context(), 1) }()
		}
		synctest.Wait()
		if d := b.Peek(1).RetryAfter; d != 301*time.Millisecond {
			t.Errorf("300 wait, a newcomer is told to come back in %v", d)
		}
		for range 5 {
			for _, f := range clock.advance(51 * time.Millisecond) {
				f()
			}
			waiting := b.Stats().Waiters
			if got, want := b.Peek(1).RetryAfter, time.Duration(waiting+1)*time.Millisecond; got != want {
				t.Fatalf("%d wait, a newcomer is told to come back in %v, want %v", waiting, got, want)
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestProbeThatCannotBeServedByItsDeadlineIsRefused asks for n = 0 behind others: a call that waits is in the queue.
func TestProbeThatCannotBeServedByItsDeadlineIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, err := weir.New(weir.TokenBucket(weir.PerSecond(1), 1), weir.Options{QueueLimit: 10})
		if err != nil {
			t.Fatal(err)
		}
		b.Allow()
		for range 5 {
			go func() { _, _ = b.Acquire(t.Context(), 1) }()
		}
		synctest.Wait()
		for _, c := range []struct {
			deadline time.Duration
			reason   weir.Reason
			waits    time.Duration
		}{{5 * time.Second, weir.ReasonDeadline, 0}, {7 * time.Second, weir.ReasonNone, 6 * time.Second}} {
			ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
			before := time.Now()
			l, err := b.Acquire(ctx, 0)
			if (err != nil) != errors.Is(err, weir.ErrRefused) || l.Decision().Reason != c.reason || time.Since(before) != c.waits {
				t.Errorf("deadline %v: %+v, %v after %v", c.deadline, l.Decision(), err, time.Since(before))
			}
			cancel()
		}
	})
}

// TestWhoHearsTheTimerMayLeave has callers give up at the very times at which the timer of the queue fires, which one of them
// hears. Whichever it is, no permit stays behind while another one waits for it.
func TestWhoHearsTheTimerMayLeave(t *testing.T) {
	for seed := range uint64(20) {
		for _, newest := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				b, err := weir.New(weir.TokenBucket(weir.PerSecond(1000), 3), weir.Options{QueueLimit: 1000, NewestFirst: newest})
				if err != nil {
					t.Fatal(err)
				}
				b.Take(3)
				var served, gone atomic.Int64
				wait := func() {
					ctx, cancel := context.WithCancel(t.Context())
					if rng.IntN(2) == 0 {
						time.AfterFunc(time.Duration(rng.IntN(60))*time.Millisecond, cancel)
					}
					go func() {
						defer cancel()
						if b.Wait(ctx, 1) == nil {
							served.Add(1)
						} else {
							gone.Add(1)
						}
					}()
				}
				for range 50 {
					wait()
				}
				synctest.Wait()
				time.Sleep(500 * time.Microsecond)
				for ms := range 200 {
					if rng.IntN(3) == 0 && ms < 100 {
						wait()
					}
					time.Sleep(time.Millisecond)
					synctest.Wait()
					if s := b.Stats(); s.Waiters > 0 && s.Remaining > 0 {
						t.Fatalf("seed %d, newest first %v, %d ms: %d wait, and %d permits are there", seed, newest, ms, s.Waiters, s.Remaining)
					}
				}
				s := b.Stats()
				if s.Waiters != 0 || s.Allowed-1 != served.Load() || gone.Load() == 0 {
					t.Errorf("seed %d: %+v, %d served, %d gone", seed, s, served.Load(), gone.Load())
				}
			})
		}
	}
}
