//go:build !race

package config

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"cel.dev/cel-go/cel"

	"github.com/weirhq/weir/policy"
)

// writer writes random expressions of the kinds that closures know.
type writer struct{ *rand.Rand }

func (w writer) pick(of ...string) string { return of[w.IntN(len(of))] }

func (w writer) condition(depth int) string {
	if depth == 0 {
		return w.pick("true", "false", `has(attributes.tenant)`, `has(path.id)`, `"x-api-key" in request.headers`, `"Host" in request.headers`)
	}
	switch w.IntN(13) {
	case 0:
		return "!(" + w.condition(depth-1) + ")"
	case 1, 2:
		return "(" + w.condition(depth-1) + w.pick(" && ", " || ") + w.condition(depth-1) + ")"
	case 3:
		return "(" + w.condition(depth-1) + " ? " + w.condition(depth-1) + " : " + w.condition(depth-1) + ")"
	case 4:
		return w.text(depth-1) + w.pick(" == ", " != ", " < ", " <= ", " > ", " >= ") + w.text(depth-1)
	case 5:
		return w.number(depth-1) + w.pick(" == ", " != ", " < ", " <= ", " > ", " >= ") + w.number(depth-1)
	case 6:
		return "(" + w.condition(depth-1) + ")" + w.pick(" == ", " != ") + "(" + w.condition(depth-1) + ")"
	case 7:
		return w.text(depth-1) + "." + w.pick("startsWith", "endsWith", "contains") + "(" + w.text(depth-1) + ")"
	case 8:
		return w.text(depth-1) + `.matches(` + w.pick(`"^/v[0-9]+/"`, `"k1?$"`, `"(a+)+b"`, `"^$"`, `"(?i)API"`) + ")"
	case 9:
		return `matches(` + w.text(depth-1) + `, "[^a-z]")`
	case 10:
		return w.text(depth-1) + ` in ["GET", "", "k1", "acme"]`
	case 11:
		return w.number(depth-1) + " in [1, -2, 3, 12]"
	}
	return "inNetwork(" + w.pick("client.ip", "client.ip", "request.host", `"-"`, `request.headers["x-api-key"]`) + ", " +
		w.pick(`"192.0.2.0/24"`, `"2001:db8::/32"`, `"::/0"`, `"0.0.0.0/0"`, `"192.0.2.1"`, `"::ffff:192.0.2.1"`, `"::ffff:0:0/96"`) + ")"
}

func (w writer) text(depth int) string {
	if depth > 0 {
		switch w.IntN(8) {
		case 0:
			return "(" + w.condition(depth-1) + " ? " + w.text(depth-1) + " : " + w.text(depth-1) + ")"
		case 1, 2:
			return w.text(depth-1) + w.pick(".lowerAscii()", ".upperAscii()")
		case 3:
			return "(" + w.text(depth-1) + " + " + w.text(depth-1) + ")"
		case 4:
			return w.text(depth-1) + w.pick(`.split("/")[0]`, `.split("/")[1]`, `.split("1")[2]`, `.split("aa")[3]`, `.split("/")[1000000000000]`)
		}
	}
	return w.pick(`""`, `"/"`, `"GET"`, `"k1"`, `"aCmé"`, `"192.0.2.1"`, "request.method", "request.host", "request.path", "request.query",
		"request.route", "request.protocol", "client", "client.ip", "client.net", `request.headers["X-Api-Key"]`, `request.headers["host"]`,
		"path.id", `path["id"]`, "attributes.tenant", `attributes["a b"]`, `queryParam("user")`)
}

func (w writer) number(depth int) string {
	if depth > 0 {
		switch w.IntN(5) {
		case 0:
			return "(" + w.condition(depth-1) + " ? " + w.number(depth-1) + " : " + w.number(depth-1) + ")"
		case 1, 2:
			return "size(" + w.text(depth-1) + ")"
		}
	}
	field := w.pick("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getHours", "getMinutes", "getSeconds")
	return w.pick("0", "1", "-2", "12", "request.cost", "now."+field+"()", "now."+field+`("Europe/Vienna")`)
}

