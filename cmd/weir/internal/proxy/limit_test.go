package proxy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"reflect"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/proxy"
)

// problem is what the body of a refusal says.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Policies []string `json:"violated-policies"` //nolint:tagliatelle // registered with the type
}

func problemOf(t *testing.T, a answer) problem {
	t.Helper()
	if got := a.Header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type is %q", got)
	}
	var p problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("%v in %q", err, a.body)
	}
	if p.Status != a.StatusCode {
		t.Errorf("status %d in an answer with %d", p.Status, a.StatusCode)
	}
	return p
}

// spoken is a refusal with the limit as it was configured, and the time as people say it.
var spoken = regexp.MustCompile(`^The limit "default" is 2/day, burst 2, and has 0 remaining, but this request needs 1; ` +
	`retry after (11|12) hours( [0-9]+ minutes?)?\.$`)

func TestRefusedRequestsDoNotReachTheUpstream(t *testing.T) {
	var arrived atomic.Int64
	p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		ok(w, r)
	}), func(o *proxy.Options) { o.Engine = limit(t, 2) })
	for i := range 2 {
		res := p.get(t, "/")
		want := `"default";r=` + string(rune('1'-i)) + `;t=`
		if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Ratelimit"), want) {
			t.Errorf("request %d: %s, RateLimit %q, want %s", i, res.Status, res.Header.Get("Ratelimit"), want)
		}
		if got := res.Header.Get("Ratelimit-Policy"); got != `"default";q=2;w=86400` {
			t.Errorf("RateLimit-Policy is %q", got)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodHead} {
		req := request(t, method, p.url, nil)
		if method == http.MethodPost {
			req = request(t, method, p.url, strings.NewReader(strings.Repeat("x", 100_000)))
		}
		res := p.do(t, req)
		if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") == "" ||
			!strings.HasPrefix(res.Header.Get("Ratelimit"), `"default";r=0`) {
			t.Errorf("%s: %s %v", method, res.Status, res.Header)
		}
		if method == http.MethodHead {
			continue
		}
		got := problemOf(t, res)
		if got.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" ||
			got.Title != "Request cannot be satisfied as assigned quota has been exceeded" ||
			!reflect.DeepEqual(got.Policies, []string{"default"}) ||
			!spoken.MatchString(got.Detail) {
			t.Errorf("%s: %+v", method, got)
		}
	}
	if arrived.Load() != 2 {
		t.Errorf("%d requests arrived, want 2", arrived.Load())
	}
	p.expectTotals(t, proxy.Totals{Allowed: 2, Refused: 3})
}

func TestFieldsOfTheUpstreamAreKept(t *testing.T) {
	for _, c := range []struct {
		name        string
		fields      http.Header
		limit, quot []string // what the client gets, ours as "+"
	}{
		{
			"the current form",
			http.Header{"Ratelimit": {`"daily";r=9;t=60`}, "Ratelimit-Policy": {`"daily";q=10;w=86400`}},
			[]string{`"daily";r=9;t=60`, "+"},
			[]string{`"daily";q=10;w=86400`, "+"},
		},
		{
			"tokens",
			http.Header{"Ratelimit": {`daily;r=9`, ` hourly;r=1`}},
			[]string{`daily;r=9`, `hourly;r=1`, "+"},
			[]string{"+"},
		},
		{"an empty field", http.Header{"Ratelimit": {``}}, []string{``, "+"}, []string{"+"}},
		// Together they would be neither the old form nor the new one.
		{
			"an old form",
			http.Header{"Ratelimit": {`limit=10, remaining=9, reset=60`}, "Ratelimit-Policy": {`10;w=60`}},
			[]string{`limit=10, remaining=9, reset=60`},
			[]string{`10;w=60`},
		},
		{"no list", http.Header{"Ratelimit": {`=`}}, []string{`=`}, nil},
		{
			"the trio",
			http.Header{"X-Ratelimit-Remaining": {"9"}, "Retry-After": {"7"}},
			[]string{"+"},
			[]string{"+"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
				maps.Copy(w.Header(), c.fields)
				ok(w, r)
			}), func(o *proxy.Options) { o.Engine = limit(t, 2) })
			res := p.get(t, "/")
			check := func(name string, want []string, ours string) {
				t.Helper()
				got := res.Header[name]
				if len(got) != len(want) {
					t.Fatalf("%s is %q, want %q", name, got, want)
				}
				for i := range got {
					if want[i] == "+" && !strings.HasPrefix(got[i], ours) || want[i] != "+" && got[i] != want[i] {
						t.Errorf("%s is %q, want %q", name, got, want)
					}
				}
			}
			check("Ratelimit", c.limit, `"default";r=1`)
			check("Ratelimit-Policy", c.quot, `"default";q=2`)
			for _, name := range []string{"X-Ratelimit-Remaining", "Retry-After"} {
				if !reflect.DeepEqual(res.Header[name], c.fields[name]) {
					t.Errorf("%s is %q", name, res.Header[name])
				}
			}
		})
	}
}

