package main_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

const pathConfig = `version: 1
policies:
  login: {limit: 1/day, key: client.ip}
rules:
  - {name: assets, match: {path: /assets/}, exempt: true}
  - {name: login, match: {path: "/login/{user}"}, limits: login}
`

// TestAttackPathConfusion: a limit for a path holds for every spelling of it that servers take for the same, and what is
// exempt is exempt under no name that leads out of it.
func TestAttackPathConfusion(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, config, pathConfig)
	s := attack(t, "--config", config)
	client := 0
	// limited reports whether the rule of /login/{user} holds for a target of a request, as it stands there.
	limited := func(target string) bool {
		t.Helper()
		client++
		address := fmt.Sprintf("X-Real-Ip: 192.0.2.%d", client)
		ask := func(target string) int {
			a, _ := s.request("GET", "/v1/auth/nginx", "", "X-Original-Method: GET", "X-Original-Uri: "+target, address)
			return a.status
		}
		if got := ask("/login/alice"); got != 200 {
			t.Fatalf("a new client: %d", got)
		}
		switch got := ask(target); got {
		case 403:
			return true
		case 200, 400: // 400 lets no request through
			return got == 400
		default:
			t.Fatalf("%s: %d", target, got)
			return false
		}
	}
	for _, target := range []string{
		"/login/alice", "//login/alice", "/login//alice", "/./login/./alice", "/x/../login/alice", "/assets/../login/alice",
		"/assets/..//login/alice", "/assets/%2e%2e/login/alice", "/assets/%2E./login/alice", "/assets/.%2e%2flogin%2falice",
		"/%6cogin/alice", "/%6C%6F%67%69%6E/%61lice", "/login%2falice", "/login/%2e/alice", "/login/alice?x=/assets/",
		"/login/alice%3fx",
		"/login/alice;jsessionid=1", "/login;x/alice", "/assets/..;/login/alice", "/login/alice%00", "/login/alice%20", "/login/bob%2f..%2falice",
		"http://shop.example/login/alice",
		"/../login/alice", "/%2e%2e/login/alice", "/login/alice#/assets/", "/login/alice%23", "/login/ALICE",
		"//assets/../login/alice",
		"/login/x%2f..%2f..%2fassets%2fy", "/login/..%2fassets%2fy", "/login/..%2f..%2fassets%2fy", "/login/..%5calice", `/login\alice`,
		`/assets\..\login\alice`, "/assets/..%5clogin%5calice", "/assets/%252e%252e/login/alice", "/assets/..%252flogin%252falice",
		"/assets/%25252e%25252e%25252flogin/alice", "/login/a%2fb/../alice", "/assets/..%2f/../login/alice",
		"/assets/x/../../login/alice", "/%zz/login/alice", "login/alice", "", "/assets/..%00/login/alice",
	} {
		if !limited(target) {
			t.Errorf("%s: the limit of /login/alice does not hold", target)
		}
	}
	// Those are other pages: patterns are exact about case and trailing slashes, as those of net/http are.
	for _, target := range []string{
		"/LOGIN/alice", "/login", "/login/alice/", "/login/alice/x", "/assets/login/alice",
	} {
		if limited(target) {
			t.Errorf("%s: the limit of /login/alice holds", target)
		}
	}
	s.end()
}

// TestAttackAdminPathConfusion: no spelling of the path of an admin page gets around its token.
func TestAttackAdminPathConfusion(t *testing.T) {
	t.Parallel()
	s := attackAdmin(t, true)
	for path, method := range guarded {
		tail := strings.TrimPrefix(path, "/")
		for _, target := range []string{
			"//" + tail, "/./" + tail, "/x/../" + tail, "/healthz/../" + tail, "/%2e/" + tail, "/healthz/%2e%2e/" + tail,
			path + "/", path + "//",
			path + "/.", path + "/x/..", path + "%00", "/%00" + tail, path + "%20", path + ";a=b", "/;a=b/" + tail,
			strings.ToUpper(path),
			"/" + percent(tail), strings.Replace(path, "/v1/", "/v1%2f", 1), strings.ReplaceAll(path, "/", "//"), path + "#",
			path + "%23/healthz",
			path + "?/healthz", "/v1/auth/envoy/../.." + path, "/v1/auth/envoy" + path,
			"/v1/auth/envoy/%2e%2e/%2e%2e" + path, "/ui/.." + path,
			"/ui/%2e%2e" + path, "/ui/..%2f" + tail, "/ui" + path, "\\" + tail, "/healthz\\.." + path, "http://localhost" + path,
			"http://localhost//" + tail, "/" + tail + "\t",
		} {
			s.denied(t, method, target, []int{301, 302, 307, 308, 400, 401, 404, 405})
		}
	}
	// Nor do files of the program or of the machine come out of the dashboard.
	for _, target := range []string{
		operator.UIPath + "../../etc/passwd", operator.UIPath + "%2e%2e/%2e%2e/etc/passwd", operator.UIPath + "..%2f..%2fetc%2fpasswd",
		operator.UIPath + "/etc/passwd", operator.UIPath + "%2fetc%2fpasswd", operator.UIPath + "....//etc/passwd",
		operator.UIPath + "index.html%00.css",
		operator.UIPath + "static", operator.UIPath + ".",
	} {
		if a, text := s.request("GET", target, ""); a.status < 300 || strings.Contains(text, "root:") {
			t.Errorf("%s: %d %.200s", target, a.status, text)
		}
	}
	s.expectUnchanged(t, "Authorization: Bearer "+rightToken)
	s.end()
}

