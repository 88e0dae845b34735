package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
)

func mustChain(t *testing.T, limiters ...weir.Acquirer) *weir.Chain {
	t.Helper()
	c, err := weir.NewChain(limiters...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// recorder is a limiter of another package: it passes everything on to one of weir's, and notes what is asked of it.
type recorder struct {
	weir.Acquirer // never called by itself

	name string
	log  *[]string
	err  error // of Reserve
}

func (r *recorder) notef(format string, args ...any) {
	*r.log = append(*r.log, r.name+" "+fmt.Sprintf(format, args...))
}

func (r *recorder) TryAcquire(n int64) weir.Lease {
	r.notef("try %d", n)
	return r.Acquirer.TryAcquire(n)
}

func (r *recorder) TryReserve(n int64) weir.Lease {
	r.notef("try %d", n)
	return r.Acquirer.TryReserve(n)
}

func (r *recorder) Reserve(ctx context.Context, n int64) (weir.Lease, error) {
	r.notef("wait %d", n)
	if r.err != nil {
		return weir.Lease{}, r.err
	}
	return r.Acquirer.Reserve(ctx, n)
}

// bunch is a limiter that cannot be compared.
type bunch struct {
	weir.Acquirer

	_ []int
}

func available(limiters ...weir.Acquirer) string {
	var got []string
	for _, l := range limiters {
		got = append(got, fmt.Sprint(l.Stats().Remaining))
	}
	return strings.Join(got, " ")
}

// threeLimits are a token bucket of 10, a fixed window of 5 and three places at a time.
func threeLimits(t *testing.T) (b, w *weir.Limiter, c *weir.Concurrency) {
	t.Helper()
	return mustBucket(t, weir.TokenBucket(weir.PerSecond(1), 10), weir.Options{Name: "bucket", QueueLimit: 100}),
		mustFixed(t, weir.FixedWindow(weir.PerMinute(5)), weir.Options{Name: "window", QueueLimit: 100}),
		mustConcurrency(t, 3, weir.Options{Name: "places", QueueLimit: 100})
}

func TestChainRefusesWhatItCannotHold(t *testing.T) {
	b, w, p := threeLimits(t)
	var none *weir.Limiter
	for _, c := range []struct {
		limiters []weir.Acquirer
		want     string
	}{
		{nil, "weir: NewChain limiters is empty: must be one or more"},
		{[]weir.Acquirer{b, nil}, "weir: NewChain limiter 2 is nil: must be a limiter"},
		{[]weir.Acquirer{none, b}, "weir: NewChain limiter 1 is nil: must be a limiter"},
		{[]weir.Acquirer{b, w, b}, "weir: NewChain limiter 3 is *weir.Limiter: must be in the chain only once"},
		{[]weir.Acquirer{mustChain(t, b), w, b}, "weir: NewChain limiter 3 is *weir.Limiter: must be in the chain only once"},
		{[]weir.Acquirer{p, mustChain(t, w, mustChain(t, p))}, "weir: NewChain limiter 2 is *weir.Concurrency: must be in the chain only once"},
	} {
		_, err := weir.NewChain(c.limiters...)
		if _, ok := errors.AsType[*weir.OptionError](err); !ok || err.Error() != c.want {
			t.Errorf("NewChain(%v) = %v, want %s", c.limiters, err, c.want)
		}
	}
	same := mustChain(t, b)
	if _, err := weir.NewChain(same, w, same); err == nil {
		t.Error("a chain may be in a chain twice")
	}
	if _, err := weir.NewChain(bunch{Acquirer: b}, bunch{Acquirer: w}); err != nil {
		t.Errorf("limiters that cannot be compared: %v", err)
	}
}

func TestChainKeepsItsOwnListOfLimiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, _ := threeLimits(t)
		list := []weir.Acquirer{b}
		c := mustChain(t, list...)
		list[0] = w
		c.TryAcquire(4)
		if got := available(b, w); got != "6 5" {
			t.Errorf("available: %s", got)
		}
	})
}

func TestChainGrantsFromAllOrFromNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, p := threeLimits(t)
		c := mustChain(t, b, w, p)
		l := c.TryAcquire(2)
		if d := l.Decision(); !l.Allowed() || l.Permits() != 2 || d.Policy != "places" || d.Remaining != 1 || d.Limit != 3 {
			t.Errorf("the decision is that of the fewest permits left: %+v", d)
		}
		if got := available(b, w, p, c); got != "8 3 1 1" {
			t.Errorf("available: %s", got)
		}
		if d := c.TryAcquire(2).Decision(); d.Allowed || d.Policy != "places" || d.Reason != weir.ReasonLimited || d.Remaining != 1 {
			t.Errorf("%+v", d)
		}
		if got := available(b, w, p, c); got != "8 3 1 1" {
			t.Errorf("a refusal has charged something: %s", got)
		}
		l.Release()
		if got := available(b, w, p, c); got != "8 3 3 3" {
			t.Errorf("released, available: %s", got)
		}
		l = c.TryReserve(2)
		l.Cancel()
		l.Cancel()
		if got := available(b, w, p, c); got != "8 3 3 3" {
			t.Errorf("canceled, available: %s", got)
		}
		l = c.TryReserve(2)
		l.Commit(1)
		if got := available(b, w, p, c); got != "7 2 3 2" {
			t.Errorf("committed, available: %s", got)
		}
	})
}

func TestRefusalNamesTheLimiterThatBinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, p := threeLimits(t)
		c := mustChain(t, p, b, w)
		refused := func(n int64, policy string, why weir.Reason, after time.Duration) {
			t.Helper()
			for i, d := range []weir.Decision{c.Peek(n), c.TryAcquire(n).Decision(), c.TryReserve(n).Decision()} {
				if d.Allowed || d.Policy != policy || d.Reason != why || d.RetryAfter != after {
					t.Errorf("call %d for %d permits: %+v, want %s, %v, %v", i, n, d, policy, why, after)
				}
			}
		}
		refused(4, "places", weir.ReasonNever, weir.Never)
		held := p.TryAcquire(3)
		refused(1, "places", weir.ReasonLimited, 0)
		b.TryAcquire(10)
		refused(2, "bucket", weir.ReasonLimited, 2*time.Second) // when places are free is not known
		w.TryAcquire(5)
		refused(2, "window", weir.ReasonLimited, time.Minute) // longer than the bucket's
		time.Sleep(59 * time.Second)
		held.Release()
		refused(2, "window", weir.ReasonLimited, time.Second)
		b.TryAcquire(10)
		refused(2, "bucket", weir.ReasonLimited, 2*time.Second)
		refused(6, "places", weir.ReasonNever, weir.Never)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		refused(1, "places", weir.ReasonClosed, weir.Never)
	})
}

func TestRefusalByAForeignLimiterNamesTheOneThatBinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		b, w, p := threeLimits(t)
		c := mustChain(t, &recorder{p, "P", &log, nil}, &recorder{b, "B", &log, nil}, w, bunch{Acquirer: mustBucket(t, weir.TokenBucket(weir.PerHour(1), 5), weir.Options{
			Name: "slow",
		})})
		p.TryAcquire(3)
		if d := c.TryAcquire(3).Decision(); d.Policy != "places" || d.RetryAfter != 0 {
			t.Errorf("%+v", d)
		}
		b.TryAcquire(10)
		if d := c.TryAcquire(3).Decision(); d.Policy != "bucket" || d.RetryAfter != 3*time.Second {
			t.Errorf("the limiters after the first that refuses are asked as well: %+v", d)
		}
		if d := c.TryAcquire(6).Decision(); d.Reason != weir.ReasonNever {
			t.Errorf("%+v", d)
		}
		if slices.Contains(log, "B try 3") {
			t.Errorf("permits are taken after another limiter has refused: %v", log)
		}
	})
}

func TestWaitingChainAcquiresInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		b, w, p := threeLimits(t)
		c := mustChain(t, &recorder{b, "bucket", &log, nil}, &recorder{p, "places", &log, nil}, &recorder{w, "window", &log, nil})
		held := p.TryAcquire(2)
		s := &subject{Acquirer: c, t: t}
		first := s.wait(t.Context(), 2)
		expect(t, "waiting", first)
		if want := []string{"bucket wait 2", "places wait 2"}; !slices.Equal(log, want) {
			t.Errorf("asked: %q, want %q", log, want)
		}
		if got := available(b, p, w); got != "8 1 5" {
			t.Errorf("available: %s", got)
		}
		held.Release()
		expect(t, "granted", first)
		if got := available(b, p, w); got != "8 1 3" || log[len(log)-1] != "window wait 2" {
			t.Errorf("available: %s, asked %q", got, log)
		}
	})
}

func TestRefusalInMidWaitGivesEverythingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, p := threeLimits(t)
		none := mustConcurrency(t, 3, weir.Options{Name: "none"}) // has no queue
		c := mustChain(t, b, p, w, none)
		heldPlaces, heldNone := p.TryAcquire(3), none.TryAcquire(3)
		s := &subject{Acquirer: c, t: t}
		call := s.wait(t.Context(), 2)
		expect(t, "waiting", call)
		if got := available(b, w, p); got != "8 5 0" {
			t.Errorf("available: %s", got)
		}
		heldPlaces.Release()
		expect(t, "queue-full", call)
		if d := call.lease.Decision(); d.Policy != "none" || call.lease.Permits() != 0 {
			t.Errorf("%+v", d)
		}
		if got := available(b, w, p); got != "10 5 3" {
			t.Errorf("available: %s", got)
		}
		heldNone.Release()
	})
}

func TestCancelInMidWaitGivesEverythingBack(t *testing.T) {
	for _, end := range []string{"cancel", "deadline", "close"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, w, p := threeLimits(t)
				c := mustChain(t, b, w, p)
				p.TryAcquire(3)
				s := &subject{Acquirer: c, t: t}
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("too slow"))
				defer cancel()
				call := s.wait(ctx, 2)
				expect(t, "waiting", call)
				if st := c.Stats(); st.Queued != 2 || st.Waiters != 1 || st.Remaining != 0 {
					t.Errorf("%+v", st)
				}
				time.Sleep(500 * time.Millisecond)
				if got := available(b, w, p); got != "8 3 0" {
					t.Errorf("available: %s", got)
				}
				switch end {
				case "cancel":
					cancel()
					expect(t, "canceled", call)
					if !errors.Is(call.err, context.Canceled) {
						t.Errorf("error %v", call.err)
					}
				case "deadline":
					time.Sleep(500 * time.Millisecond)
					expect(t, "canceled", call)
					if call.err.Error() != "weir: acquire 2 permits: context deadline exceeded: too slow" {
						t.Errorf("error %v", call.err)
					}
				case "close":
					closeLimiter(t, c)
					expect(t, "closed", call)
				}
				if got := available(b, w, p); got != "10 5 0" {
					t.Errorf("available: %s", got)
				}
				if call.lease.Permits() != 0 {
					t.Errorf("%+v", call.lease.Decision())
				}
				call.lease.Release()
				call.lease.Cancel()
				if st := c.Stats(); st.Waiters != 0 || st.Queued != 0 {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

func TestClosedChainLeavesItsLimitersOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, p := threeLimits(t)
		inner := mustChain(t, w, p)
		c := mustChain(t, b, inner)
		held := c.TryAcquire(1)
		closeLimiter(t, c)
		closeLimiter(t, c)
		for _, l := range []weir.Acquirer{b, w, p, inner} {
			if lease := l.TryAcquire(1); !lease.Allowed() {
				t.Errorf("%T: %+v", l, lease.Decision())
			} else {
				lease.Release()
			}
		}
		held.Release()
		if got := p.Stats().Remaining; got != 3 {
			t.Errorf("%d places are free", got)
		}
		if d := c.TryAcquire(1).Decision(); d.Reason != weir.ReasonClosed {
			t.Errorf("%+v", d)
		}
	})
}

func TestClosedLimiterClosesItsChains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, p := threeLimits(t)
		inner := mustChain(t, w, p)
		c := mustChain(t, b, inner)
		p.TryAcquire(3)
		s := &subject{Acquirer: c, t: t}
		direct, through := s.begin(func() (weir.Lease, error) { return inner.Acquire(t.Context(), 1) }), s.wait(t.Context(), 1)
		expect(t, "waiting waiting", direct, through)
		closeLimiter(t, inner)
		expect(t, "closed closed", direct, through)
		for _, d := range []weir.Decision{c.TryAcquire(1).Decision(), c.Peek(1)} {
			if d.Allowed || d.Reason != weir.ReasonClosed || d.RetryAfter != weir.Never {
				t.Errorf("%+v", d)
			}
		}
		if got := available(b, w); got != "10 5" {
			t.Errorf("available: %s", got)
		}

		other := mustChain(t, b, p)
		call := s.begin(func() (weir.Lease, error) { return other.Acquire(t.Context(), 2) })
		expect(t, "waiting", call)
		closeLimiter(t, p)
		expect(t, "closed", call)
		if got := available(b); got != "10" {
			t.Errorf("available: %s", got)
		}
	})
}

func TestChainClosedWhileItsLastLimiterIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, p := threeLimits(t)
		inner := mustChain(t, w)
		c := mustChain(t, inner, b, p)
		held := p.TryAcquire(3)
		s := &subject{Acquirer: c, t: t}
		call := s.wait(t.Context(), 1)
		closeLimiter(t, inner) // no call waits in it, but the request needs it
		expect(t, "closed", call)
		held.Release()
		if got := available(b, w, p); got != "10 5 3" {
			t.Errorf("available: %s", got)
		}
		expect(t, "closed", s.wait(t.Context(), 1))
	})
}

func TestStatsOfAChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, p := threeLimits(t)
		inner := mustChain(t, w, p)
		c := mustChain(t, b, inner)
		check := func(l weir.Acquirer, want weir.Stats) {
			t.Helper()
			want.Limit = map[weir.Acquirer]int64{b: 10, w: 5}[l]
			if want.Limit == 0 {
				want.Limit = 3 // of the places, and the least of the chains
			}
			got := l.Stats()
			got.Idle = 0 // see TestIdleOfAChain
			if got != want {
				t.Errorf("%T: Stats() = %+v, want %+v", l, got, want)
			}
		}
		check(c, weir.Stats{Remaining: 3})
		held := c.TryAcquire(3)
		c.TryAcquire(1) // refused by the places
		c.TryAcquire(4) // never
		c.TryAcquire(0)
		c.TryAcquire(-1)
		check(c, weir.Stats{Allowed: 1, Refused: 2})
		check(inner, weir.Stats{}) // nothing was asked of it itself
		check(p, weir.Stats{Allowed: 1, Refused: 2})
		check(b, weir.Stats{Remaining: 7, Allowed: 1})

		s := &subject{Acquirer: c, t: t}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		call := s.wait(ctx, 2)
		other := s.begin(func() (weir.Lease, error) { return w.Acquire(t.Context(), 5) })
		check(c, weir.Stats{Queued: 7, Waiters: 2, Allowed: 1, Refused: 2})
		check(p, weir.Stats{Queued: 2, Waiters: 1, Allowed: 1, Refused: 2}) // a refusal that is no answer does not count
		held.Release()
		expect(t, "granted waiting", call, other)
		check(c, weir.Stats{Queued: 5, Waiters: 1, Allowed: 2, Refused: 2})
		check(inner, weir.Stats{Queued: 5, Waiters: 1})

		expect(t, "never", s.wait(ctx, 4))
		short, cancelShort := context.WithTimeout(t.Context(), time.Second)
		defer cancelShort()
		expect(t, "deadline", s.wait(short, 2))
		check(c, weir.Stats{Queued: 5, Waiters: 1, Allowed: 2, Refused: 4})
		check(p, weir.Stats{Remaining: 1, Allowed: 2, Refused: 4})
		check(w, weir.Stats{Queued: 5, Waiters: 1, Allowed: 2, Refused: 3})
		s.waiting.Wait()
		time.Sleep(time.Minute)

		c.TryReserve(1).Commit(1000)
		if st := c.Stats(); st.Forgiven != b.Stats().Forgiven+w.Stats().Forgiven || st.Forgiven == 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestIdleOfAChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, p := threeLimits(t)
		c := mustChain(t, b, struct{ weir.Acquirer }{w}, p) // the second is of another kind
		outer := mustChain(t, c)
		check := func(want time.Duration) {
			t.Helper()
			for _, l := range []weir.Acquirer{c, outer} {
				if d := l.Stats().Idle; d != want {
					t.Errorf("idle for %v, want %v", d, want)
				}
			}
		}
		const inUse = -1
		time.Sleep(time.Second)
		check(time.Second)
		l := p.TryAcquire(1)
		check(inUse) // one of them is in use
		l.Release()
		check(0) // and has been until now
		time.Sleep(time.Second)
		check(time.Second) // the shortest
		b.TryAcquire(2)
		check(inUse)
		time.Sleep(5 * time.Second)
		check(3 * time.Second)
		w.TryAcquire(5)
		check(inUse)
	})
}

func TestDeadlineOfAChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, w, p := threeLimits(t)
		c := mustChain(t, b, p, w)
		b.TryAcquire(10)
		w.TryAcquire(5)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute-1)
		defer cancel()
		s := &subject{Acquirer: c, t: t}
		call := s.wait(ctx, 1)
		expect(t, "deadline", call)
		if d := call.lease.Decision(); d.Policy != "window" || d.RetryAfter != time.Minute || call.took != 0 {
			t.Errorf("%+v after %v", d, call.took)
		}
		late, cancel := context.WithTimeout(t.Context(), time.Minute+1)
		defer cancel()
		call = s.wait(late, 1)
		expect(t, "waiting", call)
		time.Sleep(time.Minute)
		expect(t, "granted", call)
	})
}

