package config

import (
	"bytes"
	"math"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cel.dev/cel-go/cel"
	"go.yaml.in/yaml/v4"

	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/internal/keytext"
	"github.com/weirhq/weir/policy"
)

// testDecoder reads expressions without a file.
func testDecoder(t *testing.T) *decoder {
	t.Helper()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	x, err := newExpressions(func() time.Time { return noon })
	if err != nil {
		t.Fatal(err)
	}
	return &decoder{Reader: yamlread.New("f", nil, yamlread.Options{Words: words, Env: testEnv}), expressions: x}
}

func expression(s string) yamlread.Value {
	return yamlread.Value{Node: &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s, Line: 1, Column: 1}, Path: "key"}
}

func (d *decoder) must(t *testing.T, s string) {
	t.Helper()
	if d.Mistakes.Count() > 0 {
		t.Fatalf("%s: %v", s, d.Mistakes.All)
	}
}

func testRequest() *policy.Request {
	return &policy.Request{
		Protocol: "http", Method: "GET", Host: "API.example.com:443", Path: "/v2//users/./7", Query: "user=a%20b&x=1&user=c",
		Route: "GET /v2/users/{id}", Client: netip.MustParseAddr("::ffff:192.0.2.7"),
		Header:     http.Header{"X-Api-Key": {"k1", "k2"}, "X-Cost": {"12"}, "X-Bad": {"abc"}, "X-Huge": {"99999999999999999999"}},
		Attributes: map[string]string{"tenant": "acme"},
	}
}

func TestExpressionsAnswer(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for source, want := range map[string]string{
		`request.method + " " + request.host.trim()`:                                "GET api.example.com",
		`request.path.lowerAscii()`:                                                 "/v2/users/7",
		`request.query.split("&")[0]`:                                               "user=a%20b",
		`queryParam("user").upperAscii()`:                                           "A B",
		`queryParam("none").trim() + "."`:                                           ".",
		`queryParam(request.method + "x")`:                                          "",
		`request.route.replace("GET ", "")`:                                         "/v2/users/{id}",
		`request.protocol == "http" ? "h" : "g"`:                                    "h",
		`request.headers["X-API-Key".lowerAscii()]`:                                 "k1",
		`request.headers["missing"].upperAscii() + "-"`:                             "-",
		`request.headers["host"].upperAscii()`:                                      "API.EXAMPLE.COM",
		`client.ip.replace(".", "_")`:                                               "192_0_2_7",
		`client.net.substring(0, 9)`:                                                "192.0.2.0",
		`attributes.tenant + string(size(attributes["none"]))`:                      "acme0",
		`path["id"] + path.id + string("id" in path)`:                               "false",
		`string(now.getFullYear()) + "-" + string(now.getHours())`:                  "2026-12",
		`string(request.cost)`:                                                      "1",
		`string(has(attributes.tenant)) + string(has(attributes.none))`:             "truefalse",
		`string("x-api-key" in request.headers) + string("x-y" in request.headers)`: "truefalse",
		`["a", "b"].exists(x, x == request.method) ? "in" : "out"`:                  "out",
		`"` + long + `".lowerAscii()`:                                               string(keytext.AppendPart(nil, long)),
		`inNetwork(client.ip, "192.0.2.0/24") ? "in" : "out"`:                       "in",
		`inNetwork("-", "0.0.0.0/0") ? "in" : "out"`:                                "out",
		`inNetwork(client.ip, "192.0.2.7") ? "in" : "out"`:                          "in",
	} {
		d := testDecoder(t)
		text := d.key(expression(source))
		d.must(t, source)
		if _, isCEL := text.(*celText); !isCEL {
			t.Errorf("%s is a %T: it does not need CEL", source, text)
		}
		got, err := text.AppendTo([]byte("before:"), testRequest())
		if err != nil || string(got) != "before:"+want {
			t.Errorf("%s: %q, %v, want %q", source, got, err, want)
		}
		if text.String() != source {
			t.Errorf("%s is spelled %s", source, text)
		}
	}
}

