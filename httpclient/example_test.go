package httpclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httpclient"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/manualclock"
)

var items = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "items") })

// obedient is a client that sends 5 requests a second at most, and waits where a server says that it should.
func obedient() (*http.Client, error) {
	own, err := weir.New(weir.TokenBucket(weir.PerSecond(5), 0), weir.Options{QueueLimit: 1000})
	if err != nil {
		return nil, err
	}
	transport, err := httpclient.New(httpclient.Options{Limiter: own, MaxWait: 30 * time.Second})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil
}

// report calls an API, and says when it can be called again if that would take too long.
func report(ctx context.Context, client *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if limited, ok := errors.AsType[*httpclient.LimitedError](err); ok {
		return fmt.Sprintf("%s is busy for another %v", limited.Host, limited.RetryAfter.Round(time.Minute)), nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// A client that obeys: the server has allowed one request an hour, and the second one is not even sent.
func ExampleNew() {
	limiter, err := weir.New(weir.FixedWindow(weir.PerHour(1)), weir.Options{Name: "hourly"})
	if err != nil {
		panic(err)
	}
	limit, err := httplimit.New(httplimit.Options{Limiter: limiter})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(limit(items))
	defer server.Close()

	client, err := obedient()
	if err != nil {
		panic(err)
	}
	for range 2 {
		text, err := report(context.Background(), client, server.URL)
		fmt.Println(strings.ReplaceAll(text, server.Listener.Addr().String(), "the API"), err)
	}
	fmt.Println(limiter.Stats().Refused, "refused")
	// Output:
	// items <nil>
	// the API is busy for another 5m0s <nil>
	// 0 refused
}

// meteredClient calls an API that is paid for: bursts of 5, 8 a minute.
func meteredClient() (*http.Client, error) {
	options, err := httpclient.MeteredAPI(httpclient.MeteredAPIOptions{})
	if err != nil {
		return nil, err
	}
	transport, err := httpclient.New(options)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport}, nil
}

// A client of a metered API.
func ExampleMeteredAPI() {
	if _, err := meteredClient(); err != nil {
		panic(err)
	}
	options, err := httpclient.MeteredAPI(httpclient.MeteredAPIOptions{
		LookupEnv: func(name string) (string, bool) {
			value, ok := map[string]string{"GEMINI_BURST": "50", "GEMINI_TOKENS_PER_MINUTE": "1000"}[name]
			return value, ok
		},
	})
	fmt.Println(options.Limiter.Peek(1).Limit, options.MaxWait, err)
	// Output: 50 30s <nil>
}

// ask sends a prompt, and pays for the tokens that the answer says it has used.
func ask(ctx context.Context, client *http.Client, url string) (tokens int64, err error) {
	ctx, cost := httpclient.WithSettlement(ctx)
	defer cost.Cancel() // if it was not committed
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"prompt":"?"}`))
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Tokens int64 `json:"tokens"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return 0, err
	}
	cost.Commit(answer.Tokens)
	return answer.Tokens, nil
}

// A client of a language model has 6000 tokens a day, and reserves 1000 of them for each prompt.
func ExampleWithSettlement() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"tokens":130}`) }))
	defer server.Close()
	tokens, err := weir.New(weir.TokenBucket(weir.PerDay(6000), 0), weir.Options{
		Name: "tokens", QueueLimit: 100_000, Clock: manualclock.New(0),
	})
	if err != nil {
		panic(err)
	}
	transport, err := httpclient.New(httpclient.Options{
		Limiter: tokens, Cost: func(*http.Request) int64 { return 1000 },
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(ask(context.Background(), &http.Client{Transport: transport}, server.URL))
	fmt.Println(tokens.Stats().Remaining, "tokens are left")
	// Output:
	// 130 <nil>
	// 5870 tokens are left
}
