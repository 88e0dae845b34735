//go:build !race

package policy_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/weirhq/weir/policy"
)

// TestRepeatedValuesAreReadAsEachAlone: a request is denied if one with a single field and a single parameter of it is, exempt if
// all of them are, and under the limits of all.
func TestRepeatedValuesAreReadAsEachAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 3))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	several := func() (all []string) {
		for range 1 + r.IntN(3) {
			all = append(all, pick("a", "b", "c"))
		}
		return all
	}
	field, parameter := policy.HeaderText("X-Key"), policy.QueryText("k")
	for n := range 150 {
		set := &policy.Set{Policies: []policy.Policy{
			{Name: "field", Limits: one(perHour(1000)), Key: field},
			{Name: "parameter", Limits: one(perHour(1000)), Key: parameter},
			{Name: "both", Limits: one(perHour(1000)), Key: policy.JoinText(field, parameter)},
		}}
		for i := range 1 + r.IntN(4) {
			rule := policy.Rule{Name: fmt.Sprint(i)}
			if r.IntN(2) == 0 {
				rule.Match = fieldIs(pick("a", "b", "c"))
			}
			if r.IntN(3) == 0 {
				rule.Match.Paths = []string{"/x"}
			}
			if r.IntN(2) == 0 {
				rule.When = parameterIs(pick("a", "b", "c"))
			}
			switch r.IntN(6) {
			case 0:
				rule.Deny = true
			case 1:
				rule.Exempt = true
			default:
				rule.Limits, rule.Final = uses(pick("field", "parameter", "both")), r.IntN(3) == 0
			}
			set.Rules = append(set.Rules, rule)
		}
		e := engine(t, set)
		for range 40 {
			path, method, fields, parameters := pick("/x", "/y", "/y/..;/x"), pick("GET", "get"), several(), several()
			request := func(fields, parameters []string) policy.Request {
				all := sent(t, path+"?k="+strings.Join(parameters, "&k="))
				all.Method, all.Header = method, http.Header{"X-Key": fields}
				return all
			}
			denied, exempt, want := false, true, map[string]bool{}
			for i := range 4 {
				f, p := fields[(len(fields)-1)*(i&1)], parameters[(len(parameters)-1)*(i>>1)]
				v := take(e, request([]string{f}, []string{p}))
				denied, exempt = denied || v.DeniedBy(0) != nil, exempt && v.Exempt
				maps.Copy(want, charged(v))
				v.Release()
			}
			if denied {
				want = map[string]bool{}
			}
			all := request(fields, parameters)
			v := take(e, all)
			if got := charged(v); (v.DeniedBy(0) != nil) != denied || v.Exempt != exempt || !maps.Equal(got, want) {
				t.Fatalf("set %d, %s %s with %q: denied %t, exempt %t, charged %v; want %t, %t, %v",
					n, method, path+"?"+all.Query, fields, v.DeniedBy(0) != nil, v.Exempt, got, denied, exempt, want)
			}
			v.Release()
			if x := e.Explain(&all); (x.Denied != "") != denied || x.Exempt != exempt || (e.Denies(&all) != nil) != denied {
				t.Fatalf("set %d, %s %s with %q: explained as denied by %q, exempt %t; want %t, %t",
					n, method, path+"?"+all.Query, fields, x.Denied, x.Exempt, denied, exempt)
			}
		}
		e.Close()
	}
}
