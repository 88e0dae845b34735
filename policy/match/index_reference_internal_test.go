package match

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	gopath "path"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/keytext"
)

// The reference looks at one rule after the other, and asks net/http.ServeMux for one pattern at a time.

// muxMatch is what ServeMux makes of a path that is clean: whether the pattern matches, and what stands for its wildcards.
type muxMatch struct {
	ok     bool
	values map[string]string
}

var wildcardNames = []string{"a", "b", "c", "id", "tenant", "rest"}

// askMux asks ServeMux, which refuses some patterns.
func askMux(pattern, path string) (m muxMatch, refused bool) {
	defer func() {
		if recover() != nil {
			refused = true
		}
	}()
	mux := http.NewServeMux()
	mux.HandleFunc(pattern, func(_ http.ResponseWriter, r *http.Request) {
		m = muxMatch{true, map[string]string{}}
		for _, name := range wildcardNames {
			m.values[name] = r.PathValue(name)
		}
	})
	mux.ServeHTTP(httptest.NewRecorder(), &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path}, Header: http.Header{}})
	return m, false
}

// plainPath resolves a path as any server would.
func plainPath(p string) string {
	if p == "*" {
		return p
	}
	clean := gopath.Clean("/" + p)
	last := p[strings.LastIndexByte(p, '/')+1:]
	if clean != "/" && (last == "" || last == "." || last == "..") && p != "" {
		clean += "/"
	}
	return clean
}

func plainHost(h string) string {
	h = strings.ToLower(h)
	if name, port, ok := strings.Cut(h, "]"); ok && (port == "" || port[0] == ':') {
		return strings.TrimPrefix(name, "[")
	}
	if strings.Count(h, ":") == 1 {
		h, _, _ = strings.Cut(h, ":")
	}
	return strings.TrimSuffix(h, ".")
}

// anyOf reports whether there are no values or one of them is good.
func anyOf[T any](values []T, good func(T) bool) bool {
	return len(values) == 0 || slices.ContainsFunc(values, good)
}

// plainMatch is the reference. It returns which of the patterns matches first as well.
func plainMatch(m *written, r *View) (bool, muxMatch) {
	var first muxMatch
	header, _ := r.Header.(http.Header)
	ok := anyOf(m.Methods, func(s string) bool { return s == r.Method || s == http.MethodGet && r.Method == http.MethodHead }) &&
		anyOf(m.Routes, func(s string) bool { return s == r.Route }) &&
		anyOf(m.Protocols, func(s string) bool { return s == r.Protocol }) &&
		anyOf(m.Clients, func(p netip.Prefix) bool { return r.Client.IsValid() && p.Contains(r.Client.Unmap().WithZone("")) }) &&
		anyOf(m.Hosts, func(s string) bool {
			host := plainHost(r.Host)
			if domain, ok := strings.CutPrefix(s, "*."); ok {
				domain = "." + plainHost(domain)
				return strings.HasSuffix(host, domain) && host != domain
			}
			return host == plainHost(s)
		}) &&
		anyOf(m.Paths, func(s string) bool {
			if path := plainPath(r.Path); path != "*" {
				first, _ = askMux(s, path)
			}
			return first.ok
		})
	for _, h := range m.Headers {
		values := header.Values(h.Name)
		prefix, isPrefix := strings.CutSuffix(h.Value, "*")
		switch {
		case h.Absent:
			ok = ok && len(values) == 0
		case isPrefix:
			ok = ok && len(values) > 0 && strings.HasPrefix(values[0], prefix)
		default:
			ok = ok && len(values) > 0 && values[0] == h.Value
		}
	}
	return ok, first
}

// world makes rules and requests out of few words, so that they meet often.
type world struct {
	*rand.Rand

	dense bool // rules have most conditions, and so share their values with many others
}

func (w world) word(words ...string) string { return words[w.IntN(len(words))] }

// some returns up to two values, or usually none.
func some[T any](w world, likely int, one func() T) []T {
	var values []T
	if w.dense {
		likely = 7
	}
	if w.IntN(10) < likely {
		for range 1 + w.IntN(2) {
			values = append(values, one())
		}
	}
	return values
}

func (w world) pattern() string {
	var b strings.Builder
	names := w.Perm(len(wildcardNames))
	for i := range w.IntN(4) {
		b.WriteByte('/')
		if w.IntN(3) == 0 {
			b.WriteString("{" + wildcardNames[names[i]] + "}")
		} else {
			b.WriteString(w.word("a", "b", "%61", "x", "a%20b", "100%"))
		}
	}
	b.WriteString(w.word("", "/", "/{$}", "/{rest...}", ""))
	if w.dense {
		return w.word("/a", "/{a}", "/{b}/{rest...}", "/")
	}
	if b.Len() == 0 || strings.Contains(b.String(), "{rest}") {
		return "/a"
	}
	return b.String()
}

func (w world) path() string {
	var b strings.Builder
	for range w.IntN(5) {
		b.WriteString("/" + w.word("a", "b", "x", "a b", "100%", "..", ".", "", "a", "b", ".well-known", "..."))
	}
	return b.String() + w.word("", "", "/", "/.", "*")
}

func (w world) host() string {
	return w.word("example.com", "a.example.com", "b.a.example.com", "x.y.z.example.com", "com", "2001:db8::1", "b.example.org")
}

