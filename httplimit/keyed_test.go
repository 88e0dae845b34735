package httplimit_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/overload"
)

func keyedLimit(t *testing.T, limit weir.Limit, o weir.KeyedOptions) *weir.Keyed[string] {
	t.Helper()
	k, err := weir.NewKeyed[string](limit, o)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func keyedSlots(t *testing.T, n int64, o weir.KeyedOptions) *weir.KeyedConcurrency[string] {
	t.Helper()
	k, err := weir.NewKeyedConcurrency[string](n, o)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func from(addr string) *http.Request {
	r := request(http.MethodGet, "/")
	r.RemoteAddr = addr
	return r
}

// TestRequestsWaitInTheQueueOfTheirKey has two clients, of which one asks too much.
func TestRequestsWaitInTheQueueOfTheirKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keyedLimit(t, weir.TokenBucket(weir.PerMinute(6), 1), weir.KeyedOptions{Name: "per-client", QueueLimit: 1})
		defer k.Close()
		handler := limit(t, httplimit.Options{Keyed: k, MaxWait: time.Minute})(ok)
		start := time.Now()
		if resp := send(handler, from("192.0.2.1:1")); resp.status != http.StatusOK {
			t.Fatalf("status %d", resp.status)
		}
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if resp := send(handler, from("192.0.2.1:2")); resp.status != http.StatusOK || time.Since(start) != 10*time.Second {
				t.Errorf("status %d after %v", resp.status, time.Since(start))
			}
		})
		synctest.Wait()
		if resp := send(handler, from("192.0.2.1:3")); resp.status != http.StatusTooManyRequests || resp.header.Get("Retry-After") != "20" {
			t.Errorf("status %d, %v", resp.status, resp.header)
		}
		if resp := send(handler, from("192.0.2.2:1")); resp.status != http.StatusOK || time.Since(start) != 0 {
			t.Errorf("another client: status %d after %v", resp.status, time.Since(start))
		}
		waiting.Wait()
	})
}

// TestPermitsOfAKeyAreReleased bounds how many requests of each client are served at a time.
func TestPermitsOfAKeyAreReleased(t *testing.T) {
	k, err := weir.NewKeyedConcurrency[string](2, weir.KeyedOptions{Name: "per-client"})
	if err != nil {
		t.Fatal(err)
	}
	served := 0
	var handler http.Handler
	handler = limit(t, httplimit.Options{Keyed: k})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if served++; served > 5 {
			panic(http.ErrAbortHandler)
		}
		resp := send(handler, from("192.0.2.1:1")) //nolint:contextcheck // another request
		w.WriteHeader(resp.status)
	}))
	if resp := send(handler, from("192.0.2.1:1")); resp.status != http.StatusTooManyRequests || served != 2 {
		t.Errorf("status %d, served %d", resp.status, served)
	}
	if d := k.Peek("192.0.2.1", 2); !d.Allowed {
		t.Errorf("%+v", d)
	}
	served = 4
	func() {
		defer func() { recover() }()
		send(handler, from("192.0.2.1:1"))
	}()
	if d := k.Peek("192.0.2.1", 2); !d.Allowed {
		t.Errorf("after a panic: %+v", d)
	}
}

// TestLimitsAreNotChosenForAKeyThatNoRequestHas: the function of a program that chooses the limit of each key is called for the
// keys of requests alone, and not when the middleware is made.
func TestLimitsAreNotChosenForAKeyThatNoRequestHas(t *testing.T) {
	var asked []string
	k, err := weir.NewKeyedFunc(weir.TokenBucket(weir.PerSecond(10), 20), weir.KeyedOptions{Name: "per-client"}, func(key string) weir.Limit {
		asked = append(asked, key)
		return weir.Limit{}
	})
	if err != nil {
		t.Fatal(err)
	}
	one := limit(t, httplimit.Options{Keyed: k})(ok)
	several := limit(t, httplimit.Options{Limits: []httplimit.Limit{{Keyed: k}}})(ok)
	if len(asked) > 0 {
		t.Errorf("asked for %q", asked)
	}
	for _, handler := range []http.Handler{one, several} {
		if got := send(handler, from("192.0.2.1:1")).header.Get("Ratelimit-Policy"); got != `"per-client";q=20;w=2` {
			t.Errorf("told %s", got)
		}
	}
}

