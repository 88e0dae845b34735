package flags_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/policy"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]policy.Request{
		"GET /login":   {Method: "GET", Path: "/login"},
		"/a%20b?x=1&y": {Method: "GET", Path: "/a b", Query: "x=1&y"},
		" post  https://api.example.com:8443/v1 ": {Method: "post", Host: "api.example.com:8443", Path: "/v1"},
		"https://example.com":                     {Method: "GET", Host: "example.com", Path: "/"},
		"POST /pkg.Service/Method":                {Method: "POST", Path: "/pkg.Service/Method"},
		"POST //login":                            {Method: "POST", Path: "//login"},
		"/a%2Fb":                                  {Method: "GET", Path: "/a/b", RawPath: "/a%2Fb"},
		"OPTIONS *":                               {Method: "OPTIONS", Path: "*"},
	} {
		var got policy.Request
		if err := flags.ParseRequest(line, &got); err != nil {
			t.Errorf("%q: %v", line, err)
			continue
		}
		if got.Method != want.Method || got.Host != want.Host || got.Path != want.Path || got.RawPath != want.RawPath || got.Query != want.Query {
			t.Errorf("%q: %+v", line, got)
		}
	}
	kept := policy.Request{Host: "kept"}
	if err := flags.ParseRequest("GET /", &kept); err != nil || kept.Host != "kept" {
		t.Errorf("%v, host %q", err, kept.Host)
	}
	for line, want := range map[string]string{
		"":                "must be a method and a path",
		"GET":             `"GET" is not the target of a request: must be a path that begins with a slash, a URL or *`,
		"GET login":       `"login" is not the target of a request`,
		"GET /a b":        "must be a method and a path",
		"G<T /":           `"G<T" is not a method`,
		"GET /a%00b":      `"/a%00b" is not the target of a request`,
		"GET http://[::1": "is not the target of a request",
	} {
		if err := flags.ParseRequest(line, &policy.Request{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", line, err, want)
		}
	}
}

func TestAddHeader(t *testing.T) {
	var r policy.Request
	for _, field := range [][2]string{{"x-plan", "gold"}, {"X-Plan", "silver"}, {"host", "a.example.com"}} {
		if err := flags.AddHeader(&r, field[0], field[1]); err != nil {
			t.Fatal(err)
		}
	}
	if value, ok := r.HeaderValue("X-Plan"); !ok || value != "gold" || r.Host != "a.example.com" {
		t.Errorf("%q, %t, host %q", value, ok, r.Host)
	}
	if err := flags.AddHeader(&r, "X Plan", "gold"); err == nil {
		t.Error("a name with a space is accepted")
	}
}

func TestParseClient(t *testing.T) {
	for s, want := range map[string]string{"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::1"} {
		if got, err := flags.ParseClient(s); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	if _, err := flags.ParseClient("localhost"); err == nil {
		t.Error("a name is accepted")
	}
}

// FuzzParseTarget compares it with what net/http makes of the target of a request: no path is read as another one, and what it
// refuses is no target.
func FuzzParseTarget(f *testing.F) {
	for _, target := range []string{
		"/", "*", "/a?b", "/a?", "//a/b", "http://a/b?c", "http://a", "/a%2fb", "/a#b", "/%zz", "a", "", "mailto:a", "http:///a", "/a b", "?a", "/a%00b",
	} {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, text string) {
		target, ok := flags.ParseTarget(text)
		if !ok {
			return
		}
		if strings.ContainsAny(text, "#\r\n") || strings.ContainsRune(target.Path, 0) || target.Path != "*" && target.Path[0] != '/' {
			t.Fatalf("%q: %+v", text, target)
		}
		if strings.ContainsAny(text, " ") {
			return // in no request line
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("OPTIONS " + text + " HTTP/1.1\r\nHost: h\r\n\r\n")))
		if err != nil {
			return
		}
		if path := r.URL.Path; path != target.Path && (path != "" || target.Path != "/") || r.URL.RawQuery != target.Query {
			t.Errorf("%q: %+v, but net/http has %q and %q", text, target, r.URL.Path, r.URL.RawQuery)
		}
	})
}
