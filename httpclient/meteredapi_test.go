package httpclient_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/durable/spectest"
	"github.com/weirhq/weir/httpclient"
	"github.com/weirhq/weir/store"
)

// fleet is a cluster in memory whose only node owns the limits, with writes of a millisecond.
type fleet struct {
	*durable.Node

	memory *durable.Memory
	engine *durable.MemoryEngine
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	m, err := durable.NewMemory(durable.MemoryOptions{Latency: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{memory: m, engine: m.Engine()}
	if f.Node, err = durable.NewNode(durable.NodeOptions{Engine: f.engine, Address: "a"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(f.Close(), f.engine.Close()); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return f
}

// left is how many permits of a key are available.
func (f *fleet) left(t *testing.T, o httpclient.MeteredOptions) int64 {
	t.Helper()
	a := spectest.Acquire(t.Context(), f, spectest.Request{Policy: "metered-api", Limit: o.Limit})
	return a.Remaining
}

func metered(t *testing.T, o httpclient.MeteredOptions, server roundTrip) *httpclient.Metered {
	t.Helper()
	o.Base = server
	m, err := httpclient.NewMetered(o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// notSent is the error of a request that was not sent.
func notSent(t *testing.T, err error) *httpclient.LimitedError {
	t.Helper()
	e, ok := errors.AsType[*httpclient.LimitedError](err)
	if !ok || !errors.Is(err, httpclient.ErrLimited) {
		t.Fatalf("error %v", err)
	}
	return e
}

// TestMeteredPreset: two processes that send as fast as they can share 5 requests at once and 8 a minute, in the order of arrival,
// and those who would have to wait for more than 30 s are not sent.
func TestMeteredPreset(t *testing.T) {
	t.Setenv(durable.BurstVariable, "")
	t.Setenv(durable.PerMinuteVariable, "")
	synctest.Test(t, func(t *testing.T) {
		f, s := newFleet(t), newScript(answering(200))
		var log bytes.Buffer
		o := httpclient.MeteredOptions{Limits: f, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		two := [2]*httpclient.Metered{metered(t, o, s.serve), metered(t, o, s.serve)}
		var wait sync.WaitGroup
		var failed atomic.Int32
		for i := range 10 {
			wait.Go(func() {
				begin := time.Now()
				if _, err := fetchFrom(t.Context(), two[i%2], apiURL); err != nil {
					failed.Add(1)
					e := notSent(t, err)
					if e.Reason != weir.ReasonDeadline || !e.Timeout() || e.Limit != "metered-api" || e.Host != "api.example.com" ||
						e.RetryAfter <= 0 || time.Since(begin) != 30*time.Second || errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("error %v after %v", err, time.Since(begin))
					}
				}
			})
		}
		wait.Wait()
		at := s.times()
		for i := range at {
			at[i] = at[i].Truncate(100 * time.Millisecond) // without the writes
		}
		ms := time.Millisecond
		expectTimes(t, at, 0, 0, 0, 0, 0, 7500*ms, 15000*ms, 22500*ms)
		if failed.Load() != 2 || log.Len() != 0 {
			t.Errorf("%d failed, log %s", failed.Load(), &log)
		}
	})
}

// TestMeteredReadsNoEnvironment: variables of the process change nothing.
func TestMeteredReadsNoEnvironment(t *testing.T) {
	t.Setenv(durable.BurstVariable, "2")
	t.Setenv(durable.PerMinuteVariable, "lots")
	synctest.Test(t, func(t *testing.T) {
		f, s := newFleet(t), newScript(answering(200))
		var log bytes.Buffer
		o := httpclient.MeteredOptions{Limits: f, Logger: slog.New(slog.NewTextHandler(&log, nil)), QueueLimit: httpclient.NoQueue}
		m := metered(t, o, s.serve)
		for i := range 6 {
			_, err := fetchFrom(t.Context(), m, apiURL)
			if (err != nil) != (i == 5) {
				t.Errorf("request %d: %v", i, err)
			}
		}
		if log.Len() != 0 {
			t.Errorf("log %s", &log)
		}
	})
}

// TestMeteredRefusals: every reason for which nothing is sent can be told, and the body is closed.
func TestMeteredRefusals(t *testing.T) {
	limit := weir.TokenBucket(weir.PerMinute(1), 2)
	for _, c := range []struct {
		name    string
		options httpclient.MeteredOptions
		before  func(f *fleet)
		within  time.Duration // the deadline of the context
		reason  weir.Reason
		says    string
		cause   error
		took    time.Duration
	}{
		{"queue full", httpclient.MeteredOptions{QueueLimit: 1, Cost: cost(2)}, nil, 0, weir.ReasonQueueFull, "queue-full", nil, 0},
		{"no queue", httpclient.MeteredOptions{QueueLimit: httpclient.NoQueue}, nil, 0, weir.ReasonQueueFull, "wait for 1 minute", nil, 0},
		{"expired", httpclient.MeteredOptions{MaxWait: 3 * time.Second}, nil, 0, weir.ReasonDeadline, "deadline", nil, 3 * time.Second},
		{"deadline", httpclient.MeteredOptions{}, nil, 40 * time.Second, weir.ReasonDeadline, "deadline", context.DeadlineExceeded, 40 * time.Second},
		{"never", httpclient.MeteredOptions{Cost: cost(3)}, nil, 0, weir.ReasonNever, "no later attempt can succeed", nil, 0},
		{"stopping", httpclient.MeteredOptions{}, func(f *fleet) { time.AfterFunc(time.Second, func() { _ = f.Close() }) }, 0, weir.ReasonClosed, "closed", nil, time.Second},
		{"closed", httpclient.MeteredOptions{}, func(f *fleet) { _ = f.Close() }, 0, weir.ReasonUnavailable, "the node is closed", durable.ErrNodeClosed, 0},
		{"no writes", httpclient.MeteredOptions{Key: func(*http.Request) string { return "another" }}, func(f *fleet) { f.engine.Fail(errDisk) }, 0, weir.ReasonUnavailable, "the disk is full", errDisk, 0},
		{"cost below 0", httpclient.MeteredOptions{Cost: cost(-1)}, nil, 0, weir.ReasonInvalid, "-1", nil, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, s := newFleet(t), newScript(answering(200))
			o := c.options
			o.Limits, o.Limit = f, limit
			m := metered(t, o, s.serve)
			first := metered(t, httpclient.MeteredOptions{Limits: f, Limit: limit, Cost: cost(2)}, s.serve)
			if _, err := fetchFrom(t.Context(), first, apiURL); err != nil {
				t.Fatal(err)
			}
			if c.before != nil {
				c.before(f)
			}
			ctx := t.Context()
			if c.within > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.within)
				defer cancel()
			}
			body := &closing{Reader: strings.NewReader("x")}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, apiURL, body)
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			_, err = (&http.Client{Transport: m}).Do(r) //nolint:bodyclose // there is none
			took := time.Since(begin)
			e := notSent(t, err)
			if e.Reason != c.reason || !strings.Contains(err.Error(), c.says) || c.cause != nil && !errors.Is(err, c.cause) ||
				e.Timeout() != (c.reason == weir.ReasonDeadline) || !body.closed || e.Server {
				t.Errorf("%s: %v (%+v), body closed: %v", c.name, err, e, body.closed)
			}
			if took < c.took || took > c.took+200*time.Millisecond {
				t.Errorf("%s: it took %v, want %v", c.name, took, c.took)
			}
			if n := len(s.times()); n != 1 {
				t.Errorf("%s: %d requests were sent", c.name, n)
			}
		})
	}
}

var errDisk = errors.New("the disk is full")

func cost(n int64) func(*http.Request) int64 { return func(*http.Request) int64 { return n } }

// TestMeteredWithdraws: a request whose context ends leaves the queue, and those behind it lose nothing.
func TestMeteredWithdraws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newFleet(t), newScript(answering(200))
		o := httpclient.MeteredOptions{Limits: f, Limit: weir.TokenBucket(weir.PerSecond(1), 0), QueueLimit: 2}
		m := metered(t, o, s.serve)
		if _, err := fetchFrom(t.Context(), m, apiURL); err != nil {
			t.Fatal(err)
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() {
			if _, err := fetchFrom(ctx, m, apiURL); !errors.Is(err, gone) {
				t.Errorf("error %v", err)
			}
		})
		synctest.Wait()
		wait.Go(func() {
			if status, err := fetchFrom(t.Context(), m, apiURL); status != 200 {
				t.Errorf("the second: %v", err)
			}
		})
		synctest.Wait()
		_, err := fetchFrom(t.Context(), m, apiURL)
		if e := notSent(t, err); e.Reason != weir.ReasonQueueFull {
			t.Errorf("error %v", err)
		}
		time.Sleep(500 * time.Millisecond)
		cancel(gone)
		wait.Wait()
		if _, err := fetchFrom(ctx, m, apiURL); !errors.Is(err, gone) {
			t.Errorf("with a context that has ended: %v", err)
		}
		if at := s.times(); len(at) != 2 || at[1].Truncate(100*time.Millisecond) != time.Second {
			t.Errorf("sent at %v", at)
		}
	})
}

