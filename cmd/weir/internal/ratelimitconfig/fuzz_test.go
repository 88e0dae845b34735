package ratelimitconfig_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
)

// FuzzParse reads anything: no panic, mistakes that have a place and a fix, and nothing accepted that the engine refuses, or
// whose limits no descriptor leads to.
func FuzzParse(f *testing.F) {
	for seed := range uint64(4) {
		r := &random{Rand: rand.New(rand.NewPCG(seed, 4))}
		var b strings.Builder
		b.WriteString("domain: d\n")
		write(&b, "", r.tree(2))
		f.Add([]byte(b.String()))
	}
	f.Add([]byte("domain: d\ndescriptors:\n- &a {key: k, quota_mode: on, metadata: {a: [1]}, " + limit + "}\n- {<<: *a, value: 'x*y', share_threshold: yes}\n" +
		"- {key: u, rate_limit: {unlimited: true, name: n, replaces: [{name: m}]}, descriptors: [*a]}\n"))
	f.Add([]byte("domain: d\ndescriptors: [{key: k, rate_limit: {unit: second, requests_per_unit: 7, unit_multiplier: 5, algorithm: token_bucket, burst: 9, " +
		"consistency: leased}}]\n"))
	f.Add([]byte("a: &a [*a]\nb: &b {<<: *b}\ndomain: \"\\u0000\"\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		all := []ratelimitconfig.File{{Name: "f.yaml", Data: data}, {Name: "g.yaml", Data: []byte("domain: d\ndescriptors: [{key: own, " + limit + "}]")}}
		for _, o := range []ratelimitconfig.Options{{Merge: true}, {Merge: true, Policies: 1, Algorithm: ratelimitconfig.SlidingWindow}} {
			c, err := ratelimitconfig.Parse(all, o)
			var list *yamlread.Errors
			switch {
			case err == nil:
				usable(t, c)
			case !errors.As(err, &list) || len(list.Mistakes) == 0:
				t.Fatalf("not mistakes: %v", err)
			default:
				for _, m := range list.Mistakes {
					if m.Line < 1 || m.Column < 1 || m.Message == "" || m.Fix == "" {
						t.Fatalf("%+v", m)
					}
				}
			}
		}
	})
}

// usable checks what was accepted, and finds the limit of the other file.
func usable(t *testing.T, c *ratelimitconfig.Config) {
	t.Helper()
	if err := (&policy.Set{Policies: c.Policies}).Check(); err != nil {
		t.Fatalf("the engine refuses what was accepted: %v", err)
	}
	known := make(map[string]bool)
	for _, p := range c.Policies {
		known[p.Name] = true
	}
	for _, l := range c.Limits {
		if l.Unlimited == known[l.Policy] || l.Unlimited != (l.Policy == "") {
			t.Fatalf("%+v", l)
		}
	}
	var m ratelimitconfig.Match
	if c.Match(&m, "d", []ratelimitconfig.Entry{{Key: "own", Value: "x"}}, ratelimitconfig.Override{}, 1); m.Outcome == ratelimitconfig.None {
		t.Fatal("a limit is lost")
	}
}
