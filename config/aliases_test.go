//go:build !race

package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/config"
)

// TestAliasesAreBounded reads files that stand for very many values.
func TestAliasesAreBounded(t *testing.T) {
	var keys, merges strings.Builder
	keys.WriteString("version: 1\npolicies:\n  a: &a\n    limit: 1/s\n    keys:\n")
	for i := range 5000 {
		fmt.Fprintf(&keys, "      k%d: {limit: 1/s}\n", i)
	}
	for i := range 5000 {
		fmt.Fprintf(&keys, "  p%d: *a\n", i)
	}
	merges.WriteString("version: 1\nx-0: &x0 {limit: 1/s}\n")
	for i := range 8 {
		fmt.Fprintf(&merges, "x-%d: &x%d {<<: [%s*x%d]}\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*x%d, ", i), 99), i)
	}
	merges.WriteString("policies: {p: *x8}\n")
	self := "version: 1\npolicies: {p: &p {<<: [" + strings.Repeat("*p, ", 99) + "*p]}}\n"
	for name, text := range map[string]string{"keys": keys.String(), "merges": merges.String(), "self": self} {
		all := mistakesOf(t, "f", []byte(text), config.Options{})
		if len(all) != 1 || !strings.Contains(all[0].Message, "aliases lead to more than 1000000 values") {
			t.Errorf("%s: %d mistakes, %v", name, len(all), all[0])
		}
	}
	for _, text := range []string{
		"version: 1\npolicies: &p {a: {parent: a, keys: *p}}\n", "version: 1\npolicies: &p\n  a: *p\n", "&a [*a]\n", "&a {*a : 1}\n",
		"version: 1\nrules: &r [*r]\n", "version: 1\nrules: [&r {name: x, limits: *r, match: *r}]\n",
	} {
		mistakesOf(t, "f", []byte(text), config.Options{})
	}
}

func TestAliasesAndMergeKeys(t *testing.T) {
	const text = `version: 1
x-limits:
  - &fast {rate: 100/s, burst: 200}
  - &base {limit: 5/s, key: client.ip, when_full: admit}
policies:
  a: {limits: [*fast, {<<: *fast, burst: 300}]}
  b: {<<: *base, limit: 7/s}
  c: {<<: [{mode: shadow}, *base], mode: enforce}
  d: *base
`
	f, err := config.Parse("f", []byte(text), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, p := range f.Set.Policies {
		fmt.Fprintln(&got, p.Name, p.Limits, p.Key, p.AdmitWhenFull, p.Mode)
	}
	const want = `a [100/s, burst 200 100/s, burst 300] <nil> false enforce
b [7/s, burst 7] client.ip true enforce
c [5/s, burst 5] client.ip true enforce
d [5/s, burst 5] client.ip true enforce
`
	if got.String() != want {
		t.Errorf("%s", got.String())
	}
}
