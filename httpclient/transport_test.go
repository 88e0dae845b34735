package httpclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httpclient"
	"github.com/weirhq/weir/ratelimitfields"
)

// roundTrip is a server without a network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer func() { _ = r.Body.Close() }()
	}
	return f(r)
}

// says is an answer with this status and these lines in its header.
func says(status int, lines ...string) *http.Response {
	return &http.Response{StatusCode: status, Header: header(lines...), Body: io.NopCloser(strings.NewReader("body"))}
}

// noJitter makes times exact.
func noJitter() float64 { return 0 }

func transport(tb testing.TB, o httpclient.Options, server roundTrip) *httpclient.Transport {
	tb.Helper()
	o.Base = server
	if o.Random == nil {
		o.Random = noJitter
	}
	t, err := httpclient.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

// fetchFrom sends a request, and returns the status, 0 with an error.
func fetchFrom(ctx context.Context, t http.RoundTripper, url string) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := t.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Body.Close()
}

// script is a server that gives one answer after the other, and the last one for ever. It notes when it was asked.
type script struct {
	mu      sync.Mutex
	start   time.Time
	answers []said
	at      []time.Duration
}

func newScript(answers ...said) *script {
	return &script{start: time.Now(), answers: answers}
}

func (s *script) serve(*http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Since(s.start))
	answer := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	return says(answer.status, answer.lines...), nil
}

func (s *script) times() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.at)
}

// said is an answer that a script gives.
type said struct {
	status int
	lines  []string
}

func answering(status int, lines ...string) said { return said{status, lines} }

func expectTimes(t *testing.T, got []time.Duration, want ...time.Duration) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("sent at %v, want %v", got, want)
	}
}

const apiURL = "https://API.example.com:443/v1/items"

