package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

func TestWithoutQueueNobodyWaits(t *testing.T) {
	forEach(t, withChain, setup{limit: 2}, func(t *testing.T, s *subject) {
		s.take(2)
		c := s.wait(t.Context(), 1)
		expect(t, "queue-full", c)
		if !errors.Is(c.err, weir.ErrNoQueue) || !strings.Contains(c.err.Error(), "set QueueLimit") {
			t.Errorf("the error is %v", c.err)
		}
		if c.took != 0 {
			t.Errorf("the answer took %v", c.took)
		}
	})
}

func TestQueueLimitCountsPermits(t *testing.T) {
	forEach(t, kinds, setup{limit: 8, queue: 5}, func(t *testing.T, s *subject) {
		s.drain(8)
		tooMany := s.wait(t.Context(), 6) // more than an empty queue holds
		expect(t, "queue-full", tooMany)
		if errors.Is(tooMany.err, weir.ErrNoQueue) {
			t.Errorf("there is a queue: %v", tooMany.err)
		}
		a, b, c := s.wait(t.Context(), 3), s.wait(t.Context(), 1), s.wait(t.Context(), 2)
		expect(t, "waiting waiting queue-full", a, b, c)
		d, e := s.wait(t.Context(), 1), s.wait(t.Context(), 1)
		expect(t, "waiting queue-full", d, e)
		if st := s.Stats(); st.Queued != 5 || st.Waiters != 3 {
			t.Errorf("Stats() = %+v", st)
		}
		probe := s.wait(t.Context(), 0) // takes no room
		expect(t, "waiting", probe)
		s.free(3) // a is served, and leaves room for three
		f, g := s.wait(t.Context(), 3), s.wait(t.Context(), 1)
		expect(t, "granted waiting waiting waiting queue-full", a, b, d, f, g)
	})
}

func TestQueueLimitAsLargeAsCanBe(t *testing.T) {
	forEach(t, kinds, setup{limit: 1e9, queue: 1e15}, func(t *testing.T, s *subject) {
		s.take(1e9)
		for range 50 {
			expect(t, "waiting", s.wait(t.Context(), 1e9))
		}
		if st := s.Stats(); st.Queued != 50e9 || st.Waiters != 50 {
			t.Errorf("Stats() = %+v", st)
		}
	})
}

func TestOldestFirstIsNeverOvertaken(t *testing.T) {
	forEach(t, kinds, setup{limit: 4, queue: 8}, func(t *testing.T, s *subject) {
		s.drain(4)
		first := s.wait(t.Context(), 3)
		s.free(2)
		s.available(2) // but they are for the first
		s.refuse(1, weir.ReasonLimited)
		s.refuse(2, weir.ReasonLimited)
		if d := s.Peek(1); d.Allowed || d.Reason != weir.ReasonLimited || d.Remaining != 2 {
			t.Errorf("Peek(1) = %+v", d)
		}
		if l := s.TryReserve(1); l.Allowed() {
			t.Error("TryReserve overtakes")
		}
		second := s.wait(t.Context(), 1)
		third := s.begin(func() (weir.Lease, error) { return s.Reserve(t.Context(), 1) })
		expect(t, "waiting waiting waiting", first, second, third)
		s.take(0) // a probe asks whether there is a permit, also if callers wait for it
		s.free(1)
		expect(t, "granted waiting waiting", first, second, third)
		s.free(1)
		expect(t, "granted waiting", second, third)
		if !s.kind.timed {
			first.lease.Release()
		} else {
			time.Sleep(s.kind.regain)
		}
		expect(t, "granted", third)
	})
}

