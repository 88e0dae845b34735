package weir

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/internal/clock"
)

// corrected is windows of a calendar under a wall clock that is ahead of the machine by what correct says.
func corrected(w *wallLaw) (correct func(ahead time.Duration)) {
	var ahead atomic.Int64
	w.wall.look = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	return func(d time.Duration) { ahead.Store(int64(d)) }
}

// windowOf is the law of a calendar window.
func windowOf(t *testing.T, l *Limiter) *wallLaw {
	t.Helper()
	w, ok := l.meter.law.(*wallLaw)
	if !ok {
		t.Fatalf("the law is a %T", l.meter.law)
	}
	return w
}

func hourly(t *testing.T, limit, queue int64) (*Limiter, func(ahead time.Duration)) {
	t.Helper()
	w, err := New(CalendarWindow(limit, algo.Calendar{Unit: algo.CalendarHour}), Options{QueueLimit: queue})
	if err != nil {
		t.Fatal(err)
	}
	return w, corrected(windowOf(t, w))
}

// TestWallClockIsFollowed sets the wall clock forward and back. It counts a second later, and mints nothing.
func TestWallClockIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, correct := hourly(t, 4, 0)
		expect := func(allowed bool, retry time.Duration) {
			t.Helper()
			if d := w.TryAcquire(3).Decision(); d.Allowed != allowed || d.RetryAfter != retry {
				t.Errorf("%+v, want %v and %v", d, allowed, retry)
			}
		}
		expect(true, 0)
		expect(false, time.Hour)
		correct(30 * time.Minute)
		expect(false, time.Hour)
		time.Sleep(time.Second)
		expect(false, 30*time.Minute-time.Second)
		correct(time.Hour)
		time.Sleep(time.Second)
		expect(true, 0) // it is the next hour
		expect(false, time.Hour-2*time.Second)
		correct(0)
		time.Sleep(time.Second)
		expect(false, 2*time.Hour-3*time.Second) // which it has been already
		time.Sleep(time.Hour)
		expect(false, time.Hour-3*time.Second)
		time.Sleep(time.Hour - 4*time.Second)
		expect(false, time.Second)
		time.Sleep(time.Second)
		expect(true, 0)
	})
}

// TestWallClockIsComparedAtTheEdge sets the clock back less than a second before a window ends.
func TestWallClockIsComparedAtTheEdge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, correct := hourly(t, 1, 0)
		time.Sleep(time.Hour - 500*time.Millisecond)
		w.TryAcquire(1)
		correct(-100 * time.Millisecond)
		time.Sleep(500 * time.Millisecond)
		if d := w.TryAcquire(1).Decision(); d.Allowed || d.RetryAfter != 100*time.Millisecond {
			t.Errorf("%+v", d)
		}
		time.Sleep(100 * time.Millisecond)
		if d := w.TryAcquire(1).Decision(); !d.Allowed {
			t.Errorf("%+v", d)
		}
	})
}

// TestWallClockIsFollowedByThoseWhoWait wants those who wait to be served when a clock that is corrected says so.
func TestWallClockIsFollowedByThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, correct := hourly(t, 1, 1)
		w.TryAcquire(1)
		start := time.Now()
		served := make(chan time.Duration)
		wait := func() {
			if l, err := w.Acquire(context.Background(), 1); err != nil || !l.Allowed() {
				t.Errorf("%+v, %v", l.Decision(), err)
			}
			served <- time.Since(start)
		}
		go wait()
		time.Sleep(10 * time.Minute)
		correct(40 * time.Minute)
		if d := <-served; d != 20*time.Minute {
			t.Errorf("served after %v, want 20m", d)
		}
		go wait()
		time.Sleep(10 * time.Minute)
		correct(0) // back to the hour in which it was served, which so begins again 30 minutes later
		if d := <-served; d != 2*time.Hour {
			t.Errorf("served after %v, want 2h", d)
		}
		correct(24 * time.Hour)
		synctest.Wait()
	})
}

// TestWallClockOfKeys does the same with keys, one of which a call waits for, and sets the clock back by days.
func TestWallClockOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := NewKeyed[string](CalendarWindow(1, algo.Calendar{Unit: algo.CalendarHour}), KeyedOptions{
			QueueLimit: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		correct := corrected(k.base.law.(*wallLaw)) //nolint:forcetypeassert // it is
		expect := func(allowed bool, retry time.Duration) {
			t.Helper()
			if d := k.Take("a", 1); d.Allowed != allowed || d.RetryAfter != retry {
				t.Errorf("%+v, want %v and %v", d, allowed, retry)
			}
		}
		correct(48 * time.Hour)
		expect(true, 0)
		expect(false, time.Hour)
		correct(0)
		time.Sleep(time.Second)
		expect(false, time.Hour-time.Second) // not two days
		time.Sleep(time.Hour - time.Second)
		expect(true, 0)

		served := make(chan time.Time)
		go func() {
			if _, err := k.Acquire(context.Background(), "a", 1); err != nil {
				t.Error(err)
			}
			served <- time.Now()
		}()
		time.Sleep(time.Minute)
		correct(58 * time.Minute)
		start := time.Now()
		if d := (<-served).Sub(start); d != time.Minute {
			t.Errorf("served after %v, want 1m", d)
		}
	})
}

// TestWallLawPlansAhead asks for later times than the clock shows, which must not make it look at the clock each time.
func TestWallLawPlansAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := hourly(t, 1, 0)
		a := windowOf(t, w)
		looks := 0
		a.wall.look = func() time.Time { looks++; return time.Now() }
		for range 10 {
			a.Peek(make([]uint64, a.Words()), clock.Now()+int64(24*time.Hour), 1)
		}
		if looks != 1 {
			t.Errorf("%d looks", looks)
		}
	})
}