func TestKeys(t *testing.T) {
	by, err := flags.ParseKey("header:X-Api-Key,path")
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, upstream(t, ok), func(o *proxy.Options) { o.Engine = limitBy(t, by, 1) })
	for _, c := range []struct {
		key, path string
		status    int
	}{
		{"a", "/1", 200},
		{"a", "/1", 429},
		{"a", "/./1", 429},
		{"b", "/1", 200},
		{"a", "/2", 200},
	} {
		req := request(t, http.MethodGet, p.url+c.path, nil)
		req.Header.Set("X-Api-Key", c.key)
		if res := p.do(t, req); res.StatusCode != c.status {
			t.Errorf("%s %s: %s, want %d", c.key, c.path, res.Status, c.status)
		}
	}
}

// TestFieldsThatEndHereHaveNoLimits: a field that the upstream does not get, as the client lists it in Connection or as no client may
// say such a thing, makes its requests none of another key.
func TestFieldsThatEndHereHaveNoLimits(t *testing.T) {
	for _, c := range []struct{ field, connection string }{
		{"X-Api-Key", "X-Api-Key"},
		{"X-Api-Key", "close, x-api-key"},
		{"X-Api-Key", "keep-alive\r\nConnection: \tX-API-KEY\t,"},
		{"X-Real-Ip", "close"},
		{"X-Forwarded-User", "close"},
		{"Proxy-Authorization", "close"},
		{"Upgrade", "close"},
		{"Upgrade", "upgrade\r\nTransfer-Encoding: chunked\r\n\r\n0"},
	} {
		by, err := flags.ParseKey("header:" + c.field)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan http.Header, 2)
		p := start(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
			got <- r.Header
			ok(w, r)
		}), func(o *proxy.Options) { o.Engine = limitBy(t, by, 1) })
		for i, want := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusTooManyRequests} {
			_, from := p.raw(t, fmt.Sprintf("GET / HTTP/1.1\r\nHost: a\r\n%s: %d\r\nConnection: %s\r\n\r\n", c.field, i, c.connection))
			if res := read(t, from); res.StatusCode != want {
				t.Errorf("%+v, request %d: %d, want %d", c, i, res.StatusCode, want)
			}
		}
		if h := receive(t, got, "the request"); len(h[c.field]) > 0 {
			t.Errorf("%+v: the upstream got %v", c, h)
		}
	}
	// How long a body is the upstream is told in any case.
	by, err := flags.ParseKey("header:Content-Length")
	if err != nil {
		t.Fatal(err)
	}
	long := start(t, upstream(t, ok), func(o *proxy.Options) { o.Engine = limitBy(t, by, 1) })
	for _, body := range []string{"a", "ab"} {
		_, from := long.raw(t, fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nConnection: Content-Length, close\r\n\r\n%s",
			len(body), body))
		if res := read(t, from); res.StatusCode != http.StatusOK {
			t.Errorf("a body of %d bytes: %d", len(body), res.StatusCode)
		}
	}
	// What a proxy in front says of the client stays.
	p := start(t, upstream(t, ok), func(o *proxy.Options) {
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		o.Engine = limit(t, 1)
	})
	for _, client := range []string{"192.0.2.1", "192.0.2.2"} {
		_, from := p.raw(t, "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: "+client+"\r\nConnection: X-Forwarded-For, close\r\n\r\n")
		if res := read(t, from); res.StatusCode != http.StatusOK {
			t.Errorf("client %s: %d", client, res.StatusCode)
		}
	}
}

const reducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

func TestTableFull(t *testing.T) {
	p := start(t, upstream(t, ok), func(o *proxy.Options) {
		o.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		o.Engine = engine(t, flags.Limit{By: flags.Client(), Rate: weir.PerDay(1), Burst: 9, MaxKeys: 1})
	})
	for i, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		req := request(t, http.MethodGet, p.url, nil)
		req.Header.Set("X-Forwarded-For", "192.0.2."+string(rune('1'+i)))
		res := p.do(t, req)
		if res.StatusCode != want {
			t.Errorf("client %d: %s, want %d", i, res.Status, want)
		}
		if want != http.StatusOK && problemOf(t, res).Type != reducedCapacity {
			t.Errorf("%+v", problemOf(t, res))
		}
	}
	p.expectTotals(t, proxy.Totals{Allowed: 1, Refused: 1})
}

// TestOneKeyForEveryReadingOfAPath: with --by path no spelling that a service could read as /login has permits of its own.
func TestOneKeyForEveryReadingOfAPath(t *testing.T) {
	by, err := flags.ParseKey("path")
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, upstream(t, ok), func(o *proxy.Options) { o.Engine = limitBy(t, by, 1) })
	for i, target := range []string{"/login", "/a%2fb/../login", "/x/%2e%2e/login", `/x/..%5clogin`, "/x/..%252flogin", "//login"} {
		want := http.StatusTooManyRequests
		if i == 0 {
			want = http.StatusOK
		}
		_, from := p.raw(t, "GET "+target+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		if got := read(t, from); got.StatusCode != want {
			t.Errorf("%s: %d, want %d", target, got.StatusCode, want)
		}
	}
}