// TestAttackDenied: no spelling of a path that a rule denies gets past it, in any way in, and no exempt path next to it does.
func TestAttackDenied(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, config, `version: 1
rules:
  - {name: assets, match: {path: /assets/}, exempt: true}
  - {name: all, final: true}
  - {name: login, match: {path: "/login/{user}"}, deny: true}
`)
	s := attack(t, "--config", config)
	described := func(target string) string { return fmt.Sprintf(`{"path":%q,"client":"192.0.2.1"}`, target) }
	for name, ask := range map[string]func(target string) (a answer, text string){
		"decide": func(target string) (answer, string) { return s.request("POST", "/v1/decide", described(target)) },
		"batch": func(target string) (answer, string) {
			return s.request("POST", "/v1/batch", `{"checks":[{"request":`+described(target)+`}]}`)
		},
		"reserve": func(target string) (answer, string) {
			return s.request("POST", "/v1/reserve", `{"request":`+described(target)+`}`)
		},
		"nginx": func(target string) (answer, string) {
			return s.request("GET", "/v1/auth/nginx", "", "X-Original-Method: GET", "X-Original-Uri: "+target, "X-Real-Ip: 192.0.2.1")
		},
		"forwarded": func(target string) (answer, string) {
			return s.request("GET", "/v1/auth", "", "X-Forwarded-Method: GET", "X-Forwarded-Host: a.example", "X-Forwarded-Uri: "+target,
				"X-Forwarded-For: 192.0.2.1")
		},
		"envoy": func(target string) (answer, string) {
			return s.request("GET", "/v1/auth/envoy"+target, "", "X-Real-Ip: 192.0.2.1")
		},
	} {
		for target, denied := range targets {
			if name == "envoy" && !strings.HasPrefix(target, "/") {
				continue // which has made a path of it
			}
			want := 200
			if denied {
				want = 403
			}
			if a, text := ask(target); a.status != want {
				t.Errorf("%s: %s: %d %s, want %d", name, target, a.status, text, want)
			}
		}
	}
	got := weir(t, nil, "why", "--server", "http://"+s.address, "--request", "GET /login/alice", "--client", "192.0.2.1")
	if !strings.Contains(got.stdout, "denied by rule login") {
		t.Errorf("weir why: %s%s", got.stdout, got.stderr)
	}
	s.end()
}

// TestAttackMethods: a limit of a method applies to every spelling that a service may take for it.
func TestAttackMethods(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, config, `version: 1
policies:
  login: {limit: 1/day, key: client}
  each: {limit: 1/day, key: 'request.method.replace("a", "b")'}
rules:
  - {name: login, match: {method: POST, path: /login}, limits: login}
  - {name: each, match: {path: /each}, limits: each}
`)
	s := attack(t, "--config", config)
	for path, ways := range map[string]map[string]func(method string) int{
		"/login": {
			"decide": func(method string) int {
				a, _ := s.request("POST", "/v1/decide", fmt.Sprintf(`{"method":%q,"path":"/login","client":"192.0.2.1"}`, method))
				return a.status
			},
			"nginx": func(method string) int {
				a, _ := s.request("GET", "/v1/auth/nginx", "",
					"X-Original-Method: "+method, "X-Original-Uri: /login", "X-Real-Ip: 192.0.2.2")
				return a.status
			},
			"envoy": func(method string) int {
				a, _ := s.request(method, "/v1/auth/envoy/login", "", "X-Real-Ip: 192.0.2.3")
				return a.status
			},
		},
		"/each": {"decide": func(method string) int {
			a, _ := s.request("POST", "/v1/decide", fmt.Sprintf(`{"method":%q,"path":"/each"}`, method))
			return a.status
		}},
	} {
		for way, ask := range ways {
			for i, method := range []string{"POST", "post", "Post"} {
				if got := ask(method); got == 200 != (i == 0) {
					t.Errorf("%s, %s %s: %d", way, method, path, got)
				}
			}
		}
	}
	s.end()
}
