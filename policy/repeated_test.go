package policy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weirhq/weir/policy"
)

// TestRepeatedValuesPassNoLimit: of a field or a parameter that comes twice some services read the first value, and some the last
// one. So the limits of both apply, a denial of one denies, and what is allowed to one alone is not allowed. A service that reads
// the first field may read the last parameter.
func TestRepeatedValuesPassNoLimit(t *testing.T) {
	denyParameter := func(value string) *policy.Set {
		return &policy.Set{Rules: []policy.Rule{{Name: "old", When: parameterIs(value), Deny: true}}}
	}
	exemptParameter := func(value string) *policy.Set {
		return &policy.Set{
			Policies: []policy.Policy{{Name: "one", Limits: one(perHour(1))}},
			Rules:    []policy.Rule{{Name: "free", When: parameterIs(value), Exempt: true}, {Name: "all", Limits: uses("one")}},
		}
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
			{Name: "free", Match: fieldIs("free"), Exempt: true}, {Name: "all", Limits: uses("one")},
		},
	}
	byPath := &policy.Set{
		Policies: []policy.Policy{{Name: "one", Limits: one(perHour(1)), Key: policy.HeaderText("X-Key")}},
		Rules:    []policy.Rule{{Name: "login", Match: policy.Match{Paths: []string{"/login"}}, Limits: uses("one")}},
	}
	deny := &policy.Set{Rules: []policy.Rule{{Name: "old", Match: fieldIs("old"), Deny: true}}}
	both := keyed(policy.JoinText(policy.HeaderText("X-Key"), policy.QueryText("k")))
	ofField := keyed(policy.QueryText("k"))
	ofField.Rules[0].Match = fieldIs("old")
	denyBoth := &policy.Set{Rules: []policy.Rule{{Name: "old", Match: fieldIs("old"), When: parameterIs("old"), Deny: true}}}
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
		"key of both, the first of each":         {both, "/?k=bob&k=%d", ends("bob", "%d"), []bool{true, false}},
		"key of both, the first field":           {both, "/?k=%d&k=bob", ends("bob", "%d"), []bool{true, false}},
		"key of both, the first parameter":       {both, "/?k=bob&k=%d", ends("%d", "bob"), []bool{true, false}},
		"key of both, the last of each":          {both, "/?k=%d&k=bob", ends("%d", "bob"), []bool{true, false}},
		"the last field has the first parameter": {ofField, "/?k=bob&k=%d", ends("new", "old"), []bool{true, false}},
		"the last field has the last parameter":  {ofField, "/?k=%d&k=bob", ends("new", "old"), []bool{true, false}},
		"the first field has the last parameter": {ofField, "/?k=%d&k=bob", ends("old", "new"), []bool{true, false}},
		"denied by the first field alone":        {denyBoth, "/?k=new&k=old", ends("old", "new"), []bool{false}},
		"denied by the first parameter alone":    {denyBoth, "/?k=old&k=new", ends("new", "old"), []bool{false}},
		"denied by neither of both":              {denyBoth, "/?k=new&k=new", ends("new", "old"), []bool{true}},
		"key of a semicolon's, known":            {keyed(policy.QueryText("k")), "/?k=%d;&x;k=bob", nil, []bool{true, false}},
		"key behind a semicolon":                 {keyed(policy.QueryText("k")), "/?k=%d&x=1;k=bob", nil, []bool{true, false}},
		"key before a semicolon":                 {keyed(policy.QueryText("k")), "/?k=bob;x=%d&k=%d", nil, []bool{true, false}},
		"key with a semicolon":                   {keyed(policy.QueryText("k")), "/?k=a;b&k=%d", nil, []bool{true, false}},
		"key with a percent sign":                {keyed(policy.QueryText("k")), "/?k=100%%&k=%d", nil, []bool{true, false}},
		"denied with a semicolon":                {denyParameter("old;"), "/?k=old;", nil, []bool{false}},
		"denied before a semicolon":              {denyParameter("old"), "/?k=old;", nil, []bool{false}},
		"denied behind a semicolon":              {denyParameter("old"), "/?x;k=old", nil, []bool{false}},
		"denied by the first behind a semicolon": {denyParameter("old"), "/?x;k=old;k=new", nil, []bool{false}},
		"denied by the last behind a semicolon":  {denyParameter("old"), "/?k=new;x;k=old", nil, []bool{false}},
		"denied as it is skipped":                {denyParameter(""), "/?k=new;", nil, []bool{false}},
		"denied with a percent sign":             {denyParameter("old%"), "/?k=old%%", nil, []bool{false}},
		"denied with a percent sign, encoded":    {denyParameter("o%gld;"), "/?k=%%6f%%gld%%3b", nil, []bool{false}},
		"not denied, a semicolon elsewhere":      {denyParameter("old"), "/?k=new&x=;old", nil, []bool{true}},
		"not denied, an encoded semicolon":       {denyParameter("old"), "/?k=new%%3Bk=old", nil, []bool{true}},
		"exempt with a semicolon alone":          {exemptParameter("free"), "/?k=free;", nil, []bool{true, false}},
		"exempt behind a semicolon alone":        {exemptParameter("free"), "/?x;k=free", nil, []bool{true, false}},
		"exempt with a semicolon elsewhere":      {exemptParameter("free"), "/?k=free&x=1;y", nil, []bool{true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			e := engine(t, x.set)
			for i, want := range x.want {
				target := x.target
				target = strings.ReplaceAll(strings.ReplaceAll(target, "%d", fmt.Sprint(i)), "%%", "%")
				r := sent(t, target)
				if x.values != nil {
					r.Header = http.Header{"X-Key": x.values(i)}
				}
				if got := e.Explain(&r); got.Allowed != want {
					t.Errorf("request %d is explained as allowed %t", i, got.Allowed)
				}
				if rule := e.Denies(&r); (rule != nil) != (x.set.Rules[0].Deny && !want) {
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

// fieldIs is true of requests with a value of the field.
func fieldIs(value string) policy.Match {
	return policy.Match{Headers: []policy.HeaderMatch{{Name: "X-Key", Value: value}}}
}

// parameterIs is true of requests with a value of the parameter.
type parameterIs string

func (p parameterIs) Holds(r *policy.Request) (bool, error) {
	return r.QueryValue("k") == string(p), nil
}
func (parameterIs) String() string { return "parameterIs" }

// charged are the policies and keys of a verdict.
func charged(v *policy.Verdict) map[string]bool {
	all := map[string]bool{}
	for i := range v.Parts {
		all[v.Parts[i].Policy.Name+" "+string(v.Parts[i].Key)] = true
	}
	return all
}

// asked counts how often rules ask it about a request.
type asked struct{ times *int }

func (a asked) Holds(r *policy.Request) (bool, error) {
	*a.times++
	r.HeaderValue("X-Key")
	r.QueryValue("k")
	return true, nil
}
func (asked) String() string { return "asked" }

// TestOnlyWhatRepeatsIsReadAgain: rules are asked about as many values as differ, and no more.
func TestOnlyWhatRepeatsIsReadAgain(t *testing.T) {
	times := 0
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "one", Limits: one(perHour(1000))}},
		Rules:    []policy.Rule{{Name: "all", When: asked{&times}, Limits: uses("one")}},
	})
	for _, x := range []struct {
		target string
		fields []string
		want   int
	}{
		{"/?k=a", []string{"a"}, 1},
		{"/?k=a&k=a", []string{"a", "a"}, 1},
		{"/?k=a", []string{"a", "b"}, 2},
		{"/?k=a&k=b", []string{"a"}, 2},
		{"/?k=a&k=b", []string{"a", "b"}, 4},
		{"/?j=a&j=b", nil, 1},
		{"/?k=a&x=1;y=2", []string{"a"}, 1},
		{"/?k=a&x=%", []string{"a"}, 1},
		{"/?k=a;", []string{"a"}, 3},
		{"/?k=%", []string{"a"}, 2},
		{"/?k=a;k=b;", []string{"a"}, 4},
		{"/?k=a;k=b;", []string{"a", "b"}, 8},
		{"/?k=c&k=a;k=b;", []string{"a", "b"}, 10},
	} {
		r := sent(t, x.target)
		r.Header = http.Header{"X-Key": x.fields}
		times = 0
		take(e, r).Release()
		if times != x.want {
			t.Errorf("%s with %q: asked %d times, want %d", x.target, x.fields, times, x.want)
		}
	}
}
