package config

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"testing"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"

	"github.com/weirhq/weir/policy"
)

// FuzzExpressions evaluates any expression without CEL and with it, for any request: both have the same answer, or without CEL
// there is none.
func FuzzExpressions(f *testing.F) {
	for _, source := range []string{
		`request.headers["x-api-key"] == "k1" && attributes.tenant.startsWith("ac")`,
		`request.method in ["GET", "HEAD"] || request.path.matches("^/v[0-9]+/")`,
		`inNetwork(client.ip, "192.0.2.0/24") && now.getHours("Europe/Vienna") < 24`,
		`inNetwork(request.headers["x-real-ip"], "2001:db8::/32") || !("x" in request.headers)`,
		`has(attributes.tenant) ? queryParam("x") >= "1" : request.cost > -3`,
		`(request.query.lowerAscii() + "x").split("&")[1].upperAscii().contains("a=") != true`,
		`size(request.path + attributes["a"]) in [1, 2, -3]`,
		`client.ip + (request.method == "POST" ? "/write" : "/read") + path.id`,
		`int(request.headers["x-api-key"])`,
		`now.getDayOfYear("UTC") * 2`,
	} {
		f.Add(source, "GET", "api:443", "/v2//a", "x=1&y=%41", "k1", "acme", []byte{192, 0, 2, 7}, int64(3))
	}
	f.Fuzz(func(t *testing.T, source, method, host, path, query, header, attribute string, client []byte, cost int64) {
		d := testDecoder(t)
		r := &policy.Request{
			Protocol: "http", Method: method, Host: host, Path: path, Query: query, Cost: cost, Route: attribute,
			Header:     http.Header{"X-Api-Key": {header}, "X-Real-Ip": {attribute}},
			Attributes: map[string]string{"tenant": attribute, "a": header},
		}
		r.Client, _ = netip.AddrFromSlice(client)
		sameAnswer(t, d, source, cel.BoolType, r, (*closures).condition)
		sameAnswer(t, d, source, cel.StringType, r, (*closures).text)
		sameAnswer(t, d, source, cel.IntType, r, (*closures).number)
		if s, c := d.compile(expression(source), "", cel.StringType); c != nil {
			key := d.key(expression(source))
			slow := &celText{celValue: celValue[string]{evaluation: d.evaluation(s, c)}}
			got, err := key.AppendTo([]byte("a,"), r)
			want, failed := slow.AppendTo([]byte("a,"), r)
			if (err == nil) != (failed == nil) || !bytes.Equal(got, want) {
				t.Fatalf("%s: the key is %q (%v), %q (%v) with CEL, of %+v", source, got, err, want, failed, r)
			}
		}
	})
}

// sameAnswer compares a closure of an expression of a type with CEL.
func sameAnswer[T comparable, F ~func(r *policy.Request) (T, bool)](
	t *testing.T, d *decoder, source string, want *cel.Type, r *policy.Request, by func(c *closures, e ast.Expr) F,
) {
	t.Helper()
	s, c := d.compile(expression(source), "", want)
	if c == nil {
		return
	}
	v := celValue[T]{evaluation: d.evaluation(s, c)}
	f := closure(v.now, c.ast.NativeRep().Expr(), by)
	if f == nil {
		return
	}
	got, ok := f(r)
	if !ok {
		return
	}
	if of, err := v.value(r); err != nil || of != got {
		t.Fatalf("%s: %s without CEL, %s (%v) with it, of %+v", source, fmt.Sprint(got), fmt.Sprint(of), err, r)
	}
}
