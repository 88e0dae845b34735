package weir_test

import (
	"os"
	"path"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/prose"
)

// forbiddenWords are words of which another is the one to use. Upper and lower case are the same, and a line may end within words.
// where is the beginning of the path of the files for which it holds: "" for all of proseFiles.
var forbiddenWords = []struct{ word, say, where string }{
	{"whoever", "the caller, the client, or what it does", ""},
	{"somebody", "a client, a caller, an operator", ""},
	{"nobody", "no client, no caller, none", ""},
	{"everybody", "every client, all callers", ""},
	{"anybody", "any client, a caller", ""},
	{"he", "it", ""},
	{"him", "it", ""},
	{"his", "its", ""},
	{"shut out", "locked out", ""},
	{"crowded", "the table is full", ""},
	{"unsure", "pending", ""},
	{"roomless", "without room", ""},
	{"unask", "undo", ""},
	{"unasked", "undone", ""},
	{"answers whether", "reports whether", ""},
	{"says whether", "reports whether", ""},
	{"tells whether", "reports whether", ""},
	{"waved through", "exempt", ""},
	{"lifted", "exempt", ""},
	{"barred", "locked out", ""},
	{"credit", "remaining", ""},
	{"credits", "permits", ""},
}

// proseFiles returns the prose of the files that users read, by their names. docs/reference is what the program prints as its help.
func proseFiles(t *testing.T) map[string][]prose.Block {
	t.Helper()
	files := map[string][]prose.Block{}
	repositoryFiles(t, func(name string) {
		page := path.Ext(name) == ".md" && path.Dir(name) != "docs/reference"
		example := strings.HasPrefix(name, "examples/") && path.Ext(name) == ".yaml"
		if !page && !example {
			return
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if page {
			files[name] = prose.Markdown(string(text))
		} else {
			files[name] = prose.Comments(string(text))
		}
	})
	return files
}

// TestHouseWords looks for the words that the documentation and the examples do not use.
func TestHouseWords(t *testing.T) {
	files := proseFiles(t)
	if files["README.md"] == nil || files["docs/configuration.md"] == nil || files["examples/weir.yaml"] == nil {
		t.Fatalf("of the files that users read only %d were found", len(files))
	}
	for name, blocks := range files {
		for _, f := range forbiddenWords {
			if !strings.HasPrefix(name, f.where) {
				continue
			}
			for _, block := range blocks {
				for _, line := range block.Find(f.word) {
					t.Errorf("%s:%d: %q: say %s", name, line, f.word, f.say)
				}
			}
		}
	}
}
