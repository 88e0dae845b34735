package httpclient_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httpclient"
)

// answered counts the requests that it answers.
type answered struct{ requests int }

// RoundTrip implements [http.RoundTripper].
func (a *answered) RoundTrip(r *http.Request) (*http.Response, error) {
	a.requests++
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: r,
	}, nil
}

// TestTransportSaysThatItsOwnLimitRefuses: the error of a request that the limit of the client refuses matches weir.ErrRefused through
// http.Client, carries the decision, and the request is not sent.
func TestTransportSaysThatItsOwnLimitRefuses(t *testing.T) {
	limiter, err := weir.New(weir.TokenBucket(weir.PerHour(1), 0), weir.Options{Name: "own"})
	if err != nil {
		t.Fatal(err)
	}
	keyed, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerHour(1), 0), weir.KeyedOptions{Name: "own"})
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]httpclient.Options{"limiter": {Limiter: limiter}, "keyed": {Keyed: keyed}} {
		base := new(answered)
		o.Base = base
		rt, err := httpclient.New(o)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: rt}
		for i := range 3 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://service.test/", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := client.Do(r)
			if response != nil {
				_ = response.Body.Close()
			}
			refused, ok := errors.AsType[*weir.RefusedError](err)
			switch {
			case i == 0 && err != nil:
				t.Errorf("%s: %v", name, err)
			case i > 0 && (!errors.Is(err, weir.ErrRefused) || !ok || refused.Decision.Allowed || refused.Decision.RetryAfter <= 0):
				t.Errorf("%s: request %d: %v, want a refusal", name, i, err)
			}
		}
		if base.requests != 1 {
			t.Errorf("%s: %d requests were sent", name, base.requests)
		}
	}
}
