package httpclient_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httpclient"
)

// TestTransportContention sends from many goroutines to a server that says this and that, and lets some of them give up: in the
// end no request waits, and nothing is on its way.
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
	rt := transport(t, httpclient.Options{
		MaxHosts: 3, MaxRetries: 1, MaxWait: 5 * time.Minute, AdmitWhenFull: true, ReleaseRate: weir.PerSecond(100_000),
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
				if _, err := fetchFrom(ctx, rt, fmt.Sprintf("https://%d.example.com/", i%3)); errors.Is(err, httpclient.ErrLimited) {
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