// TestTransportObeys is about answers after which nothing may be sent for a while.
func TestTransportObeys(t *testing.T) {
	for _, c := range []struct {
		name string
		hold time.Duration // 0: nothing is held
		with said
	}{
		{"nothing said", 0, answering(200)},
		{"Retry-After of 429", 30 * time.Second, answering(429, "Retry-After: 30")},
		{"Retry-After of 503", 30 * time.Second, answering(503, "Retry-After: 30")},
		{"Retry-After of 403, as GitHub has it", 30 * time.Second, answering(403, "Retry-After: 30")},
		{"Retry-After as a date", 30 * time.Second, answering(429, "Date: Sat, 21 Nov 2026 12:00:00 GMT", "Retry-After: Sat, 21 Nov 2026 12:00:30 GMT")},
		{"Retry-After of a redirection", 0, answering(302, "Retry-After: 30")},
		{"Retry-After of 200", 0, answering(200, "Retry-After: 30")},
		{"Retry-After of 0 is not at once", 100 * time.Millisecond, answering(429, "Retry-After: 0")},
		{"429 that says nothing", 100 * time.Millisecond, answering(429)},
		{"503 that says nothing", 0, answering(503)},
		{"a year", 5 * time.Minute, answering(429, "Retry-After: 31536000")},
		{"a Retry-After that overflows", 100 * time.Millisecond, answering(429, "Retry-After: 99999999999999999999")},
		{"a negative Retry-After", 100 * time.Millisecond, answering(429, "Retry-After: -5")},
		{"nothing left, on an admitted request", 40 * time.Second, answering(200, `RateLimit: "a";r=0;t=40`)},
		{"one left", 0, answering(200, `RateLimit: "a";r=1;t=40`)},
		{"nothing left of the second policy", 40 * time.Second, answering(200, `RateLimit: "a";r=5;t=10, "b";r=0;t=40`)},
		{"nothing left of two", 50 * time.Second, answering(200, `RateLimit: "a";r=0;t=50, "b";r=0;t=40`)},
		{"nothing left until nobody knows when", 0, answering(200, `RateLimit: "a";r=0`)},
		{"nothing left for ever", 5 * time.Minute, answering(200, `RateLimit: "a";r=0;t=999999999999999`)},
		{"slots in use", 0, answering(200, `RateLimit: "a";r=0;t=40`, `RateLimit-Policy: "a";q=4;qu="concurrent-requests"`)},
		{"draft -07", 40 * time.Second, answering(200, "RateLimit: limit=10, remaining=0, reset=40")},
		{"the old trio", 40 * time.Second, answering(200, "RateLimit-Limit: 10", "RateLimit-Remaining: 0", "RateLimit-Reset: 40")},
		{"X-RateLimit", 40 * time.Second, answering(200, "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 40")},
		{"OpenAI, no tokens", 61 * time.Second, answering(200, "x-ratelimit-remaining-requests: 5", "x-ratelimit-reset-requests: 1s",
			"x-ratelimit-remaining-tokens: 0", "x-ratelimit-reset-tokens: 1m1s")},
		{"Anthropic, no input tokens", 37 * time.Second, answering(200, "Date: Sat, 21 Nov 2026 12:00:00 GMT",
			"anthropic-ratelimit-input-tokens-remaining: 0", "anthropic-ratelimit-input-tokens-reset: 2026-11-21T12:00:37Z")},
		{"Retry-After counts more than t", 10 * time.Second, answering(429, "Retry-After: 10", `RateLimit: "a";r=0;t=40`)},
		{"Retry-After is later than t", 50 * time.Second, answering(429, "Retry-After: 50", `RateLimit: "a";r=0;t=40`)},
		{"out of a cache", 0, answering(200, "Age: 5", `RateLimit: "a";r=0;t=40`)},
		{"429 out of a cache", 0, answering(429, "Age: 5", "Retry-After: 30")},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(c.with, answering(200))
				rt := transport(t, httpclient.Options{MaxRetries: httpclient.NoRetries, MaxWait: weir.Never}, s.serve)
				for range 2 {
					if _, err := fetchFrom(t.Context(), rt, apiURL); err != nil {
						t.Error(err)
					}
				}
				expectTimes(t, s.times(), 0, c.hold)
			})
		})
	}
}

// TestTransportKeepsHostsApart is about a refusal that is no business of another host.
func TestTransportKeepsHostsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(answering(429, "Retry-After: 30"), answering(200))
		rt := transport(t, httpclient.Options{MaxRetries: httpclient.NoRetries}, s.serve)
		for _, url := range []string{apiURL, "https://b.example.com/", "https://api.example.com:8443/", "http://api.example.com/", "https://api.example.com/"} {
			if _, err := fetchFrom(t.Context(), rt, url); err != nil {
				t.Error(err)
			}
		}
		expectTimes(t, s.times(), 0, 0, 0, 30*time.Second, 30100*time.Millisecond)
	})
}

func TestTransportPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(answering(429, "Retry-After: 30"), answering(200))
		rt := transport(t, httpclient.Options{
			MaxRetries: httpclient.NoRetries,
			Partition:  func(r *http.Request) string { return r.Header.Get("Authorization") },
		}, s.serve)
		for _, token := range []string{"a", "b", "a"} {
			r := request(http.MethodGet)
			r.Header.Set("Authorization", token)
			if resp, err := rt.RoundTrip(r); err != nil || resp.Body.Close() != nil {
				t.Error(err)
			}
		}
		expectTimes(t, s.times(), 0, 0, 30*time.Second)
		if st, ok := rt.Status("a"); !ok || st.Sent != 2 || st.Refused != 1 {
			t.Errorf("status %+v, %v", st, ok)
		}
	})
}

