package ratelimitconfig_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
)

// matches are descriptors of two entries, by what they match.
func matches(t testing.TB) map[string]func(m *ratelimitconfig.Match) {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n- key: tenant\n  value: t\n  descriptors:\n")
	for i := range 100 {
		fmt.Fprintf(&b, "  - {key: path, value: /v%d/x, %s}\n  - {key: path, value: '/w%d/*', %s}\n", i, limit, i, limit)
	}
	text := b.String() + "  - {key: path, " + limit + "}\n- {key: tenant, descriptors: [{key: path, " + limit + "}]}\n"
	c, grouped := parse(t, ratelimitconfig.Options{}, text), parse(t, ratelimitconfig.Options{Policies: 1}, text)
	all := make(map[string]func(m *ratelimitconfig.Match))
	for name, path := range map[string]string{"value": "/v50/x", "wildcard": "/w50/abc", "key": "/other"} {
		descriptor := entries("tenant=t path=" + path)
		all[name] = func(m *ratelimitconfig.Match) { c.Match(m, "d", descriptor, ratelimitconfig.Override{}, 1) }
		all[name+", shared policy"] = func(m *ratelimitconfig.Match) { grouped.Match(m, "d", descriptor, ratelimitconfig.Override{}, 1) }
	}
	two := entries("tenant=other path=/v50/x")
	all["two values that vary"] = func(m *ratelimitconfig.Match) { c.Match(m, "d", two, ratelimitconfig.Override{}, 1) }
	override := ratelimitconfig.Override{RequestsPerUnit: 5, Unit: ratelimitconfig.Minute}
	all["override"] = func(m *ratelimitconfig.Match) { c.Match(m, "d", two, override, 1) }
	return all
}

// TestMatchAllocatesNothing, once Key is long enough.
func TestMatchAllocatesNothing(t *testing.T) {
	for name, match := range matches(t) {
		var m ratelimitconfig.Match
		match(&m)
		if m.Outcome != ratelimitconfig.Limited {
			t.Errorf("%s: %+v", name, m)
		}
		if n := testing.AllocsPerRun(100, func() { match(&m) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	for name, match := range matches(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var m ratelimitconfig.Match
			for b.Loop() {
				match(&m)
			}
		})
	}
}
