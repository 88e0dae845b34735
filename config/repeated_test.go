package config_test

import (
	"fmt"
	"net/http"
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