// TestToldLimitIsThatOfTheKey has clients with different limits, and one whose limit is overridden.
func TestToldLimitIsThatOfTheKey(t *testing.T) {
	o := weir.KeyedOptions{Name: "per-client", Clock: manualclock.New(0)}
	k, err := weir.NewKeyedFunc(weir.TokenBucket(weir.PerSecond(10), 20), o, func(key string) weir.Limit {
		if key == "192.0.2.9" {
			return weir.TokenBucket(weir.PerHour(100), 0)
		}
		return weir.Limit{}
	})
	if err != nil {
		t.Fatal(err)
	}
	handler := limit(t, httplimit.Options{Keyed: k})(ok)
	for _, c := range []struct{ addr, policy, state string }{
		{"192.0.2.1:1", `"per-client";q=20;w=2`, `"per-client";r=19;t=1`},
		{"192.0.2.9:1", `"per-client";q=100;w=3600`, `"per-client";r=99;t=36`},
		{"192.0.2.9:1", `"per-client";q=100;w=3600`, `"per-client";r=98;t=72`},
	} {
		resp := send(handler, from(c.addr))
		if got := resp.header.Get("Ratelimit-Policy"); got != c.policy {
			t.Errorf("%s: %s, want %s", c.addr, got, c.policy)
		}
		if got := resp.header.Get("Ratelimit"); got != c.state {
			t.Errorf("%s: %s, want %s", c.addr, got, c.state)
		}
	}
	defer k.Close()
	// As many permits as the limit that was set up, at another rate.
	if err = keyset.Of(k).Override("192.0.2.1", weir.TokenBucket(weir.PerMinute(20), 0), time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := send(handler, from("192.0.2.1:1")).header.Get("Ratelimit-Policy"); got != `"per-client";q=20;w=60` {
		t.Errorf("%s", got)
	}
	if err = keyset.Of(k).Override("192.0.2.1", weir.TokenBucket(weir.PerHour(1), 0), time.Hour); err != nil {
		t.Fatal(err)
	}
	send(handler, from("192.0.2.1:1"))
	resp := send(handler, from("192.0.2.1:1"))
	if got := resp.header.Get("Ratelimit-Policy"); resp.status != http.StatusTooManyRequests || got != `"per-client";q=1;w=3600` {
		t.Errorf("status %d, %s", resp.status, got)
	}
	if !strings.Contains(resp.body, `is 1/h, burst 1, and has 0 remaining, but this request needs 1; retry after 1 hour.`) {
		t.Errorf("%s", resp.body)
	}
}

// TestPermitsOfAKeyAreToldAsConcurrent is about what a limit of requests at a time says of itself.
func TestPermitsOfAKeyAreToldAsConcurrent(t *testing.T) {
	k, err := weir.NewKeyedConcurrency[string](2, weir.KeyedOptions{Name: "per-client"})
	if err != nil {
		t.Fatal(err)
	}
	resp := send(limit(t, httplimit.Options{Keyed: k})(ok), from("192.0.2.1:1"))
	if got := resp.header.Get("Ratelimit-Policy"); got != `"per-client";q=2;qu="concurrent-requests"` {
		t.Errorf("%s", got)
	}
	a, err := overload.NewAdaptive(overload.AdaptiveOptions{Name: "backend", InitialLimit: 5, MinLimit: 5, MaxLimit: 5})
	if err != nil {
		t.Fatal(err)
	}
	resp = send(limit(t, httplimit.Options{Limiter: a})(ok), from("192.0.2.1:1"))
	if got := resp.header.Get("Ratelimit-Policy"); got != `"backend";q=5;qu="concurrent-requests"` {
		t.Errorf("%s", got)
	}
}

// TestWrongLimitOfAKeyIsLogged: the log says which limiter it is, and what is wrong with the limit that its function has chosen.
func TestWrongLimitOfAKeyIsLogged(t *testing.T) {
	k, err := weir.NewKeyedFunc(weir.TokenBucket(weir.PerSecond(1), 5), weir.KeyedOptions{Name: "per-plan"}, func(string) weir.Limit {
		return weir.FixedWindow(weir.PerSecond(1))
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]httplimit.Options{
		"Keyed": {Keyed: k}, "Limits": {Limits: []httplimit.Limit{{Keyed: k}}}, "waits": {Keyed: k, MaxWait: time.Second},
	} {
		var log bytes.Buffer
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		if resp := send(limit(t, o)(ok), from("192.0.2.1:1")); resp.status != http.StatusInternalServerError {
			t.Errorf("%s: the status is %d", name, resp.status)
		}
		for _, want := range []string{"per-plan", "limitOf(key).Algorithm is fixed-window: must be token-bucket, as for all keys"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%s: the log has no %q:\n%s", name, want, &log)
			}
		}
	}
}
