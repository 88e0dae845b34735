package main_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// threeEach is a configuration by which each client has three requests.
const threeEach = `version: 1
policies:
  per-client: {limit: 3/h, key: client.ip}
rules:
  - {name: all, limits: per-client}
`

// claims are header fields by which a client says that it is another one; %d makes it yet another one each time.
var claims = []string{
	"X-Forwarded-For: 198.51.100.%d", "Forwarded: for=198.51.100.%d", "X-Real-IP: 198.51.100.%d", "X-Client-IP: 198.51.100.%d",
	"True-Client-IP: 198.51.100.%d", "CF-Connecting-IP: 198.51.100.%d", "X-Cluster-Client-IP: 198.51.100.%d",
	"X-Envoy-External-Address: 198.51.100.%d", "X-Originating-IP: 198.51.100.%d",
}

// claimed are those that a proxy does not overwrite, as another client each time.
func claimed(i int, but ...string) []string {
	var all []string
	for _, c := range claims {
		name, _, _ := strings.Cut(c, ":")
		if !strings.Contains(strings.Join(but, " "), name) {
			all = append(all, fmt.Sprintf(c, i))
		}
	}
	return all
}

// expectThree asks ten times, and expects that three requests are allowed: all requests are of one client.
func expectThree(t *testing.T, what string, refused int, ask func(i int) int) {
	t.Helper()
	for i := range 10 {
		want := http.StatusOK
		if i >= 3 {
			want = refused
		}
		if got := ask(i); got != want {
			t.Errorf("%s: request %d: %d, want %d", what, i, got, want)
		}
	}
}

// TestAttackForgedForwardingHeaders: a client is the one that the trusted proxy names, whatever it claims itself to be.
func TestAttackForgedForwardingHeaders(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, config, threeEach)
	s := attack(t, "--config", config)
	asked := []string{"X-Forwarded-Method: GET", "X-Forwarded-Host: shop.example", "X-Forwarded-Uri: /"}
	// What the client has sent stands before what the proxy has added, in the same field or in one before it.
	chains := [][]string{
		{"X-Forwarded-For: 198.51.100.%d, 203.0.113.1"},
		{"X-Forwarded-For: 198.51.100.%d", "X-Forwarded-For: 203.0.113.1"},
		{"X-Forwarded-For: 198.51.100.%d, ::ffff:203.0.113.1"},
		{"X-Forwarded-For: 198.51.100.%d, 203.0.113.1:4711"},
		{"X-Forwarded-For: 127.0.0.1, 203.0.113.1, 127.0.0.1"},
		{"X-Forwarded-For: unknown, \"198.51.100.%d\", 203.0.113.1"},
		{"X-Forwarded-For: " + strings.Repeat("198.51.100.%[1]d,", 500) + "203.0.113.1"},
		{"X-Forwarded-For: 198.51.100.%d,,;for=,\t203.0.113.1 "},
		{"X-Forwarded-For: 203.0.113.1, ::1"},
		{"X-Forwarded-For: 198.51.100.%d\t,203.0.113.1"},
	}
	expectThree(t, "/v1/auth", 429, func(i int) int {
		fields := append(append([]string{}, asked...), claimed(i, "X-Forwarded-For")...)
		for _, c := range chains[i] {
			if strings.Contains(c, "%") {
				c = fmt.Sprintf(c, i)
			}
			fields = append(fields, c)
		}
		a, _ := s.request("GET", "/v1/auth", "", fields...)
		return a.status
	})
	expectThree(t, "/v1/auth/nginx", 403, func(i int) int {
		a, _ := s.request("GET", "/v1/auth/nginx", "",
			append(claimed(i, "X-Real-IP"), "X-Original-Method: GET", "X-Original-Uri: /", "X-Real-IP: 203.0.113.2")...)
		return a.status
	})
	expectThree(t, "/v1/auth/envoy", 429, func(i int) int {
		a, _ := s.request("GET", "/v1/auth/envoy/", "",
			append(claimed(i, "X-Real-IP", "X-Forwarded-For"), fmt.Sprintf("X-Forwarded-For: 198.51.100.%d,203.0.113.3", i))...)
		return a.status
	})
	// With two fields it is not known which one the proxy has set.
	for _, path := range []string{"/v1/auth/nginx", "/v1/auth/envoy/"} {
		if a, text := s.request("GET", path, "", "X-Original-Method: GET", "X-Original-Uri: /",
			"X-Real-IP: 198.51.100.1", "X-Real-IP: 203.0.113.2"); a.status != 400 ||
			!strings.Contains(text, "2 fields X-Real-I") {
			t.Errorf("%s: %d %s", path, a.status, text)
		}
	}
	// A check has the client in its body: neither the fields of the call itself nor those of the described request mean
	// anything.
	expectThree(t, "/v1/decide", 429, func(i int) int {
		a, _ := s.request("POST", "/v1/decide", fmt.Sprintf(
			`{"path":"/","client":"203.0.113.4",`+
				`"headers":{"X-Forwarded-For":"198.51.100.%d","Forwarded":"for=198.51.100.%[1]d"}}`, i),
			claimed(i)...)
		return a.status
	})
	expectThree(t, "/v1/check", 429, func(i int) int {
		a, _ := s.request("POST", "/v1/check", `{"policy":"per-client","key":"203.0.113.5"}`, claimed(i)...)
		return a.status
	})
	s.end()
}