func TestGrantsAreHeadOfLine(t *testing.T) {
	for _, order := range []bool{false, true} {
		t.Run(strconv.FormatBool(order), func(t *testing.T) {
			forEach(t, kinds, setup{limit: 5, queue: 10, order: order}, func(t *testing.T, s *subject) {
				s.drain(5)
				var calls []*call
				for _, n := range []int64{1, 3, 1} {
					calls = append(calls, s.wait(t.Context(), n))
				}
				if order == true {
					slices.Reverse(calls)
				}
				s.free(1)
				expect(t, "granted waiting waiting", calls...)
				s.free(2)
				expect(t, "granted waiting waiting", calls...) // though the last one would fit
				s.free(1)
				expect(t, "granted granted waiting", calls...)
				s.free(1)
				expect(t, "granted granted granted", calls...)
			})
		})
	}
}

func TestNewestFirstServesNewcomersFirst(t *testing.T) {
	forEach(t, kinds, setup{limit: 4, queue: 8, order: true}, func(t *testing.T, s *subject) {
		s.drain(4)
		first := s.wait(t.Context(), 2)
		s.free(1)
		s.take(1) // a newcomer
		second := s.wait(t.Context(), 1)
		third := s.wait(t.Context(), 1)
		s.free(1)
		expect(t, "waiting waiting granted", first, second, third)
		s.free(1)
		expect(t, "waiting granted", first, second)
		s.free(1)
		expect(t, "waiting", first)
		fourth := s.wait(t.Context(), 1)
		expect(t, "waiting granted", first, fourth)
	})
}

func TestNewestFirstEvictsTheOldest(t *testing.T) {
	forEach(t, kinds, setup{name: "p", limit: 5, queue: 5, order: true}, func(t *testing.T, s *subject) {
		s.drain(5)
		a, b, c := s.wait(t.Context(), 2), s.wait(t.Context(), 1), s.wait(t.Context(), 2)
		expect(t, "waiting waiting waiting", a, b, c)

		d := s.wait(t.Context(), 1) // needs one, and a is the oldest
		expect(t, "evicted waiting waiting waiting", a, b, c, d)
		if got, want := a.lease.Decision(), s.Peek(2); got.RetryAfter != want.RetryAfter || got.Policy != "p" || got.Limit != 5 {
			t.Errorf("who is evicted is told %+v, but %+v holds for its two permits", got, want)
		}

		e := s.wait(t.Context(), 5) // needs the whole queue
		expect(t, "evicted evicted evicted waiting", b, c, d, e)
		if st := s.Stats(); st.Queued != 5 || st.Waiters != 1 {
			t.Errorf("Stats() = %+v", st)
		}
		s.free(5)
		expect(t, "granted", e)
		if st := s.Stats(); st.Allowed != 6 || st.Refused != 4 {
			t.Errorf("Stats() = %+v: who is evicted counts as refused", st)
		}
	})
}

func TestNobodyIsEvictedForARequestThatDoesNotFit(t *testing.T) {
	forEach(t, kinds, setup{limit: 9, queue: 5, order: true}, func(t *testing.T, s *subject) {
		s.drain(9)
		a, b := s.wait(t.Context(), 3), s.wait(t.Context(), 2)
		expect(t, "queue-full never", s.wait(t.Context(), 6), s.wait(t.Context(), 10))
		ctx, cancel := context.WithTimeout(t.Context(), 1)
		defer cancel()
		if s.kind.timed && !s.kind.clocked {
			expect(t, "deadline", s.wait(ctx, 1)) // nor for one that would not be served
		}
		expect(t, "waiting waiting", a, b)
	})
}

func TestNewestFirstDoesNotEvictForATry(t *testing.T) {
	forEach(t, kinds, setup{limit: 5, queue: 5, order: true}, func(t *testing.T, s *subject) {
		s.drain(5)
		a := s.wait(t.Context(), 5)
		s.refuse(1, weir.ReasonLimited)
		expect(t, "waiting", a)
	})
}

