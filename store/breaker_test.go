package store_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/store/storetest"
)

// outage is a store that can be taken away: while it is down calls fail, at once or after it has been silent for a while.
// Closing it does not close the store.
type outage struct {
	store.Home

	closed atomic.Bool

	down   atomic.Bool
	silent atomic.Int64 // for how long calls have no answer, in nanoseconds
	calls  atomic.Int64 // while it was down
	slow   atomic.Int64 // those that were in vain after a wait
}

var errGone = fmt.Errorf("%w: gone", store.ErrUnavailable)

func (o *outage) breaks() (repair func()) {
	o.down.Store(true)
	return func() { o.down.Store(false) }
}

func (o *outage) Close() error {
	o.closed.Store(true)
	return nil
}

func (o *outage) up(ctx context.Context) error {
	if o.closed.Load() {
		return store.ErrClosed
	}
	if !o.down.Load() {
		return nil
	}
	o.calls.Add(1)
	if silent := time.Duration(o.silent.Load()); silent > 0 {
		o.slow.Add(1)
		timer := time.NewTimer(silent)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
		}
	}
	return errGone
}

func (o *outage) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if err := o.up(ctx); err != nil {
		return store.Hold{}, err
	}
	return o.Home.Do(ctx, ask, charges, decisions)
}

func (o *outage) Settle(ctx context.Context, h store.Hold, actual []int64) error {
	if err := o.up(ctx); err != nil {
		return err
	}
	return o.Home.Settle(ctx, h, actual)
}

func newBreaker(t testing.TB, inner store.Home, o store.BreakerOptions) *store.Breaker {
	t.Helper()
	b, err := store.NewBreaker(inner, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// hourly is a limit whose permits do not come back in a test.
func hourly(n int64) weir.Limit { return weir.TokenBucket(weir.Per(n, 1000*time.Hour), n) }

func takeError(ctx context.Context, s store.Home) error {
	return store.Take(ctx, s, []store.Charge{{Policy: "p", Key: "k", Limit: hourly(1e6), N: 1}}, make([]weir.Decision, 1))
}

func TestBreakerConforms(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		clock := newVirtual()
		m := &outage{Home: newMemory(t, store.MemoryOptions{Clock: clock})}
		return storetest.Subject{
			Store: newBreaker(t, m, store.BreakerOptions{Clock: clock, Failures: 3}), Now: clock.Now, Advance: clock.Advance,
			Steps: 5000, Break: m.breaks,
		}
	})
}

