package main_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/commonratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
)

const toldConfig = `version: 1
policies:
  plain: {limit: 10/s, burst: 20, key: client}
  hour: {key: client, limits: [{algorithm: fixed-window, rate: 20/h}]}
  month: {key: client, limits: [{algorithm: calendar-window, permits: 20, every: month}]}
  tier: {limit: 10/s, key: client, tiers: {by: 'request.headers["x-plan"]', gold: {limit: 20/h}}}
  rls-tier: {limit: 10/s, key: client, tiers: {by: attributes.plan, gold: {limit: 20/h}}}
  overridden: {limit: 10/s, burst: 20, key: client}
rules:
  - {name: plain, match: {path: /plain}, limits: plain}
  - {name: hour, match: {path: /hour}, limits: hour}
  - {name: month, match: {path: /month}, limits: month}
  - {name: tier, match: {path: /tier}, limits: tier}
  - {name: overridden, match: {path: /overridden}, limits: overridden}
  - {name: rls plain, match: {protocol: rls, path: /plain/remote_address}, limits: plain}
  - {name: rls hour, match: {protocol: rls, path: /hour/remote_address}, limits: hour}
  - {name: rls month, match: {protocol: rls, path: /month/remote_address}, limits: month}
  - {name: rls tier, match: {protocol: rls, path: /tier/remote_address/plan}, limits: rls-tier}
  - {name: rls overridden, match: {protocol: rls, path: /overridden/remote_address}, limits: overridden}
`

// TestEveryFrontTellsTheLimitThatApplied: whichever front is asked, and for a tier, an override, a window and a month of the calendar, the
// limit that is told is the one that the request was held to, in numbers for programs and as it was configured for people.
func TestEveryFrontTellsTheLimitThatApplied(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, config, toldConfig)
	s := startFronts(t, nil, "--config", config, "--grpc-headers", "ietf")
	if got := weir(t, nil, "admin", "override", "--policy", "overridden", "--key", "192.0.2.1", "--limit", "20/min", "--for", "1h", "--reason", "a test",
		"--server", "http://"+s.address); got.status != 0 {
		t.Fatalf("%+v", got)
	}
	envoy := ratelimitv3.NewRateLimitServiceClient(s.dial())
	fetch := func(path string, header http.Header) http.Header {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = header
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return answer.Header
	}
	for path, want := range map[string]struct {
		policy, fields string // of RateLimit-Policy
		perUnit        uint32 // of current_limit
		unit           ratelimitv3.RateLimitResponse_RateLimit_Unit
		text           string // for people
	}{
		"/plain": {"plain", "q=20;w=2", 10, ratelimitv3.RateLimitResponse_RateLimit_SECOND, "10/s, burst 20"},
		"/hour":  {"hour", "q=20;w=3600", 20, ratelimitv3.RateLimitResponse_RateLimit_HOUR, "fixed-window 20/h"},
		"/month": {"month", "q=20", 20, ratelimitv3.RateLimitResponse_RateLimit_MONTH, "20 per month"},
		"/tier":  {"tier", "q=20;w=3600", 20, ratelimitv3.RateLimitResponse_RateLimit_HOUR, "20/h"},
		"/overridden": {
			"overridden", "q=20;w=60", 20, ratelimitv3.RateLimitResponse_RateLimit_MINUTE, "20/min",
		},
	} {
		told := fmt.Sprintf("%q;%s", want.policy, want.fields)

		forwarded := fetch("/v1/auth", http.Header{
			"X-Forwarded-Method": {"GET"}, "X-Forwarded-Host": {"a.example"}, "X-Forwarded-For": {"192.0.2.1"},
			"X-Forwarded-Uri": {path}, "X-Plan": {"gold"},
		})
		if got := forwarded.Get("Ratelimit-Policy"); got != told {
			t.Errorf("%s, /v1/auth: %s, want %s", path, got, told)
		}

		described := `{"path":"` + path + `","client":"192.0.2.1","headers":{"X-Plan":"gold"}}`
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.address+"/v1/decide", strings.NewReader(described))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		decided, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = decided.Body.Close()
		if got := decided.Header.Get("Ratelimit-Policy"); got != told {
			t.Errorf("%s, /v1/decide: %s, want %s", path, got, told)
		}

		entries := []*commonratelimitv3.RateLimitDescriptor_Entry{{Key: path[1:], Value: "x"}, {Key: "remote_address", Value: "192.0.2.1"}}
		rlsPolicy := want.policy
		if path == "/tier" {
			entries, rlsPolicy = append(entries, &commonratelimitv3.RateLimitDescriptor_Entry{Key: "plan", Value: "gold"}), "rls-tier"
		}
		answer, err := envoy.ShouldRateLimit(t.Context(), &ratelimitv3.RateLimitRequest{
			Domain: "edge", Descriptors: []*commonratelimitv3.RateLimitDescriptor{{Entries: entries}},
		})
		if err != nil {
			t.Fatal(err)
		}
		current := answer.GetStatuses()[0].GetCurrentLimit()
		if current.GetRequestsPerUnit() != want.perUnit || current.GetUnit() != want.unit {
			t.Errorf("%s, current_limit: %v, want %d of %v", path, current, want.perUnit, want.unit)
		}
		rls := ""
		for _, h := range answer.GetResponseHeadersToAdd() {
			if strings.EqualFold(h.GetKey(), "RateLimit-Policy") {
				rls = h.GetValue()
			}
		}
		if want := fmt.Sprintf("%q;%s", rlsPolicy, want.fields); rls != want {
			t.Errorf("%s, the service of Envoy: %s, want %s", path, rls, want)
		}

		why := weir(t, nil, "why", "--request", "GET "+path, "--client", "192.0.2.1", "-H", "X-Plan: gold", "--server", "http://"+s.address)
		if why.status != 0 || !strings.Contains(why.stdout, want.text) {
			t.Errorf("%s, weir why: %d %s, want %q", path, why.status, why.stdout+why.stderr, want.text)
		}
		if code, text := s.post("/v1/explain", described); code != 200 || !strings.Contains(text, `"holds":"`+want.text) {
			t.Errorf("%s, /v1/explain: %d %s", path, code, text)
		}
		if path == "/tier" { // which key has which tier a page about the key cannot know
			continue
		}
		page, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://"+s.address+"/v1/admin/key?policy="+want.policy+"&key="+url.QueryEscape("192.0.2.1"), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		keyed, err := http.DefaultClient.Do(page)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(keyed.Body)
		_ = keyed.Body.Close()
		if err != nil || !strings.Contains(string(text), `"holds":"`+want.text) {
			t.Errorf("%s, /v1/admin/key: %s %v, want %q", path, text, err, want.text)
		}
	}
}
