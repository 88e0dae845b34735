package meteredclient_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/examples/integrations/meteredclient"
	"github.com/weirhq/weir/httpclient"
)

// api counts its requests, and answers with the status that it is told.
func api(t *testing.T, asked *atomic.Int64, status int) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if status != http.StatusOK {
			w.Header().Set("Retry-After", "60")
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		server.Close()
	})
	return server.URL
}

// get sends a request that may wait.
func get(t *testing.T, client *http.Client, url string, within time.Duration) (status int, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func TestBurstAndThenThePace(t *testing.T) {
	for name, c := range map[string]struct {
		env   map[string]string
		burst int64
	}{
		"preset":          {nil, 5},
		"environment":     {map[string]string{"GEMINI_BURST": "2", "GEMINI_TOKENS_PER_MINUTE": "6"}, 2},
		"no numbers":      {map[string]string{"GEMINI_BURST": "many"}, 5},
		"out of range":    {map[string]string{"GEMINI_BURST": "0", "GEMINI_TOKENS_PER_MINUTE": "-1"}, 5},
		"not set at all ": {map[string]string{"GEMINI_BURST": ""}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GEMINI_BURST", "")
			t.Setenv("GEMINI_TOKENS_PER_MINUTE", "")
			for variable, value := range c.env {
				t.Setenv(variable, value)
			}
			for !burst(t, c.burst) {
				t.Log("the machine has stood still for too long: once more")
			}
		})
	}
}

// burst uses a new client, and reports whether that was fast enough to show anything.
func burst(t *testing.T, permits int64) bool {
	t.Helper()
	client, err := meteredclient.New()
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	url, began := api(t, &asked, http.StatusOK), time.Now()
	for range permits {
		status, failure := get(t, client, url, time.Minute)
		if failure != nil || status != http.StatusOK {
			t.Fatal(status, failure)
		}
	}
	// The next permit is 7.5 s away, and the request has 2 s: it is told so, and not sent.
	_, err = get(t, client, url, 2*time.Second)
	if time.Since(began) > 2*time.Second {
		return false
	}
	limited, ok := errors.AsType[*httpclient.LimitedError](err)
	if !ok || limited.RetryAfter < 2*time.Second || limited.RetryAfter > 10*time.Second {
		t.Errorf("the error is %v", err)
	}
	if asked.Load() != permits {
		t.Errorf("the API was asked %d times", asked.Load())
	}
	return true
}

func TestRefusalOfTheAPIHoldsRequestsBack(t *testing.T) {
	t.Setenv("GEMINI_BURST", "")
	client, err := meteredclient.New()
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	url := api(t, &asked, http.StatusTooManyRequests)
	if status, err := get(t, client, url, time.Minute); err != nil || status != http.StatusTooManyRequests {
		t.Fatal(status, err)
	}
	if _, err := get(t, client, url, 2*time.Second); !errors.Is(err, httpclient.ErrLimited) || asked.Load() != 1 {
		t.Errorf("the error is %v, and the API was asked %d times", err, asked.Load())
	}
}