// TestBreakerOpensAndCloses follows one outage, with what is logged and counted.
func TestBreakerOpensAndCloses(t *testing.T) {
	var logged bytes.Buffer
	clock := newVirtual()
	m := &outage{Home: newMemory(t, store.MemoryOptions{Clock: clock})}
	b := newBreaker(t, m, store.BreakerOptions{
		Failures: 3, Cooldown: 100 * time.Millisecond, MaxCooldown: 300 * time.Millisecond, Clock: clock,
		Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	})
	ctx := t.Context()
	want := func(state store.BreakerState, asked, failed, fast, opened uint64) {
		t.Helper()
		s := b.Stats()
		if s.State != state || s.Asked != asked || s.Failed != failed || s.FastFailed != fast || s.Opened != opened || s.Since.IsZero() ||
			(s.Error == "") != (state == store.BreakerClosed) {
			t.Fatalf("%+v, want %v, %d asked, %d failed, %d fast, %d opened", s, state, asked, failed, fast, opened)
		}
	}
	repair := m.breaks()
	for range 2 {
		_ = takeError(ctx, b)
	}
	repair()
	if err := takeError(ctx, b); err != nil { // which ends the row
		t.Fatal(err)
	}
	want(store.BreakerClosed, 3, 2, 0, 0)
	repair = m.breaks()
	for range 3 {
		if err := takeError(ctx, b); !errors.Is(err, errGone) {
			t.Fatal(err)
		}
	}
	want(store.BreakerOpen, 6, 5, 0, 1)
	if err := takeError(ctx, b); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, errGone) {
		t.Fatal(err)
	}
	want(store.BreakerOpen, 6, 5, 1, 1)
	asked, fast := uint64(6), uint64(1)
	const ms = time.Millisecond
	for _, cooldown := range []time.Duration{100 * ms, 200 * ms, 300 * ms, 300 * ms} {
		clock.Advance(cooldown/2 - 1)
		_ = takeError(ctx, b)
		fast++
		want(store.BreakerOpen, asked, asked-1, fast, 1)
		clock.Advance(cooldown/2 + 1)
		if err := takeError(ctx, b); !errors.Is(err, errGone) {
			t.Fatal(err)
		}
		asked++
		want(store.BreakerOpen, asked, asked-1, fast, 1)
	}
	repair()
	clock.Advance(300 * time.Millisecond)
	for range 2 {
		if err := takeError(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	want(store.BreakerClosed, asked+2, asked-1, fast, 1)
	lines := strings.Split(strings.TrimSpace(logged.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "level=WARN") || !strings.Contains(lines[0], "gone") ||
		!strings.Contains(lines[1], "level=INFO") || !strings.Contains(lines[1], "after=1.2s") {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
	t.Log(logged.String())
}

// TestBreakerAndUnreadableRecords has a key whose record cannot be read: that opens nothing, ends an outage, and is logged once a
// minute.
func TestBreakerAndUnreadableRecords(t *testing.T) {
	t.Parallel()
	clock := newVirtual()
	var logged bytes.Buffer
	m := &outage{Home: newMemory(t, store.MemoryOptions{Clock: clock})}
	b := newBreaker(t, damaged{m}, store.BreakerOptions{
		Failures: 2, Clock: clock, Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	})
	take := func(key string) error {
		return store.Take(t.Context(), b, []store.Charge{{Policy: "p", Key: key, Limit: weir.FixedWindow(weir.PerDay(100)), N: 1}},
			make([]weir.Decision, 1))
	}
	for range 10 {
		if err := take("bad"); !errors.Is(err, store.ErrUnreadable) {
			t.Fatal(err)
		}
	}
	if s := b.Stats(); s.State != store.BreakerClosed || s.Opened != 0 || s.Asked != 10 || s.Failed != 10 {
		t.Errorf("%+v", s)
	}
	if n := strings.Count(logged.String(), "level=WARN"); n != 1 {
		t.Errorf("logged %d times: %s", n, &logged)
	}
	clock.Advance(time.Minute)
	_ = take("bad")
	if n := strings.Count(logged.String(), "level=WARN"); n != 2 {
		t.Errorf("a minute later it is logged %d times: %s", n, &logged)
	}
	m.breaks()
	for range 2 {
		_ = take("good")
		if b.Stats().State == store.BreakerClosed {
			_ = take("bad")
		}
	}
	m.down.Store(false)
	clock.Advance(time.Second)
	if err := take("bad"); !errors.Is(err, store.ErrUnreadable) {
		t.Error(err)
	}
	if s := b.Stats(); s.State != store.BreakerClosed || s.Opened != 1 {
		t.Errorf("after an outage: %+v", s)
	}
}

// TestBreakerAndPartOfTheStore has a store of which a part is away: that opens nothing, is logged once a minute, and neither closes
// an open breaker nor keeps it open for longer than others' calls do.
func TestBreakerAndPartOfTheStore(t *testing.T) {
	t.Parallel()
	clock := newVirtual()
	var logged bytes.Buffer
	p := &partly{Home: newMemory(t, store.MemoryOptions{Clock: clock}), why: errPart}
	p.away.Store(true)
	m := &outage{Home: p}
	b := newBreaker(t, m, store.BreakerOptions{
		Failures: 2, Cooldown: 100 * time.Millisecond, Clock: clock, Logger: slog.New(slog.NewTextHandler(&logged, nil)),
	})
	take := func(key string) error {
		return store.Take(t.Context(), b, []store.Charge{{Policy: "p", Key: key, Limit: hourly(1e6), N: 1}}, make([]weir.Decision, 1))
	}
	for range 10 {
		if err := take("dead"); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, store.ErrPartUnavailable) {
			t.Fatal(err)
		}
	}
	if s := b.Stats(); s.State != store.BreakerClosed || s.Opened != 0 || s.Asked != 10 || s.Failed != 10 || s.FastFailed != 0 {
		t.Errorf("%+v", s)
	}
	if n := strings.Count(logged.String(), "level=WARN"); n != 1 {
		t.Errorf("logged %d times: %s", n, &logged)
	}
	repair := m.breaks()
	_ = take("live")
	repair()
	_ = take("dead") // which does not end the row
	repair = m.breaks()
	_ = take("live")
	if s := b.Stats(); s.State != store.BreakerOpen {
		t.Fatalf("%+v", s)
	}
	for range 5 {
		clock.Advance(5 * time.Second)
		_ = take("live") // the cooldown is doubled
	}
	repair()
	clock.Advance(5 * time.Second)
	for range 3 {
		if err := take("dead"); !errors.Is(err, store.ErrPartUnavailable) {
			t.Fatal(err)
		}
		if s := b.Stats(); s.State != store.BreakerOpen {
			t.Errorf("a part that is away has closed the breaker: %+v", s)
		}
		clock.Advance(100 * time.Millisecond) // and the next one is tried soon
	}
	if err := take("live"); err != nil || b.Stats().State != store.BreakerClosed {
		t.Errorf("%v, %+v", err, b.Stats())
	}
}

// unreadable is a store that has no record of the keys that begin with "bad", but something else.
type damaged struct{ store.Home }

func (u damaged) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	h, err := u.Home.Do(ctx, ask, charges, decisions)
	for i := range charges {
		if err == nil && strings.HasPrefix(charges[i].Key, "bad") {
			return store.Hold{}, store.ErrUnreadable
		}
	}
	return h, err
}

// TestBreakerOpensAgain has a store that answers probes only: the cooldown goes on growing, and is short again after a while.
func TestBreakerOpensAgain(t *testing.T) {
	clock := newVirtual()
	m := &outage{Home: newMemory(t, store.MemoryOptions{Clock: clock})}
	b := newBreaker(t, m, store.BreakerOptions{Failures: 1, Cooldown: 100 * time.Millisecond, MaxCooldown: time.Second, Clock: clock})
	isOpenFor := func(cooldown time.Duration) {
		t.Helper()
		repair := m.breaks()
		_ = takeError(t.Context(), b)
		repair()
		clock.Advance(cooldown/2 - 1)
		if err := takeError(t.Context(), b); err == nil {
			t.Fatalf("closed before %v", cooldown/2)
		}
		clock.Advance(cooldown/2 + 1)
		if err := takeError(t.Context(), b); err != nil {
			t.Fatalf("%v after %v", err, cooldown)
		}
	}
	const ms = time.Millisecond
	for _, cooldown := range []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1000 * ms, 1000 * ms} {
		isOpenFor(cooldown)
	}
	clock.Advance(time.Second)
	isOpenFor(100 * time.Millisecond)
	if opened := b.Stats().Opened; opened != 7 {
		t.Errorf("it opened %d times", opened)
	}
}