func TestCancelFreesRoomAtOnce(t *testing.T) {
	forEach(t, kinds, setup{limit: 8, queue: 4}, func(t *testing.T, s *subject) {
		s.drain(8)
		ctx, cancel := context.WithCancel(t.Context())
		a, b := s.wait(t.Context(), 1), s.wait(ctx, 3)
		expect(t, "queue-full", s.wait(t.Context(), 1))
		cancel()
		expect(t, "waiting canceled", a, b)
		if !errors.Is(b.err, context.Canceled) {
			t.Errorf("the error is %v", b.err)
		}
		if st := s.Stats(); st.Queued != 1 || st.Waiters != 1 {
			t.Errorf("Stats() = %+v", st)
		}
		expect(t, "waiting", s.wait(t.Context(), 3))
	})
}

func TestCancelPromotesThoseWhoNowFit(t *testing.T) {
	for _, order := range []bool{false, true} {
		t.Run(strconv.FormatBool(order), func(t *testing.T) {
			forEach(t, kinds, setup{limit: 8, queue: 20, order: order}, func(t *testing.T, s *subject) {
				s.drain(8)
				ctx, cancel := context.WithCancel(t.Context())
				sizes := []int64{5, 1, 2, 4, 1} // in the order in which they are served
				calls := make([]*call, len(sizes))
				for i := range sizes {
					if order == true {
						i = len(sizes) - 1 - i
					}
					with := t.Context()
					if i == 0 {
						with = ctx
					}
					calls[i] = s.wait(with, sizes[i])
				}
				s.free(4)
				expect(t, "waiting waiting waiting waiting waiting", calls...)
				cancel()
				expect(t, "canceled granted granted waiting waiting", calls...)
				s.available(1)
			})
		})
	}
}

func TestCancelInTheMiddleKeepsTheOrder(t *testing.T) {
	forEach(t, kinds, setup{limit: 8, queue: 20}, func(t *testing.T, s *subject) {
		s.drain(8)
		ctx, cancel := context.WithCancel(t.Context())
		a, b, c, d := s.wait(t.Context(), 1), s.wait(ctx, 1), s.wait(t.Context(), 1), s.wait(ctx, 1)
		cancel()
		expect(t, "waiting canceled waiting canceled", a, b, c, d)
		s.free(1)
		expect(t, "granted waiting", a, c)
		s.free(1)
		expect(t, "granted", c)
		s.free(1)
		s.available(1)
	})
}

func TestCanceledWaiterNeitherGetsNorLosesAPermit(t *testing.T) {
	forEach(t, kinds, setup{limit: 4, queue: 8}, func(t *testing.T, s *subject) {
		s.drain(4)
		ctx, cancel := context.WithCancel(t.Context())
		c := s.wait(ctx, 2)
		// Permits come and the context ends before the waiter has a chance to run.
		cancel()
		for range 2 {
			l := s.held[len(s.held)-1]
			s.held = s.held[:len(s.held)-1]
			l.Release()
		}
		if r, ok := s.Acquirer.(interface{ Refund(n int64) }); ok {
			r.Refund(2)
		}
		expect(t, "canceled", c)
		s.available(2)
		if c.lease.Permits() != 0 {
			t.Errorf("the lease has %d permits", c.lease.Permits())
		}
		c.lease.Release()
		c.lease.Cancel()
		s.available(2)
		if st := s.Stats(); st.Allowed != 4 || st.Refused != 0 || st.Waiters != 0 {
			t.Errorf("Stats() = %+v", st)
		}
	})
}

func TestGrantedWaiterKeepsItsPermitsWhenItsContextEndsLater(t *testing.T) {
	forEach(t, kinds, setup{limit: 4, queue: 8}, func(t *testing.T, s *subject) {
		s.drain(4)
		ctx, cancel := context.WithCancel(t.Context())
		c := s.wait(ctx, 2)
		l := s.held[:2]
		if r, ok := s.Acquirer.(interface{ Refund(n int64) }); ok {
			r.Refund(2)
		} else {
			l[0].Release()
			l[1].Release()
		}
		cancel() // after the grant, before the waiter has a chance to run
		expect(t, "granted", c)
		s.available(0)
	})
}