// TestSimpleExpressionsNeverRunCEL lists what is native, and holds it to what CEL answers, with random requests.
func TestSimpleExpressionsNeverRunCEL(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	for _, source := range []string{
		`client.ip`, `client.net`, `request.method`, `request.host`, `request.path`, `request.route`, `request.protocol`,
		`request.headers["x-api-key"]`, `request.headers["X-Api-Key"]`, `request.headers["host"]`, `path.id`, `path["id"]`, `attributes.tenant`,
		`attributes["a b"]`, `queryParam("user")`, `"constant"`, `'a"b'`, `client.ip + "/" + request.method`,
		`(request.headers["x-api-key"] + ("," + path.id)) + queryParam("x")`,
	} {
		d := testDecoder(t)
		text := d.key(expression(source))
		d.must(t, source)
		if _, isCEL := text.(*celText); isCEL || text == nil {
			t.Errorf("%s is a %T", source, text)
		}
		s, c := d.compile(expression(source), "", cel.StringType)
		slow := &celText{celValue: celValue[string]{evaluation: d.evaluation(s, c)}}
		for range 300 {
			r := &policy.Request{
				Protocol: pick("http", "grpc", ""), Method: pick("GET", "POST", ""), Route: pick("", "r"),
				Host: pick("a", "A:1", "[::1]:80", "x.", ""), Path: pick("", "/", "*", "/a/../b", "//x", "a", "/a/."),
				Query:      pick("", "user=1", "user=%2", "user=%41&x=2", "a;b&x=+", "x", "&&user", "%75ser=5", "user=a=b"),
				Attributes: map[string]string{pick("tenant", "a b"): pick("", "v", "ü,\\")},
			}
			if random.IntN(2) == 0 {
				r.Header = http.Header{pick("X-Api-Key", "Host"): {pick("", "k", "k,l"), "second"}}
			}
			if random.IntN(4) > 0 {
				r.Client = netip.MustParseAddr(pick("192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1%eth0", "::1"))
			}
			fast, err1 := text.AppendTo(nil, r)
			want, err2 := slow.AppendTo(nil, r)
			if err1 != nil || err2 != nil || !bytes.Equal(fast, want) {
				t.Fatalf("%s: %q, %v without CEL, %q, %v with it, of %+v", source, fast, err1, want, err2, r)
			}
		}
	}
}

func TestSimpleExpressionsAllocateNothing(t *testing.T) {
	d := testDecoder(t)
	text := d.key(expression(`client.ip + "/" + request.headers["x-api-key"]`))
	number := d.cost(expression(`int(request.headers["x-cost"])`))
	d.must(t, "")
	r, b := testRequest(), make([]byte, 0, 200)
	if n := testing.AllocsPerRun(100, func() { b, _ = text.AppendTo(b[:0], r) }); n != 0 {
		t.Errorf("a key: %v allocations", n)
	}
	var cost int64
	if n := testing.AllocsPerRun(100, func() { cost, _ = number.Int(r) }); n != 0 || cost != 12 {
		t.Errorf("a cost of %d: %v allocations", cost, n)
	}
}

