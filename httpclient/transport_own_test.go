package httpclient_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httpclient"
	"github.com/weirhq/weir/overload"
)

// TestAdaptiveLimitLearnsFromResponses that say that the server is overloaded, however fast they are.
func TestAdaptiveLimitLearnsFromResponses(t *testing.T) {
	for name, c := range map[string]struct {
		serve   func(*http.Request) (*http.Response, error)
		retries int
		less    bool
	}{
		"served":            {newScript(answering(200)).serve, httpclient.NoRetries, false},
		"refused":           {newScript(answering(503)).serve, httpclient.NoRetries, true},
		"refused and again": {newScript(answering(429, "Retry-After: 1")).serve, 1, true},
		"late": {func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, httpclient.NoRetries, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			limiter, err := overload.NewAdaptive(overload.AdaptiveOptions{InitialLimit: 20, MinLimit: 1, MaxLimit: 40})
			if err != nil {
				t.Fatal(err)
			}
			rt := transport(t, httpclient.Options{Limiter: limiter, MaxRetries: c.retries}, c.serve)
			for range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				_, _ = fetchFrom(ctx, rt, apiURL)
				cancel()
				time.Sleep(time.Second)
			}
			if limit := limiter.Stats().Limit; limit < 20 != c.less || limiter.Peek(0).Remaining != limit {
				t.Errorf("%s: the limit is %d, of which %d remain", name, limit, limiter.Peek(0).Remaining)
			}
		})
	}
}

// TestAdaptiveLimitLearnsFromCutRequests: a body that runs into the deadline is lost as a request is that has no response. Nothing
// is learned from what is canceled, also in a chain, whose other limiters stay charged.
func TestAdaptiveLimitLearnsFromCutRequests(t *testing.T) {
	for name, c := range map[string]struct {
		response, body error
		learned        bool
	}{
		"canceled":      {context.Canceled, nil, false},
		"body canceled": {nil, context.Canceled, false},
		"body late":     {nil, context.DeadlineExceeded, true},
		"body cut":      {nil, io.ErrUnexpectedEOF, true},
	} {
		serve := func(r *http.Request) (*http.Response, error) {
			resp, err := newScript(answering(200)).serve(r)
			if resp.Body = io.NopCloser(iotest.ErrReader(c.body)); c.response != nil {
				return nil, c.response
			}
			return resp, err
		}
		synctest.Test(t, func(t *testing.T) {
			adaptive, err := overload.NewAdaptive(overload.AdaptiveOptions{})
			if err != nil {
				t.Fatal(err)
			}
			bucket, err := weir.New(weir.TokenBucket(weir.PerHour(1), 200), weir.Options{})
			if err != nil {
				t.Fatal(err)
			}
			chain, err := weir.NewChain(bucket, adaptive)
			if err != nil {
				t.Fatal(err)
			}
			rt := transport(t, httpclient.Options{Limiter: chain, MaxRetries: httpclient.NoRetries}, serve)
			for range 150 {
				_, _ = fetchFrom(t.Context(), rt, apiURL)
				time.Sleep(10 * time.Millisecond)
			}
			e := adaptive.Estimate()
			if learned, lost := e.Windows > 0, e.Dropped > 0; learned != c.learned || lost != (name == "body late") {
				t.Errorf("%s: it has learned %+v", name, e)
			}
			if in, left := adaptive.Peek(0).Remaining, bucket.Peek(0).Remaining; in != e.Limit || left != 50 {
				t.Errorf("%s: %d of %d permits are back, and %d remain in the bucket, want 50", name, in, e.Limit, left)
			}
		})
	}
}