func TestCloseAnswersEverybodyWhoWaits(t *testing.T) {
	for _, order := range []bool{false, true} {
		t.Run(strconv.FormatBool(order), func(t *testing.T) {
			forEach(t, kinds, setup{name: "p", limit: 4, queue: 100, order: order}, func(t *testing.T, s *subject) {
				s.drain(3)
				var calls []*call
				for range 10 {
					calls = append(calls, s.wait(t.Context(), 2))
				}
				closeLimiter(t, s)
				synctest.Wait()
				for i, c := range calls {
					d := c.lease.Decision()
					if c.state() != "closed" || d.RetryAfter != weir.Never || d.Limit != 4 || d.Remaining != 1 || d.Policy != "p" {
						t.Errorf("caller %d: %s, %+v", i, c.state(), d)
					}
				}
				if st, want := s.Stats(), (weir.Stats{Remaining: 1, Allowed: 3, Refused: 10}); st != want {
					t.Errorf("Stats() = %+v, want %+v", st, want)
				}
				s.free(3)
				s.available(4)
			})
		})
	}
}

func TestWaitersAreServedWhenPermitsAreBack(t *testing.T) {
	second := func(s ...float64) (d []time.Duration) {
		for _, x := range s {
			d = append(d, time.Duration(x*float64(time.Second)))
		}
		return d
	}
	// One second after the limiter was made four permits of four are taken at once; then callers for 1, 2, 1, 4 and 0
	// permits wait.
	want := map[string][]time.Duration{
		"token bucket":               second(2, 6, 8, 16, 18),
		"token bucket with a clock":  second(2, 6, 8, 16, 18),
		"fixed window":               second(7, 7, 7, 15, 23),
		"sliding window":             second(7, 7, 7, 15, 23),
		"approximate sliding window": second(9, 13, 15, 31, 41),
		"calendar window":            second(59, 59, 59, 119, 179),
	}
	forEach(t, kinds, setup{limit: 4, queue: 8}, func(t *testing.T, s *subject) {
		if !s.kind.timed {
			return
		}
		time.Sleep(time.Second)
		s.drain(4)
		var calls []*call
		for _, n := range []int64{1, 2, 1, 4, 0} {
			calls = append(calls, s.wait(t.Context(), n))
		}
		s.waiting.Wait()
		var got []time.Duration
		for _, c := range calls {
			got = append(got, c.took)
		}
		if !slices.Equal(got, want[s.kind.of()]) {
			t.Errorf("they are served after %v, want %v", got, want[s.kind.of()])
		}
	})
}

func TestProbeWaitsUntilAPermitIsAvailable(t *testing.T) {
	forEach(t, kinds, setup{limit: 4}, func(t *testing.T, s *subject) { // there is no queue for permits
		s.drain(4)
		a := s.wait(t.Context(), 0)
		b := s.begin(func() (weir.Lease, error) { return s.Reserve(t.Context(), 0) })
		expect(t, "waiting waiting", a, b)
		if s.kind.timed {
			time.Sleep(s.Peek(1).RetryAfter - 1)
			expect(t, "waiting waiting", a, b)
			time.Sleep(1)
		} else {
			s.free(1)
		}
		expect(t, "granted granted", a, b)
		if a.lease.Permits() != 0 || s.Stats().Remaining == 0 {
			t.Errorf("a probe has taken %d permits: %+v", a.lease.Permits(), s.Stats())
		}
	})
}

