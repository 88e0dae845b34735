package weir_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
)

func mustFixed(t *testing.T, limit weir.Limit, o weir.Options) *weir.Limiter {
	t.Helper()
	w, err := weir.New(limit, o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestFixedWindowBorder shows what a fixed window cannot do: around a border twice the limit passes, however short the time. It
// never is more than that in a time as long as a window.
func TestFixedWindowBorder(t *testing.T) {
	anyClock(t, func(t *testing.T, clock weir.Clock) {
		w := mustFixed(t, weir.FixedWindow(weir.PerMinute(10)), weir.Options{Clock: clock})
		time.Sleep(time.Minute - 1)
		if !w.TryAcquire(10).Allowed() {
			t.Error("the limit is refused at the end of a window")
		}
		time.Sleep(1)
		if !w.TryAcquire(10).Allowed() {
			t.Error("the limit is refused a nanosecond later, in the next window")
		}
		for range 60 {
			if d := w.TryAcquire(1).Decision(); d.Allowed {
				t.Errorf("more than twice the limit in a minute: %+v", d)
			}
			time.Sleep(time.Second - 1)
		}
		time.Sleep(60)
		if !w.TryAcquire(10).Allowed() {
			t.Error("the limit is refused in the window after")
		}
	})
}

func TestFixedWindowsDoNotDrift(t *testing.T) {
	anyClock(t, func(t *testing.T, clock weir.Clock) {
		time.Sleep(12345678901) // windows begin when the limiter is made, whenever that is
		const window = 7*time.Second + 1
		w := mustFixed(t, weir.FixedWindow(weir.Per(3, window)), weir.Options{Clock: clock})
		start := time.Now()
		rng := rand.New(rand.NewPCG(1, 2))
		used := map[time.Duration]int64{}
		for range 5000 {
			passed := time.Since(start)
			number, left := passed/window, window-passed%window
			n := 1 + rng.Int64N(3)
			d := w.TryAcquire(n).Decision()
			if want := used[number]+n <= 3; d.Allowed != want {
				t.Fatalf("after %v, with %d of 3 used: %d permits: %+v", passed, used[number], n, d)
			}
			if d.Allowed {
				used[number] += n
			} else if d.RetryAfter != left {
				t.Fatalf("after %v RetryAfter is %v, the window lasts %v", passed, d.RetryAfter, left)
			}
			if used[number] > 0 && d.ResetAfter != left {
				t.Fatalf("after %v ResetAfter is %v, the window lasts %v", passed, d.ResetAfter, left)
			}
			time.Sleep(time.Duration(rng.Int64N(int64(window) / 2)))
			if rng.IntN(50) == 0 {
				time.Sleep(time.Duration(rng.Int64N(int64(1000 * window)))) // a long idle spell
			}
		}
	})
}

func TestFixedWindowOfOneNanosecond(t *testing.T) {
	anyClock(t, func(t *testing.T, clock weir.Clock) {
		w := mustFixed(t, weir.FixedWindow(weir.Per(1, 1)), weir.Options{Clock: clock})
		for range 1000 {
			if !w.Allow() || w.Allow() {
				t.Fatal("not one a nanosecond")
			}
			time.Sleep(1)
		}
	})
}

func TestFixedWindowRefundsIntoTheSameWindowOnly(t *testing.T) {
	anyClock(t, func(t *testing.T, clock weir.Clock) {
		w := mustFixed(t, weir.FixedWindow(weir.PerSecond(5)), weir.Options{Clock: clock})
		l := w.TryReserve(5)
		time.Sleep(time.Second - 1)
		l.Commit(2)
		if got := w.Stats().Remaining; got != 3 {
			t.Errorf("%d permits are available in the window, want 3", got)
		}
		m := w.TryReserve(3)
		time.Sleep(1)
		w.TryAcquire(5)
		m.Cancel()
		if got := w.Stats().Remaining; got != 0 {
			t.Errorf("%d permits of the window before are available, want 0", got)
		}
	})
}

func TestDebtOfAFixedWindowIsCarried(t *testing.T) {
	anyClock(t, func(t *testing.T, clock weir.Clock) {
		w := mustFixed(t, weir.FixedWindow(weir.PerSecond(5)), weir.Options{MaxDebt: 100, Clock: clock})
		w.TryReserve(1).Commit(12) // as much as two windows and two permits of the third have
		for i, want := range []int64{0, 0, 3, 5} {
			if got := w.Stats().Remaining; got != want {
				t.Errorf("window %d has %d permits, want %d", i, got, want)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestWaitersOfAFixedWindowAreServedAtItsBorders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := mustFixed(t, weir.FixedWindow(weir.PerSecond(2)), weir.Options{QueueLimit: 10})
		start := time.Now()
		time.Sleep(300 * time.Millisecond)
		w.TryAcquire(2)
		s := &subject{Acquirer: w, t: t}
		var calls []*call
		for range 5 {
			calls = append(calls, s.wait(t.Context(), 1))
		}
		s.waiting.Wait()
		for i, c := range calls {
			if got, want := c.began.Add(c.took).Sub(start), time.Duration(1+i/2)*time.Second; got != want {
				t.Errorf("caller %d was served at %v, want %v", i, got, want)
			}
		}
	})
}