// TestMeteredKeys: keys have limits of their own, a request that costs nothing asks no limit, and long keys do not fill the
// memory.
func TestMeteredKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newFleet(t), newScript(answering(200))
		m := metered(t, httpclient.MeteredOptions{
			Limits: f, Limit: weir.TokenBucket(weir.PerDay(1), 0), QueueLimit: httpclient.NoQueue,
			Key: func(r *http.Request) string { return r.Header.Get("X-Key") },
			Cost: func(r *http.Request) int64 {
				if r.Method == http.MethodOptions {
					return 0
				}
				return 1
			},
		}, s.serve)
		send := func(method, key string) error {
			r := request(method)
			r.Header.Set("X-Key", key)
			resp, err := m.RoundTrip(r)
			if err == nil {
				err = resp.Body.Close()
			}
			return err
		}
		for _, key := range []string{"a", "b", strings.Repeat("c", 5000)} {
			for i := range 2 {
				if err := send(http.MethodGet, key); (err == nil) != (i == 0) {
					t.Errorf("%.3s, %d: %v", key, i, err)
				}
			}
		}
		if err := send(http.MethodOptions, "a"); err != nil {
			t.Errorf("what costs nothing: %v", err)
		}
	})
}

// TestMeteredSettles: what a request really cost is settled, with the answer or later, and with an error it costs what was reserved.
func TestMeteredSettles(t *testing.T) {
	down := errors.New("down")
	actual := func(r *http.Response) int64 {
		if r.Header.Get("Tokens") == "" {
			return -1
		}
		return 30
	}
	for _, c := range []struct {
		name   string
		answer []string
		err    error
		actual func(*http.Response) int64
		end    func(s *httpclient.Settlement) bool
		ended  bool
		left   int64
	}{
		{"no cost known later", nil, nil, nil, nil, false, 900},
		{"in the answer", []string{"Tokens: 30"}, nil, actual, nil, false, 970},
		{"not in the answer", nil, nil, actual, nil, false, 900},
		{"no answer", nil, down, actual, nil, false, 900},
		{"less", nil, nil, nil, func(s *httpclient.Settlement) bool { return s.Commit(30) }, true, 970},
		{"more", nil, nil, actual, func(s *httpclient.Settlement) bool { return s.Commit(300) }, true, 700},
		{"below 0", nil, nil, actual, func(s *httpclient.Settlement) bool { return s.Commit(-1) }, true, 1000},
		{"cancel", nil, down, nil, func(s *httpclient.Settlement) bool { return s.Cancel() }, true, 1000},
		{"twice", nil, nil, nil, func(s *httpclient.Settlement) bool { s.Commit(30); return s.Commit(30) }, false, 970},
		{"never", nil, nil, nil, func(*httpclient.Settlement) bool { return false }, false, 900},
		{"too late", nil, nil, nil, func(s *httpclient.Settlement) bool { time.Sleep(2 * time.Minute); return s.Commit(30) }, false, 1000},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t)
			o := httpclient.MeteredOptions{
				Limits: f, Limit: weir.TokenBucket(weir.Per(1, 24*time.Hour), 1000), Cost: cost(100), Actual: c.actual,
				ReserveFor: time.Minute, Logger: slog.New(slog.DiscardHandler),
			}
			m := metered(t, o, func(*http.Request) (*http.Response, error) {
				if c.err != nil {
					return nil, c.err
				}
				return says(200, c.answer...), nil
			})
			ctx, settlement := t.Context(), (*httpclient.Settlement)(nil)
			if c.end != nil {
				ctx, settlement = httpclient.WithSettlement(ctx)
			}
			if _, err := fetchFrom(ctx, m, apiURL); !errors.Is(err, c.err) {
				t.Fatal(err)
			}
			if c.end != nil && c.end(settlement) != c.ended {
				t.Errorf("%s: settled is %v", c.name, !c.ended)
			}
			if left := f.left(t, o); left != c.left {
				t.Errorf("%s: %d are left, want %d", c.name, left, c.left)
			}
		})
	}
}

