package httplimit_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/manualclock"
)

// TestARefusedRequestIsChargedToNoLimit: a request that one limit of a list refuses has used up nothing of the others, wherever
// in the list that limit is.
func TestARefusedRequestIsChargedToNoLimit(t *testing.T) {
	t.Parallel()
	for _, reversed := range []bool{false, true} {
		client := perClient(t, 20)
		monthly := keyedLimit(t, weir.FixedWindow(weir.PerDay(1)), weir.KeyedOptions{Name: "monthly", Clock: manualclock.New(0)})
		limits := []httplimit.Limit{{Keyed: client}, {Keyed: monthly, Key: httplimit.RequireHeader("X-Api-Key")}}
		if reversed {
			slices.Reverse(limits)
		}
		var refusals []httplimit.Refusal
		handler := limit(t, httplimit.Options{Limits: limits, OnRefused: func(_ *http.Request, f *httplimit.Refusal) {
			refusals = append(refusals, *f)
		}})(ok)
		r := from("192.0.2.1:1")
		r.Header.Set("X-Api-Key", "k")
		if resp := send(handler, r); resp.status != http.StatusOK ||
			resp.header.Get("Ratelimit") != `"monthly";r=0;t=86400, "per-client";r=19;t=1` ||
			resp.header.Get("Ratelimit-Policy") != `"monthly";q=1;w=86400, "per-client";q=20;w=2` {
			t.Errorf("reversed %t: status %d, %v", reversed, resp.status, resp.header)
		}
		for range 5 {
			if resp := send(handler, r); resp.status != http.StatusTooManyRequests || resp.header.Get("Retry-After") != "86400" ||
				!strings.HasPrefix(resp.header.Get("Ratelimit"), `"monthly";r=0;t=86400, "per-client";r=19`) {
				t.Errorf("reversed %t: status %d, %v", reversed, resp.status, resp.header)
			}
		}
		if d := client.Peek("192.0.2.1", 0); d.Remaining != 19 {
			t.Errorf("reversed %t: 6 requests of which 1 was allowed have left the client %d of 20", reversed, d.Remaining)
		}
		if len(refusals) != 5 || refusals[0].Key != "k" || refusals[0].Decision.Policy != "monthly" ||
			!slices.Equal(refusals[0].Problem.ViolatedPolicies, []string{"monthly"}) {
			t.Errorf("reversed %t: %+v", reversed, refusals)
		}
	}
}

// TestSeveralLimitsThatRefuseAreAllNamed in the body, and one for all requests together is about the server's clients as well.
func TestSeveralLimitsThatRefuseAreAllNamed(t *testing.T) {
	t.Parallel()
	o := weir.KeyedOptions{Clock: manualclock.New(0)}
	var limits []httplimit.Limit
	for _, name := range []string{"second", "minute", "hour"} {
		o.Name = name
		rate := map[string]weir.Rate{"second": weir.PerSecond(5), "minute": weir.PerMinute(1), "hour": weir.PerHour(1)}[name]
		limits = append(limits, httplimit.Limit{Keyed: keyedLimit(t, weir.FixedWindow(rate), o)})
	}
	handler := limit(t, httplimit.Options{Limits: limits})(ok)
	send(handler, from("192.0.2.1:1"))
	resp := send(handler, from("192.0.2.1:1"))
	if resp.status != http.StatusTooManyRequests || !strings.Contains(resp.body, `"violated-policies":["hour","minute"]`) ||
		!strings.HasPrefix(resp.header.Get("Ratelimit"), `"hour";r=0;t=3600, "minute";r=0;t=60, "second";r=4`) {
		t.Errorf("status %d, %v\n%s", resp.status, resp.header, resp.body)
	}
	if resp := send(handler, from("192.0.2.2:1")); resp.status != http.StatusOK {
		t.Errorf("another client: status %d", resp.status)
	}
}

// TestSeveralLimitsWaitAndRelease has a queue in one limit, and permits that come back in another.
func TestSeveralLimitsWaitAndRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paced := keyedLimit(t, weir.TokenBucket(weir.PerMinute(6), 1), weir.KeyedOptions{Name: "paced", QueueLimit: 1})
		defer paced.Close()
		atOnce := keyedSlots(t, 1, weir.KeyedOptions{Name: "at-once", QueueLimit: 1})
		defer atOnce.Close()
		handler := limit(t, httplimit.Options{
			Limits: []httplimit.Limit{{Keyed: paced}, {Keyed: atOnce}}, MaxWait: time.Minute,
			Cost: func(r *http.Request) int64 { return int64(len(r.URL.Path)) - 1 },
		})(ok)
		start := time.Now()
		r := from("192.0.2.1:1")
		r.URL.Path = "/1"
		send(handler, r)
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if resp := send(handler, r); resp.status != http.StatusOK || time.Since(start) != 10*time.Second {
				t.Errorf("status %d after %v", resp.status, time.Since(start))
			}
		})
		synctest.Wait()
		if resp := send(handler, r); resp.status != http.StatusTooManyRequests || time.Since(start) != 0 {
			t.Errorf("no room to wait: status %d after %v", resp.status, time.Since(start))
		}
		if resp := send(handler, from("192.0.2.1:1")); resp.status != http.StatusOK {
			t.Errorf("cost 0: status %d", resp.status)
		}
		waiting.Wait()
		if d := atOnce.Peek("192.0.2.1", 1); !d.Allowed {
			t.Errorf("a permit was not released: %+v", d)
		}
	})
}