func TestRetryAfterCountsThoseWhoWait(t *testing.T) {
	forEach(t, kinds, setup{limit: 4, queue: 100}, func(t *testing.T, s *subject) {
		if !s.kind.timed {
			s.drain(4)
			s.wait(t.Context(), 2)
			if d := s.refuse(1, weir.ReasonLimited); d.RetryAfter != 0 {
				t.Errorf("the time until a release cannot be known: %+v", d)
			}
			return
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for range 100 {
			time.Sleep(time.Duration(rng.Int64N(int64(regain))))
			for range rng.IntN(5) {
				s.wait(t.Context(), 1+rng.Int64N(4))
			}
			n := 1 + rng.Int64N(4)
			d := s.TryAcquire(n).Decision()
			if d.Allowed {
				continue
			}
			if again := s.Peek(n); again != d {
				t.Fatalf("Peek(%d) = %+v, but TryAcquire said %+v", n, again, d)
			}
			time.Sleep(d.RetryAfter - 1)
			synctest.Wait()
			s.refuse(n, weir.ReasonLimited)
			time.Sleep(1)
			synctest.Wait()
			s.take(n)
		}
	})
}

// TestRetryAfterStaysHonestWhenTheQueueChanges cancels some of those who wait and refunds permits in between, so that what was
// foretold to the others must be forgotten.
func TestRetryAfterStaysHonestWhenTheQueueChanges(t *testing.T) {
	forEach(t, kinds, setup{limit: 4, queue: 1000}, func(t *testing.T, s *subject) {
		if !s.kind.timed {
			return
		}
		rng := rand.New(rand.NewPCG(3, 4))
		for range 60 {
			var cancels []context.CancelFunc
			for range 2 + rng.IntN(5) {
				ctx, cancel := context.WithCancel(t.Context())
				cancels = append(cancels, cancel)
				s.wait(ctx, rng.Int64N(5))
				s.Peek(1)
			}
			l := s.TryReserve(1)
			for _, cancel := range cancels {
				if rng.IntN(3) == 0 {
					cancel()
					synctest.Wait()
					s.Peek(2)
				}
				time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
			}
			switch rng.IntN(4) {
			case 0:
				l.Cancel()
			case 1:
				l.Commit(3)
			case 2:
				s.Acquirer.(interface{ Refund(n int64) }).Refund(2) //nolint:forcetypeassert // all timed limiters have it
			}
			n := 1 + rng.Int64N(4)
			if d := s.Peek(n); !d.Allowed {
				time.Sleep(d.RetryAfter - 1)
				synctest.Wait()
				s.refuse(n, weir.ReasonLimited)
				time.Sleep(1)
				synctest.Wait()
				s.take(n)
			}
			for _, cancel := range cancels {
				cancel()
			}
			synctest.Wait()
		}
	})
}

func TestDeadlineThatCannotBeMetIsRefusedAtOnce(t *testing.T) {
	for _, waiting := range []int{0, 1, 3} {
		t.Run(fmt.Sprintf("behind %d", waiting), func(t *testing.T) {
			forEach(t, kinds, setup{name: "p", limit: 4, queue: 100}, func(t *testing.T, s *subject) {
				time.Sleep(time.Second)
				s.drain(4)
				for range waiting {
					expect(t, "waiting", s.wait(t.Context(), 3))
				}
				d := s.Peek(2)
				if !s.kind.timed || s.kind.clocked {
					// It is not known when permits come, or not in the time of the context: the caller waits and sees.
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					c := s.wait(ctx, 2)
					expect(t, "waiting", c)
					time.Sleep(time.Second)
					expect(t, "canceled", c)
					if !errors.Is(c.err, context.DeadlineExceeded) {
						t.Errorf("the error is %v", c.err)
					}
					return
				}
				before := s.Stats()
				early, cancel := context.WithTimeout(t.Context(), d.RetryAfter-1)
				defer cancel()
				for _, acquire := range []func(context.Context, int64) (weir.Lease, error){s.Acquire, s.Reserve} {
					c := s.begin(func() (weir.Lease, error) { return acquire(early, 2) })
					expect(t, "deadline", c)
					got := c.lease.Decision()
					if got.RetryAfter != d.RetryAfter || got.Policy != "p" || c.took != 0 {
						t.Errorf("%+v after %v, want RetryAfter %v", got, c.took, d.RetryAfter)
					}
				}
				before.Refused += 2
				if after := s.Stats(); after != before {
					t.Errorf("Stats() = %+v, want %+v", after, before)
				}

				// A nanosecond more than its turn is enough.
				late, cancel := context.WithTimeout(t.Context(), d.RetryAfter+1)
				defer cancel()
				c := s.wait(late, 2)
				expect(t, "waiting", c)
				time.Sleep(d.RetryAfter)
				expect(t, "granted", c)
			})
		})
	}
}

// TestDeadlineThatCanJustBeMetIsTried has contexts that end in the very nanosecond in which the permits come. Which
// comes first is open, but the caller waits until then, and no permit is lost.
func TestDeadlineThatCanJustBeMetIsTried(t *testing.T) {
	forEach(t, kinds, setup{limit: 4, queue: 100}, func(t *testing.T, s *subject) {
		if !s.kind.timed {
			return
		}
		s.drain(4)
		for range 20 {
			wait := s.Peek(4).RetryAfter
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			c := s.wait(ctx, 4)
			expect(t, "waiting", c)
			time.Sleep(wait)
			synctest.Wait()
			if c.took != wait {
				t.Fatalf("it is %s after %v of %v", c.state(), c.took, wait)
			}
			switch c.state() {
			case "granted":
				s.available(0)
			case "canceled":
				s.take(4)
			default:
				t.Fatalf("it is %s", c.state())
			}
			cancel()
		}
	})
}

func TestDeadlineBeforeThePermitsAreReleased(t *testing.T) {
	forEach(t, kinds, setup{limit: 4, queue: 100}, func(t *testing.T, s *subject) {
		s.drain(4)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 30*regain, errors.New("too slow"))
		defer cancel()
		a, b := s.wait(ctx, 4), s.wait(ctx, 4)
		if s.kind.timed {
			s.waiting.Wait()
			expect(t, "granted granted", a, b)
			return
		}
		time.Sleep(30 * regain)
		expect(t, "canceled canceled", a, b)
		if a.err.Error() != "weir: acquire 4 permits: context deadline exceeded: too slow" {
			t.Errorf("the error is %v", a.err)
		}
	})
}