// TestBreakerJudgesContexts has callers who give up: what counts is how long the store was silent.
func TestBreakerJudgesContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &outage{Home: newMemory(t, store.MemoryOptions{})}
		m.silent.Store(int64(time.Hour))
		m.breaks()
		o := store.BreakerOptions{Failures: 1, Patience: 10 * time.Millisecond}
		for _, c := range []struct {
			name   string
			cancel bool
			after  time.Duration
			want   store.BreakerState
		}{
			{"canceled", true, time.Second, store.BreakerClosed},
			{"a short deadline", false, 10*time.Millisecond - 1, store.BreakerClosed},
			{"a deadline", false, 10 * time.Millisecond, store.BreakerOpen},
		} {
			b := newBreaker(t, m, o)
			ctx, cancel := context.WithTimeout(t.Context(), c.after)
			if c.cancel {
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(c.after, cancel)
			}
			if err := takeError(ctx, b); !errors.Is(err, store.ErrUnavailable) {
				t.Error(err)
			}
			if got := b.Stats().State; got != c.want {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
			}
			cancel()
		}
		// A probe whose caller gives up says nothing, nor does one that is misuse; one whose context has ended is none.
		b := newBreaker(t, m, o)
		m.silent.Store(0)
		_ = takeError(t.Context(), b)
		time.Sleep(100 * time.Millisecond)
		m.silent.Store(int64(time.Hour))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		before := m.calls.Load()
		if err := takeError(ended, b); !errors.Is(err, context.Canceled) || m.calls.Load() != before {
			t.Errorf("%v, %d calls", err, m.calls.Load()-before)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_ = takeError(ctx, b)
		cancel()
		m.down.Store(false)
		if err := takeError(t.Context(), b); err == nil || b.Stats().State != store.BreakerOpen {
			t.Errorf("%v, %v", err, b.Stats().State)
		}
		time.Sleep(100 * time.Millisecond)
		wrong := []store.Charge{{Policy: "p", Limit: hourly(1), N: -1}}
		if err := store.Take(t.Context(), b, wrong, make([]weir.Decision, 1)); err == nil || b.Stats().State != store.BreakerOpen {
			t.Errorf("%v, %v", err, b.Stats().State)
		}
		time.Sleep(100 * time.Millisecond)
		if err := store.Cancel(t.Context(), b, store.Hold{ID: "x", Charges: wrong[:0:0]}); err != nil || b.Stats().State != store.BreakerClosed {
			t.Errorf("%v, %v", err, b.Stats().State)
		}
	})
}