// TestTransportReleasesAtThePaceOfTheLimit is about those who are held back together.
func TestTransportReleasesAtThePaceOfTheLimit(t *testing.T) {
	for _, c := range []struct {
		name string
		told []string
		step time.Duration
	}{
		{"by the policy", []string{`RateLimit: "a";r=0;t=10`, `RateLimit-Policy: "a";q=20;w=60`}, 3 * time.Second},
		{"by the limit and the longest reset", []string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 10"}, 2 * time.Second},
		{"by ReleaseRate", []string{"Retry-After: 10"}, 250 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(answering(429, c.told...), answering(200))
				rt := transport(t, httpclient.Options{
					MaxRetries: httpclient.NoRetries, MaxWait: weir.Never, ReleaseRate: weir.PerSecond(4),
				}, s.serve)
				if _, err := fetchFrom(t.Context(), rt, apiURL); err != nil {
					t.Fatal(err)
				}
				var wait sync.WaitGroup
				for range 20 {
					wait.Go(func() {
						if _, err := fetchFrom(t.Context(), rt, apiURL); err != nil {
							t.Error(err)
						}
					})
				}
				synctest.Wait()
				if st, _ := rt.Status("api.example.com"); st.Waiting != 20 || st.HeldFor != 10*time.Second || st.HeldBack != 20 || st.Sent != 1 {
					t.Errorf("status %+v", st)
				}
				wait.Wait()
				want := []time.Duration{0}
				for i := range 20 {
					want = append(want, 10*time.Second+time.Duration(i)*c.step)
				}
				expectTimes(t, s.times(), want...)
				// Once no request was held back for a while, requests are not held up any more.
				time.Sleep(time.Minute)
				for range 3 {
					if _, err := fetchFrom(t.Context(), rt, apiURL); err != nil {
						t.Error(err)
					}
				}
				last := s.times()[21:]
				expectTimes(t, last, last[0], last[0], last[0])
			})
		})
	}
}

// TestTransportJitter is about many clients that were refused together.
func TestTransportJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(answering(429, "Retry-After: 100"), answering(200))
		rt := transport(t, httpclient.Options{
			MaxRetries: httpclient.NoRetries, MaxWait: weir.Never, Jitter: 0.2, Random: func() float64 { return 0.5 },
		}, s.serve)
		for range 2 {
			if _, err := fetchFrom(t.Context(), rt, apiURL); err != nil {
				t.Error(err)
			}
		}
		expectTimes(t, s.times(), 0, 110*time.Second)
	})
}

// limitedServer counts as a server does, in fixed windows, and refuses what is beyond the limit.
type limitedServer struct {
	mu          sync.Mutex
	limit, used int64
	window      time.Duration
	end         time.Time
	latency     time.Duration
	uneven      bool
	refused     int
	served      int
}

func (l *limitedServer) serve(*http.Request) (*http.Response, error) {
	there, back := l.latency/2, l.latency/2
	if l.uneven {
		there, back = rand.N(l.latency), rand.N(l.latency)
	}
	time.Sleep(there)
	resp := l.decide()
	time.Sleep(back)
	return resp, nil
}

func (l *limitedServer) decide() *http.Response {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !now.Before(l.end) {
		l.used, l.end = 0, now.Add(l.window)
	}
	reset := int64((l.end.Sub(now) + time.Second - 1) / time.Second)
	if l.used == l.limit {
		l.refused++
		return says(429, fmt.Sprintf("Retry-After: %d", reset), fmt.Sprintf(`RateLimit: "w";r=0;t=%d`, reset))
	}
	l.used++
	l.served++
	return says(200, fmt.Sprintf(`RateLimit: "w";r=%d;t=%d`, l.limit-l.used, reset),
		fmt.Sprintf(`RateLimit-Policy: "w";q=%d;w=%d`, l.limit, int(l.window/time.Second)))
}

