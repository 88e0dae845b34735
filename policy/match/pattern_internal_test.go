package match

import (
	"strings"
	"testing"
)

func TestPatternsMatchAsServeMuxDoes(t *testing.T) {
	for _, pattern := range []string{
		"/", "/{$}", "/a", "/a/", "/a/{$}", "/{a}", "/{a}/", "/{a}/{$}", "/{rest...}", "/a/{rest...}", "/a/{b}/c", "/{a}/{b}/{rest...}",
		"/%61", "/a%20b", "/100%", "/%zz", "/a}", "/ä", "/%C3%A4", "/{id}/x",
	} {
		p, accepted := parsePattern(pattern)
		if accepted != "" {
			t.Errorf("%s: must be %s", pattern, accepted)
			continue
		}
		for _, path := range []string{
			"/", "/a", "/a/", "/a/b", "/a/b/", "/a/b/c", "/a/x/c", "/a/b/c/d", "/b", "/a b", "/100%", "/%zz", "/a}", "/ä", "/7/x", "/%61",
			"/.well-known/x",
		} {
			want, _ := askMux(pattern, path)
			if got := p.matches(path); got != want.ok {
				t.Errorf("%s matches %s: %v, want %v", pattern, path, got, want.ok)
			}
			for _, name := range wildcardNames {
				if want.ok && p.value(path, name) != want.values[name] {
					t.Errorf("%s of %s: %s is %q, want %q", pattern, path, name, p.value(path, name), want.values[name])
				}
			}
		}
		if p.matches("") || p.matches("*") || p.matches("a") {
			t.Errorf("%s matches what is no path", pattern)
		}
	}
}

func TestPatternsThatAreRefused(t *testing.T) {
	for pattern, want := range map[string]string{
		"":                                     patternForm,
		"a":                                    patternForm,
		"GET /a":                               patternForm,
		"example.com/a":                        patternForm,
		"/a b":                                 patternNoSpace,
		"/a\tb":                                patternNoSpace,
		"/" + strings.Repeat("x", 2048):        patternShort,
		strings.Repeat("/x", 65):               patternFlat,
		"/a//b":                                patternClean,
		"//":                                   patternClean,
		"/a/./b":                               patternClean,
		"/a/%2e%2E":                            patternClean,
		"/a%2Fb":                               patternSlash,
		"/a/*":                                 patternStar,
		"/a/**":                                patternStar,
		"/*.png":                               patternStar,
		"/**/{a}":                              patternStar,
		"/a?b=c":                               patternNoQuery,
		"/a#b":                                 patternNoQuery,
		"/{a":                                  patternWhole,
		"/{a}b":                                patternWhole,
		"/b{a}":                                patternWhole,
		"/{}":                                  patternName,
		"/{...}":                               patternName,
		"/{a-b}":                               patternName,
		"/{1}":                                 patternName,
		"/{a...}/b":                            patternRestAtEnd,
		"/{a...}/":                             patternRestAtEnd,
		"/{$}/":                                patternEndAtEnd,
		"/{$...}":                              patternName,
		"/{a}/{a}":                             patternDistinct,
		"/{a}/b/{a...}":                        patternDistinct,
		"/\xff{a}":                             patternWhole,
		"/{\xff}":                              patternName,
		"/" + strings.Repeat("{a}/", 70) + "x": patternFlat,
	} {
		if _, accepted := parsePattern(pattern); accepted != want {
			t.Errorf("%.40q: must be %q, want %q", pattern, accepted, want)
		}
	}
	for _, pattern := range []string{"/" + strings.Repeat("x", 2047), strings.Repeat("/x", 64), "/%2A", "/a%2a%3F%23"} {
		if _, accepted := parsePattern(pattern); accepted != "" {
			t.Errorf("%.40q: must be %s", pattern, accepted)
		}
	}
}

// FuzzPatternIsThatOfServeMux: a pattern is refused where net/http refuses it, and matches what it matches there.
func FuzzPatternIsThatOfServeMux(f *testing.F) {
	for _, pattern := range []string{"/", "/a/{id}/{$}", "/{a}/{rest...}", "/%41//b", "/a/{", "/{a}{b}", "/x%2fy", "GET /", "/é/{é}"} {
		f.Add(pattern, "/a/b/c")
	}
	f.Add("/0/{id}", "0")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		p, accepted := parsePattern(pattern)
		path = plainPath(path)
		want, refused := askMux(pattern, path)
		switch accepted {
		case "":
		case patternForm, patternNoSpace, patternShort, patternFlat, patternClean, patternSlash, patternStar, patternNoQuery:
			return // bounds of this package, and patterns that match no clean path
		default:
			if !refused {
				t.Fatalf("%q: must be %s, but net/http takes it", pattern, accepted)
			}
			return
		}
		if refused {
			t.Fatalf("%q is taken, but net/http refuses it", pattern)
		}
		if got := p.matches(path); got != (want.ok && path != "*") {
			t.Fatalf("%q matches %q: %v, want %v", pattern, path, got, want.ok)
		}
		for _, name := range wildcardNames {
			if !p.matches(path) {
				break // nothing stands for a wildcard then
			}
			if got := p.value(path, name); want.ok && got != want.values[name] {
				t.Fatalf("%q of %q: %s is %q, want %q", pattern, path, name, got, want.values[name])
			}
		}
	})
}
