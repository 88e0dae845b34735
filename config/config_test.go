package config_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/policy"
)

func TestWholeFormat(t *testing.T) {
	f, err := config.Load("testdata/whole.yaml", config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range f.Warnings {
		t.Error(w)
	}
	if len(f.Set.Policies) != 5 || len(f.Set.Rules) != 5 || !f.Set.Rules[3].Deny ||
		f.Set.Rules[4].Mode != policy.ModeShadow {
		t.Errorf("%d policies, %d rules", len(f.Set.Policies), len(f.Set.Rules))
	}
}

func TestLoad(t *testing.T) {
	t.Setenv("WEIR_TEST_RATE", "7/s")
	name := filepath.Join(t.TempDir(), "weir.yaml")
	if _, err := config.Load(name, config.Options{}); !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "weir: configuration: ") {
		t.Errorf("%v", err)
	}
	if _, err := config.Load(t.TempDir(), config.Options{}); err == nil || !strings.HasPrefix(err.Error(), "weir: configuration: ") {
		t.Errorf("%v", err)
	}
	for text, want := range map[string]string{
		"version: 1\npolicies: {p: {limit: \"${WEIR_TEST_RATE}\"}}\n": "7/s, burst 7",
		"version: 1\npolicies: {p: {limit: 3/s, burst: 4}}\n":         "3/s, burst 4",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := config.Load(name, config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Set.Policies[0].Limits[0].String(); got != want || f.Name != name || f.Set.Policies[0].Source != name+":2:12" {
			t.Errorf("%s of %s at %s, want %s", got, f.Name, f.Set.Policies[0].Source, want)
		}
	}
}

// TestZonesAreTheSameAfterReload compares limits of two readings: a calendar that was loaded again must not look like another one.
func TestZonesAreTheSameAfterReload(t *testing.T) {
	const text = "version: 1\npolicies: {p: {limits: [{algorithm: calendar-window, permits: 1, every: day, zone: Europe/Vienna}]}}\n"
	read := func() policy.Limit {
		f, err := config.Parse("f", []byte(text), config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return f.Set.Policies[0].Limits[0]
	}
	if a, b := read(), read(); a != b {
		t.Errorf("%v and %v differ", a, b)
	}
}
