package weir_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

func setLimit(t *testing.T, c *weir.Concurrency, n int64) {
	t.Helper()
	if err := c.SetLimit(n); err != nil {
		t.Fatal(err)
	}
}

func TestSetLimitRaisedServesThoseWhoWaitInOrder(t *testing.T) {
	for _, order := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := mustConcurrency(t, 2, weir.Options{QueueLimit: 10, NewestFirst: order})
			c.TryAcquire(2)
			var (
				mu     sync.Mutex
				served []int
				all    sync.WaitGroup
			)
			for i := range 3 { // each asks for 2 permits
				all.Go(func() {
					l, err := c.Acquire(t.Context(), 2)
					if err != nil || !l.Allowed() {
						t.Errorf("%+v, %v", l.Decision(), err)
					}
					mu.Lock()
					defer mu.Unlock()
					served = append(served, i)
				})
				synctest.Wait()
			}
			check := func(want ...int) {
				t.Helper()
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if order == true {
					for i := range want {
						want[i] = 2 - want[i]
					}
				}
				if len(served) != len(want) {
					t.Fatalf("%v: served %v, want %v", order, served, want)
				}
				for i := range want {
					if served[i] != want[i] {
						t.Fatalf("%v: served %v, want %v", order, served, want)
					}
				}
			}
			setLimit(t, c, 3)
			check()
			setLimit(t, c, 5)
			check(0)
			setLimit(t, c, 6)
			check(0, 1)
			setLimit(t, c, 8)
			check(0, 1, 2)
			all.Wait()
		})
	}
}

func TestSetLimitLoweredRevokesNothing(t *testing.T) {
	c := mustConcurrency(t, 5, weir.Options{})
	leases := make([]weir.Lease, 5)
	for i := range leases {
		leases[i] = c.TryAcquire(1)
	}
	setLimit(t, c, 2)
	for released := range 4 {
		d := c.TryAcquire(1).Decision()
		if d.Allowed || d.Reason != weir.ReasonLimited || d.Limit != 2 || d.Remaining != 0 {
			t.Errorf("after %d releases: %+v", released, d)
		}
		if st := c.Stats(); st.Remaining != 0 {
			t.Errorf("after %d releases: %+v", released, st)
		}
		leases[released].Release()
	}
	if d := c.TryAcquire(1).Decision(); !d.Allowed || d.Remaining != 0 {
		t.Errorf("%+v", d)
	}
	if d := c.TryAcquire(3).Decision(); d.Reason != weir.ReasonNever || d.RetryAfter != weir.Never {
		t.Errorf("%+v", d)
	}
	if n, window := c.Limit().Quota(); n != 2 || window != 0 {
		t.Errorf("quota %d, %v", n, window)
	}
}

func TestSetLimitRefusesThoseWhoWaitForMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustConcurrency(t, 5, weir.Options{QueueLimit: 20})
		all := c.TryAcquire(5)
		s := &subject{Acquirer: c, t: t}
		small := s.begin(func() (weir.Lease, error) { return c.Acquire(t.Context(), 2) })
		large := s.begin(func() (weir.Lease, error) { return c.Acquire(t.Context(), 4) })
		last := s.begin(func() (weir.Lease, error) { return c.Acquire(t.Context(), 1) })
		setLimit(t, c, 3)
		synctest.Wait()
		if small.state() != "waiting" || large.state() != "never" || last.state() != "waiting" {
			t.Errorf("%s, %s, %s", small.state(), large.state(), last.state())
		}
		all.Release()
		synctest.Wait()
		if small.state() != "granted" || last.state() != "granted" {
			t.Errorf("%s, %s", small.state(), last.state())
		}
		if st := c.Stats(); st.Remaining != 0 || st.Waiters != 0 || st.Refused != 1 || st.Allowed != 3 {
			t.Errorf("%+v", st)
		}
	})
}

func TestSetLimitRefusesWhatNewConcurrencyRefuses(t *testing.T) {
	c := mustConcurrency(t, 5, weir.Options{})
	for _, n := range []int64{-1, 0, 1e15 + 1} {
		var misuse *weir.OptionError
		if err := c.SetLimit(n); !errors.As(err, &misuse) || misuse.Option != "Concurrency.SetLimit" {
			t.Errorf("%d: %v", n, err)
		}
	}
	if d := c.Peek(5); !d.Allowed || d.Limit != 5 {
		t.Errorf("%+v", d)
	}
	setLimit(t, c, 1e15)
	l := c.TryAcquire(1e15)
	setLimit(t, c, 1)
	l.Release()
	if d := c.TryAcquire(1).Decision(); !d.Allowed {
		t.Errorf("%+v", d)
	}
}

