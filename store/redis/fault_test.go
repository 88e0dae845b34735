package redis

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// yearly is a limit whose permits do not come back while a test runs.
func yearly(n int64) weir.Limit { return weir.Limit{Rate: weir.Per(n, 3000*24*time.Hour)} }

// load has callers take permits of a limit of n until stop is called, which answers what happened.
type load struct {
	granted, refused, failed atomic.Int64
	slowest                  atomic.Int64
	stopped                  atomic.Bool
	wait                     sync.WaitGroup
}

func startLoad(t *testing.T, s *Store, c store.Charge, callers int) *load {
	l := &load{}
	for range callers {
		l.wait.Go(func() {
			d := make([]weir.Decision, 1)
			for !l.stopped.Load() {
				began := time.Now()
				err := s.Take(context.Background(), []store.Charge{c}, d)
				for took := int64(time.Since(began)); ; {
					if was := l.slowest.Load(); took <= was || l.slowest.CompareAndSwap(was, took) {
						break
					}
				}
				switch {
				case errors.Is(err, store.ErrUnavailable):
					l.failed.Add(1)
					if d[0] != (weir.Decision{}) && d[0].Policy == "" {
						t.Errorf("a decision with an error: %+v", d[0])
					}
					time.Sleep(time.Millisecond) // a caller does something with the error
				case err != nil:
					t.Error(err)
					return
				case d[0].Allowed:
					l.granted.Add(1)
				default:
					l.refused.Add(1)
				}
			}
		})
	}
	return l
}

func (l *load) stop() {
	l.stopped.Store(true)
	l.wait.Wait()
}

// until polls a condition.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// TestServerKilled kills the server under load and starts it again, with its data on disk after every command and without.
// Nothing is admitted above the limit where it kept its data; where it lost them, the limit begins anew.
func TestServerKilled(t *testing.T) {
	for _, kept := range []bool{true, false} {
		args := []string{"--appendonly", "no"}
		if kept {
			args = []string{"--appendonly", "yes", "--appendfsync", "always"}
		}
		server := startServer(t, args...)
		s := server.open(Options{Timeout: 500 * time.Millisecond})
		const most = 200_000
		c := store.Charge{Policy: "p", Key: "k", Limit: yearly(most), N: 1}
		l := startLoad(t, s, c, 16)
		until(t, "permits are granted", func() bool { return l.granted.Load() > 500 })
		server.kill()
		before := l.granted.Load()
		failed := l.failed.Load()
		until(t, "calls fail", func() bool { return l.failed.Load() > failed+20 })
		server.start()
		until(t, "permits are granted again", func() bool { return l.granted.Load() > before+500 })
		l.stop()
		d := make([]weir.Decision, 1)
		if err := s.Peek(context.Background(), []store.Charge{c}, d); err != nil {
			t.Fatal(err)
		}
		taken := most - d[0].Remaining
		t.Logf("data kept %t: granted %d, of them %d before; %d taken by the state; %d calls failed; the slowest took %v",
			kept, l.granted.Load(), before, taken, l.failed.Load(), time.Duration(l.slowest.Load()))
		if kept && taken < l.granted.Load() {
			t.Errorf("%d were granted, but only %d are taken", l.granted.Load(), taken)
		}
		if !kept && taken >= l.granted.Load() {
			t.Errorf("%d are taken: did the server not lose its data?", taken)
		}
		server.kill()
	}
}

// TestServerStopped stops the process of the server for a while under load: calls fail within their timeout, also those beyond
// MaxInFlight, and whatever the server does of them afterwards is not admitted above the limit.
func TestServerStopped(t *testing.T) {
	server := startServer(t)
	const timeout = 100 * time.Millisecond
	s := server.open(Options{Timeout: timeout, MaxInFlight: 200})
	const most = 100_000
	c := store.Charge{Policy: "p", Key: "k", Limit: yearly(most), N: 1}
	l := startLoad(t, s, c, 64)
	until(t, "permits are granted", func() bool { return l.granted.Load() > 500 })
	l.slowest.Store(0)
	if err := server.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ended := time.Now().Add(2 * time.Second)
	failed := l.failed.Load()
	until(t, "two seconds have passed", func() bool { return time.Now().After(ended) })
	if l.failed.Load() <= failed {
		t.Error("no call failed")
	}
	before := l.granted.Load()
	if err := server.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	until(t, "permits are granted again", func() bool { return l.granted.Load() > before+500 })
	slowest := time.Duration(l.slowest.Load())
	l.stop()
	d := make([]weir.Decision, 1)
	if err := s.Peek(context.Background(), []store.Charge{c}, d); err != nil {
		t.Fatal(err)
	}
	taken := most - d[0].Remaining
	t.Logf("granted %d, %d taken by the state, %d failed, the slowest call took %v", l.granted.Load(), taken, l.failed.Load(), slowest)
	if taken < l.granted.Load() {
		t.Errorf("%d were granted, but only %d are taken", l.granted.Load(), taken)
	}
	if over := taken - l.granted.Load(); over > 200+64 {
		t.Errorf("%d more are taken than were granted, want at most those in flight", over)
	}
	if slowest > timeout+400*time.Millisecond { // the machine may be busy
		t.Errorf("the slowest call took %v, want about %v", slowest, timeout)
	}
	until(t, "nothing is in flight", func() bool { return s.dispatch.inFlight.Load() == 0 })
}