// TestTransportIsNotRefused runs callers against a server that sends its limit: once it is known, no request is refused.
func TestTransportIsNotRefused(t *testing.T) {
	for _, latency := range []time.Duration{0, 90 * time.Millisecond, 200 * time.Millisecond} {
		for _, spread := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				server := &limitedServer{limit: 20, window: 10 * time.Second, latency: latency, uneven: latency == 90*time.Millisecond}
				rt := transport(t, httpclient.Options{MaxWait: weir.Never, Spread: spread}, server.serve)
				if _, err := fetchFrom(t.Context(), rt, apiURL); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				var wait sync.WaitGroup
				for range 8 {
					wait.Go(func() {
						for range 25 {
							if status, err := fetchFrom(t.Context(), rt, apiURL); status != 200 {
								t.Errorf("status %d, %v", status, err)
							}
						}
					})
				}
				wait.Wait()
				// 200 requests at 2/s: 95 s at the least; what was held back comes back at the pace of the limit.
				if took := time.Since(start); server.refused != 0 || server.served != 201 || took > 130*time.Second {
					t.Errorf("latency %v, spread %v: %d served and %d refused in %v", latency, spread, server.served, server.refused, took)
				}
			})
		}
	}
}

func TestTransportSpreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(
			answering(200, `RateLimit: "a";r=3;t=60`), answering(200, `RateLimit: "a";r=2;t=60`), answering(200, `RateLimit: "a";r=1;t=45`),
			answering(200, `RateLimit: "a";r=0;t=30`), answering(200))
		rt := transport(t, httpclient.Options{MaxWait: weir.Never, Spread: true}, s.serve)
		for range 5 {
			if _, err := fetchFrom(t.Context(), rt, apiURL); err != nil {
				t.Error(err)
			}
		}
		expectTimes(t, s.times(), 0, 0, 20*time.Second, 40*time.Second, 70*time.Second)
	})
}

// TestTransportFailsAtOnceWhereItWouldBeTooLate: a request whose wait would outlast its deadline fails at once.
func TestTransportFailsAtOnceWhereItWouldBeTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(answering(200, `RateLimit: "day";r=0;t=90`), answering(200))
		rt := transport(t, httpclient.Options{}, s.serve)
		client := &http.Client{Transport: rt, Timeout: 10 * time.Second}
		if _, err := fetchFrom(t.Context(), rt, apiURL); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		body := &closing{Reader: strings.NewReader("x")}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, apiURL, body)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Do(r) //nolint:bodyclose // there is none
		limited, ok := errors.AsType[*httpclient.LimitedError](err)
		if !ok || !errors.Is(err, httpclient.ErrLimited) || limited.RetryAfter != 90*time.Second || !limited.Server ||
			limited.Limit != "day" || limited.Host != "api.example.com" || limited.Reason != weir.ReasonDeadline || !limited.Timeout() {
			t.Errorf("error %v, %+v", err, limited)
		}
		if !strings.Contains(err.Error(), "1 minute 30 seconds") || !strings.Contains(err.Error(), `"day"`) {
			t.Errorf("error %v says neither how long nor which limit", err)
		}
		// MaxWait counts as well, and 1 min is its default.
		if _, err = fetchFrom(t.Context(), rt, apiURL); !errors.Is(err, httpclient.ErrLimited) {
			t.Errorf("beyond MaxWait: %v", err)
		}
		if took := time.Since(start); took != 0 || !body.closed {
			t.Errorf("it took %v, the body is closed: %v", took, body.closed)
		}
		if st, _ := rt.Status("api.example.com"); st.NotSent != 2 || st.HeldFor != 90*time.Second || st.Sent != 1 {
			t.Errorf("status %+v", st)
		}
		expectTimes(t, s.times(), 0)
	})
}

