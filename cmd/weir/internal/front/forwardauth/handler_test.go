package forwardauth_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/forwardauth"
	"github.com/weirhq/weir/policy"
)

// decider remembers the last request, and answers with the parts that are set.
type decider struct {
	got   policy.Request
	parts []policy.Part
}

func (d *decider) Take(r *policy.Request, v *policy.Verdict) {
	d.got = *r
	*v = policy.Verdict{Allowed: true, Binding: -1, Parts: d.parts}
	for i := range d.parts {
		if !d.parts[i].Decision.Allowed {
			v.Allowed = false
		}
		if v.Binding < 0 || d.parts[i].Decision.RetryAfter > d.parts[v.Binding].Decision.RetryAfter {
			v.Binding = i
		}
	}
}

var perClient = &policy.Policy{Name: "per-client", Limits: []policy.Limit{
	{Name: "s", Limit: weir.TokenBucket(weir.PerSecond(10), 20)},
	{Name: "h", Limit: weir.FixedWindow(weir.PerHour(1000))},
}}

func granted() []policy.Part {
	return []policy.Part{
		{Policy: perClient, Cost: 1, Decision: weir.Decision{
			Allowed: true, Limit: 20, Remaining: 19, ResetAfter: 100 * time.Millisecond, Policy: "per-client/s",
		}},
		{Policy: perClient, Limit: 1, Cost: 1, Decision: weir.Decision{
			Allowed: true, Limit: 1000, Remaining: 999, ResetAfter: time.Hour, Policy: "per-client/h",
		}},
	}
}

func refused() []policy.Part {
	parts := granted()
	d := &parts[1].Decision
	d.Allowed, d.Reason, d.Remaining, d.RetryAfter, d.ResetAfter = false, weir.ReasonLimited, 0, time.Minute, time.Minute
	return parts
}

func handler(t *testing.T, o forwardauth.Options) (*forwardauth.Handler, *decider) {
	t.Helper()
	d := &decider{}
	o.Decider = d
	if o.Trusted == nil {
		o.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
	}
	h, err := forwardauth.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return h, d
}