func TestDeadlineIsNotComparedWithTheTimeOfAClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := manualclock.New(0)
		c := mustChain(t, mustBucket(t, weir.TokenBucket(weir.PerHour(1), 0), weir.Options{QueueLimit: 1, Clock: clock}))
		c.TryAcquire(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s := &subject{Acquirer: c, t: t}
		call := s.wait(ctx, 1)
		expect(t, "waiting", call)
		clock.Advance(time.Hour)
		expect(t, "granted", call)
	})
}

func TestErrorOfAForeignLimiterIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		b, w, p := threeLimits(t)
		broken := errors.New("no connection")
		c := mustChain(t, b, &recorder{w, "window", &log, broken}, p)
		p.TryAcquire(3)
		l, err := c.Acquire(t.Context(), 1)
		if !errors.Is(err, broken) || l.Allowed() {
			t.Errorf("%+v, %v", l.Decision(), err)
		}
		if got := available(b, w, p); got != "10 5 0" {
			t.Errorf("available: %s", got)
		}
	})
}

// TestContextThatEndsInAForeignLimiterIsNoRefusal has a limiter that says nothing but the error of the context.
func TestContextThatEndsInAForeignLimiterIsNoRefusal(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := mustChain(t, mustConcurrency(t, 1, weir.Options{}), canceling{cancel: cancel})
	l, err := c.Acquire(ctx, 1)
	if !errors.Is(err, context.Canceled) || errors.Is(err, weir.ErrRefused) || l.Decision().Reason != weir.ReasonCanceled {
		t.Errorf("%+v, %v", l.Decision(), err)
	}
	if st := c.Stats(); st.Refused != 0 {
		t.Errorf("%d are refused", st.Refused)
	}
}

type canceling struct {
	weir.Acquirer

	cancel func()
}

func (l canceling) Reserve(ctx context.Context, _ int64) (weir.Lease, error) {
	l.cancel()
	return weir.Lease{}, ctx.Err()
}

func (canceling) Stats() weir.Stats { return weir.Stats{} }

// TestPanicOfAForeignLimiterGivesEverythingBack has a limiter that panics after others have been asked.
func TestPanicOfAForeignLimiterGivesEverythingBack(t *testing.T) {
	own, b := mustConcurrency(t, 3, weir.Options{}), mustConcurrency(t, 3, weir.Options{})
	c := mustChain(t, own, &recorder{Acquirer: b, log: new([]string)}, panicking{})
	for name, call := range map[string]func(){
		"TryAcquire": func() { c.TryAcquire(1) },
		"TryReserve": func() { c.TryReserve(1) },
		"Acquire":    func() { _, _ = c.Acquire(t.Context(), 1) },
		"Do":         func() { _ = c.Do(t.Context(), 1, func() error { return nil }) },
	} {
		func() {
			defer func() {
				if got := available(own, b); recover() == nil || got != "3 3" {
					t.Errorf("%s: available: %s", name, got)
				}
			}()
			call()
		}()
	}
}

type panicking struct{ weir.Acquirer }

func (panicking) TryReserve(int64) weir.Lease { panic("broken") }

func (panicking) Reserve(context.Context, int64) (weir.Lease, error) { panic("broken") }

// TestLimiterThatEmbedsOneOfWeirIsAskedItself has a limiter that refuses on its own account.
func TestLimiterThatEmbedsOneOfWeirIsAskedItself(t *testing.T) {
	b, w, _ := threeLimits(t)
	c := mustChain(t, w, &stubborn{b})
	for _, l := range []weir.Lease{c.TryAcquire(1), c.TryReserve(1)} {
		if l.Allowed() {
			t.Errorf("%+v", l.Decision())
		}
	}
	if d := c.Peek(1); d.Allowed {
		t.Errorf("%+v", d)
	}
	if got := available(b, w); got != "10 5" {
		t.Errorf("available: %s", got)
	}
}

type stubborn struct{ *weir.Limiter }

func (*stubborn) TryAcquire(int64) weir.Lease { return weir.Lease{} }

func (*stubborn) TryReserve(int64) weir.Lease { return weir.Lease{} }

func (*stubborn) Peek(int64) weir.Decision { return weir.Decision{} }

