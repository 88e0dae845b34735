//go:build !race

package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/config"
)

// large is a file of many policies and rules.
func large(policies, rules, whens int) []byte {
	var b strings.Builder
	b.WriteString("version: 1\npolicies:\n")
	for i := range policies {
		fmt.Fprintf(&b, "  p%d: {limit: %d/s, key: client.ip}\n", i, i+1)
	}
	b.WriteString("rules:\n")
	for i := range rules {
		fmt.Fprintf(&b, "  - {name: r%d, match: {method: GET, path: '/v1/x%d/{id}', host: h%d.example}, limits: p%d", i, i, i%100, i%policies)
		if i < whens {
			fmt.Fprintf(&b, `, when: 'request.query == "%d"'`, i)
		}
		b.WriteString("}\n")
	}
	return []byte(b.String())
}

// TestLargeFiles reads as many policies and rules as there may be, and refuses one more.
func TestLargeFiles(t *testing.T) {
	start := time.Now()
	f, err := config.Parse("f", large(1000, 5000, 200), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Set.Policies) != 1000 || len(f.Set.Rules) != 5000 {
		t.Errorf("%d policies, %d rules", len(f.Set.Policies), len(f.Set.Rules))
	}
	t.Logf("read in %v", time.Since(start))
	for text, want := range map[string]string{
		"version: 1\nrules: [" + strings.Repeat("{}, ", 100_001) + "]\n":                              "has 100001 rules: there must be at most 100000",
		"version: 1\npolicies:\n" + manyKeys("  p%d: {mode: 'off'}\n", 10_001):                        "has 10001 policies: there must be at most 10000",
		"version: 1\npolicies:\n  p:\n    limit: 1/s\n    keys:\n" + manyKeys("      k%d:\n", 65_537): "has 65537 entries: there must be at most 65536",
		"version: 1\n#" + strings.Repeat("x", 16<<20):                                                 "the file has more than 16 MB",
		"version: 1\nx-a: " + strings.Repeat("[", 20_000):                                             "is not YAML: exceeded max depth of 10000 while increasing flow level",
	} {
		all := mistakesOf(t, "f", []byte(text), config.Options{})
		if len(all) != 1 || all[0].Message != want {
			t.Errorf("%d mistakes, %v, want %s", len(all), all[0], want)
		}
	}
}

func manyKeys(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// TestMistakesAreBounded keeps 1000 of very many, and counts the others.
func TestMistakesAreBounded(t *testing.T) {
	_, err := config.Parse("f", []byte("version: 1\nrules: ["+strings.Repeat("{}, ", 5000)+"]\n"), config.Options{})
	if text := fmt.Sprint(err); strings.Count(text, "\n") != 1001 || !strings.HasPrefix(text, "weir: f cannot be used: 5000 mistakes\n") ||
		!strings.HasSuffix(text, "\nf: 4000 more") {
		t.Errorf("%.200s ... %s", text, text[len(text)-100:])
	}
}

func BenchmarkParse(b *testing.B) {
	data := large(100, 1000, 0)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := config.Parse("f", data, config.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