// TestContentionBreakerProbe has 64 callers when the cooldown is over: one call goes to the store, and only its caller waits for
// the slow answer.
func TestContentionBreakerProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &outage{Home: newMemory(t, store.MemoryOptions{})}
		b := newBreaker(t, m, store.BreakerOptions{Failures: 1, Cooldown: 100 * time.Millisecond, MaxCooldown: 10 * time.Second})
		repair := m.breaks()
		_ = takeError(t.Context(), b)
		for _, alive := range []bool{false, true} {
			time.Sleep(200 * time.Millisecond)
			m.calls.Store(0)
			m.silent.Store(int64(5 * time.Second))
			began := time.Now()
			var all sync.WaitGroup
			var fast, late atomic.Int64
			for range 64 {
				all.Go(func() {
					_ = takeError(context.Background(), b)
					if time.Since(began) == 0 {
						fast.Add(1)
					} else {
						late.Add(1)
					}
				})
			}
			synctest.Wait()
			if b.Stats().State != store.BreakerHalfOpen {
				t.Errorf("%v", b.Stats().State)
			}
			all.Wait()
			if m.calls.Load() != 1 || fast.Load() != 63 || late.Load() != 1 {
				t.Errorf("%d calls, %d failed at once, %d waited", m.calls.Load(), fast.Load(), late.Load())
			}
			if alive {
				break
			}
			time.Sleep(10 * time.Second)
		}
		// A probe that has no answer does not keep others from being tried.
		time.Sleep(10 * time.Second)
		m.silent.Store(int64(time.Minute))
		go func() { _ = takeError(context.Background(), b) }()
		synctest.Wait()
		time.Sleep(10*time.Second - 1)
		repair()
		if err := takeError(t.Context(), b); err == nil {
			t.Error("another probe too early")
		}
		time.Sleep(1)
		if err := takeError(t.Context(), b); err != nil || b.Stats().State != store.BreakerClosed {
			t.Error(err)
		}
		time.Sleep(time.Minute) // the first one fails, which is old news
		synctest.Wait()
		if b.Stats().State != store.BreakerClosed {
			t.Error(b.Stats().State)
		}
	})
}