func TestSetLimitAfterClose(t *testing.T) {
	c := mustConcurrency(t, 1, weir.Options{QueueLimit: 5})
	l := c.TryAcquire(1)
	closeLimiter(t, c)
	setLimit(t, c, 5)
	if d := c.TryAcquire(1).Decision(); d.Reason != weir.ReasonClosed {
		t.Errorf("%+v", d)
	}
	l.Release()
	if st := c.Stats(); st.Remaining != 5 {
		t.Errorf("%+v", st)
	}
}

// TestIdleFollowsTheLimit lowers the limit to less than what is out, and raises it, while permits come back.
func TestIdleFollowsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustConcurrency(t, 4, weir.Options{})
		a, b := c.TryAcquire(2), c.TryAcquire(2)
		setLimit(t, c, 2)
		a.Release()
		if d := c.Stats().Idle; d >= 0 {
			t.Errorf("idle for %v with 2 permits out", d)
		}
		time.Sleep(time.Second)
		b.Release()
		setLimit(t, c, 9)
		time.Sleep(time.Second)
		if d := c.Stats().Idle; d != time.Second {
			t.Errorf("idle for %v", d)
		}
	})
}

// TestContentionSetLimitIsNeverExceeded has 64 goroutines take permits while the limit goes up and down. Each time it is lowered
// below what is out, nothing is released for a while, and calls after SetLimit has returned must be refused.
func TestContentionSetLimitIsNeverExceeded(t *testing.T) {
	const high, low = 48, 5
	c := mustConcurrency(t, high, weir.Options{QueueLimit: 1000})
	var (
		phase     atomic.Int64 // odd: the limit was lowered below what is out, and nothing is released
		asked     atomic.Int64
		stop      atomic.Bool
		mu        sync.Mutex
		held      []weir.Lease
		out, most atomic.Int64
		all       sync.WaitGroup
	)
	for g := range 64 {
		all.Go(func() {
			for i := 0; !stop.Load(); i++ {
				before := phase.Load()
				var l weir.Lease
				if g%4 == 0 && before%2 == 0 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
					l, _ = c.Acquire(ctx, 1)
					cancel()
				} else {
					l = c.TryAcquire(1)
				}
				asked.Add(1)
				if l.Allowed() {
					if before%2 == 1 && phase.Load() == before {
						t.Error("granted while more than the limit was out")
					}
					if now := out.Add(1); now > most.Load() {
						most.Store(now)
					}
					mu.Lock()
					held = append(held, l)
					mu.Unlock()
				}
				runtime.Gosched()
			}
		})
	}
	until := func(what func() bool) {
		for !what() {
			runtime.Gosched()
		}
	}
	for range 60 {
		until(func() bool { return out.Load() > 2*low })
		setLimit(t, c, low)
		phase.Add(1)
		from := asked.Load()
		until(func() bool { return asked.Load() > from+500 })
		phase.Add(1) // before anything is released
		mu.Lock()
		for _, l := range held {
			out.Add(-1) // before it is back
			l.Release()
		}
		held = held[:0]
		mu.Unlock()
		setLimit(t, c, high)
	}
	stop.Store(true)
	all.Wait()
	for _, l := range held {
		l.Release()
	}
	if most.Load() > high {
		t.Errorf("%d permits were out, of %d", most.Load(), high)
	}
	if st := c.Stats(); st.Remaining != high || st.Queued != 0 || st.Waiters != 0 {
		t.Errorf("permits were lost or made: %+v", st)
	}
}

// changing is a context in which the limit changes once its caller waits, and before the caller looks at the answer.
type changing struct {
	context.Context

	change func()
}

func (c changing) Done() <-chan struct{} {
	c.change()
	return c.Context.Done()
}

// TestAnswerTellsTheLimitOfItsMoment has a limit raised, which grants the permits of a waiting call, and lowered before that
// call has woken up.
func TestAnswerTellsTheLimitOfItsMoment(t *testing.T) {
	c := mustConcurrency(t, 2, weir.Options{QueueLimit: 10})
	c.TryAcquire(2)
	l, err := c.Acquire(changing{t.Context(), func() {
		setLimit(t, c, 20)
		setLimit(t, c, 3)
	}}, 1)
	if d := l.Decision(); err != nil || !d.Allowed || d.Limit != 20 || d.Remaining != 17 {
		t.Errorf("%+v, %v, want 17 of 20 left", d, err)
	}
}
