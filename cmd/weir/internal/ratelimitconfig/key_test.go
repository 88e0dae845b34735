package ratelimitconfig_test

import (
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
)

// words are all of up to so many letters.
func words(letters string, longest int) []string {
	all := []string{""}
	for from := 0; longest > 0; longest-- {
		to := len(all)
		for _, word := range all[from:to] {
			for _, letter := range letters {
				all = append(all, word+string(letter))
			}
		}
		from = to
	}
	return all
}

// TestKeysDiffer: no two descriptors share a counter, whatever their values are made of, and the keys of overrides.
func TestKeysDiffer(t *testing.T) {
	text := "domain: d\ndescriptors: [{key: a, descriptors: [{key: b, " + limit + "}]}]"
	for _, policies := range []int{0, 1} {
		c := parse(t, ratelimitconfig.Options{Policies: policies}, text, "domain: e\ndescriptors: [{key: a, "+limit+"}]")
		seen := make(map[string]ratelimitconfig.Entry)
		var m ratelimitconfig.Match
		all := words(`|\=a`, 3)
		for _, one := range all {
			for _, two := range all {
				now := ratelimitconfig.Entry{Key: one, Value: two}
				c.Match(&m, "d", []ratelimitconfig.Entry{{Key: "a", Value: one}, {Key: "b", Value: two}}, ratelimitconfig.Override{}, 1)
				if other, known := seen[string(m.Key)]; known || m.Outcome != ratelimitconfig.Limited {
					t.Fatalf("%q and %q have the key %q", other, now, m.Key)
				}
				seen[string(m.Key)] = now
			}
		}
		clear(seen)
		override := ratelimitconfig.Override{RequestsPerUnit: 1, Unit: ratelimitconfig.Hour}
		for _, one := range all {
			for _, two := range all {
				now := ratelimitconfig.Entry{Key: one, Value: two}
				for _, descriptor := range [][]ratelimitconfig.Entry{{now}, {now, {}}, {{}, now}} {
					if one+two == "" && len(descriptor) > 1 {
						continue
					}
					c.Match(&m, "d", descriptor, override, 1)
					if other, known := seen[string(m.Key)]; known {
						t.Fatalf("%q and %q have the key %q", other, now, m.Key)
					}
					seen[string(m.Key)] = now
				}
			}
		}
	}
}
