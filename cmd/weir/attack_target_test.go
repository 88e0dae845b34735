package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// targets are targets of requests as callers hand them on, and what becomes of each by pathConfig: whether the limit of /login/{user}
// applies. A target that is not known to be one is refused, and not looked at in part.
var targets = map[string]bool{
	"/login/alice": true, "/login/alice?x=1": true, "/login/alice?": true, "/login/alice?/assets/": true, "/login/alice?x=%2fassets": true,
	"//login/alice": true, "//host/login/alice": true, "/%6cogin/alice": true, "/login%2falice": true, "/login/..%2fassets%2fy": true,
	"/assets/..%2flogin/alice": true, "http://shop.example/login/alice": true, "http://shop.example/login/alice?x=1": true,
	"HTTP://shop.example//login/alice": true,
	"/login/alice%23":                  true, "/login/alice%3fx": true,

	"/assets/logo": false, "/about": false, "*": false, "http://shop.example": false, "/assets/x?/login/alice": false,
}

// brokenTargets are refused wherever they come in.
var brokenTargets = []string{
	"", "login/alice", "/login/alice#x", "/about#/../login/alice", "/about?x#y", "#", "/%zz/login/alice", "/login/%", "?/login/alice",
	"/login/alice%00", "/login/alice%00/x", "shop.example/login/alice", "mailto:alice", "http:///login/alice", "http://shop.example/login/alice#x",
}

// TestAttackTargets: a request that is described by its target, in whatever way, gets the same limits. A query, a host or
// an encoding in it evades none, and what is no target is refused.
func TestAttackTargets(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, config, pathConfig)
	s := attack(t, "--config", config)
	client := 0
	address := func() string {
		client++
		return fmt.Sprintf("198.18.%d.%d", client/200, client%200)
	}
	described := func(target, client string) string {
		return fmt.Sprintf(`{"path":%q,"client":%q}`, target, client)
	}
	// Each way returns whether a limit refuses a request, or that it is no request.
	ways := map[string]func(target string) string{
		"decide": func(target string) string {
			client := address()
			s.request("POST", "/v1/decide", described("/login/alice", client))
			a, _ := s.request("POST", "/v1/decide", described(target, client))
			return outcomeOf(a.status)
		},
		"explain": func(target string) string {
			client := address()
			s.request("POST", "/v1/decide", described("/login/alice", client))
			a, text := s.request("POST", "/v1/explain", described(target, client))
			if strings.Contains(text, `"allowed":false,"exempt":false`) {
				return "limited"
			}
			return outcomeOf(a.status)
		},
		"batch": func(target string) string {
			client := address()
			s.request("POST", "/v1/decide", described("/login/alice", client))
			a, text := s.request("POST", "/v1/batch", `{"checks":[{"request":`+described(target, client)+`}]}`)
			if strings.Contains(text, `"allowed":false`) {
				return "limited"
			}
			return outcomeOf(a.status)
		},
		"reserve": func(target string) string {
			client := address()
			s.request("POST", "/v1/decide", described("/login/alice", client))
			a, _ := s.request("POST", "/v1/reserve", `{"expires_in":1,"request":`+described(target, client)+`}`)
			return outcomeOf(a.status)
		},
		"nginx": func(target string) string {
			client := "X-Real-Ip: " + address()
			s.request("GET", "/v1/auth/nginx", "", "X-Original-Method: GET", "X-Original-Uri: /login/alice", client)
			a, _ := s.request("GET", "/v1/auth/nginx", "", "X-Original-Method: GET", "X-Original-Uri: "+target, client)
			return outcomeOf(a.status)
		},
		"forwarded": func(target string) string {
			fields := []string{"X-Forwarded-Method: GET", "X-Forwarded-Host: a.example", "X-Forwarded-For: " + address()}
			s.request("GET", "/v1/auth", "", append(fields, "X-Forwarded-Uri: /login/alice")...)
			a, _ := s.request("GET", "/v1/auth", "", append(fields, "X-Forwarded-Uri: "+target)...)
			return outcomeOf(a.status)
		},
		"envoy": func(target string) string { // whose own target it is, behind a prefix
			client := "X-Real-Ip: " + address()
			s.request("GET", "/v1/auth/envoy/login/alice", "", client)
			a, _ := s.request("GET", "/v1/auth/envoy"+target, "", client)
			return outcomeOf(a.status)
		},
		"why": func(target string) string {
			client := address()
			s.request("POST", "/v1/decide", described("/login/alice", client))
			got := weir(t, nil, "why", "--server", "http://"+s.address, "--request", "GET "+target, "--client", client)
			switch {
			case got.status == 2:
				return "refused"
			case strings.Contains(got.stdout, "refused"):
				return "limited"
			}
			return "free"
		},
		"config explain": func(target string) string {
			got := weir(t, nil, "config", "explain", "--request=GET "+target, config)
			switch {
			case got.status != 0:
				return "refused"
			case strings.Contains(got.stdout, "rule login (") && strings.Contains(got.stdout, "limit login/"):
				return "limited"
			}
			return "free"
		},
		"test": func(target string) string {
			suite := filepath.Join(t.TempDir(), "weir_test.yaml")
			text := fmt.Sprintf(`config: %s
client: 192.0.2.1
tests:
  - name: target
    steps:
      - {request: GET /login/alice}
      - {request: %s, expect: {allowed: false}}
`, strconv.Quote(config), strconv.Quote("GET "+target))
			if err := os.WriteFile(suite, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			switch got := weirAt(t, plain, nil, "test", suite); got.status { // one test at a time
			case 0:
				return "limited"
			case 1:
				return "free"
			default:
				return "refused"
			}
		},
	}
	for name, ask := range ways {
		// Envoy has made a path of every target before it asks.
		never := func(target string) bool { return name == "envoy" && !strings.HasPrefix(target, "/") }
		for target, limited := range targets {
			if never(target) {
				continue
			}
			want := "free"
			if limited {
				want = "limited"
			}
			if got := ask(target); got != want {
				t.Errorf("%s: %s is %s, want %s", name, target, got, want)
			}
		}
		for _, target := range brokenTargets {
			if never(target) {
				continue
			}
			if got := ask(target); got != "refused" {
				t.Errorf("%s: %q is %s, want refused", name, target, got)
			}
		}
	}
	for _, body := range []string{
		`{"path":"/login/alice?x","query":"y"}`, `{"query":"","path":"/?"}`, `{"path":"http://a/","host":"b"}`,
	} {
		for _, page := range []string{"/v1/decide", "/v1/explain"} {
			if a, text := s.request("POST", page, body); a.status != 400 || !strings.Contains(text, "must be") {
				t.Errorf("%s of %s: %d %s", page, body, a.status, text)
			}
		}
	}
	s.end()
}

func outcomeOf(status int) string {
	switch status {
	case 200:
		return "free"
	case 403, 429:
		return "limited"
	case 400:
		return "refused"
	default:
		return strconv.Itoa(status)
	}
}
