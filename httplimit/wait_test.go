package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
)

// waiting is a limiter with one permit, which is out until release is called, behind a middleware that waits.
func waiting(t *testing.T, maxWait time.Duration) (limiter *weir.Concurrency, handler http.Handler, release func(), served *int) {
	t.Helper()
	limiter = slots(t, 1, weir.Options{Name: "slots", QueueLimit: 2})
	served = new(int)
	handler = limit(t, httplimit.Options{
		Limiter: limiter, MaxWait: maxWait,
		OnRefused: func(_ *http.Request, f *httplimit.Refusal) { f.Header.Set("X-Refused", f.Decision.Reason.String()) },
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { *served++ }))
	lease := limiter.TryAcquire(1)
	return limiter, handler, lease.Release, served
}

func TestWaitingRequestIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, handler, release, served := waiting(t, time.Minute)
		start := time.Now()
		time.AfterFunc(3*time.Second, release)
		resp := get(handler)
		if resp.status != http.StatusOK || *served != 1 || time.Since(start) != 3*time.Second {
			t.Errorf("status %d after %v, served %d", resp.status, time.Since(start), *served)
		}
		expect(t, resp.header, map[string]string{
			"Ratelimit": `"slots";r=0`, "Ratelimit-Policy": `"slots";q=1;qu="concurrent-requests"`,
		})
	})
}

func TestClientAbortIsNotARefusal(t *testing.T) {
	for _, maxWait := range []time.Duration{time.Minute, weir.Never} {
		synctest.Test(t, func(t *testing.T) {
			limiter, handler, release, served := waiting(t, maxWait)
			ctx, abort := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, abort)
			resp := send(handler, request(http.MethodGet, "/").WithContext(ctx))
			if resp.status != httplimit.StatusClientClosedRequest || *served != 0 || len(resp.header) > 0 {
				t.Errorf("status %d, %v, served %d", resp.status, resp.header, *served)
			}
			if s := limiter.Stats(); s.Refused != 0 || s.Waiters != 0 || s.Allowed != 1 {
				t.Errorf("the limiter counts %+v", s)
			}
			release()
			if get(handler).status != http.StatusOK {
				t.Error("the permit is lost")
			}
		})
	}
}

func TestMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, handler, _, served := waiting(t, 5*time.Second)
		start := time.Now()
		resp := get(handler)
		if resp.status != http.StatusServiceUnavailable || *served != 0 || time.Since(start) != 5*time.Second {
			t.Errorf("status %d after %v", resp.status, time.Since(start))
		}
		if got := resp.header.Get("X-Refused"); got != "deadline" {
			t.Errorf("refused because of %q", got)
		}
		if limiter.Stats().Waiters != 0 {
			t.Error("it still waits")
		}
	})
}

// TestDeadlineOfTheServer is about contexts that end by time while the client still waits for an answer.
func TestDeadlineOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, handler, _, served := waiting(t, weir.Never)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		resp := send(handler, request(http.MethodGet, "/").WithContext(ctx))
		if resp.status != http.StatusServiceUnavailable || *served != 0 {
			t.Errorf("status %d, served %d", resp.status, *served)
		}
	})
}

func TestAWaitThatCannotSucceedIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := weir.New(weir.TokenBucket(weir.PerMinute(6), 1), weir.Options{
			Name: "api", QueueLimit: 5,
		})
		if err != nil {
			t.Fatal(err)
		}
		handler := limit(t, httplimit.Options{Limiter: limiter, MaxWait: 15 * time.Second})(ok)
		start := time.Now()
		get(handler)
		var wait sync.WaitGroup
		wait.Go(func() {
			if resp := get(handler); resp.status != http.StatusOK || time.Since(start) != 10*time.Second {
				t.Errorf("the second: status %d after %v", resp.status, time.Since(start))
			}
		})
		synctest.Wait()
		resp := get(handler)
		if resp.status != http.StatusTooManyRequests || time.Since(start) != 0 {
			t.Errorf("the third: status %d after %v", resp.status, time.Since(start))
		}
		if resp.header.Get("Retry-After") != "20" || resp.header.Get("Ratelimit") != `"api";r=0;t=20` {
			t.Errorf("the third: %v, want the wait behind the second: 20 s", resp.header)
		}
		wait.Wait()
	})
}

// TestAPermitThatComesTooLate is about a permit that is free by the time the refusal is written.
func TestAPermitThatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resp := get(limit(t, httplimit.Options{Limiter: &slow{}, MaxWait: time.Second})(ok))
		if resp.status != http.StatusTooManyRequests || resp.header.Get("Retry-After") != "1" {
			t.Errorf("status %d, %v", resp.status, resp.header)
		}
	})
}

// TestAPermitThatIsThereNeedsNoTime: however short MaxWait is, and however busy the machine.
func TestAPermitThatIsThereNeedsNoTime(t *testing.T) {
	limiter, err := weir.New(weir.TokenBucket(weir.PerHour(1), 5), weir.Options{QueueLimit: 5})
	if err != nil {
		t.Fatal(err)
	}
	handler := limit(t, httplimit.Options{Limiter: limiter, MaxWait: 1})(ok)
	for i := range 5 {
		if resp := get(handler); resp.status != http.StatusOK {
			t.Errorf("%d: status %d, %v", i, resp.status, resp.header)
		}
	}
	if resp := get(handler); resp.status != http.StatusTooManyRequests {
		t.Errorf("without permits: status %d, %v", resp.status, resp.header)
	}
}

// TestAbortAtTheLastMoment is about a client that goes away when its time is up.
func TestAbortAtTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, abort := context.WithCancel(t.Context())
		handler := limit(t, httplimit.Options{Limiter: &slow{then: abort}, MaxWait: time.Second})(ok)
		resp := send(handler, request(http.MethodGet, "/").WithContext(ctx))
		if resp.status != httplimit.StatusClientClosedRequest {
			t.Errorf("status %d, %v", resp.status, resp.header)
		}
	})
}

// slow never grants in time what it says is there.
type slow struct {
	fixed

	then func()
}

func (s *slow) Acquire(ctx context.Context, _ int64) (weir.Lease, error) {
	<-ctx.Done()
	if s.then != nil {
		s.then()
	}
	return weir.Lease{}, errors.New("too late")
}

func (*slow) TryAcquire(int64) weir.Lease { return weir.Lease{} }

// TestAbortOverARealConnection closes the connection of a client whose request waits.
func TestAbortOverARealConnection(t *testing.T) {
	limiter, handler, release, served := waiting(t, weir.Never)
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	ctx, abort := context.WithTimeout(t.Context(), 5*time.Minute)
	go func() {
		for limiter.Stats().Waiters == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond) // a real socket is between the two
		}
		abort()
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := server.Client().Do(r)
	if err == nil {
		_ = resp.Body.Close()
		t.Fatalf("status %d", resp.StatusCode)
	}
	<-done
	release()
	if s := limiter.Stats(); *served != 0 || s.Refused != 0 || s.Remaining != 1 || s.Waiters != 0 {
		t.Errorf("served %d, %+v", *served, s)
	}
}