func TestCancelMovesUpTheTimesOfThoseBehind(t *testing.T) {
	forEach(t, kinds, setup{limit: 4, queue: 100}, func(t *testing.T, s *subject) {
		if !s.kind.timed {
			return
		}
		s.drain(4)
		ctx, cancel := context.WithCancel(t.Context())
		alone := s.Peek(2).RetryAfter
		s.wait(ctx, 4)
		behind := s.Peek(2).RetryAfter
		if behind <= alone {
			t.Fatalf("RetryAfter is %v behind another, %v alone", behind, alone)
		}
		c := s.wait(t.Context(), 2)
		cancel()
		synctest.Wait()
		time.Sleep(alone)
		expect(t, "granted", c)
	})
}

func TestWaitersFarBeyondTheRangeOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := weir.New(weir.TokenBucket(weir.PerDay(1), 18000), weir.Options{QueueLimit: 1e15})
		if err != nil {
			t.Fatal(err)
		}
		s := &subject{Acquirer: l, t: t}
		s.take(18000)
		for i := range 20 { // 18000 days each: the seventh is served after 345 years
			s.wait(t.Context(), 18000)
			d := s.refuse(1, weir.ReasonLimited)
			if want := time.Duration(i+1) * 18000 * 24 * time.Hour; i < 5 && d.RetryAfter != want+24*time.Hour {
				t.Errorf("behind %d callers RetryAfter is %v", i+1, d.RetryAfter)
			} else if i > 5 && d.RetryAfter != weir.Never {
				t.Errorf("behind %d callers RetryAfter is %v", i+1, d.RetryAfter)
			}
		}
		closeLimiter(t, l)
		s.waiting.Wait()
	})
}

// TestQueueFollowsItsModel plays random histories and compares which calls wait, were granted and were evicted with a slow model
// of the rules, after every step.
func TestQueueFollowsItsModel(t *testing.T) {
	for _, order := range []bool{false, true} {
		t.Run(strconv.FormatBool(order), func(t *testing.T) {
			for seed := range uint64(40) {
				synctest.Test(t, func(t *testing.T) { playQueue(t, order, rand.New(rand.NewPCG(seed, 7))) })
			}
		})
	}
}

