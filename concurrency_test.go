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

func mustConcurrency(t *testing.T, limit int64, o weir.Options) *weir.Concurrency {
	t.Helper()
	c, err := weir.NewConcurrency(limit, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConcurrencyPermitsComeBackOnReleaseOnly(t *testing.T) {
	anyClock(t, func(t *testing.T, clock weir.Clock) {
		c := mustConcurrency(t, 3, weir.Options{Clock: clock})
		a, b := c.TryAcquire(2), c.TryAcquire(1)
		time.Sleep(10 * 365 * day)
		if d := c.TryAcquire(1).Decision(); d.Allowed || d.Remaining != 0 || d.RetryAfter != 0 || d.ResetAfter != 0 {
			t.Errorf("%+v", d)
		}
		a.Release()
		if d := c.Peek(2); !d.Allowed || d.Remaining != 2 {
			t.Errorf("%+v", d)
		}
		b.Release()
		if d := c.Peek(3); !d.Allowed || d.Remaining != 3 {
			t.Errorf("%+v", d)
		}
	})
}

func TestEveryEndOfALeaseReleasesIt(t *testing.T) {
	c := mustConcurrency(t, 10, weir.Options{})
	for name, end := range map[string]func(weir.Lease){
		"release":           weir.Lease.Release,
		"cancel":            weir.Lease.Cancel,
		"commit of nothing": func(l weir.Lease) { l.Commit(0) },
		"commit of less":    func(l weir.Lease) { l.Commit(1) },
		"commit of more":    func(l weir.Lease) { l.Commit(100) },
	} {
		reserved, err := c.Reserve(t.Context(), 3)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []weir.Lease{c.TryAcquire(3), c.TryReserve(3), reserved} {
			if !l.Allowed() {
				t.Fatalf("%s: %+v", name, l.Decision())
			}
			end(l)
		}
		if st := c.Stats(); st.Remaining != 10 || st.Forgiven != 0 {
			t.Errorf("%s: %+v", name, st)
		}
	}
}

// TestLargeRequestIsNotStarvedBySmallOnes has a stream of small requests that would keep the limiter busy for ever.
func TestLargeRequestIsNotStarvedBySmallOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustConcurrency(t, 4, weir.Options{QueueLimit: 100})
		s := &subject{Acquirer: c, t: t}
		for range 8 {
			s.waiting.Go(func() {
				for range 50 {
					l, err := c.Acquire(t.Context(), 1)
					if err != nil || !l.Allowed() {
						t.Errorf("%+v, %v", l.Decision(), err)
						return
					}
					time.Sleep(time.Second)
					l.Release()
				}
			})
		}
		time.Sleep(time.Millisecond)
		large := s.begin(func() (weir.Lease, error) {
			l, err := c.Acquire(t.Context(), 4)
			l.Release()
			return l, err
		})
		s.waiting.Wait()
		// Before it four are at work and four wait.
		if large.state() != "granted" || large.took > 3*time.Second {
			t.Errorf("all permits: %s after %v", large.state(), large.took)
		}
	})
}

// TestConcurrencyIsNeverExceeded loads the limiter from many goroutines, with and without waiting, and with contexts that end.
func TestConcurrencyIsNeverExceeded(t *testing.T) {
	for _, order := range []bool{false, true} {
		c := mustConcurrency(t, 5, weir.Options{QueueLimit: 20, NewestFirst: order})
		var (
			out     atomic.Int64
			granted atomic.Int64
			all     sync.WaitGroup
		)
		for g := range int64(16) {
			all.Go(func() {
				for i := range int64(300) {
					n := 1 + (i+g)%5
					var l weir.Lease
					if i%3 == 0 {
						l = c.TryAcquire(n)
					} else {
						ctx, cancel := context.WithCancel(t.Context())
						if i%4 == 0 {
							go cancel()
						}
						var err error
						if l, err = c.Acquire(ctx, n); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, weir.ErrRefused) {
							t.Error(err)
						}
						cancel()
					}
					if l.Allowed() {
						granted.Add(1)
						if now := out.Add(n); now > 5 {
							t.Errorf("%d permits are out", now)
						}
						runtime.Gosched()
						out.Add(-n)
					}
					l.Release()
				}
			})
		}
		all.Wait()
		st := c.Stats()
		if st.Remaining != 5 || st.Waiters != 0 || st.Queued != 0 || st.Allowed != granted.Load() {
			t.Errorf("%v: in the end %+v, %d granted", order, st, granted.Load())
		}
		if st.Idle < 0 {
			t.Errorf("%v: not idle in the end", order)
		}
	}
}

func TestConcurrencyIdleSinceTheLastRelease(t *testing.T) {
	anyClock(t, func(t *testing.T, clock weir.Clock) {
		c := mustConcurrency(t, 3, weir.Options{QueueLimit: 3, Clock: clock})
		a, b := c.TryAcquire(1), c.TryAcquire(1)
		time.Sleep(time.Second)
		a.Release()
		if d := c.Stats().Idle; d >= 0 {
			t.Errorf("idle for %v while a permit is out", d)
		}
		time.Sleep(time.Second)
		b.Release()
		time.Sleep(time.Second)
		a.Release() // once more
		if d := c.Stats().Idle; d != time.Second {
			t.Errorf("idle for %v, want 1s", d)
		}
		// The same when a call holds the lock for those who wait.
		l := c.TryAcquire(3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Acquire(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		l.Release()
		time.Sleep(2 * time.Second)
		if d := c.Stats().Idle; d != 2*time.Second {
			t.Errorf("idle for %v, want 2s", d)
		}
		// And after it has been closed.
		l = c.TryAcquire(3)
		closeLimiter(t, c)
		time.Sleep(time.Second)
		l.Release()
		time.Sleep(3 * time.Second)
		if d := c.Stats().Idle; d != 3*time.Second {
			t.Errorf("idle for %v, want 3s", d)
		}
	})
}

// TestContentionStatsAreOfOneMoment has permits come and go while Stats are read: a limiter that is full is idle, one that is not
// is in use, and no caller sees it half.
func TestContentionStatsAreOfOneMoment(t *testing.T) {
	c := mustConcurrency(t, 2, weir.Options{})
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					l := c.TryAcquire(1)
					l.Release()
				}
			}
		})
	}
	var idle, used int
	for idle < 100 || used < 100 {
		switch st := c.Stats(); {
		case st.Idle < 0 == (st.Remaining == 2):
			t.Errorf("%+v", st)
			used, idle = 100, 100
		case st.Idle < 0:
			used++
		default:
			idle++
		}
	}
	close(stop)
	all.Wait()
}
