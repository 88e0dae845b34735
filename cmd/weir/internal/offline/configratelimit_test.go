package offline_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckRatelimit: configurations of envoyproxy/ratelimit are checked as the server reads them.
func TestCheckRatelimit(t *testing.T) {
	t.Chdir(t.TempDir())
	const head = "domain: a\ndescriptors:\n- key: k\n  rate_limit: {unit: second, requests_per_unit: 5"
	for name, text := range map[string]string{
		"good/a.yaml":   head + ", shadow_mode: true}\n",
		"good/b.yaml":   strings.Replace(head, "domain: a", "domain: b", 1) + "}\n",
		"good/sub/c":    strings.Replace(head, "domain: a", "domain: c", 1) + "}\n",
		"good/.dot":     strings.Replace(head, "domain: a", "domain: d", 1) + "}\n",
		"bad/sub/c.txt": "no YAML: at all",
		"burst.yaml":    head + ", burst: 9}\n",
		"shared.yaml":   head + ", consistency: leased}\n",
		"twice/a.yaml":  head + "}\n",
		"twice/b.yaml":  strings.Replace(head, "key: k", "key: l", 1) + "}\n",
		"empty/.a.txt":  "",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]string{
		"--ratelimit good": "good: ok: 4 domains, 4 limits",
		"--ratelimit --ratelimit-ignore-dotfiles good": "good: ok: 3 domains, 3 limits",
		"--ratelimit bad":         `! bad/sub/c.txt:1:1: no YAML: "no YAML": unknown key`,
		"--ratelimit good/a.yaml": `good/a.yaml:4:52: descriptors[0].rate_limit.shadow_mode: "shadow_mode": warning: has no effect`,
		"--ratelimit good --json": `"domains":["a","b","c","d"]`,
		"--ratelimit burst.yaml":  "! is for token buckets, and this is fixed_window",
		"--ratelimit --ratelimit-algorithm token_bucket burst.yaml": "burst.yaml: ok: 1 domain, 1 limit",
		"--ratelimit shared.yaml":                                   "! needs a store, and there is none",
		"--ratelimit --store redis://127.0.0.1 shared.yaml":         "shared.yaml: ok",
		"--ratelimit twice":                                         "! is the domain of another file",
		"--ratelimit --ratelimit-merge twice":                       "twice: ok: 1 domain, 2 limits",
		"--ratelimit --ratelimit-ignore-dotfiles empty":             "! empty has no file",
		"--ratelimit-ignore-dotfiles good":                          "! --ratelimit-ignore-dotfiles needs --ratelimit",
		"--ratelimit none":                                          "! none: no such file or directory",
		"--ratelimit-merge twice":                                   "! --ratelimit-merge needs --ratelimit",
		"good/b.yaml":                                               "! give it to weir serve by --ratelimit-config, and check it by --ratelimit",
		"--ratelimit --ratelimit-algorithm leaky burst.yaml":        "! must be fixed_window, token_bucket, sliding_window or sliding_counter",
	} {
		text, wrong := strings.CutPrefix(want, "! ")
		out, _, err := runConfig(t, append([]string{"check"}, strings.Fields(args)...)...)
		if err != nil {
			out += err.Error()
		}
		if (err != nil) != wrong || !strings.Contains(out, text) {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}
