package weir_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

func TestNewLimiterIsFull(t *testing.T) {
	forEach(t, withChain, setup{name: "p", limit: 4}, func(t *testing.T, s *subject) {
		want := weir.Decision{Allowed: true, Limit: 4, Remaining: 4, Policy: "p"}
		for n := range int64(5) {
			if d := s.Peek(n); d != want {
				t.Errorf("Peek(%d) = %+v, want %+v", n, d, want)
			}
		}
		if got, want := s.Stats(), (weir.Stats{Remaining: 4}); got != want {
			t.Errorf("Stats() = %+v, want %+v", got, want)
		}
		s.take(4)
		s.available(0)
	})
}

func TestPeekTakesNothingAndForetellsTryAcquire(t *testing.T) {
	forEach(t, withChain, setup{limit: 4}, func(t *testing.T, s *subject) {
		for used := range int64(5) {
			for n := range int64(6) {
				d := s.Peek(n)
				if again := s.Peek(n); again != d {
					t.Errorf("with %d in use Peek(%d) = %+v, and then %+v", used, n, d, again)
				}
				if d.Remaining != 4-used {
					t.Errorf("with %d in use Peek(%d).Remaining = %d", used, n, d.Remaining)
				}
				if !d.Allowed {
					if got := s.TryAcquire(n).Decision(); got != d {
						t.Errorf("with %d in use Peek(%d) = %+v, but TryAcquire says %+v", used, n, d, got)
					}
				} else if n > 4-used {
					t.Errorf("with %d in use Peek(%d) = %+v", used, n, d)
				}
			}
			if used < 4 {
				s.take(1)
			}
		}
	})
}

func TestDecisionOfAGrant(t *testing.T) {
	forEach(t, withChain, setup{name: "p", limit: 4}, func(t *testing.T, s *subject) {
		l := s.take(3)
		d := l.Decision()
		if !l.Allowed() || l.Permits() != 3 || l.Err() != nil {
			t.Errorf("the lease is %v, has %d permits, error %v", l.Allowed(), l.Permits(), l.Err())
		}
		if d.Reason != weir.ReasonNone || d.Limit != 4 || d.Remaining != 1 || d.RetryAfter != 0 || d.Policy != "p" {
			t.Errorf("the decision is %+v", d)
		}
		if (d.ResetAfter > 0) != s.kind.timed {
			t.Errorf("the permits are back after %v", d.ResetAfter)
		}
	})
}

func TestProbe(t *testing.T) {
	forEach(t, withChain, setup{limit: 2}, func(t *testing.T, s *subject) {
		l := s.take(0)
		if l.Permits() != 0 {
			t.Errorf("a probe holds %d permits", l.Permits())
		}
		s.available(2)
		s.take(1)
		s.take(0)
		s.take(1)
		if d := s.refuse(0, weir.ReasonLimited); (d.RetryAfter > 0) != s.kind.timed {
			t.Errorf("a refused probe may come back after %v", d.RetryAfter)
		}
		if d := s.Peek(0); d.Allowed {
			t.Errorf("Peek(0) = %+v", d)
		}
		if got, want := s.Stats(), (weir.Stats{Allowed: 2}); got != want {
			t.Errorf("Stats() = %+v, want %+v: probes do not count", got, want)
		}
	})
}

func TestProbeIsToldWhenOnePermitIsBack(t *testing.T) {
	forEach(t, withChain, setup{limit: 2}, func(t *testing.T, s *subject) {
		s.drain(2)
		d := s.refuse(0, weir.ReasonLimited)
		if one := s.refuse(1, weir.ReasonLimited); one.RetryAfter != d.RetryAfter {
			t.Errorf("a probe is told %v, a request for one permit %v", d.RetryAfter, one.RetryAfter)
		}
		if s.kind.timed {
			time.Sleep(d.RetryAfter - 1)
			s.refuse(0, weir.ReasonLimited)
			time.Sleep(1)
			s.take(0)
			s.take(1)
		}
	})
}

