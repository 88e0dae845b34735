package policy

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirhq/weir"
)

func one(t *testing.T, m Match) *index {
	t.Helper()
	x, err := newIndex([]Rule{{Name: "login", Match: m}})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestMatchNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		m    Match
		want string
	}{
		{Match{Methods: []string{"GET", "get"}}, `Match.Methods[1] is "get": must be a method in upper case, such as GET`},
		{Match{Methods: []string{""}}, `Match.Methods[0] is "": must be a method`},
		{Match{Methods: []string{"GET POST"}}, `Match.Methods[0] is "GET POST": must be a method`},
		{Match{Hosts: []string{""}}, `Match.Hosts[0] is "": must be a host such as api.example.com or *.example.com`},
		{Match{Hosts: []string{"*"}}, `Match.Hosts[0] is "*"`},
		{Match{Hosts: []string{"*."}}, `Match.Hosts[0] is "*."`},
		{Match{Hosts: []string{"."}}, `Match.Hosts[0] is "."`},
		{Match{Hosts: []string{"a..com"}}, `Match.Hosts[0] is "a..com"`},
		{Match{Hosts: []string{"a.*.com"}}, `Match.Hosts[0] is "a.*.com"`},
		{Match{Hosts: []string{"*.*.com"}}, `Match.Hosts[0] is "*.*.com"`},
		{Match{Hosts: []string{"example.com:80"}}, `Match.Hosts[0] is "example.com:80"`},
		{Match{Hosts: []string{"[::1]:80"}}, `Match.Hosts[0] is "[::1]:80"`},
		{Match{Hosts: []string{"bücher.example"}}, `Match.Hosts[0] is "bücher.example"`},
		{Match{Hosts: []string{strings.Repeat("a", 256)}}, `..: must be a host`},
		{Match{Paths: []string{"login"}}, `Match.Paths[0] is "login": must be a pattern such as /users/{id}`},
		{Match{Paths: []string{"/a", "/{"}}, `Match.Paths[1] is "/{": must be with wildcards that are whole segments`},
		{Match{Headers: []HeaderMatch{{}}}, `Match.Headers[0].Name is "": must be the name of a header field`},
		{Match{Headers: []HeaderMatch{{Name: "a b"}}}, `Match.Headers[0].Name is "a b"`},
		{Match{Headers: []HeaderMatch{{Name: "host", Value: "x"}}}, `Match.Headers[0].Name is "host": must be another field`},
		{Match{Headers: []HeaderMatch{{Name: "A", Value: "x", Absent: true}}}, `Match.Headers[0].Value is "x": must be empty with Absent`},
		{Match{Headers: []HeaderMatch{{Name: "A", Value: "x\n"}}}, `Match.Headers[0].Value is "x\n": must be without control`},
		{Match{Headers: []HeaderMatch{{Name: "A", Value: " x"}}}, `Match.Headers[0].Value is " x": must be without control`},
		{Match{Clients: []netip.Prefix{{}}}, `Match.Clients[0] is invalid Prefix: must be a network such as 10.0.0.0/8`},
		{Match{Routes: []string{""}}, `Match.Routes[0] is "": must be the name of a route`},
		{Match{Protocols: []string{"HTTP"}}, `Match.Protocols[0] is "HTTP": must be a protocol in lower case`},
	} {
		_, err := newIndex([]Rule{{Name: "ok"}, {Name: "login", Match: c.m}})
		var option *weir.OptionError
		if !errors.As(err, &option) || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), `weir: rule "login": Match.`) {
			t.Errorf("%+v: %v, want %s", c.m, err, c.want)
		}
	}
	_, err := newIndex([]Rule{{Match: Match{Methods: []string{"a", "GET", "b"}}}, {Match: Match{Paths: []string{"c"}}}})
	if err == nil || strings.Count(err.Error(), "weir: ") != 3 {
		t.Errorf("three mistakes: %v", err)
	}
}

