package match

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func one(t *testing.T, m written) *Index {
	t.Helper()
	x, err := newIndex([]written{m})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestMatch(t *testing.T) {
	gold := http.Header{"X-Plan": {"gold", "free"}}
	for _, c := range []struct {
		m    written
		r    View
		want string // why not
	}{
		{written{}, View{}, ""},
		{written{Methods: []string{"POST", "PUT"}}, View{Method: "GET"}, "method is GET, rule wants POST, PUT"},
		{written{Methods: []string{"GET"}}, View{Method: "HEAD"}, ""}, // the handler of GET runs for it
		{written{Methods: []string{"HEAD"}}, View{Method: "GET"}, "method is GET, rule wants HEAD"},
		{written{Methods: []string{"GET"}}, View{Method: "get"}, "method is get, rule wants GET, HEAD"},
		{written{Methods: []string{"GET"}}, View{}, `method is "", rule wants GET, HEAD`},
		{written{Hosts: []string{"API.example.com"}}, View{Host: "api.EXAMPLE.com.:8080"}, ""},
		{written{Hosts: []string{"::1"}}, View{Host: "[::1]:8080"}, ""},
		{written{Hosts: []string{"[::1]"}}, View{Host: "[::1]"}, ""},
		{written{Hosts: []string{"*.example.com"}}, View{Host: "a.b.example.com"}, ""},
		{written{Hosts: []string{"*.example.com", "a"}}, View{Host: "example.com:1"}, "host is example.com, rule wants *.example.com, a"},
		{written{Hosts: []string{"*.example.com"}}, View{Host: ".example.com"}, "host is .example.com, rule wants *.example.com"},
		{written{Hosts: []string{"*.example.com"}}, View{Host: "notexample.com"}, "host is notexample.com, rule wants *.example.com"},
		{written{Paths: []string{"/users/{id}"}}, View{Path: "/login"}, "path is /login, rule wants /users/{id}"},
		{written{Paths: []string{"/a", "/b"}}, View{Path: "/c d"}, `path is "/c d", rule wants /a, /b`},
		{written{Paths: []string{"/{$}"}}, View{}, ""},
		{written{Paths: []string{"/"}}, View{Path: "*"}, "path is *, rule wants /"},
		{written{Headers: []field{{Name: "x-plan", Value: "gold"}}}, View{Header: gold}, ""},
		{written{Headers: []field{{Name: "x-plan", Value: "free"}}}, View{Header: gold}, `header X-Plan: "gold" is not "free"`},
		{written{Headers: []field{{Name: "X-Plan", Value: "f*"}}}, View{Header: gold}, `header X-Plan: "gold" does not begin with "f"`},
		{written{Headers: []field{{Name: "X-Plan", Absent: true}}}, View{Header: gold}, `header X-Plan: "gold" is there, but must be absent`},
		{written{Headers: []field{{Name: "X-Plan", Absent: true}}}, View{}, ""},
		{written{Headers: []field{{Name: "X-Key", Value: "*"}}}, View{Header: gold}, "header X-Key: there is none"},
		{written{Headers: []field{{Name: "X-Key", Value: "k*"}}}, View{}, `header X-Key: there is none that begins with "k"`},
		{written{Headers: []field{{Name: "X-Key"}}}, View{Header: gold}, `header X-Key: there is none that is ""`},
		{
			written{Clients: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
			View{Client: netip.MustParseAddr("192.0.2.1")},
			"client is 192.0.2.1, rule wants 10.0.0.0/8",
		},
		{
			written{Clients: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}},
			View{},
			"client is not known, rule wants 0.0.0.0/0, ::/0",
		},
		{
			written{Clients: []netip.Prefix{netip.MustParsePrefix("::ffff:10.1.0.0/112")}},
			View{Client: netip.MustParseAddr("::ffff:10.1.2.3")},
			"",
		},
		{
			written{Clients: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/80")}}, // a network of IPv6
			View{Client: netip.MustParseAddr("::1")}, "",
		},
		{written{Routes: []string{"POST /login"}}, View{Route: "GET /"}, `route is "GET /", rule wants "POST /login"`},
		{written{Protocols: []string{"grpc"}}, View{Protocol: "http"}, "protocol is http, rule wants grpc"},
		{
			written{Methods: strings.Split("A B C D E F G H I J", " ")},
			View{Method: "\x1b[31m"},
			`method is "\x1b[31m", rule wants A, B, C, D, E, F, G, H and 2 more`,
		},
	} {
		x := one(t, c.m)
		if why := x.Why(&c.r, 0); why != c.want {
			t.Errorf("%+v: %q, want %q", c.m, why, c.want)
		}
		if found := x.Match(&c.r, nil); len(found) == 1 != (c.want == "") {
			t.Errorf("%+v: %v", c.m, found)
		}
	}
}

// TestHostsOfRules: a rule names a host, or an IPv6 address in brackets or without, and nothing that services read differently.
func TestHostsOfRules(t *testing.T) {
	for host, want := range map[string]bool{
		"a": true, "A.example.com": true, "a.example.com.": true, "*.example.com": true, "10.0.0.1": true, "a_b": true,
		"::1": true, "[::1]": true, "[2001:DB8::1]": true, "::ffff:10.0.0.1": true,
		"": false, ".": false, "*": false, "*.": false, "a..": false, "a..b": false, ".a": false, "a:80": false, "a:80:80": false,
		"[::1]:80": false, "[::1]0": false, "[::1].": false, "[::1.]": false, "[::1......]": false, "[::1": false, "::1]": false,
		"[a]": false, "[10.0.0.1]": false, "[]": false, "[[::1]]": false, "*.::1": false, "*.[::1]": false, "[fe80::1%eth0]": false,
		"b\u00fccher.example": false, "a%2eb": false, "a b": false, strings.Repeat("a", maxHost+1): false,
	} {
		if _, err := newIndex([]written{{Hosts: []string{host}}}); (err == nil) != want {
			t.Errorf("%q: %v, want accepted: %v", host, err, want)
		}
	}
}

// TestMatchIsNotDodgedBySpelling: a path or a host in another spelling meets the same rule.
func TestMatchIsNotDodgedBySpelling(t *testing.T) {
	x := one(t, written{Hosts: []string{"example.com"}, Paths: []string{"/a/b", "/users/{id}/keys"}})
	for _, path := range []string{
		"/a/b", "//a//b", "/a/./b", "/./a/b", "/a/x/../b", "/../a/b", "a/b", "/a///.//b", "/users/7/keys", "/users//7/./keys", "/users/8/../7/keys",
	} {
		for _, host := range []string{"example.com", "EXAMPLE.com", "example.com.", "example.com:443", "Example.Com.:443"} {
			r := &View{Host: host, Path: path}
			if len(x.Match(r, nil)) != 1 {
				t.Errorf("%s%s gets past the rule", host, path)
			}
			x.Bind(r, 0)
			if id := r.PathValue("id"); strings.HasPrefix(path, "/users") && id != "7" {
				t.Errorf("%s: id is %q", path, id)
			}
		}
	}
	for _, path := range []string{"/a/b/", "/a/b/.", "/a/b/c/..", "/A/b", "/a", "/users/7/keys/x"} { // other paths for a server, too
		if len(x.Match(&View{Host: "example.com", Path: path}, nil)) != 0 {
			t.Errorf("%s meets the rule", path)
		}
	}
}

func TestPathValuesAreThoseOfTheRuleThatIsLookedAt(t *testing.T) {
	x, err := newIndex([]written{
		{Paths: []string{"/x/{a}", "/{a}/{b}"}},
		{Paths: []string{"/{b}/{rest...}"}},
		{},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &View{Path: "/x/y"}
	for rule, want := range []string{"y,,", ",x,y", ",,", "y,,"} {
		x.Bind(r, int32(rule%3))
		if got := r.PathValue("a") + "," + r.PathValue("b") + "," + r.PathValue("rest"); got != want {
			t.Errorf("rule %d: %s, want %s", rule%3, got, want)
		}
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	x := mixed.index(t, 1000)
	requests := mixed.requests(1000)[:500]
	hostile := []View{
		{Path: strings.Repeat("/x", 100_000), Host: strings.Repeat("a.", 100_000) + "example.com"},
		{Path: "/" + strings.Repeat("x", 100_000), Host: strings.Repeat("a", 100_000)},
		{Header: http.Header{"X-Api-Key": {strings.Repeat("x", 100_000)}}, Client: netip.MustParseAddr("2001:db8::1%eth0")},
	}
	found := make([]int32, 0, 16)
	for _, r := range append(requests, hostile...) {
		if n := testing.AllocsPerRun(10, func() {
			v := r
			found = x.Match(&v, found[:0])
			for _, rule := range found {
				x.Bind(&v, rule)
				v.PathValue("id")
			}
		}); n != 0 {
			t.Errorf("%.200v: %v allocations", r, n)
		}
	}
}