func (w writer) request() *policy.Request {
	r := &policy.Request{
		Protocol: w.pick("http", "grpc", ""), Method: w.pick("GET", "post", ""), Route: w.pick("", "r", "GET /v1"),
		Host: w.pick("a", "API:1", "[::1]:80", "x.", ""), Path: w.pick("", "/", "*", "/v1/../b", "//X", "/v2/a", "/a/.", "/\xff"),
		Query:      w.pick("", "user=1", "user=%2", "user=%41&x=2", "a;b&x=+", "user=k1"),
		Attributes: map[string]string{w.pick("tenant", "a b"): w.pick("", "aCmé", "ü,\\", "\xc3A", strings.Repeat("x", 2000))},
		Cost:       int64(w.IntN(4)),
	}
	if w.IntN(2) == 0 {
		r.Header = http.Header{w.pick("X-Api-Key", "Host"): {w.pick("", "k1", "k,l", "192.0.2.1", strings.Repeat("a", 3000)), "second"}}
	}
	if w.IntN(4) > 0 {
		r.Client = netip.MustParseAddr(w.pick("192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1%eth0", "::1", "64:ff9b::c000:201"))
	}
	return r
}

// TestClosuresAreCEL holds what closures return to what CEL returns, for random expressions and requests.
func TestClosuresAreCEL(t *testing.T) {
	w := writer{rand.New(rand.NewPCG(20, 4))}
	outcome := func(value any, err error) string {
		if err != nil {
			return "fails"
		}
		return fmt.Sprint(value)
	}
	left := 0 // to CEL
	for range 3000 {
		d := testDecoder(t)
		source, want := w.condition(3), cel.BoolType
		switch w.IntN(4) {
		case 0:
			source, want = w.text(2), cel.StringType
		case 1:
			source, want = w.number(2), cel.IntType
		}
		s, c := d.compile(expression(source), "", want)
		d.must(t, source)
		e := d.evaluation(s, c)
		tree := c.ast.NativeRep().Expr()
		for range 20 {
			r := w.request()
			var fast, slow string
			var ok bool
			switch want {
			case cel.BoolType:
				f := closure(e.now, tree, (*closures).condition)
				yes, known := f(r)
				fast, ok = strconv.FormatBool(yes), known
				slow = outcome((&celCondition{celValue[bool]{evaluation: e}}).Holds(r))
			case cel.StringType:
				f := closure(e.now, tree, (*closures).text)
				text, known := f(r)
				fast, ok = text, known
				slow = outcome((&celValue[string]{evaluation: e}).value(r))
				key := &celText{celValue: celValue[string]{evaluation: e}, piece: closure(e.now, tree, (*closures).piece)}
				with, withErr := key.AppendTo([]byte("a,"), r)
				key.piece = nil
				without, withoutErr := key.AppendTo([]byte("a,"), r)
				if !bytes.Equal(with, without) || (withErr == nil) != (withoutErr == nil) {
					t.Fatalf("%s: the key is %q (%v) without CEL, %q (%v) with it, of %+v", source, with, withErr, without, withoutErr, r)
				}
			default:
				f := closure(e.now, tree, (*closures).number)
				n, known := f(r)
				fast, ok = strconv.FormatInt(n, 10), known
				slow = outcome((&celValue[int64]{evaluation: e}).value(r))
			}
			if !ok {
				left++
			} else if fast != slow {
				t.Fatalf("%s: %q without CEL, %q with it, of %+v", source, fast, slow, r)
			}
		}
	}
	if left == 0 || left > 3000*20/2 {
		t.Errorf("%d evaluations were left to CEL", left)
	}
}

