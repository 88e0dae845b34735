package keytext_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/keytext"
)

// TestReadings has what servers are known to make of paths, each spelling as it is sent.
func TestReadings(t *testing.T) {
	for sent, want := range map[string][]string{
		"":                            nil,
		"/":                           nil,
		"*":                           nil,
		"/a/b/":                       nil,
		"/100%25":                     nil,
		"/caf%C3%A9":                  nil,
		"/caf%c3%a9":                  nil, // another spelling of the same
		"/%7euser":                    nil,
		"/a%2eb":                      nil, // no dot segment
		"/a//b":                       {"/a//b"},
		"//host/path":                 {"//host/path", "/path"},
		"//host":                      {"//host", "/"},
		`/\host\a%2fb/../c`:           {"/a%2Fb/../c", "/c"},
		"/a/../b":                     {"/a/../b"},
		"/search/..%2fhealthz":        {"/search/..%2Fhealthz", "/search/../healthz"},
		"/search/%2e%2e/healthz":      {"/search/../healthz"},
		"/projects/a%2Fb":             {"/projects/a%2Fb"},
		`/a\b`:                        {`/a/b`},
		"/a%5Cb":                      {`/a/b`},
		"/a%252fb":                    {"/a/b"},
		"/a%25252fb":                  {"/a/b"},
		"/a%2541":                     {"/aA"},
		"/a%2fb/../login":             {"/a%2Fb/../login", "/login", "/a/b/../login"},
		"/x/%2e%2e%2flogin":           {"/x/..%2Flogin", "/x/../login"},
		"/login;jsessionid=1":         {"/login"},
		"/login;":                     {"/login"},
		"/a;x=1/b;y/c":                {"/a/b/c"},
		"/x/..;/login":                {"/login"},
		"/;/login":                    {"/login"},
		"/..;a=b/%2e;/login":          {"/login"},
		"/login%3Bx":                  {"/login"},
		"/login%253bx":                {"/login"},
		"/a;x%2fb":                    {"/a", "/a/b"},
		"/a%2fb;x":                    {"/a%2Fb"},
		"//host;x/path":               {"/path"},
		"///host/path":                {"/path", "///host/path"},
		"////host/path":               {"/path"},
		`/\/host/path`:                {"/path"},
		`///host/%2e%2e/a%2fb`:        {"/a%2Fb"},
		"///host;x/path":              {"/path"},
		`/search/..%5c..%252Fhealthz`: {`/search/../../healthz`, `/search/..\../healthz`, "/healthz"},
	} {
		u := &url.URL{Path: sent}
		if sent != "" && sent != "*" {
			var err error
			if u, err = url.ParseRequestURI(sent); err != nil {
				t.Fatal(err)
			}
		}
		got := keytext.Readings(u.Path, u.RawPath)
		for _, w := range want {
			if !slices.Contains(got, w) {
				t.Errorf("%s: %q lack %q", sent, got, w)
			}
		}
		if want == nil && got != nil {
			t.Errorf("%s: %q, want none", sent, got)
		}
	}
}

// FuzzReadings: the readings are few, differ, begin with a slash, and do not depend on how plain bytes are spelled.
func FuzzReadings(f *testing.F) {
	for _, p := range []string{"/search/..%2fhealthz", `/a\..%5c%252e%252e//b/`, "/a/b", "*", "", "/%", "/%2", "a%2f", "/%2%35f%25", "/../..%2F", "/a;b%2f..%5c;/%252e;%3b//c", "%252A", `/\\//h/..%2f;x`} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, sent string) {
		decoded, err := url.PathUnescape(sent)
		if err != nil {
			decoded = sent
		}
		raw := sent
		if raw == decoded {
			raw = ""
		}
		got := keytext.Readings(decoded, raw)
		if len(got) > 4*17 {
			t.Fatalf("%q: %d readings", sent, len(got))
		}
		for i, p := range got {
			if p == "" || p[0] != '/' || p == keytext.CleanPath(decoded) || slices.Contains(got[:i], p) {
				t.Errorf("%q: reading %d of %q is %q", sent, i, got, p)
			}
		}
		if !strings.ContainsAny(sent, `%\;`) && keytext.IsCleanPath(sent) && got != nil {
			t.Errorf("%q: %q, want none", sent, got)
		}
		// Each byte that is encoded once reads as the same path.
		if raw != "" && err == nil {
			spelled := keytext.Readings(decoded, upperHex(raw))
			if !slices.Equal(got, spelled) {
				t.Errorf("%q: %q, but %q in upper case", sent, got, spelled)
			}
		}
	})
}

// upperHex writes the hexadecimal digits of encoded bytes in upper case.
func upperHex(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:], strings.ToUpper(string(b[i+1:i+3])))
			i += 2
		}
	}
	return string(b)
}

func TestReadingsOfUsualPathsDoNotAllocate(t *testing.T) {
	for _, p := range []string{"/v1/things7/12", "/100%", "/ä ö"} {
		if n := testing.AllocsPerRun(10, func() { keytext.Readings(p, "") }); n != 0 {
			t.Errorf("%s: %v allocations", p, n)
		}
	}
}