func TestCosts(t *testing.T) {
	for source, want := range map[string]any{
		`5`: int64(5), `0`: int64(0), `request.cost`: int64(1), `request.cost * 3`: int64(3), `int(request.headers["x-cost"])`: int64(12),
		`int(request.headers["x-cost"]) + 1`: int64(13),
		`int(request.headers["x-bad"])`:      `weir: cost "int(request.headers[\"x-bad\"])": "abc" is no whole number`,
		`int(request.headers["x-none"])`:     `weir: cost "int(request.headers[\"x-none\"])": "" is no whole number`,
		`int(request.headers["x-huge"])`:     int64(math.MaxInt64),
		`request.cost - 2`:                   int64(-1),
		`request.cost * 1000000000000001`:    int64(1_000_000_000_000_001),
		`request.cost / (request.cost - 1)`:  `weir: expression "request.cost / (request.cost - 1)": division by zero`,
		`9223372036854775807 + request.cost`: `weir: expression "9223372036854775807 + request.cost": integer overflow`,
		`size(request.path)`:                 int64(len("/v2/users/7")),
		`request.method == "GET" ? 1 : 10`:   int64(1),
	} {
		d := testDecoder(t)
		number := d.cost(expression(source))
		d.must(t, source)
		got, err := number.Int(testRequest())
		switch want := want.(type) {
		case int64:
			if err != nil || got != want {
				t.Errorf("%s: %d, %v, want %d", source, got, err, want)
			}
		case string:
			if err == nil || err.Error() != want {
				t.Errorf("%s: %d, %v, want %s", source, got, err, want)
			}
		}
	}
}

// TestNoExpressionHangs evaluates what would take longer than a test may, or hold very much.
func TestNoExpressionHangs(t *testing.T) {
	list := "[" + strings.Repeat("1,", 200) + "1]"
	for _, source := range []string{
		list + `.all(a, ` + list + `.all(b, ` + list + `.all(c, a + b + c > 0 || request.method == "")))`,
		`request.headers["x-long"]` + strings.Repeat(`.replace("a", "aaaaaaaaaaaaaaaa")`, 12) + ` == ""`,
		`request.headers["x-long"].split("").all(a, request.headers["x-long"].split("").all(b, a + b != request.method))`,
		`request.headers["x-long"].matches("(a*)*(a*)*(a*)*b") || ` + list + `.all(x, !request.headers["x-long"].matches("(a+)+b"))`,
	} {
		d := testDecoder(t)
		when := d.when(expression(source))
		d.must(t, source)
		r := testRequest()
		r.Header = http.Header{"X-Long": {strings.Repeat("a", 100_000)}}
		if _, err := when.Holds(r); err == nil {
			t.Errorf("%.80s is evaluated", source)
		}
	}
	for _, source := range []string{
		strings.Repeat("(", 3000) + "true" + strings.Repeat(")", 500), strings.Repeat("!", 4000) + "true",
		"true" + strings.Repeat(" || true", 500), strings.Repeat("[", 2000), strings.Repeat("a.", 2000) + "b",
		strings.Repeat("1+", 2000) + "1 > 0",
	} {
		d := testDecoder(t)
		when := d.when(expression(source))
		if (when == nil) != (d.Mistakes.Count() > 0) {
			t.Errorf("%.80s: %v, %v", source, when, d.Mistakes.All)
		}
	}
}

// TestExpressionsSeeEveryReadingOfThePath: a condition that is true of a path as one server reads it limits the request, and it
// must be true of all of them to exempt it.
func TestExpressionsSeeEveryReadingOfThePath(t *testing.T) {
	const text = `version: 1
policies: {p: {limit: 1000/h, key: 'request.path + "|" + path.q'}}
rules:
  - {name: outside, when: '!request.path.startsWith("/x")', limits: p}
  - {name: search, match: {path: "/search/{q}"}, limits: p}
  - {name: free, when: 'request.path == "/free"', exempt: true}
`
	file, err := Parse("weir.yaml", []byte(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := policy.NewEngine(file.Set, policy.EngineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, raw string
		exempt    bool
		keys      []string
	}{
		{"/x/y", "", false, nil},
		{"/free", "", true, nil},
		{"/x/../free", "/x/..%2ffree", false, nil},
		{"/x/../y", "/x/..%2fy", false, []string{"/y|"}},
		{"/search/../free", "/search/..%2ffree", false, []string{"/search/..%2Ffree|", "/search/..%2Ffree|..%2Ffree", "/search/../free|"}},
	} {
		var v policy.Verdict
		e.Take(&policy.Request{Path: c.path, RawPath: c.raw}, &v)
		var keys []string
		for i := range v.Parts {
			keys = append(keys, string(v.Parts[i].Key))
		}
		slices.Sort(keys)
		slices.Sort(c.keys)
		if v.Exempt != c.exempt || !slices.Equal(keys, c.keys) {
			t.Errorf("%s: exempt %t, keys %q, want %t, %q", c.raw, v.Exempt, keys, c.exempt, c.keys)
		}
		v.Release()
	}
}

func TestExpressionsAreSafeForConcurrentUse(t *testing.T) {
	d := testDecoder(t)
	when := d.when(expression(`request.headers["x-api-key"] == "k1" && attributes.tenant.startsWith("ac") && inNetwork(client.ip, "192.0.2.0/24")`))
	d.must(t, "")
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			good, bad := testRequest(), testRequest()
			bad.Attributes = nil
			for range 500 {
				if yes, err := when.Holds(good); !yes || err != nil {
					t.Error(yes, err)
				}
				if yes, err := when.Holds(bad); yes || err != nil {
					t.Error(yes, err)
				}
			}
		})
	}
	group.Wait()
}

