//go:build !race

package house_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// guaranteed is a row of docs/guarantees.md: the name of a test, and the file or directory that it links to.
var guaranteed = regexp.MustCompile("\\| `(Test\\w+)` \\| \\[([^\\]]+)\\]\\(\\.\\./([^)]+)\\) \\|$")

// TestGuaranteesNameTheirTest looks the test of every row of docs/guarantees.md up in the directory that the row names.
func TestGuaranteesNameTheirTest(t *testing.T) {
	page, err := os.ReadFile("docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") || line == "| | proof | in |" {
			continue
		}
		found := guaranteed.FindStringSubmatch(line)
		if found == nil {
			t.Errorf("this row names no test and directory: %s", line)
			continue
		}
		rows++
		name, dir := found[1], found[3]
		if strings.HasSuffix(dir, ".go") {
			dir = filepath.Dir(dir)
		}
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		defined := false
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			defined = defined || strings.Contains(string(content), "\nfunc "+name+"(")
		}
		if !defined {
			t.Errorf("%s is not in %s", name, dir)
		}
	}
	if rows < 40 {
		t.Errorf("only %d rows are checked", rows)
	}
}

// TestIndexHasEveryPage: docs/README.md leads to every page beside it, and to the directories of pages.
func TestIndexHasEveryPage(t *testing.T) {
	index := map[string]bool{}
	for _, target := range readMarkdown(t, "docs/README.md").targets {
		index[target] = true
	}
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("docs/*/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, more...) {
		name := filepath.ToSlash(page[len("docs/"):])
		if name != "README.md" && !index[name] {
			t.Errorf("docs/README.md does not lead to docs/%s", name)
		}
	}
}