type closing struct {
	io.Reader

	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

// TestTransportFailsThoseWhoWaitWhenTheWaitGrows is about a hold that comes while requests wait for a shorter one.
func TestTransportFailsThoseWhoWaitWhenTheWaitGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		s := newScript(answering(200, `RateLimit: "a";r=0;t=20`), answering(200))
		rt := transport(t, httpclient.Options{MaxWait: 30 * time.Second, MaxRetries: httpclient.NoRetries}, func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/slow" {
				<-slow
				return says(429, "Retry-After: 100"), nil
			}
			return s.serve(r)
		})
		var wait sync.WaitGroup
		wait.Go(func() { _, _ = fetchFrom(t.Context(), rt, "https://api.example.com/slow") })
		synctest.Wait()
		if _, err := fetchFrom(t.Context(), rt, apiURL); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for range 3 {
			wait.Go(func() {
				_, err := fetchFrom(t.Context(), rt, apiURL)
				limited, ok := errors.AsType[*httpclient.LimitedError](err)
				if !ok || limited.RetryAfter < 100*time.Second || time.Since(start) != 5*time.Second {
					t.Errorf("error %v after %v", err, time.Since(start))
				}
			})
		}
		time.Sleep(5 * time.Second)
		close(slow)
		wait.Wait()
		if st, _ := rt.Status("api.example.com"); st.Waiting != 0 || st.NotSent != 3 || st.InFlight != 0 {
			t.Errorf("status %+v", st)
		}
	})
}

func TestTransportWaitsAreCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(answering(429, "Retry-After: 30"), answering(200))
		rt := transport(t, httpclient.Options{MaxRetries: httpclient.NoRetries}, s.serve)
		if _, err := fetchFrom(t.Context(), rt, apiURL); err != nil {
			t.Fatal(err)
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		start := time.Now()
		var wait sync.WaitGroup
		wait.Go(func() {
			if _, err := fetchFrom(ctx, rt, apiURL); !errors.Is(err, gone) || time.Since(start) != 10*time.Second {
				t.Errorf("error %v after %v", err, time.Since(start))
			}
		})
		synctest.Wait()
		wait.Go(func() {
			if status, err := fetchFrom(t.Context(), rt, apiURL); status != 200 || time.Since(start) != 30*time.Second {
				t.Errorf("the second: %d, %v after %v", status, err, time.Since(start))
			}
		})
		time.Sleep(10 * time.Second)
		cancel(gone)
		wait.Wait()
		if _, err := fetchFrom(ctx, rt, apiURL); !errors.Is(err, gone) {
			t.Errorf("with a context that has ended: %v", err)
		}
		expectTimes(t, s.times(), 0, 30*time.Second)
	})
}

func TestTransportQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(answering(429, "Retry-After: 30"), answering(200))
		rt := transport(t, httpclient.Options{MaxRetries: httpclient.NoRetries, QueueLimit: 2}, s.serve)
		if _, err := fetchFrom(t.Context(), rt, apiURL); err != nil {
			t.Fatal(err)
		}
		var wait sync.WaitGroup
		for range 2 {
			wait.Go(func() { _, _ = fetchFrom(t.Context(), rt, apiURL) })
		}
		synctest.Wait()
		_, err := fetchFrom(t.Context(), rt, apiURL)
		limited, ok := errors.AsType[*httpclient.LimitedError](err)
		if !ok || limited.Reason != weir.ReasonQueueFull || limited.RetryAfter != 30*time.Second || limited.Timeout() {
			t.Errorf("error %v", err)
		}
		wait.Wait()
	})
}

// closeIdle is a RoundTripper with connections.
type closeIdle struct {
	roundTrip

	closed bool
}

func (c *closeIdle) CloseIdleConnections() { c.closed = true }

func TestTransportClosesIdleConnections(t *testing.T) {
	base := &closeIdle{}
	rt, err := httpclient.New(httpclient.Options{Base: base})
	if err != nil {
		t.Fatal(err)
	}
	(&http.Client{Transport: rt}).CloseIdleConnections()
	if !base.closed {
		t.Error("the connections are not closed")
	}
	transport(t, httpclient.Options{}, nil).CloseIdleConnections() // it has none
}