// TestMeteredSettlesWithTheNextOwner: a cost is settled although the owner that had reserved it is gone by then, and one that cannot
// be settled is in the log.
func TestMeteredSettlesWithTheNextOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		second := f.memory.Engine()
		var log bytes.Buffer
		o := httpclient.MeteredOptions{
			Limit: weir.TokenBucket(weir.Per(1, 24*time.Hour), 1000), Cost: cost(100),
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}
		switching, started := &switched{of: f}, make(chan *durable.Node, 1)
		o.Limits = switching
		m := metered(t, o, func(*http.Request) (*http.Response, error) { return says(200), nil })
		ctx, settlement := httpclient.WithSettlement(t.Context())
		if _, err := fetchFrom(ctx, m, apiURL); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		time.AfterFunc(time.Second, func() {
			n, err := durable.NewNode(durable.NodeOptions{Engine: second, Address: "b"})
			if err != nil {
				t.Error(err)
				return
			}
			switching.use(n)
			started <- n
		})
		if !settlement.Commit(10) {
			t.Errorf("it was not settled: %s", &log)
		}
		next := <-started
		a := spectest.Acquire(t.Context(), next, spectest.Request{Policy: "metered-api", Limit: o.Limit})
		if a.Remaining != 990 {
			t.Errorf("%d are left, want 990", a.Remaining)
		}
		ctx, settlement = httpclient.WithSettlement(t.Context())
		if _, err := fetchFrom(ctx, m, apiURL); err != nil {
			t.Fatal(err)
		}
		_ = next.Close()
		begin := time.Now()
		if settlement.Commit(10) || !strings.Contains(log.String(), "was not settled") {
			t.Errorf("settled without an owner: %s", &log)
		}
		if took := time.Since(begin); took > 6*time.Second {
			t.Errorf("it took %v", took)
		}
		_ = second.Close()
	})
}

