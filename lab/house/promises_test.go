//go:build !race

package house_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testNamed   = regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w+`)
	testDefined = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)[A-Z]\w+)\(`)
	goComment   = regexp.MustCompile(`(?m)^\s*//.*$`)
)

// TestPromisesNameTheirTest looks up every test that a comment or a page names as its proof.
func TestPromisesNameTheirTest(t *testing.T) {
	named := map[string]string{}
	defined := map[string]bool{}

	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != ".":
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".md"):
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text := string(content)
		switch {
		case strings.HasSuffix(path, "_test.go"):
			for _, m := range testDefined.FindAllStringSubmatch(text, -1) {
				defined[m[1]] = true
			}

			return nil
		case strings.HasSuffix(path, ".go"):
			text = strings.Join(goComment.FindAllString(text, -1), "\n")
		}
		for _, name := range testNamed.FindAllString(text, -1) {
			named[name] = path
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range named {
		if !defined[name] {
			t.Errorf("%s names %s, which does not exist", path, name)
		}
	}
	if len(named) < 10 {
		t.Errorf("only %d tests are named: does the search still work?", len(named))
	}
}