func TestLimitedErrorSaysWhy(t *testing.T) {
	for want, e := range map[string]*httpclient.LimitedError{
		`weir: httpclient: request not sent to "h": the limit of the server "day" (deadline); it would have had to wait for 1 second`: {
			Host: "h", Limit: "day", Server: true, Reason: weir.ReasonDeadline, RetryAfter: 999_962_028,
		},
		`weir: httpclient: request not sent to "h": the limit of the client "own" (never); no later attempt can succeed`: {
			Host: "h", Limit: "own", Reason: weir.ReasonNever, RetryAfter: weir.Never,
		},
		`weir: httpclient: request not sent to "h": the limit of the client (table-full)`: {Host: "h", Reason: weir.ReasonTableFull},
	} {
		if got := e.Error(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestTransportMemoryIsBounded is about a client that talks to ever new hosts.
func TestTransportMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(answering(429, "Retry-After: 30"), answering(200))
		o := httpclient.Options{MaxHosts: 3, MaxRetries: httpclient.NoRetries, MaxWait: time.Second}
		rt := transport(t, o, s.serve)
		fetch := func(i int) error {
			_, err := fetchFrom(t.Context(), rt, fmt.Sprintf("https://%d.example.com/", i))
			return err
		}
		for i := range 100 {
			if err := fetch(i); err != nil {
				t.Fatal(err)
			}
		}
		known := 0
		for i := range 100 {
			if _, ok := rt.Status(fmt.Sprintf("%d.example.com", i)); ok {
				known++
			}
		}
		if _, held := rt.Status("0.example.com"); known != 3 || !held {
			t.Errorf("%d hosts are known, that which is held back: %v", known, held)
		}
		if err := fetch(0); !errors.Is(err, httpclient.ErrLimited) {
			t.Errorf("a host was forgotten while it was held back: %v", err)
		}
	})
	for _, full := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(answering(429, "Retry-After: 30"))
			rt := transport(t, httpclient.Options{MaxHosts: 1, MaxRetries: httpclient.NoRetries, AdmitWhenFull: full}, s.serve)
			if _, err := fetchFrom(t.Context(), rt, apiURL); err != nil {
				t.Fatal(err)
			}
			_, err := fetchFrom(t.Context(), rt, "https://other.example.com/")
			limited, refused := errors.AsType[*httpclient.LimitedError](err)
			if refused != (!full) || refused && limited.Reason != weir.ReasonTableFull {
				t.Errorf("%v: %v", full, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // a server with ever new limits
		n := 0
		rt := transport(t, httpclient.Options{}, func(*http.Request) (*http.Response, error) {
			n++
			return says(200, fmt.Sprintf(`RateLimit: "%d";r=900;t=100, "x%d";r=900;t=100`, n, n)), nil
		})
		for range 50 {
			if _, err := fetchFrom(t.Context(), rt, apiURL); err != nil {
				t.Fatal(err)
			}
		}
		if st, _ := rt.Status("api.example.com"); len(st.Limits) != 8 {
			t.Errorf("%d limits are known, want 8", len(st.Limits))
		}
	})
}

// TestTransportStatusTellsWhatWasLearnt reads the limits of a server.
func TestTransportStatusTellsWhatWasLearnt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(answering(200, `RateLimit: "a";r=5;t=60`, `RateLimit-Policy: "a";q=10;w=60`), answering(200))
		rt := transport(t, httpclient.Options{}, s.serve)
		if _, ok := rt.Status("api.example.com"); ok {
			t.Error("it knows a host that was never asked")
		}
		for range 2 {
			if _, err := fetchFrom(t.Context(), rt, apiURL); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(20 * time.Second)
		st, ok := rt.Status("API.example.com")
		want := ratelimitfields.ToldLimit{Name: "a", Unit: ratelimitfields.Requests, Limit: 10, Window: time.Minute, Remaining: 4, Reset: 40 * time.Second}
		if !ok || len(st.Limits) != 1 || st.Limits[0].Name != want.Name || st.Limits[0].Remaining != 4 || st.Limits[0].Reset != want.Reset ||
			st.Limits[0].Limit != 10 || st.Limits[0].Window != time.Minute || st.Sent != 2 {
			t.Errorf("%+v, %v", st, ok)
		}
		time.Sleep(40 * time.Second)
		if st, _ = rt.Status("api.example.com"); len(st.Limits) != 0 {
			t.Errorf("after the reset: %+v", st)
		}
	})
}

