package weir_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
)

func TestManualClockStandsStill(t *testing.T) {
	var zero manualclock.Clock
	if zero.Now() != 0 || manualclock.New(42).Now() != 42 {
		t.Errorf("%d, %d", zero.Now(), manualclock.New(42).Now())
	}
	zero.Advance(5 * time.Second)
	zero.Advance(-2 * time.Second)
	if zero.Now() != 3e9 {
		t.Errorf("%d", zero.Now())
	}
	zero.Set(-7)
	if zero.Now() != -7 {
		t.Errorf("%d", zero.Now())
	}
}

func TestManualClockCallsInOrder(t *testing.T) {
	c := manualclock.New(100)
	var log []string
	call := func(name string) func() {
		return func() { log = append(log, fmt.Sprintf("%s at %d", name, c.Now())) }
	}
	c.AfterFunc(30, call("late"))
	c.AfterFunc(10, call("first"))
	c.AfterFunc(20, call("second"))
	c.AfterFunc(20, call("third"))
	c.AfterFunc(20, call("fourth"))
	c.AfterFunc(0, call("now"))
	c.AfterFunc(-5, call("past"))
	stop := c.AfterFunc(15, call("never"))
	if !stop() || stop() {
		t.Error("stop must report whether it has prevented the call")
	}
	done := c.AfterFunc(1, func() { c.AfterFunc(4, call("from a call")) })
	if len(log) > 0 {
		t.Errorf("called while the clock stands: %v", log)
	}
	c.Advance(29)
	want := []string{
		"now at 100", "past at 100", "from a call at 105", "first at 110", "second at 120", "third at 120", "fourth at 120",
	}
	if !slices.Equal(log, want) {
		t.Errorf("called: %q, want %q", log, want)
	}
	if done() {
		t.Error("stop prevents what has been called")
	}
	c.Set(131)
	if last := log[len(log)-1]; last != "late at 130" || c.Now() != 131 {
		t.Errorf("%s, now %d", last, c.Now())
	}
}

func TestManualClockThatGoesBackCallsLater(t *testing.T) {
	c := manualclock.New(100)
	called := int64(0)
	c.AfterFunc(10, func() { called = c.Now() })
	c.Advance(-50)
	c.Advance(9)
	if called != 0 {
		t.Error("called early")
	}
	c.Advance(1)
	if called != 60 {
		t.Errorf("called at %d, want 60", called)
	}
	c.AfterFunc(10, func() { called = c.Now() })
	c.Set(0)
	c.Set(100)
	if called != 10 {
		t.Errorf("called at %d, want 10", called)
	}
}

func TestManualClockIsAdvancedByTheSum(t *testing.T) {
	var c manualclock.Clock
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				c.AfterFunc(3, func() { c.Now() })
				c.Advance(2)
			}
		})
	}
	all.Wait()
	if c.Now() != 8*500*2 {
		t.Errorf("the clock stands at %d, want %d", c.Now(), 8*500*2)
	}
}

// onManualClock runs f for every kind with a ManualClock.
func onManualClock(t *testing.T, kinds []kind, o setup, f func(t *testing.T, s *subject, c *manualclock.Clock)) {
	t.Helper()
	for _, k := range append(keyedKinds(kinds), kinds...) {
		if k.clocked {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := o
				clock := manualclock.New(1e18)
				o.clock = clock
				f(t, k.new(t, o), clock)
			})
		})
	}
}

func TestLimiterWithAClockKnowsNoOtherTime(t *testing.T) {
	onManualClock(t, timed, setup{limit: 4, queue: 8}, func(t *testing.T, s *subject, c *manualclock.Clock) {
		s.drain(4)
		time.Sleep(10 * s.kind.regain)
		s.available(0)
		d := s.refuse(2, weir.ReasonLimited)
		c.Advance(d.RetryAfter - 1)
		s.refuse(2, weir.ReasonLimited)
		c.Advance(1)
		s.take(2)
		c.Advance(s.Peek(1).ResetAfter)
		s.available(4)
		c.Advance(time.Hour)
		if d := s.idle(); d < 0 || d != time.Hour && !s.kind.keyed {
			t.Errorf("idle for %v", d)
		}
	})
}

