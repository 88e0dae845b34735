package requestline_test

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/requestline"
	"github.com/weirhq/weir/policy"
)

func TestParse(t *testing.T) {
	for line, want := range map[string]policy.Request{
		"GET /login":   {Method: "GET", Path: "/login"},
		"/a%20b?x=1&y": {Method: "GET", Path: "/a b", Query: "x=1&y"},
		" post  https://api.example.com:8443/v1 ": {Method: "POST", Host: "api.example.com:8443", Path: "/v1"},
		"https://example.com":                     {Method: "GET", Host: "example.com", Path: "/"},
		"POST /pkg.Service/Method":                {Method: "POST", Path: "/pkg.Service/Method"},
	} {
		var got policy.Request
		if err := requestline.Parse(line, &got); err != nil {
			t.Errorf("%q: %v", line, err)
			continue
		}
		if got.Method != want.Method || got.Host != want.Host || got.Path != want.Path || got.Query != want.Query {
			t.Errorf("%q: %+v", line, got)
		}
	}
	kept := policy.Request{Host: "kept"}
	if err := requestline.Parse("GET /", &kept); err != nil || kept.Host != "kept" {
		t.Errorf("%v, host %q", err, kept.Host)
	}
	for line, want := range map[string]string{
		"":                "must be a method and a path",
		"GET":             `"GET" is neither a path`,
		"GET login":       `"login" is neither a path`,
		"GET /a b":        "must be a method and a path",
		"G<T /":           `"G<T" is not a method`,
		"GET http://[::1": "is not a URL",
	} {
		if err := requestline.Parse(line, &policy.Request{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", line, err, want)
		}
	}
}

func TestAddHeader(t *testing.T) {
	var r policy.Request
	for _, field := range [][2]string{{"x-plan", "gold"}, {"X-Plan", "silver"}, {"host", "a.example.com"}} {
		if err := requestline.AddHeader(&r, field[0], field[1]); err != nil {
			t.Fatal(err)
		}
	}
	if value, ok := r.HeaderValue("X-Plan"); !ok || value != "gold" || r.Host != "a.example.com" {
		t.Errorf("%q, %t, host %q", value, ok, r.Host)
	}
	if err := requestline.AddHeader(&r, "X Plan", "gold"); err == nil {
		t.Error("a name with a space is accepted")
	}
}

func TestParseClient(t *testing.T) {
	for s, want := range map[string]string{"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::1"} {
		if got, err := requestline.ParseClient(s); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
	}
	if _, err := requestline.ParseClient("localhost"); err == nil {
		t.Error("a name is accepted")
	}
}
