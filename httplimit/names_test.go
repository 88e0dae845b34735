package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

// TestNoFieldsHidesNames: with NoFields neither a field nor a body has the name of a policy, whichever refuses.
func TestNoFieldsHidesNames(t *testing.T) {
	headers := ratelimitfields.Headers{Fields: ratelimitfields.NoFields}
	hour := weir.TokenBucket(weir.PerHour(1), 0)
	engine, err := policy.NewEngine(&policy.Set{
		Policies: []policy.Policy{
			{Name: "secret", Limits: []policy.Limit{{Limit: hour}}}, {Name: "secret-too", Limits: []policy.Limit{{Limit: hour}}},
		},
		Rules: []policy.Rule{{Name: "all", Limits: []policy.Use{{Policy: "secret"}, {Policy: "secret-too"}}}},
	}, policy.EngineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	gate, err := httplimit.NewGate(httplimit.GateOptions{Engine: engine, Headers: headers})
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := weir.New(weir.TokenBucket(weir.PerHour(1), 0), weir.Options{Name: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	middleware, err := httplimit.New(httplimit.Options{Limiter: limiter, Headers: headers})
	if err != nil {
		t.Fatal(err)
	}
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for name, h := range map[string]http.Handler{"gate": gate.Handler(next), "middleware": middleware(next)} {
		for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			for _, accept := range []string{"application/json", "text/plain"} {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
				r.Header.Set("Accept", accept)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				var all strings.Builder
				_ = w.Header().Write(&all)
				all.WriteString(w.Body.String())
				if w.Code != want || strings.Contains(all.String(), "secret") {
					t.Errorf("%s: %d, want %d\n%s", name, w.Code, want, &all)
				}
				if want == http.StatusOK {
					break
				}
			}
		}
	}
}
