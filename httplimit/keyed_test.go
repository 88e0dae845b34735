package httplimit_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
)

func keyedLimit(t *testing.T, o weir.KeyedOptions) *weir.Keyed[string] {
	t.Helper()
	k, err := weir.NewKeyed[string](o)
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
		k := keyedLimit(t, weir.KeyedOptions{Name: "per-client", Rate: weir.PerMinute(6), Burst: 1, QueueLimit: 1})
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
	k := keyedLimit(t, weir.KeyedOptions{Name: "per-client", Algorithm: weir.AlgorithmConcurrency, Burst: 2})
	served := 0
	var handler http.Handler
	handler = limit(t, httplimit.Options{Keyed: k})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if served++; served > 5 {
			panic(http.ErrAbortHandler)
		}
		resp := send(handler, from("192.0.2.1:1")) //nolint:contextcheck // another request
		w.WriteHeader(resp.status)
	}))
	if resp := send(handler, from("192.0.2.1:1")); resp.status != http.StatusTooManyRequests && resp.status != http.StatusServiceUnavailable || served != 2 {
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
