package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// sharing is an engine over a store in memory: the policy "shared", of n permits, is in the store, and "local" in the engine.
func sharing(t *testing.T, n, local int64) *policy.Engine {
	t.Helper()
	clock := manualclock.New(0)
	s, err := store.NewMemory(store.MemoryOptions{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	p := hourly("shared", n, nil)
	p.Consistency = policy.ConsistencyCoherent
	return engineOf(t, policy.EngineOptions{Clock: clock, Store: s}, &policy.Set{
		Policies: []policy.Policy{p, hourly("local", local, nil)},
		Rules:    []policy.Rule{everything("shared", "local")},
	})
}

// TestGateTellsSharedLimits like others, but nothing of those that were not asked.
func TestGateTellsSharedLimits(t *testing.T) {
	h := gate(t, httplimit.GateOptions{Engine: sharing(t, 5, 2)}).Handler(ok)
	for i, want := range []string{
		`"local";r=1;t=1800, "shared";r=4;t=720`, `"local";r=0;t=3600, "shared";r=3;t=1440`, `"local";r=0;t=1800`,
	} {
		resp := get(h)
		if (resp.status == http.StatusOK) != (i < 2) {
			t.Errorf("%d: status %d", i, resp.status)
		}
		if got := resp.header.Get("Ratelimit"); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
}

// TestGateOfAClientThatIsGone asks the store in vain, and is no refusal.
func TestGateOfAClientThatIsGone(t *testing.T) {
	for _, reserve := range []bool{false, true} {
		e := sharing(t, 5, 5)
		g := gate(t, httplimit.GateOptions{Engine: e, Reserve: reserve})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w := httptest.NewRecorder()
		g.Handler(ok).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody))
		if s := g.Stats(); w.Code != httplimit.StatusClientClosedRequest || s.Aborted != 1 || s.Refused+s.Failed+s.Allowed != 0 {
			t.Errorf("status %d: %+v", w.Code, s)
		}
		if left := available(t, e, "local", ""); left != 5 || e.Report().Canceled != 1 {
			t.Errorf("%d are left: %+v", left, e.Report())
		}
	}
}
