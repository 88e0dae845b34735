package ratelimitconfig_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
)

// TestDocs reads the file of the documentation, and looks up what the text says of it.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "envoy.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```yaml\n# ratelimit/config/shop.yaml\n")
	file, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("the documentation has no file")
	}
	c := parse(t, ratelimitconfig.Options{}, file)
	if len(c.Warnings) > 0 {
		t.Errorf("%q", c.Warnings)
	}
	var names []string
	for _, p := range c.Policies {
		name, hash, _ := strings.Cut(p.Name, "~")
		if hash != "" {
			name += "~"
		}
		names = append(names, name)
	}
	for _, name := range []string{
		"shop.remote_address", "shop.tenant.path", "shop.tenant.path__export_*~", "override:fixed_window", "override:fixed_window:plain",
	} {
		if !slices.Contains(names, name) {
			t.Errorf("no policy %q among %q", name, names)
		}
	}
	for asked, want := range map[string]string{
		"remote_address=192.0.2.1":  "20/second 192.0.2.1",
		"remote_address=192.0.2.7":  "0/second ",
		"tenant=a path=/x":          "600/minute a|/x",
		"tenant=b path=/x":          "600/minute b|/x",
		"tenant=a path=/export/1":   "50/day a",
		"tenant=a path=/export/2":   "50/day a",
		"plan=trial tenant=a":       "10000/month a",
		"plan=trial tenant=a x=y":   "none",
		"tenant=a":                  "none",
		"internal=x":                "unlimited",
		"something=else something=": "none",
	} {
		var m ratelimitconfig.Match
		if c.Match(&m, "shop", entries(asked), ratelimitconfig.Override{}, 1); told(&m) != want {
			t.Errorf("%s: %s, want %s", asked, told(&m), want)
		}
	}
	shared := parse(t, ratelimitconfig.Options{Policies: 1, Algorithm: ratelimitconfig.TokenBucket}, file)
	var m ratelimitconfig.Match
	shared.Match(&m, "shop", entries("tenant=a path=/x"), ratelimitconfig.Override{}, 1)
	if string(m.Key) != "shop|tenant=a|path=/x" {
		t.Errorf("the key in a policy of several limits is %s", m.Key)
	}

	// The mistakes that it shows.
	_, err = ratelimitconfig.Parse([]ratelimitconfig.File{{Name: "shop.yaml", Data: []byte(`domain: shop
descriptors:
  - key: remote_address
    rate_limit:
      unit: minuet
      requests_per_unit: 5

  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 5}
`)}}, ratelimitconfig.Options{})
	flat := strings.ReplaceAll(string(text), "\n", " ")
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if strings.HasPrefix(line, "shop.yaml") && !strings.Contains(flat, line) {
			t.Errorf("not in the documentation: %s", line)
		}
	}
}