func (w world) network() netip.Prefix {
	return netip.MustParsePrefix(w.word("10.0.0.0/8", "10.7.7.7/12", "10.1.0.0/16", "10.1.2.3/32", "0.0.0.0/0", "::/0", "2001:db8::/32", "2001:db8::1/128"))
}

func (w world) match() written {
	return written{
		Methods: some(w, 2, func() string { return w.word("GET", "POST", "HEAD", "PUT") }),
		Hosts: some(w, 2, func() string {
			if host := w.host(); strings.Contains(host, ":") || w.IntN(2) == 0 {
				return host
			}
			return "*." + w.word("example.com", "Example.com", "a.example.com", "com")
		}),
		Paths: some(w, 5, w.pattern),
		Headers: some(w, 2, func() field {
			return []field{
				{Name: "x-plan", Value: "gold"},
				{Name: "X-Plan", Value: "free"},
				{Name: "X-Plan", Value: "g*"},
				{Name: "X-Plan", Value: "*"},
				{Name: "X-Plan", Absent: true},
				{Name: "X-Key", Value: "1"},
				{Name: "X-Key", Value: ""},
			}[w.IntN(7)]
		}),
		Clients:   some(w, 2, w.network),
		Routes:    some(w, 1, func() string { return w.word("r1", "r2") }),
		Protocols: some(w, 1, func() string { return w.word("http", "grpc") }),
	}
}

func (w world) request() View {
	r := View{
		Method:   w.word("GET", "POST", "HEAD", "get", ""),
		Host:     w.word("", "", "A.", ".") + w.host(),
		Path:     w.path(),
		Route:    w.word("", "r1", "r2"),
		Protocol: w.word("http", "grpc", ""),
	}
	if strings.Contains(r.Host, "::") {
		r.Host = w.word("[2001:db8::1]", "[2001:DB8::1]:80", "2001:db8::1")
	} else {
		r.Host += w.word("", "", ".", ":8080", ".:80")
	}
	header := http.Header{}
	if w.IntN(2) == 0 {
		header["X-Plan"] = []string{w.word("gold", "free", "Gold", ""), "gold"}
	}
	if w.IntN(3) == 0 {
		header["X-Key"] = []string{w.word("1", "")}
	}
	if len(header) > 0 {
		r.Header = header
	}
	if client := w.word("10.1.2.3", "10.9.9.9", "::ffff:10.1.2.3", "192.0.2.1", "2001:db8::1", "2001:db8::2%eth0", ""); client != "" {
		r.Client = netip.MustParseAddr(client)
	}
	return r
}

// compareWithReference checks everything that an index answers about a request, and returns how many rules match it.
func compareWithReference(t *testing.T, x *Index, rules []written, r *View) int {
	t.Helper()
	r = r.again()
	var want []int32
	values := map[int32]muxMatch{}
	for i := range rules {
		n := int32(i)
		ok, values1 := plainMatch(&rules[i], r)
		if ok {
			want = append(want, n)
			values[n] = values1
		}
		if why := x.Why(r, n); (why == "") != ok {
			t.Fatalf("%+v\n%+v\nmatches: %v, but why not is %q", rules[i], *r, ok, why)
		}
	}
	got := x.Match(r, []int32{-1})[1:]
	if !slices.Equal(got, want) {
		for i := range rules {
			if n := int32(i); slices.Contains(got, n) != slices.Contains(want, n) {
				t.Errorf("rule %d: %+v", i, rules[i])
			}
		}
		t.Fatalf("%+v\nrules %v, want %v", *r, got, want)
	}
	for _, n := range got {
		x.Bind(r, n)
		for _, name := range wildcardNames {
			if got, want := r.PathValue(name), values[n].values[name]; got != want {
				t.Fatalf("%v of %q: %s is %q, want %q", rules[n].Paths, r.Path, name, got, want)
			}
		}
	}
	return len(got)
}

// FuzzIndexIsTheReference is TestIndexIsTheReference with patterns, hosts and paths that the fuzzer writes.
func FuzzIndexIsTheReference(f *testing.F) {
	f.Add(uint64(1), "/{tenant}/x/7", "*.example.com", "/acme/x/7", "a.example.com:80")
	f.Add(uint64(2), "/a/{rest...}", "[::1]", "//a/./b/..", "[::1]:80")
	f.Add(uint64(3), "/%41/{$}", "a", "/A/", "A.")
	f.Add(uint64(2), "/a/{rest...}", "[::1......]", "//a/./b/..", "[::1]")
	f.Fuzz(func(t *testing.T, seed uint64, pattern, host, path, asked string) {
		w := world{rand.New(rand.NewPCG(seed, 2)), seed%4 == 0}
		var rules []written
		for range 1 + w.IntN(40) {
			rules = append(rules, w.match())
		}
		for _, m := range []written{{Paths: []string{pattern}}, {Hosts: []string{host}}, {Paths: []string{"/a", pattern}, Hosts: []string{host}}} {
			if _, err := newIndex([]written{m}); err == nil {
				rules = append(rules, m)
			}
		}
		x, err := newIndex(rules)
		if err != nil {
			t.Fatal(err)
		}
		r := w.request()
		compareWithReference(t, x, rules, &r)
		r.Path = path
		compareWithReference(t, x, rules, &r)
		if plainHost(asked) == keytext.CleanHost(asked) { // of what is no host at all there are several opinions
			r.Host = asked
			compareWithReference(t, x, rules, &r)
		}
	})
}