// TestWhatClosuresLeaveToCEL: a closure does what it knows and nothing that grows beyond a bound.
func TestWhatClosuresLeaveToCEL(t *testing.T) {
	for source, want := range map[string]bool{
		`request.path.startsWith("/v2")`:                               true,
		`request.headers["x-api-key"].matches("^k[0-9]+$")`:            true,
		`now.getHours("Europe/Vienna") < 8 || now.getHours() >= 20`:    true,
		`request.method in ["GET", "HEAD"] && request.cost <= 3`:       true,
		`now.getHours("+01:00") < 8`:                                   false,
		`now.getHours("Nowhere") < 8`:                                  false,
		`request.path.split("/").size() > 3`:                           false,
		`["a", "b"].exists(x, x == request.method)`:                    false,
		`request.cost * 2 > 3`:                                         false,
		`int(request.headers["x-cost"]) > 3`:                           false,
		`request.path + "x" == "/x"`:                                   true,
		`request.path.split("/")[1] == "v2"`:                           true,
		`request.path.split("")[1] == "v"`:                             false,
		`request.method in [request.path]`:                             false,
		`request.method == "` + strings.Repeat("x", 1025) + `"`:        false,
		`request.path.matches("` + strings.Repeat("(a*)*", 600) + `")`: false,
	} {
		d := testDecoder(t)
		when, _ := d.when(expression(source)).(*celCondition)
		d.must(t, source)
		if when == nil || (when.closure != nil) != want {
			t.Errorf("%.80s: a closure: %t, want %t", source, when != nil && when.closure != nil, want)
		}
	}
}

// TestClosuresLeaveLongTextsToCEL, which bounds what it does with them.
func TestClosuresLeaveLongTextsToCEL(t *testing.T) {
	d := testDecoder(t)
	when := d.when(expression(`request.headers["x-long"].matches("(a*)*(a*)*(a*)*` + strings.Repeat("b", 400) + `")`))
	d.must(t, "")
	r := testRequest()
	r.Header = http.Header{"X-Long": {strings.Repeat("a", 100_000)}}
	if _, err := when.Holds(r); err == nil {
		t.Error("a long text is matched without a bound")
	}
	r.Header = http.Header{"X-Long": {strings.Repeat("a", 1000)}}
	if yes, err := when.Holds(r); yes || err != nil {
		t.Error(yes, err)
	}
}

func TestUsualKeysAllocateNothing(t *testing.T) {
	for source, want := range map[string]string{
		`client.ip + (request.method == "POST" ? "/write" : "/read")`:     "192.0.2.7/read",
		`has(attributes.tenant) ? attributes.tenant + "/" : client.net`:   "acme/",
		`has(attributes.nothing) ? attributes.tenant + "/" : client.net`:  "192.0.2.0/24",
		`request.path.split("/")[1] + ":" + request.headers["x-api-key"]`: "v2:k1",
	} {
		d := testDecoder(t)
		key := d.key(expression(source))
		d.must(t, source)
		r, b := testRequest(), make([]byte, 0, 200)
		if n := testing.AllocsPerRun(100, func() { b, _ = key.AppendTo(b[:0], r) }); n != 0 || string(b) != want {
			t.Errorf("%s: %q with %v allocations, want %q", source, b, n, want)
		}
	}
}

func TestUsualConditionsAllocateNothing(t *testing.T) {
	for _, source := range []string{
		`request.headers["x-api-key"] == "k1" && attributes.tenant.startsWith("ac")`,
		`request.method in ["GET", "HEAD"] || request.path.matches("^/v[0-9]+/")`,
		`inNetwork(client.ip, "192.0.2.0/24") && now.getHours("Europe/Vienna") < 24`,
		`has(attributes.tenant) ? queryParam("x") == "1" : request.cost > 3`,
	} {
		d := testDecoder(t)
		when := d.when(expression(source))
		d.must(t, source)
		r := testRequest()
		if n := testing.AllocsPerRun(100, func() {
			if yes, err := when.Holds(r); !yes || err != nil {
				t.Error(source, yes, err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", source, n)
		}
	}
}