// TestChainLeaseThatIsNotReservedCostsWhatItTook ends leases of TryAcquire and Acquire, for which limiters of other packages, and
// all when the caller had to wait, were reserved behind the scenes.
func TestChainLeaseThatIsNotReservedCostsWhatItTook(t *testing.T) {
	for name, end := range map[string]func(weir.Lease){
		"release": weir.Lease.Release,
		"cancel":  weir.Lease.Cancel,
		"commit":  func(l weir.Lease) { l.Commit(1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log []string
				b, w, p := threeLimits(t)
				c := mustChain(t, b, &recorder{w, "window", &log, nil}, p)
				end(c.TryAcquire(2))
				if got := available(b, w, p); got != "8 3 3" {
					t.Errorf("tried, available: %s", got)
				}
				held := p.TryAcquire(3)
				time.AfterFunc(time.Millisecond, held.Release)
				l, err := c.Acquire(t.Context(), 2)
				if err != nil || !l.Allowed() {
					t.Fatalf("%+v, %v", l.Decision(), err)
				}
				end(l)
				if got := available(b, w, p); got != "6 1 3" {
					t.Errorf("waited, available: %s", got)
				}
			})
		})
	}
}

func TestProbeOfAChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		b, w, p := threeLimits(t)
		c := mustChain(t, b, &recorder{w, "window", &log, nil}, p)
		l := c.TryReserve(0)
		if d := l.Decision(); !l.Allowed() || l.Permits() != 0 || d.Remaining != 3 {
			t.Errorf("%+v", d)
		}
		l.Cancel()
		l.Commit(7)
		if got := available(b, w, p); got != "10 5 3" {
			t.Errorf("available: %s", got)
		}
		held := p.TryAcquire(3)
		s := &subject{Acquirer: c, t: t}
		call := s.wait(t.Context(), 0)
		expect(t, "waiting", call)
		held.Release()
		expect(t, "granted", call)
		if got := available(b, w, p); got != "10 5 3" {
			t.Errorf("available: %s", got)
		}
	})
}

// TestChainsNeverOvercharge has many callers of chains that overlap, by try and by waiting, of whom some give up. Whatever was not
// granted must be back in the end.
func TestChainsNeverOvercharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day30 = 30 * day
		a := mustBucket(t, weir.TokenBucket(weir.Per(1, day30), 500), weir.Options{QueueLimit: 1000})
		b := mustFixed(t, weir.FixedWindow(weir.Per(500, day30)), weir.Options{QueueLimit: 1000})
		d := mustSliding(t, weir.SlidingWindow(weir.Per(500, day30), 0), weir.Options{QueueLimit: 1000})
		p := mustConcurrency(t, 3, weir.Options{QueueLimit: 1000})
		chains := []*weir.Chain{
			mustChain(t, a, b, p), mustChain(t, b, d, p), mustChain(t, d, a, p), mustChain(t, mustChain(t, d, b), a, p),
		}
		var (
			all      sync.WaitGroup
			mu       sync.Mutex
			accepted [4]int64
		)
		for caller := range 40 {
			rng := rand.New(rand.NewPCG(uint64(caller), 1))
			all.Go(func() {
				for range 30 {
					i, n := rng.IntN(4), 1+rng.Int64N(3)
					var l weir.Lease
					var err error
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+rng.IntN(2000))*time.Millisecond)
					switch rng.IntN(4) {
					case 0:
						l = chains[i].TryAcquire(n)
					case 1:
						l = chains[i].TryReserve(n)
					case 2:
						l, err = chains[i].Acquire(ctx, n)
					default:
						l, err = chains[i].Reserve(ctx, n)
					}
					if err != nil && !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
					if l.Allowed() {
						mu.Lock()
						accepted[i] += n
						mu.Unlock()
					}
					l.Release()
					cancel()
				}
			})
		}
		all.Wait()
		used := func(of ...int) (sum int64) {
			for _, i := range of {
				sum += accepted[i]
			}
			return sum
		}
		for _, c := range []struct {
			limiter weir.Acquirer
			want    int64
		}{
			{a, 500 - used(0, 2, 3)}, {b, 500 - used(0, 1, 3)}, {d, 500 - used(1, 2, 3)}, {p, 3},
		} {
			if st := c.limiter.Stats(); st.Remaining != c.want || st.Waiters != 0 || st.Queued != 0 {
				t.Errorf("%T: %+v, want %d available of what %v took", c.limiter, st, c.want, accepted)
			}
		}
		if accepted == [4]int64{} {
			t.Error("nothing was granted")
		}
	})
}
