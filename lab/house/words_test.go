package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/lab/prose"
)

// forbiddenWords are words of which another is the one to use. Upper and lower case are the same, and a line may end within words.
var forbiddenWords = map[string]string{
	"whoever":         "the caller, the client, or what it does",
	"somebody":        "a client, a caller, an operator",
	"nobody":          "no client, no caller, none",
	"everybody":       "every client, all callers",
	"anybody":         "any client, a caller",
	"he":              "it",
	"him":             "it",
	"his":             "its",
	"shut out":        "locked out",
	"crowded":         "the table is full",
	"unsure":          "pending",
	"roomless":        "without room",
	"unask":           "undo",
	"unasked":         "undone",
	"answers whether": "reports whether",
	"says whether":    "reports whether",
	"tells whether":   "reports whether",
	"waved through":   "exempt",
	"lifted":          "exempt",
	"barred":          "locked out",
	"credit":          "remaining",
	"credits":         "permits",
}

// proseFiles returns the prose that users read, by the names of its files: pages, the comments of examples, and what the program
// prints.
func proseFiles(t *testing.T) map[string][]prose.Block {
	t.Helper()
	files := map[string][]prose.Block{}
	repositoryFiles(t, func(name string) {
		var blocks func(text string) []prose.Block
		switch path.Ext(name) {
		case ".md":
			blocks = prose.Markdown
		case ".yaml":
			if strings.HasPrefix(name, "examples/") {
				blocks = prose.Comments
			}
		case ".go":
			if strings.HasPrefix(name, "cmd/weir/") && !strings.HasSuffix(name, "_test.go") {
				blocks = func(text string) []prose.Block { return printed(t, name, text) }
			}
		}
		if blocks == nil {
			return
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = blocks(string(text))
	})
	return files
}

// printed returns the texts of a Go file that have more than one word.
func printed(t *testing.T, name, text string) (blocks []prose.Block) {
	t.Helper()
	places := token.NewFileSet()
	file, err := parser.ParseFile(places, name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && strings.Contains(l.Value, " ") {
			blocks = append(blocks, prose.Block{Line: places.Position(l.Pos()).Line, Text: l.Value})
		}
		return true
	})
	return blocks
}

// TestHouseWords looks for the words that the documentation, the examples and the program do not use.
func TestHouseWords(t *testing.T) {
	files := proseFiles(t)
	for _, name := range []string{
		"README.md", "docs/configuration.md", "docs/reference/weir-serve.md", "examples/weir.yaml", "cmd/weir/internal/serve/command.go",
	} {
		if files[name] == nil {
			t.Fatalf("%s is not among the %d files that were found", name, len(files))
		}
	}
	words := prose.NewWords(slices.Collect(maps.Keys(forbiddenWords))...)
	for name, blocks := range files {
		for _, block := range blocks {
			words.Find(block, func(word string, line int) {
				t.Errorf("%s:%d: %q: say %s", name, line, word, forbiddenWords[word])
			})
		}
	}
}