func TestMatch(t *testing.T) {
	gold := http.Header{"X-Plan": {"gold", "free"}}
	for _, c := range []struct {
		m    Match
		r    Request
		want string // why not
	}{
		{Match{}, Request{}, ""},
		{Match{Methods: []string{"POST", "PUT"}}, Request{Method: "GET"}, "method is GET, rule wants POST, PUT"},
		{Match{Methods: []string{"GET"}}, Request{Method: "HEAD"}, ""}, // the handler of GET runs for it
		{Match{Methods: []string{"HEAD"}}, Request{Method: "GET"}, "method is GET, rule wants HEAD"},
		{Match{Methods: []string{"GET"}}, Request{Method: "get"}, "method is get, rule wants GET, HEAD"},
		{Match{Methods: []string{"GET"}}, Request{}, `method is "", rule wants GET, HEAD`},
		{Match{Hosts: []string{"API.example.com"}}, Request{Host: "api.EXAMPLE.com.:8080"}, ""},
		{Match{Hosts: []string{"::1"}}, Request{Host: "[::1]:8080"}, ""},
		{Match{Hosts: []string{"[::1]"}}, Request{Host: "[::1]"}, ""},
		{Match{Hosts: []string{"*.example.com"}}, Request{Host: "a.b.example.com"}, ""},
		{Match{Hosts: []string{"*.example.com", "a"}}, Request{Host: "example.com:1"}, "host is example.com, rule wants *.example.com, a"},
		{Match{Hosts: []string{"*.example.com"}}, Request{Host: ".example.com"}, "host is .example.com, rule wants *.example.com"},
		{Match{Hosts: []string{"*.example.com"}}, Request{Host: "notexample.com"}, "host is notexample.com, rule wants *.example.com"},
		{Match{Paths: []string{"/users/{id}"}}, Request{Path: "/login"}, "path is /login, rule wants /users/{id}"},
		{Match{Paths: []string{"/a", "/b"}}, Request{Path: "/c d"}, `path is "/c d", rule wants /a, /b`},
		{Match{Paths: []string{"/{$}"}}, Request{}, ""},
		{Match{Paths: []string{"/"}}, Request{Path: "*"}, "path is *, rule wants /"},
		{Match{Headers: []HeaderMatch{{Name: "x-plan", Value: "gold"}}}, Request{Header: gold}, ""},
		{Match{Headers: []HeaderMatch{{Name: "x-plan", Value: "free"}}}, Request{Header: gold}, `header X-Plan: "gold" is not "free"`},
		{Match{Headers: []HeaderMatch{{Name: "X-Plan", Value: "f*"}}}, Request{Header: gold}, `header X-Plan: "gold" does not begin with "f"`},
		{Match{Headers: []HeaderMatch{{Name: "X-Plan", Absent: true}}}, Request{Header: gold}, `header X-Plan: "gold" is there, but must be absent`},
		{Match{Headers: []HeaderMatch{{Name: "X-Plan", Absent: true}}}, Request{}, ""},
		{Match{Headers: []HeaderMatch{{Name: "X-Key", Value: "*"}}}, Request{Header: gold}, "header X-Key: there is none"},
		{Match{Headers: []HeaderMatch{{Name: "X-Key", Value: "k*"}}}, Request{}, `header X-Key: there is none that begins with "k"`},
		{Match{Headers: []HeaderMatch{{Name: "X-Key"}}}, Request{Header: gold}, `header X-Key: there is none that is ""`},
		{
			Match{Clients: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
			Request{Client: netip.MustParseAddr("192.0.2.1")},
			"client is 192.0.2.1, rule wants 10.0.0.0/8",
		},
		{
			Match{Clients: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}},
			Request{},
			"client is not known, rule wants 0.0.0.0/0, ::/0",
		},
		{
			Match{Clients: []netip.Prefix{netip.MustParsePrefix("::ffff:10.1.0.0/112")}},
			Request{Client: netip.MustParseAddr("::ffff:10.1.2.3")},
			"",
		},
		{
			Match{Clients: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/80")}}, // a network of IPv6
			Request{Client: netip.MustParseAddr("::1")}, "",
		},
		{Match{Routes: []string{"POST /login"}}, Request{Route: "GET /"}, `route is "GET /", rule wants "POST /login"`},
		{Match{Protocols: []string{"grpc"}}, Request{Protocol: "http"}, "protocol is http, rule wants grpc"},
		{
			Match{Methods: strings.Split("A B C D E F G H I J", " ")},
			Request{Method: "\x1b[31m"},
			`method is "\x1b[31m", rule wants A, B, C, D, E, F, G, H and 2 more`,
		},
	} {
		x := one(t, c.m)
		if why := x.why(0, &c.r); why != c.want {
			t.Errorf("%+v: %q, want %q", c.m, why, c.want)
		}
		if found := x.match(&c.r, nil); len(found) == 1 != (c.want == "") {
			t.Errorf("%+v: %v", c.m, found)
		}
	}
}

// TestMatchIsNotDodgedBySpelling: whoever spells a path or a host in another way meets the same rule.
func TestMatchIsNotDodgedBySpelling(t *testing.T) {
	x := one(t, Match{Hosts: []string{"example.com"}, Paths: []string{"/a/b", "/users/{id}/keys"}})
	for _, path := range []string{
		"/a/b", "//a//b", "/a/./b", "/./a/b", "/a/x/../b", "/../a/b", "a/b", "/a///.//b", "/users/7/keys", "/users//7/./keys", "/users/8/../7/keys",
	} {
		for _, host := range []string{"example.com", "EXAMPLE.com", "example.com.", "example.com:443", "Example.Com.:443"} {
			r := &Request{Host: host, Path: path}
			if len(x.match(r, nil)) != 1 {
				t.Errorf("%s%s gets past the rule", host, path)
			}
			x.bind(r, 0)
			if id := r.PathValue("id"); strings.HasPrefix(path, "/users") && id != "7" {
				t.Errorf("%s: id is %q", path, id)
			}
		}
	}
	for _, path := range []string{"/a/b/", "/a/b/.", "/a/b/c/..", "/A/b", "/a", "/users/7/keys/x"} { // other paths for a server, too
		if len(x.match(&Request{Host: "example.com", Path: path}, nil)) != 0 {
			t.Errorf("%s meets the rule", path)
		}
	}
}

func TestPathValuesAreThoseOfTheRuleThatIsLookedAt(t *testing.T) {
	x, err := newIndex([]Rule{
		{Name: "1", Match: Match{Paths: []string{"/x/{a}", "/{a}/{b}"}}},
		{Name: "2", Match: Match{Paths: []string{"/{b}/{rest...}"}}},
		{Name: "3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &Request{Path: "/x/y"}
	for rule, want := range []string{"y,,", ",x,y", ",,", "y,,"} {
		x.bind(r, int32(rule%3))
		if got := r.PathValue("a") + "," + r.PathValue("b") + "," + r.PathValue("rest"); got != want {
			t.Errorf("rule %d: %s, want %s", rule%3, got, want)
		}
	}
	r.Path = "/other/path"
	if got := r.PathValue("a"); got != "" {
		t.Errorf("the value %q of an old path", got)
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	x := mixed.index(t, 1000)
	requests := mixed.requests(1000)[:500]
	hostile := []Request{
		{Path: strings.Repeat("/x", 100_000), Host: strings.Repeat("a.", 100_000) + "example.com"},
		{Path: "/" + strings.Repeat("x", 100_000), Host: strings.Repeat("a", 100_000)},
		{Header: http.Header{"X-Api-Key": {strings.Repeat("x", 100_000)}}, Client: netip.MustParseAddr("2001:db8::1%eth0")},
	}
	found := make([]int32, 0, 16)
	for _, r := range append(requests, hostile...) {
		if n := testing.AllocsPerRun(10, func() {
			found = x.match(&r, found[:0])
			for _, rule := range found {
				x.bind(&r, rule)
				r.PathValue("id")
			}
		}); n != 0 {
			t.Errorf("%.200v: %v allocations", r, n)
		}
	}
}