func TestLeaseOfZeroPermitsReleasesNothing(t *testing.T) {
	forEach(t, withChain, setup{limit: 2}, func(t *testing.T, s *subject) {
		s.take(1)
		for _, end := range []func(weir.Lease){
			weir.Lease.Release, weir.Lease.Cancel, func(l weir.Lease) { l.Commit(0) },
		} {
			end(s.take(0))
			end(s.TryReserve(0))
			end(weir.Lease{})
			s.available(1)
		}
	})
}

func TestLeaseOfARefusalReleasesNothing(t *testing.T) {
	forEach(t, withChain, setup{limit: 2}, func(t *testing.T, s *subject) {
		s.take(1)
		for _, n := range []int64{2, 3, -1} {
			for _, l := range []weir.Lease{s.TryAcquire(n), s.TryReserve(n)} {
				if l.Allowed() || l.Permits() != 0 {
					t.Errorf("%d of 1 permits: a lease of %d, %+v", n, l.Permits(), l.Decision())
				}
				l.Release()
				l.Commit(0)
				l.Cancel()
			}
		}
		s.available(1)
	})
}

func TestMoreThanTheLimitIsNever(t *testing.T) {
	forEach(t, withChain, setup{name: "p", limit: 4, queue: 100}, func(t *testing.T, s *subject) {
		check := func(n, remaining int64, d weir.Decision) {
			t.Helper()
			if d.Allowed || d.Reason != weir.ReasonNever || d.RetryAfter != weir.Never || d.Limit != 4 ||
				d.Remaining != remaining || d.Policy != "p" {
				t.Errorf("%d permits of 4: %+v", n, d)
			}
		}
		refused := int64(0)
		for _, used := range []int64{0, 1, 3} {
			s.drain(used)
			left := s.Stats().Remaining
			for _, n := range []int64{5, 6, 1e15, 1<<63 - 1} {
				check(n, left, s.Peek(n))
				check(n, left, s.TryAcquire(n).Decision())
				check(n, left, s.TryReserve(n).Decision())
				for _, acquire := range []func(context.Context, int64) (weir.Lease, error){s.Acquire, s.Reserve} {
					l, err := acquire(t.Context(), n)
					refusedAs(t, err, l)
					check(n, left, l.Decision())
				}
				refused += 4
			}
			s.available(left) // nothing has changed
		}
		if got := s.Stats().Refused; got != refused {
			t.Errorf("%d refusals are counted, want %d", got, refused)
		}
	})
}

func TestNegativeIsMisuse(t *testing.T) {
	forEach(t, withChain, setup{limit: 4, queue: 4}, func(t *testing.T, s *subject) {
		s.take(1)
		before := s.Stats()
		for _, n := range []int64{-1, -4, -1 << 63} {
			for _, acquire := range []func(context.Context, int64) (weir.Lease, error){
				s.Acquire, s.Reserve,
				func(_ context.Context, n int64) (weir.Lease, error) { l := s.TryAcquire(n); return l, l.Err() },
				func(_ context.Context, n int64) (weir.Lease, error) { l := s.TryReserve(n); return l, l.Err() },
			} {
				l, err := acquire(t.Context(), n)
				if !errors.Is(err, weir.ErrRefused) || !strings.HasPrefix(err.Error(), "weir: ") ||
					!strings.HasSuffix(err.Error(), "must be 0 or more") {
					t.Errorf("%d permits: error %v", n, err)
				}
				if d := l.Decision(); l.Allowed() || d.Reason != weir.ReasonInvalid || d.RetryAfter != weir.Never {
					t.Errorf("%d permits: %+v", n, d)
				}
				l.Release()
			}
			if d := s.Peek(n); d.Allowed || d.Reason != weir.ReasonInvalid {
				t.Errorf("Peek(%d) = %+v", n, d)
			}
		}
		if after := s.Stats(); after != before {
			t.Errorf("misuse has changed %+v to %+v", before, after)
		}
	})
}