// TestBreakerBoundsWaiting has callers who never pause while the store is silent.
func TestBreakerBoundsWaiting(t *testing.T) {
	for _, callers := range []int64{1, 2, 5, 64} {
		synctest.Test(t, func(t *testing.T) {
			const failures, timeout = 5, 100 * time.Millisecond
			m := &outage{Home: newMemory(t, store.MemoryOptions{})}
			b := newBreaker(t, m, store.BreakerOptions{Failures: failures, Cooldown: time.Hour})
			m.silent.Store(int64(timeout))
			m.breaks()
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					for b.Stats().State == store.BreakerClosed {
						_ = takeError(context.Background(), b)
					}
				})
			}
			most := time.Duration((failures+callers-1)/callers) * timeout
			time.Sleep(most)
			synctest.Wait()
			if b.Stats().State != store.BreakerOpen {
				t.Errorf("%d callers: not open after %v", callers, most)
			}
			all.Wait()
			if got := m.slow.Load(); got > callers+failures-1 {
				t.Errorf("%d callers: %d calls waited", callers, got)
			}
			t.Logf("%d callers: %d calls of %v in vain, open after at most %v", callers, m.slow.Load(), timeout, most)
		})
	}
}

func TestBreakerOptions(t *testing.T) {
	for _, o := range []store.BreakerOptions{
		{Failures: -1},
		{Failures: 1e6 + 1},
		{Cooldown: 1},
		{Cooldown: 2 * time.Hour},
		{Cooldown: 2 * time.Second, MaxCooldown: time.Second},
		{MaxCooldown: 2 * time.Hour},
		{Patience: 1},
		{Patience: 2 * time.Hour},
	} {
		_, err := store.NewBreaker(nil, o)
		if _, ok := errors.AsType[*weir.OptionError](err); !ok || !strings.HasPrefix(err.Error(), "weir: BreakerOptions.") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

func TestBreakerStateText(t *testing.T) {
	for s := store.BreakerClosed; s <= store.BreakerHalfOpen; s++ {
		text, err := json.Marshal(s)
		var back store.BreakerState
		if wrong := json.Unmarshal(text, &back); err != nil || wrong != nil || back != s {
			t.Errorf("%s: %v, %v, %v", text, err, wrong, back)
		}
	}
	var s store.BreakerState
	if err := s.UnmarshalText([]byte("ajar")); err == nil || store.BreakerState(9).String() != "BreakerState(9)" {
		t.Error(err)
	}
}

func TestBreakerClose(t *testing.T) {
	m := &outage{Home: newMemory(t, store.MemoryOptions{})}
	b := newBreaker(t, m, store.BreakerOptions{Failures: 1})
	m.breaks()
	_ = takeError(t.Context(), b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := takeError(t.Context(), b); !errors.Is(err, store.ErrClosed) {
		t.Error(err)
	}
}

// openBreaker is a breaker that stays open.
func openBreaker(t testing.TB) *store.Breaker {
	t.Helper()
	m := &outage{}
	m.breaks()
	b := newBreaker(t, m, store.BreakerOptions{Failures: 1, Cooldown: time.Hour})
	_ = takeError(context.Background(), b)
	return b
}

func TestBreakerOpenDoesNotAllocate(t *testing.T) {
	b := openBreaker(t)
	charges, ds := []store.Charge{{Policy: "p", Key: "k", Limit: hourly(1), N: 1}}, make([]weir.Decision, 1)
	if n := testing.AllocsPerRun(100, func() {
		if err := store.Take(context.Background(), b, charges, ds); err == nil {
			t.Error("the store has answered")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkBreakerOpen(b *testing.B) {
	s := openBreaker(b)
	charges, ds := []store.Charge{{Policy: "p", Key: "k", Limit: hourly(1), N: 1}}, make([]weir.Decision, 1)
	b.ReportAllocs()
	for b.Loop() {
		_ = store.Take(context.Background(), s, charges, ds)
	}
}
