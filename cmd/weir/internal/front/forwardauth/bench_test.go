package forwardauth_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/forwardauth"
	"github.com/weirhq/weir/policy"
)

// blank is a response whose body is dropped.
type blank struct{ header http.Header }

func (b *blank) Header() http.Header         { return b.header }
func (b *blank) Write(p []byte) (int, error) { return len(p), nil }
func (b *blank) WriteHeader(int)             {}

// BenchmarkForwardAuth is a request that is allowed, without the HTTP server around it.
func BenchmarkForwardAuth(b *testing.B) {
	engine, err := policy.NewEngine(&policy.Set{
		Policies: []policy.Policy{{
			Name: "p", Key: policy.ClientIP(), Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerSecond(1e9), 0)}},
		}},
		Rules: []policy.Rule{{Name: "r", Limits: []policy.Use{{Policy: "p"}}}},
	}, policy.EngineOptions{})
	if err != nil {
		b.Fatal(err)
	}
	h, err := forwardauth.New(forwardauth.Options{Decider: engine, Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/v1/auth", http.NoBody)
	r.RemoteAddr = "127.0.0.1:40000"
	for name, value := range map[string]string{
		"X-Forwarded-Method": "GET", "X-Forwarded-Uri": "/a?b", "X-Forwarded-Host": "example.com", "X-Forwarded-For": "203.0.113.7",
	} {
		r.Header.Set(name, value)
	}
	w := &blank{http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
}