// refusedAs checks that err is the refusal that l has.
func refusedAs(t *testing.T, err error, l weir.Lease) {
	t.Helper()
	var refused *weir.RefusedError
	if !errors.As(err, &refused) || !errors.Is(err, weir.ErrRefused) || refused.Decision != l.Decision() || l.Allowed() {
		t.Errorf("%v with %+v", err, l.Decision())
	}
}

func TestNegativeNamesTheNumberAndTheRange(t *testing.T) {
	b, err := newBucket(setup{limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Acquire(t.Context(), -7)
	for _, want := range []string{"-7 permits", "0 or more"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if err := b.TryAcquire(-8).Err(); !strings.Contains(err.Error(), "-8 permits") {
		t.Errorf("%q does not name the number", err)
	}
}

func TestRefusalOfACallThatMayWaitIsAnError(t *testing.T) {
	forEach(t, withChain, setup{limit: 1}, func(t *testing.T, s *subject) {
		s.take(1)
		l := s.TryAcquire(1)
		refusedAs(t, l.Err(), l)
		if l.Decision().Reason != weir.ReasonLimited {
			t.Errorf("TryAcquire: %+v", l.Decision())
		}
		l, err := s.Acquire(t.Context(), 1)
		refusedAs(t, err, l)
		refusedAs(t, l.Err(), l)
		if !errors.Is(err, weir.ErrNoQueue) || l.Decision().Reason != weir.ReasonQueueFull {
			t.Errorf("Acquire: %+v, %v", l.Decision(), err)
		}
	})
}

func TestEndedContextLosesEvenIfPermitsAreFree(t *testing.T) {
	forEach(t, withChain, setup{limit: 4, queue: 4}, func(t *testing.T, s *subject) {
		reason := errors.New("the caller went home")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(reason)
		for _, acquire := range []func(context.Context, int64) (weir.Lease, error){s.Acquire, s.Reserve} {
			for n := range int64(6) {
				l, err := acquire(ctx, n)
				if !errors.Is(err, reason) || !strings.HasPrefix(err.Error(), "weir: acquire ") {
					t.Errorf("%d permits: error %v", n, err)
				}
				if l.Allowed() || l.Decision().Reason != weir.ReasonCanceled || l.Permits() != 0 {
					t.Errorf("%d permits: %+v", n, l.Decision())
				}
				l.Release()
				l.Cancel()
			}
		}
		if got, want := s.Stats(), (weir.Stats{Remaining: 4}); got != want {
			t.Errorf("Stats() = %+v, want %+v", got, want)
		}
	})
}

func TestEndedDeadlineLosesEvenIfPermitsAreFree(t *testing.T) {
	forEach(t, withChain, setup{limit: 4, queue: 4}, func(t *testing.T, s *subject) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		time.Sleep(time.Second)
		synctest.Wait()
		if l, err := s.Acquire(ctx, 1); !errors.Is(err, context.DeadlineExceeded) || l.Allowed() {
			t.Errorf("%+v, %v", l.Decision(), err)
		}
		s.available(4)
	})
}

func TestClosedLimiterRefusesEverything(t *testing.T) {
	forEach(t, withChain, setup{name: "p", limit: 4, queue: 4}, func(t *testing.T, s *subject) {
		held := s.TryReserve(1)
		closeLimiter(t, s)
		closeLimiter(t, s)
		for n := range int64(6) {
			a, errA := s.Acquire(t.Context(), n)
			r, errR := s.Reserve(t.Context(), n)
			refusedAs(t, errA, a)
			refusedAs(t, errR, r)
			if !errors.Is(errA, weir.ErrClosed) || !errors.Is(errR, weir.ErrClosed) {
				t.Errorf("%d permits: errors %v, %v", n, errA, errR)
			}
			for i, d := range []weir.Decision{
				s.TryAcquire(n).Decision(), s.TryReserve(n).Decision(), a.Decision(), r.Decision(), s.Peek(n),
			} {
				if d.Allowed || d.Reason != weir.ReasonClosed || d.RetryAfter != weir.Never || d.Limit != 4 || d.Policy != "p" {
					t.Errorf("%d permits, call %d: %+v", n, i, d)
				}
			}
		}
		if l, err := s.Acquire(t.Context(), -1); !errors.Is(err, weir.ErrRefused) || l.Decision().Reason != weir.ReasonInvalid {
			t.Errorf("a negative number of permits is misuse also then: %v", err)
		}
		if got := s.Stats().Refused; got != 5*4 {
			t.Errorf("%d refusals are counted, want %d", got, 5*4)
		}
		if a, ok := s.Acquirer.(interface{ Allow() bool }); ok && a.Allow() {
			t.Error("Allow() is true")
		}
		held.Release()
		closeLimiter(t, s)
	})
}

func TestLeasesEndAfterClose(t *testing.T) {
	forEach(t, withChain, setup{limit: 4}, func(t *testing.T, s *subject) {
		taken, a, b, c := s.take(1), s.TryReserve(1), s.TryReserve(1), s.TryReserve(1)
		closeLimiter(t, s)
		for _, l := range []weir.Lease{taken, a, b, c} {
			if !l.Allowed() || l.Permits() != 1 {
				t.Errorf("a lease has become %+v", l.Decision())
			}
		}
		taken.Release()
		a.Release()
		b.Commit(2)
		c.Cancel()
		for _, l := range []weir.Lease{taken, a, b, c} {
			l.Release()
			l.Commit(1)
			l.Cancel()
		}
		want := int64(4)
		if s.kind.timed {
			want = 0 // three are spent and one more is charged, and only one has come back
		}
		s.available(want)
	})
}

func TestStatsCountRequests(t *testing.T) {
	forEach(t, kinds, setup{limit: 4, queue: 2}, func(t *testing.T, s *subject) {
		check := func(want weir.Stats) {
			t.Helper()
			synctest.Wait()
			if got := s.Stats(); got != want {
				t.Fatalf("Stats() = %+v, want %+v", got, want)
			}
		}
		s.drain(3)
		check(weir.Stats{Remaining: 1, Allowed: 3})
		s.refuse(2, weir.ReasonLimited)
		s.refuse(5, weir.ReasonNever)
		check(weir.Stats{Remaining: 1, Allowed: 3, Refused: 2})
		ctx, cancel := context.WithCancel(t.Context())
		first, second := s.wait(ctx, 2), s.wait(t.Context(), 3) // the second finds the queue full
		expect(t, "waiting queue-full", first, second)
		check(weir.Stats{Remaining: 1, Queued: 2, Waiters: 1, Allowed: 3, Refused: 3})
		s.refuse(1, weir.ReasonLimited) // it would overtake
		probe := s.wait(t.Context(), 0)
		expect(t, "granted", probe)
		check(weir.Stats{Remaining: 1, Queued: 2, Waiters: 1, Allowed: 3, Refused: 4})
		cancel()
		check(weir.Stats{Remaining: 1, Allowed: 3, Refused: 4}) // a call that gives up is not counted
		third, fourth := s.wait(t.Context(), 1), s.wait(t.Context(), 2)
		expect(t, "granted waiting", third, fourth)
		check(weir.Stats{Queued: 2, Waiters: 1, Allowed: 4, Refused: 4})
		s.free(2)
		expect(t, "granted", fourth)
		check(weir.Stats{Allowed: 5, Refused: 4})
		fifth := s.wait(t.Context(), 1)
		closeLimiter(t, s)
		expect(t, "closed", fifth)
		check(weir.Stats{Allowed: 5, Refused: 5})
	})
}

func TestAllowIsTryAcquireOfOne(t *testing.T) {
	forEach(t, kinds, setup{limit: 3, queue: 3}, func(t *testing.T, s *subject) {
		a, ok := s.Acquirer.(interface{ Allow() bool })
		if !ok {
			if s.kind.timed {
				t.Error("has no Allow")
			}
			return // permits must be released, and Allow gives no lease
		}
		got := []bool{a.Allow(), a.Allow(), a.Allow(), a.Allow()}
		if want := []bool{true, true, true, false}; !slices.Equal(got, want) {
			t.Errorf("Allow() is %v, want %v", got, want)
		}
		if st, want := s.Stats(), (weir.Stats{Allowed: 3, Refused: 1}); st != want {
			t.Errorf("Stats() = %+v, want %+v", st, want)
		}
		s.wait(t.Context(), 2)
		a.(interface{ Refund(n int64) }).Refund(1) //nolint:forcetypeassert // what has Allow has Refund
		if a.Allow() {
			t.Error("Allow() overtakes the queue")
		}
	})
}

func TestRetryAfterIsHonest(t *testing.T) {
	forEach(t, withChain, setup{limit: 5}, func(t *testing.T, s *subject) {
		if !s.kind.timed {
			s.take(5)
			if d := s.refuse(1, weir.ReasonLimited); d.RetryAfter != 0 || d.ResetAfter != 0 {
				t.Errorf("the time until a release cannot be known: %+v", d)
			}
			return
		}
		for i := range 200 {
			time.Sleep(time.Duration(i*i%7) * 331 * time.Millisecond)
			n := int64(i*i*3%5 + 1)
			d := s.TryAcquire(n).Decision()
			if d.Allowed {
				continue
			}
			if d.RetryAfter <= 0 || d.RetryAfter > s.kind.regain || d.ResetAfter < d.RetryAfter {
				t.Fatalf("%d permits: %+v", n, d)
			}
			time.Sleep(d.RetryAfter - 1)
			if again := s.refuse(n, weir.ReasonLimited); again.RetryAfter != 1 {
				t.Fatalf("a nanosecond before its time %d permits are told %v", n, again.RetryAfter)
			}
			time.Sleep(1)
			s.take(n)
		}
	})
}

func TestResetAfterIsHonest(t *testing.T) {
	forEach(t, withChain, setup{limit: 5}, func(t *testing.T, s *subject) {
		if !s.kind.timed {
			return // see TestRetryAfterIsHonest
		}
		for i := range int64(50) {
			time.Sleep(time.Duration(i*i%7) * 331 * time.Millisecond)
			n := i*i*3%5 + 1
			if l := s.TryAcquire(n); !l.Allowed() {
				continue
			}
			d := s.TryAcquire(5).Decision()
			time.Sleep(d.ResetAfter)
			if now := s.Peek(1); now.Remaining != 5 || now.ResetAfter != 0 {
				t.Fatalf("after ResetAfter %v the limiter is not full: %+v", d.ResetAfter, now)
			}
			if s.idle() < 0 {
				t.Fatal("the limiter is full, but not idle")
			}
		}
	})
}

func TestLongIdleNeverExceedsTheLimit(t *testing.T) {
	forEach(t, withChain, setup{limit: 4}, func(t *testing.T, s *subject) {
		for _, d := range []time.Duration{regain, 100 * regain, 365 * 24 * time.Hour, 20 * 365 * 24 * time.Hour} {
			s.drain(4)
			time.Sleep(d + max(regain, s.kind.regain))
			if !s.kind.timed {
				s.available(0)
				s.free(4)
			}
			s.available(4)
			s.refuse(5, weir.ReasonNever)
		}
		s.take(4)
		s.refuse(1, weir.ReasonLimited)
	})
}

func TestRefundGivesBackAtMostUntilFull(t *testing.T) {
	forEach(t, kinds, setup{limit: 4}, func(t *testing.T, s *subject) {
		r, ok := s.Acquirer.(interface{ Refund(n int64) })
		if !ok {
			return // a concurrency limiter gets back what is released
		}
		s.take(3)
		for _, c := range []struct{ n, want int64 }{{0, 1}, {-5, 1}, {1, 2}, {1, 3}, {100, 4}, {1, 4}, {1<<63 - 1, 4}} {
			r.Refund(c.n)
			s.available(c.want)
		}
		s.take(4)
		r.Refund(1<<63 - 1)
		s.available(4)
	})
}

func TestIdle(t *testing.T) {
	check := func(t *testing.T, s *subject, want time.Duration) {
		t.Helper()
		if d := s.idle(); d != want && (!s.kind.keyed || d < 0 || want < 0) {
			t.Fatalf("idle for %v, want %v", d, want)
		}
	}
	const inUse = -1

	t.Run("since the limiter was made", func(t *testing.T) {
		forEach(t, withChain, setup{limit: 4}, func(t *testing.T, s *subject) {
			check(t, s, 0)
			time.Sleep(3 * time.Second)
			check(t, s, 3*time.Second)
		})
	})
	t.Run("not while permits are missing, then since they are back", func(t *testing.T) {
		forEach(t, withChain, setup{limit: 4}, func(t *testing.T, s *subject) {
			time.Sleep(3 * time.Second)
			l := s.take(1)
			check(t, s, inUse)
			if !s.kind.timed {
				time.Sleep(time.Hour)
				check(t, s, inUse)
				l.Release()
				check(t, s, 0)
				time.Sleep(time.Second)
				check(t, s, time.Second)
				return
			}
			d := s.Peek(4)
			time.Sleep(d.ResetAfter - 1)
			check(t, s, inUse)
			time.Sleep(1)
			check(t, s, 0)
			time.Sleep(time.Hour)
			check(t, s, time.Hour)
		})
	})
	t.Run("whatever is asked without taking", func(t *testing.T) {
		forEach(t, withChain, setup{limit: 4}, func(t *testing.T, s *subject) {
			s.drain(1)
			s.free(1)
			time.Sleep(2 * s.kind.regain)
			before := s.idle()
			time.Sleep(9 * time.Second)
			s.Peek(1)
			s.Peek(5)
			s.Stats()
			s.take(0).Release()
			s.TryReserve(0).Cancel()
			s.refuse(5, weir.ReasonNever)
			s.TryAcquire(-1).Release()
			time.Sleep(time.Second)
			check(t, s, before+10*time.Second)
		})
	})
	t.Run("since a cancellation", func(t *testing.T) {
		forEach(t, withChain, setup{limit: 4}, func(t *testing.T, s *subject) {
			time.Sleep(time.Second)
			l := s.TryReserve(2)
			check(t, s, inUse)
			time.Sleep(500 * time.Millisecond)
			l.Cancel()
			check(t, s, 0)
			time.Sleep(time.Second)
			check(t, s, time.Second)
		})
	})
	t.Run("not while somebody waits", func(t *testing.T) {
		forEach(t, kinds, setup{limit: 4, queue: 4}, func(t *testing.T, s *subject) {
			s.drain(4)
			c := s.wait(t.Context(), 4)
			check(t, s, inUse)
			s.free(4)
			expect(t, "granted", c)
			check(t, s, inUse)
		})
	})
}

// TestLimiterOfAProgramIsUsedInBubbles uses limiters as tests of a program do that has them in variables of a package: made
// before the bubbles, in which the clock stands years before the real one, and used in and between them.
func TestLimiterOfAProgramIsUsedInBubbles(t *testing.T) {
	for _, k := range withChain {
		t.Run(k.name, func(t *testing.T) {
			l, err := k.build(setup{limit: 4, queue: 4, slow: true})
			if err != nil {
				t.Fatal(err)
			}
			use := func(t *testing.T) {
				t.Helper()
				s := &subject{Acquirer: l}
				for range 2 {
					var granted int64
					for range 6 {
						lease := s.TryAcquire(1)
						granted += lease.Permits()
						s.held = append(s.held, lease)
					}
					if granted > 4 || s.Stats().Remaining != 0 {
						t.Errorf("%d of 4 permits are granted, %d left", granted, s.Stats().Remaining)
					}
					for _, lease := range s.held {
						lease.Release()
					}
				}
				s.Stats()
				if r, ok := l.(interface{ Refund(n int64) }); ok {
					r.Refund(4)
				}
			}
			for range 3 {
				use(t)
				synctest.Test(t, func(t *testing.T) {
					use(t)
					for range 5 {
						if lease, err := l.Acquire(t.Context(), 1); err != nil || !lease.Allowed() {
							t.Errorf("%+v, %v", lease.Decision(), err)
						} else {
							lease.Release()
						}
					}
				})
			}
			use(t)
			closeLimiter(t, l)
		})
	}
}
