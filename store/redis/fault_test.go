package redis

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
)

// TestServerStopped stops the process of the server for 5 s under load: calls fail within their timeout, also those beyond
// MaxInFlight; what the server does of them afterwards is bounded, as nothing was sent again meanwhile; and nothing is allowed
// above the limit.
func TestServerStopped(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	const timeout, callers, most = 100 * time.Millisecond, 64, 200
	s := server.open(Options{Timeout: timeout, MaxInFlight: most})
	for range rounds(t) {
		server.ask("FLUSHALL")
		server.ask("CONFIG", "RESETSTAT")
		l := newLoad(t, faultCharges(100, 50_000), s).start(callers)
		l.more(1000)
		server.stop()
		answers, failed := l.answers(), l.failed.Load()
		l.goOn(5 * time.Second)
		l.fail(callers)
		during := l.failed.Load() - failed
		answers = l.answers() - answers
		server.resume()
		resumed := time.Now()
		l.more(1)
		recovery := time.Since(resumed)
		l.more(1000)
		l.stop()
		until(t, "nothing is in flight", func() bool { return s.dispatch.inFlight.Load() == 0 })
		run := server.calls("evalsha") + server.calls("eval")
		sum := l.drain(server.open(Options{}))
		unanswered := run - l.answers()
		l.report("stopped for 5 s", sum)
		t.Logf("%d calls failed meanwhile; answers again %v after it goes on; scripts run whose callers did not wait: %d",
			during, recovery.Round(time.Millisecond), unanswered)
		if sum.above > 0 {
			t.Errorf("%d above the limit", sum.above)
		}
		if answers > callers {
			t.Errorf("%d calls were answered while the server stood still", answers)
		}
		if n := l.crowd.Load(); n > most+callers { // those included that are about to be told that they are too many
			t.Errorf("%d were in flight, want at most %d", n, most)
		}
		// What waited was sent when it was stopped, once a second until the connection was given up, and when it went on. On a busy
		// machine calls fail at other times too.
		if unanswered > 3*most+callers+l.failed.Load()-during {
			t.Errorf("%d scripts were run without a reply", unanswered)
		}
	}
}

// TestDeadline has a caller whose context ends before the timeout, with a server that does not answer. Another one has none, and
// waits for its answer.
func TestDeadline(t *testing.T) {
	server := startServer(t)
	s := server.open(Options{})
	c := []store.Charge{{Policy: "p", Key: "k", Limit: yearly(10), N: 1}}
	d := make([]weir.Decision, 1)
	if err := store.Take(context.Background(), s, c, d); err != nil {
		t.Fatal(err)
	}
	server.stop()
	other := make(chan error)
	go func() { other <- store.Take(context.Background(), s, c, make([]weir.Decision, 1)) }()
	until(t, "the other waits", func() bool { return s.dispatch.inFlight.Load() == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := store.Take(ctx, s, c, d); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	select {
	case err := <-other:
		t.Fatalf("the other did not wait: %v", err)
	default:
	}
	server.resume()
	if err := <-other; err != nil {
		t.Error(err)
	}
}

// TestMaxInFlight fills the store with calls that are not answered: the next one fails at once.
func TestMaxInFlight(t *testing.T) {
	server := startServer(t)
	s := server.open(Options{MaxInFlight: 3})
	c := []store.Charge{{Policy: "p", Key: "k", Limit: yearly(10), N: 1}}
	if err := store.Take(context.Background(), s, c, make([]weir.Decision, 1)); err != nil {
		t.Fatal(err)
	}
	server.stop()
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			if err := store.Take(context.Background(), s, c, make([]weir.Decision, 1)); err != nil {
				t.Error(err)
			}
		})
	}
	until(t, "three calls wait", func() bool { return s.dispatch.inFlight.Load() == 3 })
	if err := store.Take(context.Background(), s, c, make([]weir.Decision, 1)); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, errCrowded) {
		t.Error(err)
	}
	server.resume()
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
	if err := store.Peek(context.Background(), s, []store.Charge{c}, d); err != nil {
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
		if err := store.Peek(context.Background(), s, charges, d); err != nil || d[0].Remaining != a || d[1].Remaining != b {
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
	c := []store.Charge{{Policy: "p", Key: "k", Limit: weir.TokenBucket(weir.PerSecond(1), 10), N: 1}}
	d := make([]weir.Decision, 1)
	granted := 0
	take := func() {
		t.Helper()
		if err := store.Take(context.Background(), s, c, d); err != nil {
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
