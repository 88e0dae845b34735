package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/policy"
)

// TestOver: a handler learns which policies in ModeTag its request is over, also inside another gate, and the client does not.
func TestOver(t *testing.T) {
	gate := func(name string, burst int64) *httplimit.Gate {
		e, err := policy.NewEngine(&policy.Set{
			Policies: []policy.Policy{{Name: name, Mode: policy.ModeTag, Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), burst)}}}},
			Rules:    []policy.Rule{{Name: "all", Limits: []policy.Use{{Policy: name}}}},
		}, policy.EngineOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		g, err := httplimit.NewGate(httplimit.GateOptions{Engine: e})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	var got []string
	h := gate("outer", 1).Handler(gate("inner", 2).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = httplimit.Over(r.Context())
	})))
	for i, want := range [][]string{nil, {"outer"}, {"inner", "outer"}} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
		if w.Code != http.StatusOK || !slices.Equal(got, want) || w.Header().Get("Weir-Over") != "" {
			t.Errorf("request %d: %d, over %q, %v", i, w.Code, got, w.Header())
		}
	}
}