// TestAttackForgedFieldsOfStrangers: a client outside of the networks of --trust-proxy cannot speak for another client.
func TestAttackForgedFieldsOfStrangers(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, config, threeEach)
	begun := time.Now()
	s := attack(t, "--config", config, "--trust-proxy", "192.0.2.0/24")
	for _, path := range []string{"/v1/auth", "/v1/auth/nginx", "/v1/auth/envoy", "/v1/auth/envoy/any"} {
		for i := range 5 {
			a, text := s.request("GET", path, "", append(claimed(i), "X-Forwarded-Method: GET", "X-Forwarded-Host: a",
				"X-Forwarded-Uri: /", "X-Original-Method: GET", "X-Original-Uri: /")...)
			if a.status != 400 || !strings.Contains(text, "in none of the networks of --trust-proxy") ||
				a.header.Get("Ratelimit") != "" {
				t.Errorf("%s: %d %v %s", path, a.status, a.header, text)
			}
		}
	}
	told := 0
	for _, line := range s.end() {
		if strings.Contains(line, "may not ask") {
			told++
		}
	}
	if most := 1 + int(time.Since(begun)/(10*time.Second)); told == 0 || told > most {
		t.Errorf("it is logged %d times: must be once in ten seconds", told)
	}
}

// TestAttackForgedFieldsAtTheProxy: the same for weir proxy, with and without proxies in front of it that are trusted.
func TestAttackForgedFieldsAtTheProxy(t *testing.T) {
	t.Parallel()
	var (
		mu   sync.Mutex
		seen []http.Header
	)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Header.Clone())
	}))
	defer service.Close()
	alone := startProxy(t, "--upstream", service.URL, "--limit", "3/h", "--log-level", "error")
	expectThree(t, "weir proxy", 429, func(i int) int {
		a, _ := fetch(t, alone.address, "GET", "/", "", claimed(i)...)
		return a.status
	})
	for _, h := range seen {
		if got := h.Values("X-Forwarded-For"); len(got) != 1 || got[0] != "127.0.0.1" ||
			h.Get("Forwarded") != "" || h.Get("X-Real-IP") != "" {
			t.Errorf("the service was told %v", h)
		}
	}
	behind := startProxy(t, "--upstream", service.URL, "--limit", "3/h", "--log-level", "error",
		"--trusted-proxies", "127.0.0.0/8")
	expectThree(t, "weir proxy behind another one", 429, func(i int) int {
		a, _ := fetch(t, behind.address, "GET", "/", "", append(claimed(i, "X-Forwarded-For"),
			fmt.Sprintf("X-Forwarded-For: 198.51.100.%d, 203.0.113.1", i))...)
		return a.status
	})
}
