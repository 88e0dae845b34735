//go:build !race

package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
)

func TestAdmittedAllocations(t *testing.T) {
	w := httptest.NewRecorder()
	r := request(http.MethodGet, "/")
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	v6 := request(http.MethodGet, "/")
	v6.RemoteAddr = "[2001:db8::1]:80"
	keyed, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(1e9), 1e9), weir.KeyedOptions{Name: "per-client"})
	if err != nil {
		t.Fatal(err)
	}
	one := limit(t, httplimit.Options{Limiter: bucket(t, weir.TokenBucket(weir.PerSecond(1e9), 1e9), weir.Options{})})(next)
	byClient := limit(t, httplimit.Options{Keyed: keyed})(next)
	for _, c := range []struct {
		name    string
		handler http.Handler
		request *http.Request
		most    float64
	}{{"one limiter", one, r, 4}, {"by IPv4 client", byClient, r, 4}, {"by IPv6 client", byClient, v6, 5}} {
		if n := testing.AllocsPerRun(200, func() {
			clear(w.Header())
			c.handler.ServeHTTP(w, c.request)
		}); n > c.most {
			t.Errorf("%s: %v allocations, want %v", c.name, n, c.most)
		}
	}
}