type modelWaiter struct {
	n      int64
	call   *call
	cancel context.CancelFunc
}

type queueModel struct {
	free, limit, room int64
	newestFirst       bool
	waiting           []*modelWaiter // oldest first
	want              map[*call]string
}

func (m *queueModel) queued() (sum int64) {
	for _, w := range m.waiting {
		sum += w.n
	}
	return sum
}

func (m *queueModel) leave(i int, state string) {
	m.want[m.waiting[i].call] = state
	m.waiting = slices.Delete(m.waiting, i, i+1)
}

func (m *queueModel) serve() {
	for len(m.waiting) > 0 {
		i := 0
		if m.newestFirst {
			i = len(m.waiting) - 1
		}
		if max(m.waiting[i].n, 1) > m.free {
			return
		}
		m.free -= m.waiting[i].n
		m.leave(i, "granted")
	}
}

func (m *queueModel) grants(n int64) bool {
	return max(n, 1) <= m.free && (n == 0 || m.newestFirst || len(m.waiting) == 0)
}

func (m *queueModel) arrive(w *modelWaiter) {
	switch {
	case w.n > m.limit:
		m.want[w.call] = "never"
	case m.grants(w.n):
		m.free -= w.n
		m.want[w.call] = "granted"
	case w.n > m.room, !m.newestFirst && w.n+m.queued() > m.room:
		m.want[w.call] = "queue-full"
	default:
		for w.n+m.queued() > m.room {
			m.leave(0, "evicted")
		}
		m.want[w.call] = "waiting"
		m.waiting = append(m.waiting, w)
		m.serve() // the newest call may stand before those for which there is not enough
	}
}

func playQueue(t *testing.T, order bool, rng *rand.Rand) {
	t.Helper()
	const limit, room = 6, 9
	l, err := newConcurrency(setup{limit: limit, queue: room, order: order})
	if err != nil {
		t.Fatal(err)
	}
	s := &subject{Acquirer: l, t: t}
	m := &queueModel{free: limit, limit: limit, room: room, newestFirst: order == true, want: map[*call]string{}}
	var held []weir.Lease
	calls := map[*call]bool{}
	for step := range 300 {
		switch rng.IntN(10) {
		case 0, 1, 2, 3:
			ctx, cancel := context.WithCancel(t.Context())
			w := &modelWaiter{n: rng.Int64N(limit + 2), cancel: cancel}
			w.call = s.wait(ctx, w.n)
			calls[w.call] = true
			m.arrive(w)
		case 4:
			n := 1 + rng.Int64N(limit)
			lease := s.TryAcquire(n)
			if lease.Allowed() != m.grants(n) {
				t.Fatalf("step %d: TryAcquire(%d) = %+v, model has %d free, %d waiting", step, n, lease.Decision(), m.free, len(m.waiting))
			}
			if lease.Allowed() {
				m.free -= n
				held = append(held, lease)
			}
		case 5:
			if len(m.waiting) > 0 {
				i := rng.IntN(len(m.waiting))
				m.waiting[i].cancel()
				m.leave(i, "canceled")
				m.serve()
			}
		default:
			if len(held) > 0 {
				i := rng.IntN(len(held))
				m.free += held[i].Permits()
				held[i].Release()
				held = slices.Delete(held, i, i+1)
				m.serve()
			}
		}
		synctest.Wait()
		for c, want := range m.want {
			if got := c.state(); got != want {
				t.Fatalf("step %d: a caller is %s, want %s", step, got, want)
			}
			if calls[c] && want == "granted" {
				held = append(held, c.lease)
			}
			if want != "waiting" {
				delete(m.want, c)
			}
		}
		st := s.Stats()
		if st.Remaining != m.free || st.Queued != m.queued() || st.Waiters != len(m.waiting) {
			t.Fatalf("step %d: %+v, want %d free, %d permits queued by %d", step, st, m.free, m.queued(), len(m.waiting))
		}
	}
	closeLimiter(t, l)
	s.waiting.Wait()
}