// TestTransportPacesItself is about the own limiter of a client.
func TestTransportPacesItself(t *testing.T) {
	limiter := func(t *testing.T, queue int64) *weir.Limiter {
		t.Helper()
		b, err := weir.New(weir.TokenBucket(weir.PerSecond(1), 2), weir.Options{Name: "own", QueueLimit: queue})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	fetchAll := func(t *testing.T, rt http.RoundTripper, n int) {
		t.Helper()
		var wait sync.WaitGroup
		for i := range n {
			wait.Go(func() {
				if _, err := fetchFrom(t.Context(), rt, fmt.Sprintf("https://%d.example.com/", i%2)); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
	}
	const second = time.Second
	t.Run("one limiter", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(answering(200))
			fetchAll(t, transport(t, httpclient.Options{Limiter: limiter(t, 10)}, s.serve), 5)
			expectTimes(t, s.times(), 0, 0, second, 2*second, 3*second)
		})
	})
	t.Run("one for each host", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(answering(200))
			keyed := keyedLimit(t, weir.TokenBucket(weir.PerSecond(1), 1), weir.KeyedOptions{QueueLimit: 10})
			fetchAll(t, transport(t, httpclient.Options{Keyed: keyed}, s.serve), 6)
			expectTimes(t, s.times(), 0, 0, second, second, 2*second, 2*second)
		})
	})
	t.Run("cost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(answering(200))
			cost := int64(2)
			rt := transport(t, httpclient.Options{Limiter: limiter(t, 10), Cost: func(*http.Request) int64 { return cost }}, s.serve)
			fetchAll(t, rt, 2)
			cost = 0
			fetchAll(t, rt, 2)
			expectTimes(t, s.times(), 0, 2*second, 2*second, 2*second)
			cost = 3
			_, err := fetchFrom(t.Context(), rt, apiURL)
			limited, ok := errors.AsType[*httpclient.LimitedError](err)
			if !ok || limited.Reason != weir.ReasonNever || limited.Limit != "own" || limited.Server || limited.RetryAfter != weir.Never {
				t.Errorf("error %v", err)
			}
			cost = -1
			if _, err = fetchFrom(t.Context(), rt, apiURL); err == nil || !strings.HasSuffix(err.Error(), "must be 0 or more") {
				t.Errorf("a negative cost: %v", err)
			}
		})
	})
	t.Run("the deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			own := limiter(t, 10)
			rt := transport(t, httpclient.Options{Limiter: own, MaxWait: 1500 * time.Millisecond}, newScript(answering(200)).serve)
			own.TryAcquire(2)
			if got := own.TryReserve(0); got.Allowed() {
				t.Fatal("it is not empty")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err := fetchFrom(ctx, rt, apiURL)
			limited, ok := errors.AsType[*httpclient.LimitedError](err)
			if !ok || limited.Reason != weir.ReasonDeadline || limited.RetryAfter != second || time.Since(start) != 0 {
				t.Errorf("error %v after %v", err, time.Since(start))
			}
			if status, err := fetchFrom(t.Context(), rt, apiURL); status != 200 || time.Since(start) != second {
				t.Errorf("within MaxWait: %d, %v", status, err)
			}
		})
	})
	t.Run("no permit is lost to a request that is not sent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			own := limiter(t, 10)
			rt := transport(t, httpclient.Options{Limiter: own, MaxRetries: httpclient.NoRetries},
				newScript(answering(429, "Retry-After: 30"), answering(200)).serve)
			if _, err := fetchFrom(t.Context(), rt, apiURL); err != nil {
				t.Fatal(err)
			}
			time.Sleep(second)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Millisecond, cancel)
			if _, err := fetchFrom(ctx, rt, apiURL); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			if n := own.Stats().Remaining; n != 2 {
				t.Errorf("%d permits are left, want 2", n)
			}
		})
	})
}

// TestTransportTimesOutInItsQueue: a deadline that ends while a request waits for the own limiter is a timeout to package
// net/http, as one is that ends while it waits for the server.
func TestTransportTimesOutInItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := slots(t, 2, weir.Options{QueueLimit: 10})
		lease := own.TryAcquire(2)
		defer lease.Release()
		rt := transport(t, httpclient.Options{Limiter: own}, newScript(answering(200)).serve)
		for name, c := range map[string]struct{ client, request time.Duration }{
			"of the client": {time.Second, time.Minute}, "of the context": {0, time.Second},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), c.request)
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, apiURL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := (&http.Client{Transport: rt, Timeout: c.client}).Do(r)
			cancel()
			if err == nil {
				_ = resp.Body.Close()
			}
			failed, ok := errors.AsType[*url.Error](err)
			if !ok || !failed.Timeout() || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v is not a timeout", name, err)
			}
		}
		why := errors.New("why")
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(why) })
		if _, err := fetchFrom(ctx, rt, apiURL); !errors.Is(err, why) {
			t.Errorf("error %v, want the cause", err)
		}
	})
}

// TestTransportHoldsSlotsUntilTheBodyEnds is about a limit of requests at a time.
func TestTransportHoldsSlotsUntilTheBodyEnds(t *testing.T) {
	own := slots(t, 1, weir.Options{Name: "own"})
	for name, end := range map[string]func(body io.ReadCloser) error{
		"closed": io.ReadCloser.Close,
		"read":   func(body io.ReadCloser) error { _, err := io.Copy(io.Discard, body); return err },
	} {
		rt := transport(t, httpclient.Options{Limiter: own}, func(*http.Request) (*http.Response, error) { return says(200), nil })
		resp, err := rt.RoundTrip(request(http.MethodGet))
		if err != nil {
			t.Fatal(err)
		}
		if own.Stats().Remaining != 0 {
			t.Errorf("%s: the slot is free before the body ends", name)
		}
		if _, err := fetchFrom(t.Context(), rt, apiURL); !errors.Is(err, httpclient.ErrLimited) {
			t.Errorf("%s: a second request: %v", name, err)
		}
		if err := end(resp.Body); err != nil || own.Stats().Remaining != 1 {
			t.Errorf("%s: %v, the slot is not free", name, err)
		}
		_ = resp.Body.Close()
		if own.Stats().Remaining != 1 {
			t.Errorf("%s: released twice", name)
		}
	}
	failing := transport(t, httpclient.Options{Limiter: own}, func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })
	if _, err := fetchFrom(t.Context(), failing, apiURL); !errors.Is(err, io.ErrUnexpectedEOF) || own.Stats().Remaining != 1 {
		t.Errorf("without an answer: %v, %+v", err, own.Stats())
	}
}

