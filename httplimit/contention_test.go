package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/policy"
)

// TestTransportContention sends from many goroutines to a server that says this and that, and lets some of them give up: in the
// end nobody waits, and nothing is on its way.
func TestTransportContention(t *testing.T) {
	lines := [][]string{
		{},
		{`RateLimit: "a";r=100;t=1`},
		{"Retry-After: 0.001"},
		{`RateLimit: "b";r=0`},
		{"x-ratelimit-remaining-requests: 0", "x-ratelimit-reset-requests: 1ms"},
		{"x-ratelimit-remaining-tokens: 0", "x-ratelimit-reset-tokens: 500us"},
		{"X-RateLimit-Remaining: 1", "X-RateLimit-Reset: 0.002"},
	}
	var served atomic.Int64
	rt := transport(t, httplimit.TransportOptions{
		MaxHosts: 3, MaxRetries: 1, MaxWait: 5 * time.Minute, WhenFull: weir.Admit, ReleaseRate: weir.PerSecond(100_000),
	}, func(*http.Request) (*http.Response, error) {
		n := served.Add(1)
		if n%13 == 0 {
			return nil, errors.New("no answer")
		}
		status := 200
		if n%5 == 0 {
			status = 429
		}
		return says(status, lines[rand.IntN(len(lines))]...), nil
	})
	var wait sync.WaitGroup
	for range 16 {
		wait.Go(func() {
			for i := range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				if i%7 == 0 {
					go cancel()
				}
				if _, err := fetchFrom(ctx, rt, fmt.Sprintf("https://%d.example.com/", i%3)); errors.Is(err, httplimit.ErrLimited) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wait.Wait()
	var sent uint64
	for i := range 3 {
		st, ok := rt.Status(fmt.Sprintf("%d.example.com", i))
		if !ok || st.Waiting != 0 || st.InFlight != 0 {
			t.Errorf("host %d: %+v, %v", i, st, ok)
		}
		sent += st.Sent
	}
	if int64(sent) != served.Load() {
		t.Errorf("%d were counted, %d were sent", sent, served.Load())
	}
}

// TestGateContention sends requests from many goroutines through a limit and slots: exactly the limit is admitted, in no order
// are there more at a time than slots, and none of these is lost.
func TestGateContention(t *testing.T) {
	const limit, slots = 500, 4
	e := engineOf(t, policy.EngineOptions{Clock: weir.NewManualClock(0)}, &policy.Set{
		Policies: []policy.Policy{hourly("requests", limit, nil), {
			Name: "slots", QueueLimit: 100, MaxWait: time.Minute,
			Limits: []policy.Limit{{Limit: weir.AtOnce(slots)}},
		}},
		Rules: []policy.Rule{everything("requests", "slots")},
	})
	var now, most, admitted atomic.Int64
	g := gate(t, httplimit.GateOptions{Engine: e, Wait: true})
	h := g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m; m = most.Load() {
			if most.CompareAndSwap(m, n) {
				break
			}
		}
		admitted.Add(1)
		if r.URL.Path == "/panic" {
			panic("no")
		}
	}))
	var wait sync.WaitGroup
	for range 16 {
		wait.Go(func() {
			for i := range 50 {
				path := "/"
				if i%10 == 0 {
					path = "/panic"
				}
				func() {
					defer func() { _ = recover() }()
					h.ServeHTTP(httptest.NewRecorder(), request(http.MethodGet, path))
				}()
			}
		})
	}
	wait.Wait()
	if n := admitted.Load(); n != limit {
		t.Errorf("%d of 800 requests were admitted, want %d", n, limit)
	}
	if m := most.Load(); m > slots {
		t.Errorf("%d at a time, want at most %d", m, slots)
	}
	if s := g.Stats(); s.Admitted != uint64(admitted.Load()) || s.Admitted+s.Refused != 800 {
		t.Errorf("%+v", s)
	}
	if n := available(t, e, "slots", ""); n != slots {
		t.Errorf("%d slots are free in the end, want %d", n, slots)
	}
}

// TestReservationContention settles requests from goroutines that outlive their handlers: each is settled once, with its own
// verdict, and the rest costs what was reserved.
func TestReservationContention(t *testing.T) {
	const limit = 1_000_000
	e := standing(t, &policy.Set{
		Policies: []policy.Policy{hourly("tokens", limit, nil)},
		Rules:    []policy.Rule{{Name: "all", Limits: []policy.Use{{Policy: "tokens", Cost: policy.FixedNumber(100)}}}},
	})
	var settled, total atomic.Int64
	var late sync.WaitGroup
	h := gate(t, httplimit.GateOptions{Engine: e, Reserve: true}).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		total.Add(1)
		reserved := httplimit.Reservation(r.Context())
		for range 2 {
			late.Go(func() {
				if reserved.CommitPolicy("tokens", 10) {
					settled.Add(1)
				}
			})
		}
	}))
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 200 {
				get(h)
			}
		})
	}
	wait.Wait()
	late.Wait()
	want := limit - 10*settled.Load() - 100*(total.Load()-settled.Load())
	if n := available(t, e, "tokens", ""); n != want || settled.Load() > total.Load() {
		t.Errorf("%d tokens are left after %d of %d were settled, want %d", n, settled.Load(), total.Load(), want)
	}
}
