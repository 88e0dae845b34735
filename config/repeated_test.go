package config_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/policy"
)

// TestRepeatedValuesInExpressions: however an expression is evaluated, the first and the last value of a parameter or a field both
// count, so that a client which changes one of them is limited by the other.
func TestRepeatedValuesInExpressions(t *testing.T) {
	for _, expression := range []string{
		`queryParam("user")`, `queryParam("user") + "."`, `queryParam("user").lowerAscii()`, `queryParam("user").trim()`,
		`queryParam("user").replace("x", "y")`, `request.headers["x-user"]`, `request.headers["x-user"].trim()`,
	} {
		file, err := config.Parse("weir.yaml", fmt.Appendf(nil, `version: 1
policies: {p: {limit: 1/h, key: '%s'}}
rules: [{name: all, limits: p}]
`, expression), config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, first := range []bool{true, false} {
			engine, err := policy.NewEngine(file.Set, policy.EngineOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var v policy.Verdict
			for i := range 3 {
				a, b := "bob", fmt.Sprint(i)
				if !first {
					a, b = b, a
				}
				r := policy.Request{
					Path: "/", Query: "user=" + a + "&z=1&us%65r=" + b, Header: http.Header{"X-User": {a, b}},
				}
				if engine.Take(&r, &v); v.Allowed != (i == 0) {
					t.Errorf("%s, first %t, request %d: allowed %t", expression, first, i, v.Allowed)
				}
				v.Release()
			}
			engine.Close()
		}
	}
}

// TestOddParametersInExpressions: however an expression is evaluated, a parameter with a semicolon or a percent sign that encodes
// nothing hides nothing from it.
func TestOddParametersInExpressions(t *testing.T) {
	for _, expression := range []string{
		`queryParam("user") == "bob"`, `queryParam("user").trim() == "bob"`, `queryParam("user").startsWith("bob")`,
		`queryParam("user").replace("x", "y").contains("bob")`, `queryParam("user") != "" && queryParam("user").trim() != "ann"`,
	} {
		file, err := config.Parse("weir.yaml", fmt.Appendf(nil, `version: 1
policies: {p: {limit: 1/h}}
rules: [{name: all, when: '%s', limits: p}]
`, expression), config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		engine, err := policy.NewEngine(file.Set, policy.EngineOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for query, want := range map[string]int{
			"user=bob": 1, "user=bob;": 1, "x;user=bob": 1, "x=1&y=%;user=bob;z": 1, "user=ann;user=bob": 1, "user=bob;user=ann": 1,
			"user=ann": 0, "user=ann&x=bob;": 0, "user=ann%3Buser=bob": strings.Count(expression, `!= "ann"`) + strings.Count(expression, "contains"),
		} {
			r := policy.Request{Path: "/", Query: query}
			var v policy.Verdict
			engine.Peek(&r, &v)
			if got := len(v.Parts); got != want {
				t.Errorf("%s of %s: %d limits apply, want %d", expression, query, got, want)
			}
			v.Release()
		}
		engine.Close()
	}
}
