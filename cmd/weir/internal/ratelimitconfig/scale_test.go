//go:build !race

package ratelimitconfig_test

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// manyKeys is a domain of so many limits, each with a key of its own.
func manyKeys(n int) string {
	var b strings.Builder
	b.WriteString("domain: large\ndescriptors:\n")
	for i := range n {
		fmt.Fprintf(&b, "- key: route-%d\n  value: route-%d\n  descriptors:\n  - key: user\n    rate_limit: {unit: minute, requests_per_unit: %d}\n",
			i, i, i+1)
	}
	return b.String()
}

// TestLargeFiles: what 10,000 limits take, in the tree and in the engine, is bounded, as they share policies.
func TestLargeFiles(t *testing.T) {
	const n = 10_000
	text := manyKeys(n)
	start, before := time.Now(), heap()
	c := parse(t, ratelimitconfig.Options{}, text)
	took, tree := time.Since(start), heap()-before
	if len(c.Limits) != n || len(c.Policies) != 3 {
		t.Fatalf("%d limits, %d policies", len(c.Limits), len(c.Policies))
	}
	limits, err := live.Fixed(&policy.Set{Policies: c.Policies}, policy.EngineOptions{
		Clock: manualclock.New(0), // a minute that began meanwhile would allow more
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer limits.Engine().Close()
	engine := heap() - before - tree
	t.Logf("read in %v; %d bytes of the tree and %d of the engine for each limit", took, tree/n, engine/n)
	if tree/n > 4096 || engine/n > 256 {
		t.Errorf("%d and %d bytes for each limit: more than 4096 and 256", tree/n, engine/n)
	}
	s := &server{c, limits}
	for _, i := range []int{0, 1, n - 1} {
		if admitted := s.admits(t, "large", fmt.Sprintf("route-%d=route-%d user=x", i, i), i+5); admitted != i+1 {
			t.Errorf("limit %d admits %d", i, admitted)
		}
	}
	runtime.KeepAlive(c)
}

// heap is what lives on it.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestBounds: what is too large or too deep is a mistake, and hostile aliases are given up early.
func TestBounds(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("domain: d\na0: &a0 {key: x, descriptors: [{key: y}, {key: z}]}\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&bomb, "a%d: &a%d {key: x, descriptors: [{key: k, descriptors: [*a%d]}, {key: l, descriptors: [*a%d]}]}\n", i, i, i-1, i-1)
	}
	bomb.WriteString("descriptors: [*a29]\n")
	for name, c := range map[string]struct{ text, want string }{
		"aliases": {bomb.String(), "aliases make more than 500000 values of it"},
		"metadata": {
			"domain: d\ndescriptors:\n- key: a\n  " + limit + "\n  metadata: " + strings.Repeat("{a: ", 40) + "1" + strings.Repeat("}", 40),
			"is nested more than 32 levels deep",
		},
		"a ring":       {"domain: d\ndescriptors: &a [{key: a, descriptors: *a}]\n", "more than 64 descriptors are nested"},
		"a ring below": {"domain: d\ndescriptors: [&a {key: a, descriptors: [*a, *a]}]\n", "is a second descriptor"},
		"depth": {
			"domain: d\ndescriptors: " + strings.Repeat("[{key: a, descriptors: ", 65) + "[]" +
				strings.Repeat("}]", 65),
			"more than 64 descriptors are nested",
		},
		"yaml": {"domain: d\ndescriptors: " + strings.Repeat("[", 20_000), "is not YAML: exceeded max depth"},
		"descriptors": {
			"domain: d\ndescriptors:\n- key: a\n  descriptors: &all\n" + numbered("  - {key: k%d}\n", 350) +
				numbered("- {key: k%d, descriptors: *all}\n", 300),
			"there are more than 100000 descriptors",
		},
		"bytes": {"domain: d\n#" + strings.Repeat("x", 16<<20), "the files have more than 16 MB"},
		"keys":  {"domain: d\ndescriptors: [{" + numbered("k%d: 1, ", 70) + "}]", "has more than 64 keys"},
	} {
		_, err := ratelimitconfig.Parse(files(c.text), ratelimitconfig.Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.500v, want %s", name, err, c.want)
		}
	}
	_, err := ratelimitconfig.Parse(files("domain: d\ndescriptors:\n"+strings.Repeat("- {}\n", 5000)), ratelimitconfig.Options{})
	if text := fmt.Sprint(err); strings.Count(text, "\n") != 1001 || !strings.HasSuffix(text, "\nthe rate limit configuration: 4000 more") {
		t.Errorf("%.300s", text)
	}
}

func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// TestNames: policies are named like the descriptors in the statistics of envoyproxy/ratelimit, as far as names can have that.
func TestNames(t *testing.T) {
	long := strings.Repeat("v", 200)
	o := ratelimitconfig.Options{Taken: func(name string) bool { return name == "d.taken" }}
	c := parse(t, o, `
domain: d
descriptors:
  - {key: a, `+limit+`}
  - {key: a, value: b, `+limit+`, descriptors: [{key: c, value: "x*", `+limit+`}]}
  - {key: a_b, rate_limit: {unit: week, requests_per_unit: 7, algorithm: sliding_window}, shadow_mode: true}
  - {key: path, value: /x, `+limit+`}
  - {key: path, value: _x, `+limit+`}
  - {key: umlaut, value: ä, `+limit+`}
  - {key: long, value: `+long+`, `+limit+`}
  - {key: long, value: `+long+`w, `+limit+`}
  - {key: taken, `+limit+`}
  - {key: free, rate_limit: {unlimited: true}}
`)
	want := []string{
		"d.a", "d.a_b", "d.a_b.c_x*", "d.a_b~", "d.path__x~", "d.path__x", "d.umlaut___~", "d.long_" + long[:110] + "~", "d.long_" + long[:110] + "~",
		"d.taken~", "override:fixed_window", "override:fixed_window:plain",
	}
	seen := make(map[string]bool)
	if len(c.Policies) != len(want) {
		t.Fatalf("%d policies", len(c.Policies))
	}
	for i, p := range c.Policies {
		stem, suffix, _ := strings.Cut(p.Name, "~")
		if suffix != "" {
			stem += "~"
		}
		if stem != want[i] || seen[p.Name] || suffix != "" && len(suffix) != 10 {
			t.Errorf("%q, want %q", p.Name, want[i])
		}
		seen[p.Name] = true
		if i < len(want)-2 && p.Source == "" {
			t.Errorf("%s has no source", p.Name)
		}
	}
	if l := c.Limits[3]; l.Path != "d.a_b" || !l.Shadow || l.Policy != c.Policies[3].Name || c.Policies[3].Mode.String() != "shadow" {
		t.Errorf("%+v", l)
	}
	// The names do not depend on what else there is.
	again := parse(t, o, "domain: d\ndescriptors:\n- {key: path, value: /x, "+limit+"}\n")
	if again.Policies[0].Name != c.Policies[4].Name {
		t.Errorf("%s is %s among others", again.Policies[0].Name, c.Policies[4].Name)
	}
}
