package httpclient_test

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/httpclient"
)

// TestTransportRetries is about which requests are sent again after which refusals.
func TestTransportRetries(t *testing.T) {
	post := func(body io.Reader, lines ...string) func(*testing.T) *http.Request {
		return func(t *testing.T) *http.Request {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, apiURL, body)
			if err != nil {
				t.Fatal(err)
			}
			maps.Copy(r.Header, header(lines...))
			return r
		}
	}
	plain := func(t *testing.T) *http.Request { return request(http.MethodGet).WithContext(t.Context()) }
	for _, c := range []struct {
		name    string
		request func(*testing.T) *http.Request
		refusal said
		retries int
		status  int
		times   []time.Duration
	}{
		{"429", plain, answering(429, "Retry-After: 5"), 0, 200, []time.Duration{0, 5 * time.Second}},
		{"429 that tells the reset", plain, answering(429, `RateLimit: "a";r=0;t=7`), 0, 200, []time.Duration{0, 7 * time.Second}},
		{"429 that says nothing", plain, answering(429), 0, 429, []time.Duration{0}},
		{"503", plain, answering(503, "Retry-After: 5"), 0, 200, []time.Duration{0, 5 * time.Second}},
		{"503 that says nothing", plain, answering(503), 0, 503, []time.Duration{0}},
		{"500", plain, answering(500, "Retry-After: 5"), 0, 500, []time.Duration{0}},
		{"403", plain, answering(403, "Retry-After: 5"), 0, 403, []time.Duration{0}},
		{"no retries", plain, answering(429, "Retry-After: 5"), httpclient.NoRetries, 429, []time.Duration{0}},
		{"out of a cache", plain, answering(429, "Retry-After: 5", "Age: 1"), 0, 429, []time.Duration{0}},
		{"after MaxWait", plain, answering(429, "Retry-After: 61"), 0, 429, []time.Duration{0}},
		{"POST with a body that can be read again", post(strings.NewReader("hello")), answering(429, "Retry-After: 5"), 0, 200, []time.Duration{0, 5 * time.Second}},
		{"POST with one that cannot", post(io.MultiReader(strings.NewReader("hello"))), answering(429, "Retry-After: 5"), 0, 429, []time.Duration{0}},
		{"POST and 503", post(strings.NewReader("hello")), answering(503, "Retry-After: 5"), 0, 503, []time.Duration{0}},
		{"POST and 503 with a key", post(strings.NewReader("hello"), "Idempotency-Key: 1"), answering(503, "Retry-After: 5"), 0, 200, []time.Duration{0, 5 * time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(c.refusal, answering(200))
				var bodies []string
				rt := transport(t, httpclient.Options{MaxRetries: c.retries}, func(r *http.Request) (*http.Response, error) {
					if r.Body != nil {
						text, err := io.ReadAll(r.Body)
						if err != nil {
							return nil, err
						}
						bodies = append(bodies, string(text))
					}
					return s.serve(r)
				})
				r := c.request(t)
				resp, err := rt.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				if text, err := io.ReadAll(resp.Body); resp.StatusCode != c.status || string(text) != "body" || err != nil {
					t.Errorf("status %d, %q, %v, want %d", resp.StatusCode, text, err, c.status)
				}
				expectTimes(t, s.times(), c.times...)
				for _, body := range bodies {
					if r.Method == http.MethodPost && body != "hello" {
						t.Errorf("the bodies are %q", bodies)
					}
				}
				st, _ := rt.Status("api.example.com")
				if int(st.Retried) != len(c.times)-1 || int(st.Sent) != len(c.times) || st.InFlight != 0 {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
}

// TestTransportRetriesAreNoStorm is about a server that refuses whatever comes.
func TestTransportRetriesAreNoStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(answering(429, "Retry-After: 0"))
		rt := transport(t, httpclient.Options{MaxRetries: 3}, s.serve)
		var wait sync.WaitGroup
		for range 5 {
			wait.Go(func() {
				if status, err := fetchFrom(t.Context(), rt, apiURL); status != 429 {
					t.Errorf("status %d, %v", status, err)
				}
			})
		}
		wait.Wait()
		at := s.times()
		if len(at) > 5*4 {
			t.Errorf("%d requests, want at most 20", len(at))
		}
		for i := 5; i < len(at); i++ { // five were on their way before the first answer
			if at[i]-at[i-1] < 100*time.Millisecond {
				t.Errorf("requests %d and %d came %v apart", i-1, i, at[i]-at[i-1])
			}
		}
	})
}

// TestTransportAnswersTheRefusalIfItCannotWait is about the answer of a request that would be sent again, but for another hold.
func TestTransportAnswersTheRefusalIfItCannotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		rt := transport(t, httpclient.Options{MaxWait: 30 * time.Second}, func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/slow" {
				<-slow
				return says(429, "Retry-After: 100"), nil
			}
			return says(429, "Retry-After: 10"), nil
		})
		start := time.Now()
		time.AfterFunc(5*time.Second, func() { close(slow) })
		var wait sync.WaitGroup
		for _, url := range []string{"https://api.example.com/slow", apiURL} {
			wait.Go(func() {
				status, err := fetchFrom(t.Context(), rt, url)
				if status != 429 || err != nil || time.Since(start) != 5*time.Second {
					t.Errorf("status %d, %v after %v", status, err, time.Since(start))
				}
			})
			synctest.Wait() // the slow one is on its way before the other is refused
		}
		wait.Wait()
	})
}

// TestTransportKeepsLongBodies is about refusals whose body is not thrown away.
func TestTransportKeepsLongBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("x", 100_000)
		rt := transport(t, httpclient.Options{}, func(*http.Request) (*http.Response, error) {
			resp := says(429, "Retry-After: 1")
			resp.Body = io.NopCloser(strings.NewReader(long))
			return resp, nil
		})
		resp, err := rt.RoundTrip(request(http.MethodGet))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if text, err := io.ReadAll(resp.Body); string(text) != long || err != nil {
			t.Errorf("%d bytes, %v", len(text), err)
		}
	})
}

// TestTransportAnswersTheRefusalIfItCannotBeRepeated is about bodies that break off.
func TestTransportAnswersTheRefusalIfItCannotBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := transport(t, httpclient.Options{}, newScript(answering(429, "Retry-After: 1")).serve)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, apiURL, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		r.GetBody = func() (io.ReadCloser, error) { return nil, io.ErrClosedPipe }
		resp, err := rt.RoundTrip(r)
		if err != nil || resp.StatusCode != http.StatusTooManyRequests || resp.Body.Close() != nil {
			t.Errorf("a body that cannot be had again: %v, %v", resp, err)
		}
		broken := transport(t, httpclient.Options{}, func(*http.Request) (*http.Response, error) {
			answer := says(429, "Retry-After: 1")
			answer.Body = io.NopCloser(io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF)))
			return answer, nil
		})
		if resp, err = broken.RoundTrip(request(http.MethodGet)); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if text, err := io.ReadAll(resp.Body); string(text) != "half" || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q, %v", text, err)
		}
	})
}
