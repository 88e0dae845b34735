package policy_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/weirhq/weir/policy"
)

// TestRepeatedValuesPassNoLimit: of a field or a parameter that comes twice some services read the first value, and some the last
// one. So the limits of both apply, a denial of one denies, and what is allowed to one alone is not allowed.
func TestRepeatedValuesPassNoLimit(t *testing.T) {
	header := func(value string) policy.Match {
		return policy.Match{Headers: []policy.HeaderMatch{{Name: "X-Key", Value: value}}}
	}
	keyed := func(key policy.Text) *policy.Set {
		return &policy.Set{
			Policies: []policy.Policy{{Name: "one", Limits: one(perHour(1)), Key: key}},
			Rules:    []policy.Rule{{Name: "all", Limits: uses("one")}},
		}
	}
	exempt := &policy.Set{
		Policies: []policy.Policy{{Name: "one", Limits: one(perHour(1))}},
		Rules: []policy.Rule{
			{Name: "free", Match: header("free"), Exempt: true}, {Name: "all", Limits: uses("one")},
		},
	}
	byPath := &policy.Set{
		Policies: []policy.Policy{{Name: "one", Limits: one(perHour(1)), Key: policy.HeaderText("X-Key")}},
		Rules:    []policy.Rule{{Name: "login", Match: policy.Match{Paths: []string{"/login"}}, Limits: uses("one")}},
	}
	deny := &policy.Set{Rules: []policy.Rule{{Name: "old", Match: header("old"), Deny: true}}}
	for name, x := range map[string]struct {
		set    *policy.Set
		target string
		values func(i int) []string
		want   []bool
	}{
		"key of a field, the last is known":      {keyed(policy.HeaderText("X-Key")), "/", ends("%d", "bob"), []bool{true, false}},
		"key of a field, the first is known":     {keyed(policy.HeaderText("X-Key")), "/", ends("bob", "%d"), []bool{true, false}},
		"key of a field, both are the same":      {keyed(policy.HeaderText("X-Key")), "/", ends("%d", "%d"), []bool{true, true}},
		"key of a parameter, the last is known":  {keyed(policy.QueryText("k")), "/?k=%d&k=bob", nil, []bool{true, false}},
		"key of a parameter, the first is known": {keyed(policy.QueryText("k")), "/?k=bob&k=%d", nil, []bool{true, false}},
		"key of a parameter, encoded":            {keyed(policy.QueryText("k")), "/?k=%d&%%6B=b%%6fb", nil, []bool{true, false}},
		"path of several readings":               {byPath, "/a/..;/login", ends("%d", "bob"), []bool{true, false}},
		"exempt by the first":                    {exempt, "/", ends("free", "%d"), []bool{true, false}},
		"exempt by the last":                     {exempt, "/", ends("%d", "free"), []bool{true, false}},
		"exempt by both":                         {exempt, "/", ends("free", "free"), []bool{true, true}},
		"denied by the first":                    {deny, "/", ends("old", "new"), []bool{false}},
		"denied by the last":                     {deny, "/", ends("new", "old"), []bool{false}},
		"denied by neither":                      {deny, "/", ends("new", "newer"), []bool{true}},
	} {
		t.Run(name, func(t *testing.T) {
			e := engine(t, x.set)
			for i, want := range x.want {
				target := x.target
				if x.values == nil {
					target = fmt.Sprintf(target, i)
				}
				r := sent(t, target)
				if x.values != nil {
					r.Header = http.Header{"X-Key": x.values(i)}
				}
				if got := e.Explain(&r); got.Allowed != want {
					t.Errorf("request %d is explained as allowed %t", i, got.Allowed)
				}
				if rule := e.Denies(&r); (rule != nil) != (x.set == deny && !want) {
					t.Errorf("request %d is denied by %v", i, rule)
				}
				if v := take(e, r); v.Allowed != want {
					t.Errorf("request %d: allowed %t", i, v.Allowed)
				}
			}
		})
	}
}

// ends are the values of a field that comes twice, in which %d stands for the number of the request.
func ends(first, last string) func(i int) []string {
	fill := func(text string, i int) string {
		if text == "%d" {
			return fmt.Sprint(i)
		}
		return text
	}
	return func(i int) []string { return []string{fill(first, i), fill(last, i)} }
}
