package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/policy"
)

// usable makes an engine of what was accepted, and asks it.
func usable(t *testing.T, f *config.File) {
	t.Helper()
	engine, err := policy.NewEngine(f.Set, policy.EngineOptions{Alone: true})
	if err != nil {
		t.Fatalf("the engine refuses what the decoder accepts: %v", err)
	}
	defer engine.Close()
	var v policy.Verdict
	engine.Take(&policy.Request{Method: "GET", Path: "/a"}, &v)
	v.Release()
	if _, err := engine.Load(f.Set); err != nil {
		t.Fatalf("the engine refuses it the second time: %v", err)
	}
}

// FuzzParse parses anything: no panic, mistakes that have a place and a fix, and nothing accepted that the engine refuses.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", "../examples/*.yaml"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Add([]byte("version: 1\npolicies: {a: &a {limit: 1/s}, b: *a, c: {<<: *a, burst: 3}}\n"))
	f.Add([]byte("version: 1\npolicies: {a: {limit: '${R:-1/s}', key: '\"a\" + $$'}}\n"))
	f.Add([]byte("a: &a [*a]\nb: &b {<<: *b}\n"))
	env := func(name string) (string, bool) { return "secret-" + name, strings.Contains(name, "S") }
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := config.Parse("f.yaml", data, config.Options{Env: env})
		var errs *yamlread.Errors
		switch {
		case err == nil:
			var b strings.Builder
			file.Explain(&b)
			usable(t, file)
		case !errors.As(err, &errs) || len(errs.Mistakes) == 0:
			t.Fatalf("not mistakes: %v", err)
		default:
			for _, m := range errs.Mistakes {
				if m.Line < 1 || m.Column < 1 || m.Message == "" || m.Fix == "" || strings.Contains(m.Message, "the engine refuses") {
					t.Fatalf("%+v", m)
				}
			}
		}
	})
}