func TestTheSameExpressionIsCompiledOnce(t *testing.T) {
	d := testDecoder(t)
	for range 3 {
		d.when(expression(`request.path.endsWith("x")`))
		d.key(expression(`request.path.upperAscii()`))
	}
	if n := len(d.expressions.compiled); n != 2 {
		t.Errorf("%d were compiled", n)
	}
}

func TestParseInt(t *testing.T) {
	for _, text := range []string{
		"", "0", "-0", "+5", "007", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
		"18446744073709551616", "00000000000000000000000000005", "1_0", " 1", "1 ", "--1", "+", "-", "1.0", "0x1", "99999999999999999999",
	} {
		want, err := strconv.ParseInt(text, 10, 64)
		if got, ok := parseInt([]byte(text)); ok != (err == nil) || ok && got != want {
			t.Errorf("%q: %d, %v, want %d, %v", text, got, ok, want, err)
		}
	}
}

func BenchmarkExpression(b *testing.B) {
	x, err := newExpressions(time.Now)
	if err != nil {
		b.Fatal(err)
	}
	d := &decoder{Reader: yamlread.New("f", nil, yamlread.Options{Words: words, Env: testEnv}), expressions: x}
	r := testRequest()
	for _, source := range []string{`request.path.startsWith("/v2")`, `request.headers["x-api-key"] == "k1" && attributes.tenant == "acme"`} {
		when := d.when(expression(source))
		b.Run(source, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := when.Holds(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestPartsOfExpressions: what an expression takes from a request is all known, or it says that it is not.
func TestPartsOfExpressions(t *testing.T) {
	for source, want := range map[string]string{
		`client.ip.startsWith("10.") ? "a" : client.net`:                          "client.ip client.net true",
		`request.headers["x-api-key"].lowerAscii()`:                               `request.headers["x-api-key"] true`,
		`"x" in request.headers ? "a" : "b"`:                                      `request.headers["x"] true`,
		`path.user.replace("-", "_") + attributes["a"]`:                           `path["user"] attributes["a"] true`,
		`queryParam("q").lowerAscii()`:                                            `queryParam("q") true`,
		`request.query.lowerAscii()`:                                              "false",
		`string(request.cost)`:                                                    "false",
		`string(now.getHours()) + client.ip`:                                      "client.ip false",
		`["a", "b"].exists(x, x == request.method) ? request.host : request.path`: "request.method request.host request.path true",
	} {
		d := testDecoder(t)
		text, isCEL := d.key(expression(source)).(*celText)
		d.must(t, source)
		if !isCEL {
			t.Fatalf("%s needs no CEL", source)
		}
		parts, all := text.Parts()
		words := make([]string, 0, len(parts)+1)
		for _, p := range parts {
			words = append(words, p.String())
		}
		if got := strings.Join(append(words, strconv.FormatBool(all)), " "); got != want {
			t.Errorf("%s: %s, want %s", source, got, want)
		}
	}
}