// half is a connection that notes what is written, and whether that has ended.
type half struct {
	io.ReadCloser
	bytes.Buffer

	ended bool
}

func (h *half) Read(p []byte) (int, error) { return h.ReadCloser.Read(p) }

func (h *half) CloseWrite() error {
	h.ended = true
	return nil
}

// TestTransportLeasesUpgradedConnections: what the body of a connection that has left HTTP can do, it can also with a lease.
func TestTransportLeasesUpgradedConnections(t *testing.T) {
	own := slots(t, 1, weir.Options{Name: "own"})
	for _, ends := range []bool{false, true} {
		wire := new(half)
		rt := transport(t, httpclient.Options{Limiter: own}, func(*http.Request) (*http.Response, error) {
			resp := says(101)
			wire.ReadCloser, resp.Body = resp.Body, wire
			if !ends {
				resp.Body = struct {
					io.ReadCloser
					io.Writer
				}{wire.ReadCloser, wire}
			}
			return resp, nil
		})
		resp, err := rt.RoundTrip(request(http.MethodGet))
		if err != nil {
			t.Fatal(err)
		}
		if w, ok := resp.Body.(io.Writer); !ok {
			t.Error("an upgraded connection cannot be written to")
		} else if _, err := w.Write([]byte("x")); err != nil || wire.String() != "x" {
			t.Errorf("written %q, %v", wire.String(), err)
		}
		stream, ok := resp.Body.(interface{ CloseWrite() error })
		if ok != ends {
			t.Errorf("CloseWrite is there: %t, want %t", ok, ends)
		}
		if ok && (stream.CloseWrite() != nil || !wire.ended || own.Stats().Remaining != 0) {
			t.Errorf("the end of one direction: %t, %+v", wire.ended, own.Stats())
		}
		if err := resp.Body.Close(); err != nil || own.Stats().Remaining != 1 {
			t.Errorf("%v, %+v", err, own.Stats())
		}
	}
}

// TestTransportOfAChain is about several own limits, one of which has slots.
func TestTransportOfAChain(t *testing.T) {
	one := slots(t, 1, weir.Options{Name: "slots"})
	chain, err := weir.NewChain(bucket(t, weir.TokenBucket(weir.Rate{}, 0), weir.Options{Name: "bucket"}), one)
	if err != nil {
		t.Fatal(err)
	}
	rt := transport(t, httpclient.Options{Limiter: chain}, func(*http.Request) (*http.Response, error) { return says(200), nil })
	resp, err := rt.RoundTrip(request(http.MethodGet))
	if err != nil || one.Stats().Remaining != 0 {
		t.Fatalf("%v, %+v", err, one.Stats())
	}
	if err := resp.Body.Close(); err != nil || one.Stats().Remaining != 1 {
		t.Errorf("%v, %+v", err, one.Stats())
	}
}

// TestBaseThatPanicsKeepsNothing: in a server that recovers, a panic of Base must not take a permit for ever, nor a place in the
// table of hosts.
func TestBaseThatPanicsKeepsNothing(t *testing.T) {
	own := slots(t, 1, weir.Options{})
	tr, err := httpclient.New(httpclient.Options{
		Limiter: own, MaxHosts: 1,
		Base: roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost {
				panic("boom")
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of Base does not come through")
			}
		}()
		_, _ = tr.RoundTrip(request(http.MethodPost)) //nolint:bodyclose // there is no response
	}()
	if s := own.Stats(); s.Remaining != 1 {
		t.Errorf("%d permits remain, want 1", s.Remaining)
	}
	if s, _ := tr.Status("api.example.com"); s.InFlight != 0 || s.Sent != 1 {
		t.Errorf("the host has %+v", s)
	}
	other := request(http.MethodGet)
	other.URL.Host = "other.example.com"
	resp, err := tr.RoundTrip(other)
	if err != nil {
		t.Fatalf("there is no room for another host: %v", err)
	}
	_ = resp.Body.Close()
}