// ask sends what a proxy sends: a method and a target, and fields as "Name: value".
func ask(t *testing.T, h http.Handler, method, target string, fields ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, http.NoBody)
	r.RemoteAddr = "127.0.0.1:40000"
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		switch name {
		case "Host":
			r.Host = value
		case "Peer":
			r.RemoteAddr = value
		default:
			r.Header.Add(name, value)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// What each proxy sends for POST /shop/cart?x=1 of api.example.com, by a client that has tried to pass for another one.
var (
	fromNginx = []string{
		"Host: api.example.com", "X-Original-Method: POST", "X-Original-Uri: /shop/cart?x=1", "X-Real-Ip: 203.0.113.7",
		"X-Forwarded-For: 198.51.100.1", "X-Forwarded-Uri: /healthz", "X-Forwarded-Method: GET", "X-Plan: gold",
	}
	fromTraefik = []string{
		"Host: weir:7070", "X-Forwarded-Method: POST", "X-Forwarded-Proto: https", "X-Forwarded-Host: api.example.com",
		"X-Forwarded-Uri: /shop/cart?x=1", "X-Forwarded-For: 203.0.113.7", "X-Forwarded-Port: 443",
		"X-Forwarded-Server: 5f0c", "X-Real-Ip: 198.51.100.1", "X-Original-Uri: /healthz", "X-Plan: gold",
	}
	fromCaddy = []string{
		"Host: 127.0.0.1:7070", "X-Forwarded-Method: POST", "X-Forwarded-Uri: /shop/cart?x=1",
		"X-Forwarded-For: 203.0.113.7", "X-Forwarded-Proto: https", "X-Forwarded-Host: api.example.com",
		"X-Original-Uri: /healthz", "X-Plan: gold",
	}
	fromEnvoy = []string{
		"Host: api.example.com", "X-Real-Ip: 203.0.113.7", "X-Envoy-Internal: true", "X-Forwarded-For: 10.1.2.3",
		"X-Forwarded-Uri: /healthz", "X-Plan: gold",
	}
)

func TestWhatEachProxySends(t *testing.T) {
	for _, c := range []struct {
		proxy, method, target string
		fields                []string
	}{
		{"nginx", "GET", "/v1/auth/nginx", fromNginx},
		{"Traefik", "GET", "/v1/auth", fromTraefik},
		{"Caddy", "GET", "/v1/auth", fromCaddy},
		{"Envoy", "POST", "/v1/auth/envoy/shop/cart?x=1", fromEnvoy},
	} {
		t.Run(c.proxy, func(t *testing.T) {
			h, d := handler(t, forwardauth.Options{})
			w := ask(t, h, c.method, c.target, c.fields...)
			if w.Code != 200 || w.Body.Len() > 0 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			if d.got.Protocol != "http" || d.got.Method != http.MethodPost || d.got.Host != "api.example.com" ||
				d.got.Path != "/shop/cart" || d.got.Query != "x=1" || d.got.Client != netip.MustParseAddr("203.0.113.7") {
				t.Errorf("understood as %+v", d.got)
			}
			if plan, ok := d.got.HeaderValue("X-Plan"); !ok || plan != "gold" {
				t.Errorf("X-Plan is %q", plan)
			}
		})
	}
}

// TestForgedFields: fields that the client has sent itself do not count, wherever they stand.
func TestForgedFields(t *testing.T) {
	h, d := handler(t, forwardauth.Options{})
	base := fromTraefik[:6:6]
	for xff, want := range map[string]string{
		"198.51.100.1, 203.0.113.7":                      "203.0.113.7", // a proxy that appends
		"198.51.100.1, 203.0.113.7, 10.0.0.3":            "203.0.113.7", // behind a trusted load balancer
		"127.0.0.1, 203.0.113.7":                         "203.0.113.7",
		"unknown, 203.0.113.7":                           "203.0.113.7",
		"10.0.0.9":                                       "10.0.0.9", // a client within the trusted networks
		"unknown, 10.0.0.9":                              "10.0.0.9",
		"203.0.113.7:4711":                               "203.0.113.7",
		"::ffff:203.0.113.7":                             "203.0.113.7",
		"2001:db8::1":                                    "2001:db8::1",
		strings.Repeat("1.1.1.1,", 1000) + "203.0.113.7": "203.0.113.7",
	} {
		w := ask(t, h, "GET", "/v1/auth", append(base[:5:5], "X-Forwarded-For: "+xff)...)
		if w.Code != 200 || d.got.Client.String() != want {
			t.Errorf("%.60s: %d, client %v, want %s", xff, w.Code, d.got.Client, want)
		}
	}
	// Envoy adds its own address to the field, which must be trusted where X-Real-IP is not set.
	ask(t, h, "GET", "/v1/auth/envoy/", "Host: a", "X-Forwarded-For: 198.51.100.1,203.0.113.7,10.1.2.3")
	if d.got.Client.String() != "203.0.113.7" || d.got.Path != "/" {
		t.Errorf("client %v, path %q", d.got.Client, d.got.Path)
	}
	// Envoy does not set it on internal requests, so it is the client's.
	ask(t, h, "GET", "/v1/auth/envoy", "Host: a", "X-Forwarded-For: 203.0.113.7", "X-Envoy-External-Address: 198.51.100.1")
	if d.got.Client.String() != "203.0.113.7" {
		t.Errorf("client %v", d.got.Client)
	}
	// What looks like another host in the target is a path.
	ask(t, h, "GET", "/v1/auth", append(fromCaddy[3:6:6], "X-Forwarded-Method: GET", "X-Forwarded-Uri: //evil.example/a%2Fb?c")...)
	if d.got.Path != "//evil.example/a/b" || d.got.Query != "c" || d.got.Host != "api.example.com" {
		t.Errorf("%+v", d.got)
	}
}

func TestWrongSetupIsNeitherPassNorRefusal(t *testing.T) {
	var log strings.Builder
	h, _ := handler(t, forwardauth.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	without := func(fields []string, name string) (rest []string) {
		for _, f := range fields {
			if !strings.HasPrefix(f, name+": ") {
				rest = append(rest, f)
			}
		}
		return rest
	}
	count := uint64(0)
	for _, c := range []struct {
		target string
		fields []string
		want   string
	}{
		{"/v1/auth", append(fromCaddy, "Peer: 192.0.2.1:1"), "192.0.2.1:1 may not ask: it is in none of the networks of --trust-proxy"},
		{"/v1/auth", append(fromCaddy, "Peer: @"), "@ may not ask"},
		{"/v1/auth", without(fromCaddy, "X-Forwarded-Method"), "0 fields X-Forwarded-Method: must be one, set by the proxy"},
		{"/v1/auth", without(fromCaddy, "X-Forwarded-Uri"), "0 fields X-Forwarded-Uri"},
		{"/v1/auth", without(fromCaddy, "X-Forwarded-Host"), "0 fields X-Forwarded-Host"},
		{"/v1/auth", without(fromCaddy, "X-Forwarded-For"), "no field X-Forwarded-For"},
		{"/v1/auth", append(without(fromCaddy, "X-Forwarded-For"), "X-Forwarded-For: unknown"), "must end with the address of the client"},
		{"/v1/auth", append(without(fromCaddy, "X-Forwarded-For"), "X-Forwarded-For: 203.0.113.7,"), "must end with the address of the client"},
		{"/v1/auth", append(without(fromCaddy, "X-Forwarded-For"), "X-Forwarded-For: fe80::1%25en0"), "must end with the address"},
		{"/v1/auth/envoy", []string{"Host: a", "X-Forwarded-For: 203.0.113.7, @"}, "must end with the address of the client"},
		{"/v1/auth", append(fromCaddy, "X-Forwarded-Uri: /healthz"), "2 fields X-Forwarded-Uri"},
		{"/v1/auth", fromNginx, "must be"},
		{"/v1/auth", append(without(fromCaddy, "X-Forwarded-Uri"), "X-Forwarded-Uri: %"), `X-Forwarded-Uri \"%\": must be the target`},
		{"/v1/auth/nginx", without(fromNginx, "X-Real-Ip"), "0 fields X-Real-Ip"},
		{"/v1/auth/nginx", append(fromNginx, "X-Real-Ip: 198.51.100.1"), "2 fields X-Real-Ip"},
		{"/v1/auth/nginx", append(without(fromNginx, "X-Real-Ip"), "X-Real-Ip: home"), `X-Real-IP \"home\": must be the address`},
		{"/v1/auth/nginx", fromCaddy, "0 fields X-Original-Method"},
		{"/v1/auth/envoy/", []string{"Host: a"}, "no field X-Forwarded-For"},
		{"/v1/auth", append(without(fromCaddy, "X-Forwarded-Method"), "X-Forwarded-Method: DELETE x"), "must be the method of a request"},
		{
			"/v1/auth/nginx", append(without(fromNginx, "X-Original-Method"), "X-Original-Method: DELETE, GET"),
			"must be the method of a request",
		},
		{"/v1/auth/nginx", append(without(fromNginx, "X-Original-Uri"), "X-Original-Uri: /a%00/b"), "must be the target of a request"},
		{"/v1/auth", append(without(fromCaddy, "X-Forwarded-Host"), "X-Forwarded-Host: bücher.example"), "must be the host of a request"},
		{"/v1/auth", append(without(fromCaddy, "X-Forwarded-Host"), "X-Forwarded-Host: %61pi.example.com"), "must be the host of a request"},
		{"/v1/auth", append(without(fromCaddy, "X-Forwarded-Host"), "X-Forwarded-Host: a/b"), `\"a/b\": must be the host of a request`},
		{"/v1/auth", append(without(fromCaddy, "X-Forwarded-Host"), "X-Forwarded-Host: a,b"), `\"a,b\": must be the host of a request`},
		{"/v1/auth/nginx", append(without(fromNginx, "Host"), "Host: [fe80::1%25en0]"), "must be the host of a request"},
	} {
		w := ask(t, h, "GET", c.target, c.fields...)
		count++
		if w.Code != 400 || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s\nwant %s", c.target, w.Code, w.Body, c.want)
		}
	}
	if got := h.Counts(); got.Rejected != count || got.Passed+got.Refused != 0 {
		t.Errorf("%+v, want %d rejected", got, count)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "--trust-proxy") {
		t.Errorf("logged %d lines, want one in ten seconds:\n%s", n, &log)
	}
}

func TestFieldsOfAnAdmittedRequest(t *testing.T) {
	h, d := handler(t, forwardauth.Options{})
	d.parts = granted()
	w := ask(t, h, "GET", "/v1/auth", fromCaddy...)
	for name, want := range map[string]string{
		"Ratelimit":        `"per-client/s";r=19;t=1, "per-client/h";r=999;t=3600`,
		"Ratelimit-Policy": `"per-client/s";q=20;w=2, "per-client/h";q=1000;w=3600`,
		"Retry-After":      "", "Cache-Control": "no-store", forwardauth.ProblemField: "",
	} {
		if got := strings.Join(w.Header()[name], "|"); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := h.Counts(); w.Code != 200 || got.Passed != 1 {
		t.Errorf("%d, %+v", w.Code, got)
	}
}

func TestRefusal(t *testing.T) {
	for _, c := range []struct {
		status int
		target string
		want   int
	}{
		{0, "/v1/auth", 429},
		{0, "/v1/auth/nginx", 403},
		{0, "/v1/auth/envoy/", 429},
		{401, "/v1/auth/nginx", 401},
		{418, "/v1/auth/nginx", 403},
		{418, "/v1/auth", 418},
		{403, "/v1/auth/envoy/", 403},
	} {
		h, d := handler(t, forwardauth.Options{Status: c.status})
		d.parts = refused()
		fields := map[string][]string{"/v1/auth": fromCaddy, "/v1/auth/nginx": fromNginx, "/v1/auth/envoy/": fromEnvoy}[c.target]
		w := ask(t, h, "GET", c.target, fields...)
		if w.Code != c.want || h.Counts().Refused != 1 {
			t.Errorf("%+v: %d, %+v", c, w.Code, h.Counts())
		}
		var body struct {
			Status     int      `json:"status"`
			RetryAfter int      `json:"retry-after"`       //nolint:tagliatelle // registered
			Violated   []string `json:"violated-policies"` //nolint:tagliatelle // registered
		}
		var inHeader map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		wantStatus := c.want
		if c.target == "/v1/auth/nginx" {
			wantStatus = 429
			if err := json.Unmarshal([]byte(w.Header().Get(forwardauth.ProblemField)), &inHeader); err != nil ||
				inHeader["status"] != 429.0 {
				t.Errorf("%v: %s", err, w.Header().Get(forwardauth.ProblemField))
			}
		} else if w.Header().Get(forwardauth.ProblemField) != "" {
			t.Errorf("%s has the body in a field", c.target)
		}
		if body.Status != wantStatus || body.RetryAfter != 60 || !slices.Equal(body.Violated, []string{"per-client/h"}) {
			t.Errorf("%s: %s", c.target, w.Body)
		}
		for name, want := range map[string]string{
			"Ratelimit":   `"per-client/h";r=0;t=60, "per-client/s";r=19;t=1`,
			"Retry-After": "60", "Content-Type": "application/problem+json",
		} {
			if got := strings.Join(w.Header()[name], "|"); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
	}
}

// TestPolicyTwice: a policy that holds twice with different keys is told once.
func TestPolicyTwice(t *testing.T) {
	h, d := handler(t, forwardauth.Options{})
	d.parts = []policy.Part{granted()[0], granted()[0]}
	w := ask(t, h, "GET", "/v1/auth", fromCaddy...)
	if got := w.Header().Get("Ratelimit"); got != `"per-client/s";r=19;t=1` {
		t.Errorf("RateLimit: %s", got)
	}
}

func TestNoRoomIsNoFailureForEnvoy(t *testing.T) {
	for target, want := range map[string]int{"/v1/auth": 503, "/v1/auth/envoy/": 429} {
		h, d := handler(t, forwardauth.Options{})
		d.parts = refused()
		d.parts[1].Decision.Reason = weir.ReasonTableFull
		fields := map[string][]string{"/v1/auth": fromCaddy, "/v1/auth/envoy/": fromEnvoy}[target]
		if w := ask(t, h, "GET", target, fields...); w.Code != want {
			t.Errorf("%s: %d, want %d", target, w.Code, want)
		}
	}
}

func TestServes(t *testing.T) {
	for path, want := range map[string]bool{
		"/v1/auth": true, "/v1/auth/nginx": true, "/v1/auth/envoy": true, "/v1/auth/envoy/a/b": true,
		"/v1/auth/": false, "/v1/auth/nginx/": false, "/v1/authx": false, "/v1/auth/envoyx": false, "/v1": false,
	} {
		if got := forwardauth.Serves(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}

func TestOptions(t *testing.T) {
	for want, o := range map[string]forwardauth.Options{
		"Options.Decider is nil":                         {},
		"Options.Status is 200: must be from 400 to 499": {Decider: &decider{}, Status: 200},
		"Options.Status is 503: must be from 400 to 499": {Decider: &decider{}, Status: 503},
		"TrustedProxies":                                 {Decider: &decider{}, Trusted: []netip.Prefix{{}}},
	} {
		if _, err := forwardauth.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestDeniedRequestsAreForbidden whatever the status of refusals is. nginx gets no problem, so that it hands the status on.
func TestDeniedRequestsAreForbidden(t *testing.T) {
	e, err := policy.NewEngine(&policy.Set{
		Policies: []policy.Policy{*perClient},
		Rules: []policy.Rule{
			{Name: "all", Limits: []policy.Use{{Policy: "per-client"}}},
			{Name: "secret rule", Match: policy.Match{Methods: []string{"POST"}}, Deny: true},
		},
	}, policy.EngineOptions{OnRefused: func([]*policy.Request, *policy.Verdict) uint64 { return 7 }})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, status := range []int{0, 401, 429, 418} {
		h, err := forwardauth.New(forwardauth.Options{
			Decider: e, Status: status, Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")},
		})
		if err != nil {
			t.Fatal(err)
		}
		for target, fields := range map[string][]string{
			"/v1/auth/nginx": fromNginx, "/v1/auth": fromCaddy, "/v1/auth/envoy/shop/cart": fromEnvoy,
		} {
			w := ask(t, h, "POST", target, fields...)
			if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), `"status":403`) || strings.Contains(w.Body.String(), "secret") {
				t.Errorf("%s: %d %s", target, w.Code, w.Body)
			}
			for _, name := range []string{"Retry-After", "Ratelimit", "Ratelimit-Policy", "X-Weir-Problem"} {
				if got := w.Header()[name]; got != nil {
					t.Errorf("%s: %s: %s", target, name, got)
				}
			}
			if got := w.Header().Get("Weir-Refusal"); got != "0000000000000007" {
				t.Errorf("%s: refusal %q", target, got)
			}
		}
	}
}

// TestGatewayIsTold which policies with mode: tag a request is over, so that it can tell the service.
func TestGatewayIsTold(t *testing.T) {
	e, err := policy.NewEngine(&policy.Set{
		Policies: []policy.Policy{{Name: "soft", Mode: policy.ModeTag, Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), 1)}}}},
		Rules:    []policy.Rule{{Name: "all", Limits: []policy.Use{{Policy: "soft"}}}},
	}, policy.EngineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	h, err := forwardauth.New(forwardauth.Options{Decider: e, Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", `"soft"`, `"soft"`} {
		r := ask(t, h, http.MethodGet, "/v1/auth", "X-Forwarded-Method: GET", "X-Forwarded-Uri: /", "X-Forwarded-Host: x", "X-Forwarded-For: 192.0.2.1")
		if got := r.Header().Get("Weir-Over"); r.Code != http.StatusOK || got != want {
			t.Errorf("request %d: %d, %q, want %q", i, r.Code, got, want)
		}
	}
}
