package forwardauth_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/front/forwardauth"
	"github.com/weirhq/weir/ratelimitfields"
)

// TestNamesOfPoliciesAreHidden: with NoFields no field and no body has the name of a policy, and Retry-After is told.
func TestNamesOfPoliciesAreHidden(t *testing.T) {
	for _, hidden := range []bool{false, true} {
		o := forwardauth.Options{Decider: &decider{parts: refused()}, Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
		if hidden {
			o.Fields = ratelimitfields.NoFields
		}
		h, err := forwardauth.New(o)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, forwardauth.Path, nil)
		r.RemoteAddr = "127.0.0.1:1"
		r.Header.Set("X-Forwarded-Method", "GET")
		r.Header.Set("X-Forwarded-Host", "example.test")
		r.Header.Set("X-Forwarded-Uri", "/")
		r.Header.Set("X-Forwarded-For", "192.0.2.1")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var all strings.Builder
		_ = w.Header().Write(&all)
		all.WriteString(w.Body.String())
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "60" ||
			strings.Contains(all.String(), "per-client") == hidden || (w.Header().Get("Ratelimit") == "") != hidden {
			t.Errorf("hidden %v: %d\n%s", hidden, w.Code, &all)
		}
	}
	if _, err := forwardauth.New(forwardauth.Options{Decider: new(decider), Fields: 200}); err == nil {
		t.Error("fields that there are not")
	}
}