// switched is limits of a node that can be replaced.
type switched struct {
	mu sync.Mutex
	of store.Home
}

func (s *switched) use(l store.Home) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of = l
}

func (s *switched) now() store.Home {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of
}

func (s *switched) Do(ctx context.Context, ask store.Ask, c []store.Charge, ds []weir.Decision) (store.Hold, error) {
	return s.now().Do(ctx, ask, c, ds)
}

func (s *switched) Settle(ctx context.Context, h store.Hold, actual []int64) error {
	return s.now().Settle(ctx, h, actual)
}

func (s *switched) Close() error { return s.now().Close() }

// TestMeteredBelowATransport: every attempt has its permits where a Transport obeys what the server says, and of those that a
// settlement is for, the last one counts.
func TestMeteredBelowATransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, s := newFleet(t), newScript(answering(429, "Retry-After: 10"), answering(200))
		o := httpclient.MeteredOptions{Limits: f, Limit: weir.TokenBucket(weir.Per(1, 24*time.Hour), 5)}
		inner := &closeIdle{roundTrip: s.serve}
		o.Base = inner
		m, err := httpclient.NewMetered(o)
		if err != nil {
			t.Fatal(err)
		}
		rt, err := httpclient.New(httpclient.Options{Base: m, Random: noJitter})
		if err != nil {
			t.Fatal(err)
		}
		if status, err := fetchFrom(t.Context(), rt, apiURL); status != 200 {
			t.Fatal(err)
		}
		if left := f.left(t, o); left != 3 {
			t.Errorf("%d are left, want 3", left)
		}
		s.answers = []said{answering(429, "Retry-After: 10"), answering(200)}
		ctx, settlement := httpclient.WithSettlement(t.Context())
		if status, err := fetchFrom(ctx, rt, apiURL); status != 200 || !settlement.Commit(1) {
			t.Fatal(err)
		}
		if left := f.left(t, o); left != 2 {
			t.Errorf("%d are left, want 2", left)
		}
		rt.CloseIdleConnections()
		if !inner.closed {
			t.Error("the connections are not closed")
		}
		metered(t, httpclient.MeteredOptions{Limits: f}, s.serve).CloseIdleConnections() // it has none
	})
}

func TestMeteredOptionsThatCannotBeUsed(t *testing.T) {
	for want, o := range map[string]httpclient.MeteredOptions{
		"MeteredOptions.Limits is nil: must be the limits of a cluster": {},
		"MeteredOptions.Limits is a nil *durable.Node":                  {Limits: (*durable.Node)(nil)},
		"MeteredOptions.Policy is":                                      {Policy: strings.Repeat("x", 257)},
		"MeteredOptions.Limit.Rate is":                                  {Limit: weir.TokenBucket(weir.Rate{}, 5)},
		"MeteredOptions.Limit is 5 at once":                             {Limit: weir.AtOnce(5)},
		"MeteredOptions.ReserveFor is 25h0m0s: must be from 1ms to 24h": {ReserveFor: 25 * time.Hour},
		"MeteredOptions.MaxWait is -1s: must be from 1ms to 24h":        {MaxWait: -time.Second},
		"MeteredOptions.QueueLimit is -2: must be from 1 to 10^15":      {QueueLimit: -2},
	} {
		if !strings.Contains(want, "Limits") {
			o.Limits = &switched{}
		}
		if _, err := httpclient.NewMetered(o); err == nil || !strings.HasPrefix(err.Error(), "weir: httpclient.") || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
