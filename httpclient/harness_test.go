package httpclient_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
)

func request(method string) *http.Request {
	return httptest.NewRequestWithContext(context.Background(), method, apiURL, http.NoBody)
}

// bucket is a token bucket that stands still: 10/s, burst 20.
func bucket(tb testing.TB, limit weir.Limit, o weir.Options) *weir.Limiter {
	tb.Helper()
	if limit == weir.TokenBucket(weir.Rate{}, 0) {
		limit = weir.TokenBucket(weir.PerSecond(10), 20)
	}
	if o.Clock == nil {
		o.Clock = manualclock.New(0)
	}
	b, err := weir.New(limit, o)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func slots(tb testing.TB, limit int64, o weir.Options) *weir.Concurrency {
	tb.Helper()
	c, err := weir.NewConcurrency(limit, o)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func keyedLimit(t *testing.T, limit weir.Limit, o weir.KeyedOptions) *weir.Keyed[string] {
	t.Helper()
	k, err := weir.NewKeyed[string](limit, o)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// perClient is a keyed limiter that stands still.
func perClient(tb testing.TB, burst int64) *weir.Keyed[string] {
	tb.Helper()
	k, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(10), burst), weir.KeyedOptions{
		Name: "per-client", Clock: manualclock.New(0),
	})
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

// header makes a header of lines such as "Retry-After: 5".
func header(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		h.Add(name, strings.TrimPrefix(value, " "))
	}
	return h
}