func TestThoseWhoWaitAreServedWhenTheClockIsMoved(t *testing.T) {
	onManualClock(t, timed, setup{limit: 4, queue: 8}, func(t *testing.T, s *subject, c *manualclock.Clock) {
		s.drain(4)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // of real time, of which none passes
		defer cancel()
		a, b := s.wait(ctx, 3), s.wait(ctx, 4)
		expect(t, "waiting waiting", a, b)
		first := s.Peek(1).RetryAfter // behind both
		c.Advance(first / 1000)
		expect(t, "waiting waiting", a, b)
		c.Advance(2 * s.kind.regain) // in one step
		expect(t, "granted", a)
		c.Advance(2 * s.kind.regain)
		expect(t, "granted", b)
		s.TryAcquire(s.Stats().Remaining)
		gone := s.wait(ctx, 4)
		time.Sleep(time.Second)
		expect(t, "canceled", gone)
	})
}

// TestClockThatIsMovedWhileSomebodyComes moves the clock at the very time at which a caller reads it and sets a timer.
func TestClockThatIsMovedWhileSomebodyComes(t *testing.T) {
	var clock manualclock.Clock
	b := mustBucket(t, weir.TokenBucket(weir.PerSecond(1), 2), weir.Options{QueueLimit: 10, Clock: &clock})
	for range 2000 {
		b.TryAcquire(2)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		var both sync.WaitGroup
		both.Go(func() {
			if l, err := b.Acquire(ctx, 1); err != nil || !l.Allowed() {
				t.Errorf("a permit is there, but the call does not return with it: %+v, %v", l.Decision(), err)
			}
		})
		for range 4 {
			clock.Advance(time.Second / 4)
		}
		both.Wait()
		cancel()
		if t.Failed() {
			return
		}
	}
}

// hastyClock moves on when a timer is about to be set.
type hastyClock struct {
	manualclock.Clock

	haste time.Duration
}

func (c *hastyClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	c.Advance(c.haste)
	c.haste = 0
	return c.Clock.AfterFunc(d, f)
}

func TestTimerThatIsSetTooLateIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &hastyClock{haste: 5 * time.Second}
		b := mustBucket(t, weir.TokenBucket(weir.PerSecond(1), 4), weir.Options{QueueLimit: 10, Clock: clock})
		b.TryAcquire(4)
		s := &subject{Acquirer: b, t: t}
		c := s.wait(t.Context(), 2)
		expect(t, "granted", c)
		if got := clock.Now(); got != 5e9 {
			t.Errorf("the clock stands at %d", got)
		}
		s.available(3) // of five that came two were taken
	})
}

// stuckClock never calls f.
type stuckClock struct{ manualclock.Clock }

func (*stuckClock) AfterFunc(time.Duration, func()) (stop func() bool) {
	return func() bool { return true }
}

func TestRetryAfterWhenTheTimerIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &stuckClock{}
		b := mustBucket(t, weir.TokenBucket(weir.PerSecond(1), 4), weir.Options{QueueLimit: 10, Clock: clock})
		b.TryAcquire(4)
		s := &subject{Acquirer: b, t: t}
		c := s.wait(t.Context(), 2)
		if d := s.refuse(1, weir.ReasonLimited); d.RetryAfter != 3*time.Second {
			t.Errorf("%+v", d)
		}
		clock.Advance(time.Minute)
		// The waiting call should have been served long ago, and is served before any other, as of the latest time at which a
		// timer may be late.
		if d := s.refuse(3, weir.ReasonLimited); d.RetryAfter != 990*time.Millisecond || d.Remaining != 2 {
			t.Errorf("%+v", d)
		}
		expect(t, "granted", c)
	})
}

