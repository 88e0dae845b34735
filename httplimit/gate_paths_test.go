package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/policy"
)

// TestEncodedSlashesPassNoExemption: what a ServeMux routes to a limited handler is limited, whatever an exempt rule makes of the
// path when it is decoded first.
func TestEncodedSlashesPassNoExemption(t *testing.T) {
	e := standing(t, &policy.Set{
		Policies: []policy.Policy{hourly("all", 2, nil)},
		Rules: []policy.Rule{
			everything("all"), {Name: "health", Match: policy.Match{Paths: []string{"/healthz"}}, Exempt: true},
		},
	})
	mux := http.NewServeMux()
	for _, pattern := range []string{"GET /healthz", "GET /search/{q}", "/v1/"} {
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	h := gate(t, httplimit.GateOptions{Engine: e}).Handler(mux)
	status := func(target string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody))
		return w.Code
	}
	for range 2 {
		if got := status("/search/weir"); got != http.StatusOK {
			t.Fatalf("/search/weir: %d", got)
		}
	}
	for target, want := range map[string]int{
		"/healthz": http.StatusOK, "/health%7A": http.StatusOK,
		"/search/weir": http.StatusTooManyRequests, "/search/..%2fhealthz": http.StatusTooManyRequests,
		"/search/..%2Fhealthz": http.StatusTooManyRequests, "/v1/..%2fhealthz": http.StatusTooManyRequests,
		"/search/%2e%2e%2fhealthz": http.StatusTooManyRequests, "/search/..%5chealthz": http.StatusTooManyRequests,
		"/v1/%2e%2e/healthz": http.StatusTooManyRequests, "/search/..%252fhealthz": http.StatusTooManyRequests,
		`/v1/..\healthz`: http.StatusTooManyRequests,
	} {
		if got := status(target); got != want {
			t.Errorf("%s: %d, want %d", target, got, want)
		}
	}
}

// TestDeniedRequestsAreForbidden: a request that a rule denies gets 403, whatever the status of refusals, no word of limits or rules,
// and no time to come back, also if it costs nothing and however its path is spelled.
func TestDeniedRequestsAreForbidden(t *testing.T) {
	for cost := range int64(2) {
		e := standing(t, &policy.Set{
			Policies: []policy.Policy{hourly("all", 9, nil)},
			Rules: []policy.Rule{
				everything("all"),
				{Name: "secret rule", Match: policy.Match{Paths: []string{"/admin/"}}, Deny: true},
				{Name: "free", Match: policy.Match{Paths: []string{"/public/"}}, Exempt: true},
			},
		})
		served := 0
		g := gate(t, httplimit.GateOptions{
			Engine: e, Status: http.StatusServiceUnavailable, Cost: func(*http.Request) int64 { return cost },
		})
		h := g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ }))
		targets := []string{"/admin/x", "/%61dmin/x", "//admin/x", "/public/../admin/x", "/public/..%2fadmin/x", `/public/..%5cadmin/x`}
		for _, target := range targets {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody))
			body := w.Body.String()
			if w.Code != http.StatusForbidden || strings.Contains(body, "secret") || strings.Contains(body, "limit") ||
				!strings.Contains(body, `"status":403`) {
				t.Errorf("%s: %d %s", target, w.Code, body)
			}
			for _, name := range []string{"Retry-After", "Ratelimit", "Ratelimit-Policy"} {
				if got := w.Header()[name]; got != nil {
					t.Errorf("%s: %s: %s", target, name, got)
				}
			}
		}
		if left := available(t, e, "all", ""); served != 0 || left != 9 || g.Stats().Refused != uint64(len(targets)) {
			t.Errorf("served %d, %d left, %+v", served, left, g.Stats())
		}
	}
}

// TestHookMayChangeADenial as any refusal, and sees which rule it was.
func TestHookMayChangeADenial(t *testing.T) {
	e := standing(t, &policy.Set{Rules: []policy.Rule{{Name: "no", Deny: true}}})
	h := gate(t, httplimit.GateOptions{Engine: e, OnRefused: func(_ *http.Request, f *httplimit.Refusal) {
		if f.Verdict.DeniedBy(0).Name == "no" && f.Status == http.StatusForbidden {
			f.Status = http.StatusNotFound
		}
	}}).Handler(ok)
	if w := get(h); w.status != http.StatusNotFound {
		t.Errorf("%+v", w)
	}
}

// routed is a handler of a route, which the ServeMux never serves by itself.
type routed struct{ http.Handler }

// FuzzPathsAreReadAsTheyAreRouted compares a Gate with http.ServeMux, which splits a path before it decodes it, and with a router
// that gets it decoded: a request that either of them routes to a pattern with a limit is limited, and one that is exempt is routed
// by both to an exempt pattern, or nowhere.
func FuzzPathsAreReadAsTheyAreRouted(f *testing.F) {
	for _, target := range []string{
		"/healthz", "/search/..%2fhealthz", "/search/%2e%2e/healthz", "/files/a/../../healthz", "/users/a%2fb/posts/7", "/users/%2e/posts/1",
		`/files\..\healthz`, "/files/..%5c..%252fhealthz", "/users//posts/", "/%68ealthz", "/v1/%2E%2e%2Fhealthz/", "//healthz", "/a%2f/../healthz",
	} {
		f.Add(target)
	}
	limited := []string{"/search/{q}", "/users/{user}/posts/{id}", "/users/{user}", "/login", "/files/{rest...}", "/v1/{$}"}
	exempt := []string{"/healthz", "/static/{rest...}", "/users/me"}
	set := &policy.Set{}
	mux := http.NewServeMux()
	for _, pattern := range slices.Concat(limited, exempt) {
		mux.Handle(pattern, &routed{http.NotFoundHandler()})
		rule := policy.Rule{Name: pattern, Match: policy.Match{Paths: []string{pattern}}}
		if slices.Contains(limited, pattern) {
			set.Policies = append(set.Policies, hourly(strings.NewReplacer("/", ".").Replace(pattern), 1000, nil))
			rule.Limits = []policy.Use{{Policy: set.Policies[len(set.Policies)-1].Name}}
		} else {
			rule.Exempt = true
		}
		set.Rules = append(set.Rules, rule)
	}
	e := standing(f, set)
	route := func(u *url.URL) string {
		h, pattern := mux.Handler(&http.Request{Method: http.MethodGet, URL: u})
		if _, ok := h.(*routed); !ok {
			return "" // not found, or sent to another path
		}
		return pattern
	}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || u.Host != "" || u.Opaque != "" || !strings.HasPrefix(u.Path, "/") {
			return
		}
		r := policy.Request{Protocol: "http", Method: http.MethodGet, Path: u.Path, RawPath: u.RawPath}
		var v policy.Verdict
		e.Peek(&r, &v)
		for how, pattern := range map[string]string{
			"as it was sent": route(u), "decoded first": route(&url.URL{Path: u.Path, RawPath: strings.ReplaceAll(u.Path, "%", "%25")}),
		} {
			applies := slices.ContainsFunc(v.Parts, func(p policy.Part) bool { return p.Rule.Name == pattern })
			switch {
			case slices.Contains(limited, pattern) && !applies:
				t.Errorf("%q is routed to %s (%s), whose limit does not apply: %+v", target, pattern, how, v.Parts)
			case v.Exempt && slices.Contains(limited, pattern):
				t.Errorf("%q is exempt, and routed to %s (%s)", target, pattern, how)
			}
		}
	})
}
