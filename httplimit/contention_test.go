package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// TestGateContention sends requests from many goroutines through a limit and slots: exactly the limit is allowed, in no order
// are there more at a time than slots, and none of these is lost.
func TestGateContention(t *testing.T) {
	const limit, slots = 500, 4
	e := engineOf(t, policy.EngineOptions{Clock: manualclock.New(0)}, &policy.Set{
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
	if s := g.Stats(); s.Allowed != uint64(admitted.Load()) || s.Allowed+s.Refused != 800 {
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
