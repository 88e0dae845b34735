package weir

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/manualclock"
)

// TestLateTimerCostsNoDeadline: all timers are late. A permit that came before the deadline of the first waiting call is that
// call's, and one that came after it is the next one's.
func TestLateTimerCostsNoDeadline(t *testing.T) {
	for _, c := range []struct {
		ends    time.Duration // the deadline of the first call
		granted bool
	}{{3 * time.Millisecond, true}, {1500 * time.Microsecond, true}} {
		synctest.Test(t, func(t *testing.T) {
			b, err := New(TokenBucket(PerSecond(1000), 1), Options{QueueLimit: 10})
			if err != nil {
				t.Fatal(err)
			}
			b.Allow()
			ctx, cancel := context.WithTimeout(t.Context(), c.ends)
			defer cancel()
			leases, began := make(chan Lease, 2), time.Now()
			for _, ctx := range []context.Context{ctx, t.Context()} {
				go func() {
					l, _ := b.Acquire(ctx, 1)
					leases <- l
				}()
				synctest.Wait()
			}
			b.lock()
			b.timer.Stop() // it would be on time here
			b.unlock()
			if l := <-leases; l.Allowed() != c.granted || time.Since(began) != c.ends {
				t.Errorf("%v: %+v after %v", c.ends, l.Decision(), time.Since(began))
			}
			if l := <-leases; !l.Allowed() || time.Since(began) > 3*time.Millisecond {
				t.Errorf("%v: the second one: %+v after %v", c.ends, l.Decision(), time.Since(began))
			}
		})
	}
}

// TestLateTimerGrantsNothingAfterTheDeadline: a call that waits loses what came when the time was up.
func TestLateTimerGrantsNothingAfterTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, err := New(TokenBucket(PerSecond(1000), 1), Options{QueueLimit: 10})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
		time.Sleep(5 * time.Millisecond)
		now := g.now()
		for late, want := range map[time.Duration]bool{
			0: true, 2 * time.Millisecond: true, 3 * time.Millisecond: false, 4 * time.Millisecond: false,
		} {
			if got := g.tooLate(ctx, now, now-int64(late)); got != want {
				t.Errorf("as of %v ago: %v", late, got)
			}
		}
		cancel()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if !g.tooLate(gone, now, now-int64(time.Second)) || g.tooLate(t.Context(), now, now) {
			t.Error("who has gone is not too late, or who has not is")
		}
	})
}

// ending is a context that ends while a call looks at it: when its Err is asked for the second time.
type ending struct {
	context.Context

	asked int
}

func (e *ending) Err() error {
	if e.asked++; e.asked == 1 {
		return nil
	}
	return context.DeadlineExceeded
}

// TestAcquireTriesBeforeItLooksAtTheTime: once a call has begun, permits that are there are taken before the deadline counts.
func TestAcquireTriesBeforeItLooksAtTheTime(t *testing.T) {
	clock := manualclock.New(0)
	bucket, err := New(TokenBucket(PerSecond(1), 9), Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	window, err := New(FixedWindow(PerSecond(9)), Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	sliding, err := New(SlidingWindow(PerSecond(9), 0), Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := NewConcurrency(9, Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	keyed, err := NewKeyed[string](TokenBucket(PerSecond(1), 9), KeyedOptions{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	for i, acquire := range []func(context.Context, int64) (Lease, error){
		bucket.Acquire, bucket.Reserve, window.Acquire, window.Reserve, sliding.Acquire, sliding.Reserve, pool.Acquire,
		func(ctx context.Context, n int64) (Lease, error) { return keyed.Acquire(ctx, "a", n) },
	} {
		if l, err := acquire(&ending{Context: t.Context()}, 2); err != nil || !l.Allowed() {
			t.Errorf("%d: %+v, %v", i, l.Decision(), err)
		}
	}
}
