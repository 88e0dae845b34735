package proxy

import (
	"strings"
	"testing"
)

func TestParseUpstream(t *testing.T) {
	for s, want := range map[string]string{
		"http://127.0.0.1:3000":          "127.0.0.1:3000",
		"http://localhost":               "localhost:80",
		"https://api.example.com/v2/":    "api.example.com:443",
		"HTTPS://[2001:db8::1]:8443/a b": "[2001:db8::1]:8443",
		"h2c://127.0.0.1:50051":          "127.0.0.1:50051",
		"h2c://grpc.internal/v2":         "grpc.internal:80",
		"unix:///run/app.sock":           "",
	} {
		u, err := ParseUpstream(s)
		if err != nil || u.address() != want {
			t.Errorf("%s: %v, %v", s, u, err)
			continue
		}
		if again, err := ParseUpstream(u.String()); err != nil || again.String() != u.String() || again.Socket != u.Socket || again.H2C != u.H2C {
			t.Errorf("%s reads back as %v, %v", u, again, err)
		}
	}
	for s, want := range map[string]string{
		"":                         "must be http://host:port",
		"localhost:3000":           "must be http://host:port",
		":3000":                    "must be http://host:port",
		"127.0.0.1:3000":           "must be http://host:port",
		"//localhost":              "must be http://host:port",
		"ftp://localhost":          "must begin with",
		"http:///path":             "must have a host",
		"http://:3000":             "must have a host",
		"http://localhost:":        "a port from 1 to 65535",
		"http://localhost:0":       "a port from 1 to 65535",
		"http://localhost:65536":   "a port from 1 to 65535",
		"http://a:b@localhost":     "no user",
		"http://localhost?a":       "no query",
		"http://localhost?":        "no query",
		"http://localhost#a":       "no fragment",
		"http://localhost/a/../..": `without ".."`,
		"unix://app.sock":          "unix:///run/app.sock",
		"unix:///":                 "unix:///run/app.sock",
		"http://a b":               "must be http://host:port",
	} {
		if u, err := ParseUpstream(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %s", s, u, err, want)
		}
	}
}

func TestSizes(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "1": 1, "512KiB": 512 << 10, "10mib": 10 << 20, "1 GiB": 1 << 30, "10MB": 10e6, "2gb": 2e9, "1_000kb": 1e6, "7B": 7,
		"9223372036854775807": 1<<63 - 1,
	} {
		v, err := parseSize(s)
		if err != nil || v != want {
			t.Errorf("%q is %d, %v, want %d", s, v, err, want)
		}
	}
	for _, s := range []string{"", "-1", "1.5MiB", "MiB", "1TB", "9223372036854775808", "9007199254740992KiB", "1k", "x"} {
		v, err := parseSize(s)
		if err == nil || !strings.Contains(err.Error(), "512KiB") {
			t.Errorf("%q is %d, %v", s, v, err)
		}
	}
}

func TestIsHost(t *testing.T) {
	for s, want := range map[string]bool{
		"example.com": true, "example.com:80": true, "[::1]:80": true, "[::1]": true, "10.0.0.1": true,
		"": false, ":80": false, "a b": false, "a/b": false, "a:b": false, "a:0": false, "::1": false, "[::1": false, "a\r\nb": false,
		"user@host": false,
	} {
		if got := isHost(s); got != want {
			t.Errorf("isHost(%q) is %v", s, got)
		}
	}
}

func TestLeadsTo(t *testing.T) {
	for _, c := range []struct {
		address, listen string
		want            bool
	}{
		{"127.0.0.1:8080", "127.0.0.1:8080", true},
		{"localhost:8080", "127.0.0.1:8080", true},
		{"localhost:8080", ":8080", true},
		{"127.0.0.1:8080", "0.0.0.0:8080", true},
		{"[::1]:8080", "[::]:8080", true},
		{"127.0.0.2:8080", "127.0.0.1:8080", false},
		{"127.0.0.1:8081", "127.0.0.1:8080", false},
		{"example.com:8080", ":8080", false},
		{"", ":8080", false},
	} {
		if got := leadsTo(c.address, c.listen); got != c.want {
			t.Errorf("leadsTo(%q, %q) is %v", c.address, c.listen, got)
		}
	}
}

func TestAreItems(t *testing.T) {
	for _, c := range []struct {
		lines []string
		want  bool
	}{
		{nil, true},
		{[]string{""}, true},
		{[]string{`"a";r=1;t=2`}, true},
		{[]string{`"a=b";r=1`}, true},
		{[]string{`a;r=1`, ` "b";r=1`}, true},
		{[]string{`a, b=1`}, true}, // an item that has a key with a value is found only at the beginning
		{[]string{`limit=10, remaining=9`}, false},
		{[]string{`"a";r=1`, `limit=10`}, false},
		{[]string{`10;w=60`}, false},
		{[]string{`=`}, false},
	} {
		if got := areItems(c.lines); got != c.want {
			t.Errorf("areItems(%q) is %v", c.lines, got)
		}
	}
}