// TestTransportIgnoresAnswersOutOfOrder is about an early answer that comes late.
func TestTransportIgnoresAnswersOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := transport(t, httpclient.Options{}, func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/slow" {
				time.Sleep(5 * time.Second)
				return says(200, `RateLimit: "a";r=9;t=60`), nil
			}
			return says(200, `RateLimit: "a";r=1;t=60`), nil
		})
		var wait sync.WaitGroup
		wait.Go(func() { _, _ = fetchFrom(t.Context(), rt, "https://api.example.com/slow") })
		synctest.Wait()
		if _, err := fetchFrom(t.Context(), rt, apiURL); err != nil {
			t.Fatal(err)
		}
		wait.Wait()
		if st, _ := rt.Status("api.example.com"); st.Limits[0].Remaining != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestOptionsThatCannotBeUsed(t *testing.T) {
	limiter := bucket(t, weir.TokenBucket(weir.Rate{}, 0), weir.Options{})
	for want, o := range map[string]httpclient.Options{
		"Limiter is a nil *weir.Limiter":           {Limiter: (*weir.Limiter)(nil)},
		"Keyed is a nil *weir.Keyed[string]":       {Keyed: (*weir.Keyed[string])(nil)},
		"Keyed is set beside Limiter":              {Limiter: limiter, Keyed: perClient(t, 1)},
		"MaxWait is -1s":                           {MaxWait: -time.Second},
		"MaxHold is 1ms: must be from 1s to 24h":   {MaxHold: time.Millisecond},
		"MaxHold is 25h0m0s":                       {MaxHold: 25 * time.Hour},
		"MaxRetries is 11":                         {MaxRetries: 11},
		"MaxRetries is -2":                         {MaxRetries: -2},
		"Jitter is 1.5":                            {Jitter: 1.5},
		"QueueLimit is -1":                         {QueueLimit: -1},
		"MaxHosts is -1":                           {MaxHosts: -1},
		"ReleaseRate is 0/s: must be a valid rate": {ReleaseRate: weir.PerSecond(0)},
	} {
		if _, err := httpclient.New(o); err == nil || !strings.HasPrefix(err.Error(), "weir: httpclient.Options.") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want an error about %s", err, want)
		}
	}
}

// BenchmarkTransport is what a Transport adds to a request.
func BenchmarkTransport(b *testing.B) {
	for _, c := range []struct {
		name  string
		lines []string
	}{
		{"nothing told", []string{"Content-Type: text/plain", "Date: Sat, 21 Nov 2026 12:00:00 GMT"}},
		{"RateLimit", []string{`RateLimit: "a";r=900000;t=60`, `RateLimit-Policy: "a";q=1000000;w=60`}},
		{"OpenAI", []string{
			"x-ratelimit-remaining-requests: 900000", "x-ratelimit-reset-requests: 1m", "x-ratelimit-limit-requests: 1000000",
			"x-ratelimit-remaining-tokens: 900000", "x-ratelimit-reset-tokens: 1m", "x-ratelimit-limit-tokens: 1000000",
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			answer := &http.Response{StatusCode: http.StatusOK, Header: header(c.lines...), Body: http.NoBody}
			rt := transport(b, httpclient.Options{}, func(*http.Request) (*http.Response, error) { return answer, nil })
			r := request(http.MethodGet)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := rt.RoundTrip(r); err != nil { //nolint:bodyclose // it has none
					b.Fatal(err)
				}
			}
		})
	}
}