// TestRequestsWithoutTheirHeaderAreRefused with a status that the hook can change, and are not charged.
func TestRequestsWithoutTheirHeaderAreRefused(t *testing.T) {
	t.Parallel()
	for name, header := range map[string][]string{"none": nil, "empty": {""}, "two": {"a", "b"}} {
		for _, several := range []bool{false, true} {
			keyed, client := perClient(t, 20), keyedSlots(t, 1, weir.KeyedOptions{Name: "client"})
			key := httplimit.RequireHeader("x-api-key")
			o := httplimit.Options{Keyed: keyed, Key: key}
			if several {
				o = httplimit.Options{Limits: []httplimit.Limit{{Keyed: client}, {Keyed: keyed, Key: key}}}
			}
			o.OnRefused = func(_ *http.Request, f *httplimit.Refusal) {
				if f.Decision.Allowed || f.Decision.Reason != weir.ReasonInvalid {
					t.Errorf("%s: %+v", name, f.Decision)
				}
				f.Header.Set("WWW-Authenticate", "ApiKey")
			}
			r := from("192.0.2.1:1")
			r.Header["X-Api-Key"] = header
			resp := send(limit(t, o)(ok), r)
			if resp.status != http.StatusUnauthorized || !strings.Contains(resp.body, "must have the header field X-Api-Key") ||
				resp.header.Get("WWW-Authenticate") != "ApiKey" || keyed.Peek("", 20).Remaining != 20 ||
				!client.Peek("192.0.2.1", 1).Allowed {
				t.Errorf("%s, several %t: status %d, %v\n%s", name, several, resp.status, resp.header, resp.body)
			}
			r.Header["X-Api-Key"] = []string{"k"}
			if resp := send(limit(t, o)(ok), r); resp.status != http.StatusOK || keyed.Peek("k", 0).Remaining != 19 {
				t.Errorf("with the field: status %d", resp.status)
			}
		}
	}
	r := from("192.0.2.1:1")
	r.Host = "a.example"
	if got := keyOf(t, httplimit.RequireHeader("Host"), r); got != "a.example" {
		t.Errorf("Host: %q", got)
	}
}

// TestOtherErrorsOfKeysAreNotTold: they are the server's.
func TestOtherErrorsOfKeysAreNotTold(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		errors.New("secret"), &httplimit.KeyError{Detail: "secret"}, &httplimit.KeyError{Status: 200, Detail: "secret"},
	} {
		handler := limit(t, httplimit.Options{
			Keyed: perClient(t, 20), Key: func(*http.Request) (string, error) { return "", err },
		})(ok)
		if resp := send(handler, from("192.0.2.1:1")); resp.status != http.StatusInternalServerError ||
			strings.Contains(resp.body, "secret") {
			t.Errorf("%v: status %d, %s", err, resp.status, resp.body)
		}
	}
}

// TestPerClient has two clients, of which one asks too much, and a limit that cannot be used.
func TestPerClient(t *testing.T) {
	t.Parallel()
	handler := httplimit.PerClient(weir.PerHour(10), 2)(ok)
	for i, want := range []int{200, 200, 429} {
		if resp := send(handler, from("192.0.2.1:1")); resp.status != want {
			t.Errorf("request %d: status %d, want %d", i+1, resp.status, want)
		}
	}
	if resp := send(handler, from("192.0.2.2:1")); resp.status != http.StatusOK || resp.header.Get("Ratelimit") != `"per-client";r=1;t=360` {
		t.Errorf("another client: status %d, %v", resp.status, resp.header)
	}
	for _, call := range []func(){
		func() { httplimit.PerClient(weir.Rate{}, 20) }, func() { httplimit.PerClient(weir.PerSecond(10), -1) },
	} {
		if got := toldOf(func() error { call(); return nil }); !strings.HasPrefix(got, "weir: ") {
			t.Errorf("panic %q", got)
		}
	}
}

// TestAllocationsOfSeveralLimits: more limits are no more allocations, except for the value of RateLimit-Policy.
func TestAllocationsOfSeveralLimits(t *testing.T) {
	client, all := perClient(t, 1e9), keyedSlots(t, 5, weir.KeyedOptions{Name: "all"})
	handler := limit(t, httplimit.Options{Limits: []httplimit.Limit{
		{Keyed: client}, {Keyed: all, Key: func(*http.Request) (string, error) { return "", nil }},
	}})(ok)
	w, r := &discard{header: http.Header{}}, from("192.0.2.1:1")
	if got := testing.AllocsPerRun(200, func() { clear(w.header); handler.ServeHTTP(w, r) }); got > 4 && !race.Enabled {
		t.Errorf("%v allocations, want 4", got)
	}
}