func TestClockThatGoesBackNeitherMintsNorFreezes(t *testing.T) {
	for _, jump := range []time.Duration{1, time.Second, regain, time.Hour, 30 * 365 * day} {
		t.Run(jump.String(), func(t *testing.T) {
			onManualClock(t, timed, setup{limit: 4, queue: 8}, func(t *testing.T, s *subject, c *manualclock.Clock) {
				c.Advance(3 * time.Second)
				s.drain(3)
				c.Advance(-jump)
				s.available(1)
				s.take(1)
				s.available(0)
				for range 3 {
					c.Advance(-jump / 4)
					s.refuse(1, weir.ReasonLimited)
				}
				d := s.refuse(2, weir.ReasonLimited)
				if d.RetryAfter <= 0 || d.RetryAfter > s.kind.regain {
					t.Errorf("it is told to come back after %v", d.RetryAfter)
				}
				c.Advance(d.RetryAfter - 1)
				s.refuse(2, weir.ReasonLimited)
				c.Advance(1)
				s.take(2)
				c.Advance(s.kind.regain)
				s.available(4)
				c.Advance(-jump)
				s.available(4)
				if d := s.idle(); d < 0 || d > s.kind.regain {
					t.Errorf("idle for %v", d)
				}
				s.take(4)
				s.refuse(1, weir.ReasonLimited)
			})
		})
	}
}

func TestClockThatJumpsForwardNeverExceedsTheLimit(t *testing.T) {
	onManualClock(t, timed, setup{limit: 4}, func(t *testing.T, s *subject, c *manualclock.Clock) {
		for _, jump := range []time.Duration{2 * s.kind.regain, time.Hour, 100 * 365 * day} {
			s.drain(4)
			c.Advance(jump)
			s.available(4)
			s.take(4)
			s.refuse(1, weir.ReasonLimited)
			c.Advance(2 * s.kind.regain)
		}
	})
}

func TestThoseWhoWaitAreServedThoughTheClockWentBack(t *testing.T) {
	onManualClock(t, timed, setup{limit: 4, queue: 8}, func(t *testing.T, s *subject, c *manualclock.Clock) {
		s.drain(4)
		a := s.wait(t.Context(), 4)
		c.Advance(time.Second)
		c.Advance(-24 * time.Hour)
		var waited time.Duration
		for ; a.state() == "waiting" && waited < time.Hour; waited += time.Second {
			c.Advance(time.Second)
			synctest.Wait()
		}
		if most := 2*s.kind.regain + time.Second; a.state() != "granted" || waited > most {
			t.Errorf("%s after %v more, want granted within %v", a.state(), waited, most)
		}
		s.available(0)
	})
}

// TestBucketOnAJumpyClock lets time go forward and back at random: what is allowed never exceeds the burst and the rate over all
// the steps forward.
func TestBucketOnAJumpyClock(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		clock := manualclock.New(0)
		rate := weir.Per(7, 3*time.Second)
		b := mustBucket(t, weir.TokenBucket(rate, 10), weir.Options{Clock: clock})
		var forward time.Duration
		admitted := int64(0)
		for range 500 {
			d := time.Duration(rng.Int64N(int64(time.Second)))
			switch rng.IntN(4) {
			case 0:
				clock.Advance(-d * 3)
			case 1:
				n := rng.Int64N(5)
				if l := b.TryReserve(n); l.Allowed() {
					if rng.IntN(3) == 0 {
						l.Cancel() // at once
					} else {
						admitted += n
					}
				}
			default:
				clock.Advance(d)
				forward += d
			}
			if most := 10 + permitsIn(rate, forward); admitted > most {
				t.Fatalf("%d permits were admitted in %v, more than %d", admitted, forward, most)
			}
		}
	}
}
