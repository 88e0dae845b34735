package llmclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/examples/integrations/llmclient"
	"github.com/weirhq/weir/httpclient"
)

// provider answers each request with as many tokens as its prompt says, or with the status that it is told.
type provider struct {
	usage  atomic.Int64
	status atomic.Int64
	asked  atomic.Int64
	header http.Header
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.asked.Add(1)
	var request llmclient.Request
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	maps.Copy(w.Header(), p.header)
	if status := p.status.Load(); status != 0 {
		w.WriteHeader(int(status))
		return
	}
	answer := llmclient.Answer{Text: "yes"}
	answer.Usage.TotalTokens = p.usage.Load()
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(err)
	}
}

// connect starts the provider, and answers a client of it: 10 requests and 6000 tokens a minute for each model.
func connect(t *testing.T, p *provider) *llmclient.Client {
	t.Helper()
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	transport, err := httpclient.New(httpclient.Options{Base: server.Client().Transport, MaxWait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, server.URL, transport)
}

func newClient(t *testing.T, url string, transport http.RoundTripper) *llmclient.Client {
	t.Helper()
	client, err := llmclient.New(llmclient.Options{
		URL: url, HTTP: &http.Client{Transport: transport}, RequestsPerMinute: 10, TokensPerMinute: 6000,
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// near checks what is left, to which some may have come back since the test began.
func near(t *testing.T, began time.Time, c *llmclient.Client, wantRequests, wantTokens int64) {
	t.Helper()
	requests, tokens := c.Remaining("m")
	back := 1 + int64(time.Since(began)/time.Second)
	if requests < wantRequests || requests > wantRequests+1+back/6 || tokens < wantTokens || tokens > wantTokens+100*back {
		t.Errorf("%d requests and %d tokens are left, want %d and %d", requests, tokens, wantRequests, wantTokens)
	}
}

func TestActualUsageIsCharged(t *testing.T) {
	began := time.Now()
	p := &provider{}
	c := connect(t, p)
	p.usage.Store(700)
	answer, err := c.Complete(t.Context(), llmclient.Request{Model: "m", Prompt: strings.Repeat("word ", 400), MaxTokens: 2000})
	if err != nil || answer.Text != "yes" {
		t.Fatal(answer, err)
	}
	near(t, began, c, 9, 5300) // 2500 were reserved, 700 were used
	p.usage.Store(4000)
	if _, err := c.Complete(t.Context(), llmclient.Request{Model: "m", MaxTokens: 1000}); err != nil {
		t.Fatal(err)
	}
	near(t, began, c, 8, 1300) // 1000 were reserved, 4000 were used
}

func TestRequestThatIsTooLargeIsToldNever(t *testing.T) {
	began := time.Now()
	p := &provider{}
	c := connect(t, p)
	_, err := c.Complete(t.Context(), llmclient.Request{Model: "m", MaxTokens: 6001})
	if !errors.Is(err, llmclient.ErrTooLarge) || !strings.Contains(err.Error(), "6001, of at most 6000") {
		t.Errorf("the error is %v", err)
	}
	if p.asked.Load() > 0 {
		t.Errorf("the provider was asked %d times", p.asked.Load())
	}
	near(t, began, c, 10, 6000)
}

func TestBothLimitsOrNone(t *testing.T) {
	began := time.Now()
	p := &provider{}
	c := connect(t, p)
	p.usage.Store(5900)
	if _, err := c.Complete(t.Context(), llmclient.Request{Model: "m", MaxTokens: 5900}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for range 5 {
		_, err := c.Complete(ctx, llmclient.Request{Model: "m", MaxTokens: 5000})
		limited, ok := errors.AsType[*llmclient.LimitedError](err)
		if !ok || limited.Limit != "tokens" || limited.RetryAfter > time.Minute ||
			limited.RetryAfter < 48*time.Second-time.Since(began) {
			t.Fatalf("the error is %v", err)
		}
	}
	near(t, began, c, 9, 100) // the requests that were short of tokens have cost none
	if _, err := c.Complete(ctx, llmclient.Request{Model: "another", MaxTokens: 5000}); err != nil {
		t.Errorf("another model: %v", err)
	}
}

func TestRefusedRequestUsesNoTokens(t *testing.T) {
	began := time.Now()
	p := &provider{}
	c := connect(t, p)
	p.status.Store(http.StatusInternalServerError)
	if _, err := c.Complete(t.Context(), llmclient.Request{Model: "m", MaxTokens: 3000}); err == nil {
		t.Fatal("it was served")
	}
	near(t, began, c, 9, 6000)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Complete(canceled, llmclient.Request{Model: "m", MaxTokens: 3000}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	near(t, began, c, 9, 6000)
}

func TestRequestThatIsLostHasCostWhatWasReserved(t *testing.T) {
	began := time.Now()
	c := newClient(t, "http://provider.test/", lost{})
	if _, err := c.Complete(t.Context(), llmclient.Request{Model: "m", MaxTokens: 3000}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the error is %v", err)
	}
	near(t, began, c, 9, 3000)
}

// lost is a connection that breaks after the request.
type lost struct{}

func (lost) RoundTrip(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

// TestProviderIsObeyed is about a provider whose limit is lower than that of the client: what it says in its header holds
// the next request back.
func TestProviderIsObeyed(t *testing.T) {
	began := time.Now()
	p := &provider{header: http.Header{
		"X-Ratelimit-Limit-Requests": {"1"}, "X-Ratelimit-Remaining-Requests": {"0"}, "X-Ratelimit-Reset-Requests": {"1m0s"},
	}}
	c := connect(t, p)
	if _, err := c.Complete(t.Context(), llmclient.Request{Model: "m", MaxTokens: 10}); err != nil {
		t.Fatal(err)
	}
	_, err := c.Complete(t.Context(), llmclient.Request{Model: "m", MaxTokens: 10})
	if !errors.Is(err, httpclient.ErrLimited) || p.asked.Load() != 1 {
		t.Errorf("the error is %v, and the provider was asked %d times", err, p.asked.Load())
	}
	near(t, began, c, 9, 5990) // what was not sent has cost nothing
}

// direct calls a handler without a connection, for virtual time.
type direct struct{ http.Handler }

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Result(), nil
}

func TestRequestsWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{}
		p.usage.Store(1000)
		c := newClient(t, "http://provider.test/", direct{p})
		start := time.Now()
		var wait sync.WaitGroup
		for range 12 {
			wait.Go(func() {
				if _, err := c.Complete(t.Context(), llmclient.Request{Model: "m", MaxTokens: 1000}); err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		// 6 at once, and one every 10 s, by the limit of tokens.
		if took := time.Since(start); took != time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}