// TestDeadline has a caller whose context ends before the timeout, with a server that does not answer.
func TestDeadline(t *testing.T) {
	server := startServer(t)
	s := server.open(Options{Timeout: 20 * time.Second})
	c := []store.Charge{{Policy: "p", Key: "k", Limit: yearly(10), N: 1}}
	d := make([]weir.Decision, 1)
	if err := s.Take(context.Background(), c, d); err != nil {
		t.Fatal(err)
	}
	_ = server.cmd.Process.Signal(syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := s.Take(ctx, c, d)
	if took := time.Since(began); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || took > 5*time.Second {
		t.Errorf("%v after %v", err, took)
	}
	_ = server.cmd.Process.Signal(syscall.SIGCONT)
}

// TestMaxInFlight fills the store with calls that are not answered: the next one fails at once.
func TestMaxInFlight(t *testing.T) {
	server := startServer(t)
	s := server.open(Options{Timeout: 5 * time.Second, MaxInFlight: 3})
	c := []store.Charge{{Policy: "p", Key: "k", Limit: yearly(10), N: 1}}
	if err := s.Take(context.Background(), c, make([]weir.Decision, 1)); err != nil {
		t.Fatal(err)
	}
	_ = server.cmd.Process.Signal(syscall.SIGSTOP)
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			if err := s.Take(context.Background(), c, make([]weir.Decision, 1)); err != nil {
				t.Error(err)
			}
		})
	}
	until(t, "three calls wait", func() bool { return s.dispatch.inFlight.Load() == 3 })
	if err := s.Take(context.Background(), c, make([]weir.Decision, 1)); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, errCrowded) {
		t.Error(err)
	}
	_ = server.cmd.Process.Signal(syscall.SIGCONT)
	wait.Wait()
}

// TestScriptForgotten has the server forget the script while it is used.
func TestScriptForgotten(t *testing.T) {
	s := startServer(t).open(Options{})
	c := store.Charge{Policy: "p", Key: "k", Limit: yearly(1_000_000), N: 1}
	l := startLoad(t, s, c, 16)
	for i := range int64(20) {
		until(t, "permits are granted", func() bool { return l.granted.Load() > 100*i })
		s.do(t, "SCRIPT", "FLUSH")
	}
	l.stop()
	d := make([]weir.Decision, 1)
	if err := s.Peek(context.Background(), []store.Charge{c}, d); err != nil {
		t.Fatal(err)
	}
	if taken := 1_000_000 - d[0].Remaining; taken != l.granted.Load() || l.failed.Load() > 0 {
		t.Errorf("%d are taken, %d were granted, %d failed", taken, l.granted.Load(), l.failed.Load())
	}
}

// TestCallerDies leaves charges in two slots reserved, as a caller does that dies before it commits: they are given back when the
// reservations expire.
func TestCallerDies(t *testing.T) {
	s := startServer(t).open(Options{})
	s.split = true
	s.virtual.Store(time.Now().UnixMicro())
	charges := []store.Charge{
		{Policy: "p", Key: "a", Limit: yearly(10), N: 3}, {Policy: "p", Key: "b", Limit: yearly(10), N: 4},
	}
	parts, err := s.parts(charges)
	if err != nil || len(parts) != 2 {
		t.Fatal(len(parts), err)
	}
	id := newID()
	for k := range parts {
		parts[k].decisions = make([]weir.Decision, 1)
		if err := s.reserve(context.Background(), &parts[k], id, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	d := make([]weir.Decision, 2)
	left := func(a, b int64) {
		t.Helper()
		if err := s.Peek(context.Background(), charges, d); err != nil || d[0].Remaining != a || d[1].Remaining != b {
			t.Errorf("left %d and %d, want %d and %d; %v", d[0].Remaining, d[1].Remaining, a, b, err)
		}
	}
	left(7, 6)
	s.virtual.Add(999_999)
	left(7, 6)
	s.virtual.Add(1)
	left(10, 10)
}

// TestClockOfServerSetBack sets the server's clock back: by little, so that records stay where they are, and by much.
func TestClockOfServerSetBack(t *testing.T) {
	s := startServer(t).open(Options{})
	now := time.Now().UnixMicro()
	at := func(after time.Duration) { s.virtual.Store(now + int64(after/time.Microsecond)) }
	c := []store.Charge{{Policy: "p", Key: "k", Limit: weir.Limit{Rate: weir.PerSecond(1), Burst: 10}, N: 1}}
	d := make([]weir.Decision, 1)
	granted := 0
	take := func() {
		t.Helper()
		if err := s.Take(context.Background(), c, d); err != nil {
			t.Fatal(err)
		}
		if d[0].Allowed {
			granted++
		}
	}
	at(0)
	for range 20 {
		take()
	}
	for range 50 { // back and forth by 5 s: nothing comes of it
		at(-5 * time.Second)
		take()
		if !d[0].Allowed && d[0].RetryAfter != 6*time.Second {
			t.Fatalf("%+v", d[0])
		}
		at(0)
		take()
	}
	if granted != 10 {
		t.Errorf("%d granted, want 10", granted)
	}
	at(-time.Hour) // time goes on from there
	take()
	if d[0].Allowed || d[0].RetryAfter != time.Second {
		t.Errorf("%+v", d[0])
	}
	at(-time.Hour + time.Second)
	take()
	if !d[0].Allowed || d[0].Remaining != 0 {
		t.Errorf("%+v", d[0])
	}
}
