//go:build !race

package house_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"regexp"
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

// proseFiles returns the prose of the repository, by the names of its files: pages, the comments of examples and of Go code, and what
// the program and the tests print.
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
			blocks = func(text string) []prose.Block { return goProse(t, name, text) }
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

// goProse returns the comments of a Go file that is not generated, and what it prints: if it is part of the program, its texts that
// have more than one word, and if it is a test, the texts of its failures.
func goProse(t *testing.T, name, text string) (blocks []prose.Block) {
	t.Helper()
	places := token.NewFileSet()
	file, err := parser.ParseFile(places, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	if ast.IsGenerated(file) {
		return nil
	}
	blocks = commentsOf(places, file)
	switch {
	case strings.HasSuffix(name, "_test.go"):
		blocks = append(blocks, callTexts(places, file, testCalls)...)
	case strings.HasPrefix(name, "cmd/weir/"):
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && strings.Contains(l.Value, " ") {
				blocks = append(blocks, prose.Block{Line: places.Position(l.Pos()).Line, Text: l.Value})
			}
			return true
		})
	}
	return blocks
}

// named finds what may be a name in a comment: its first word, words with a capital letter, and links.
var named = regexp.MustCompile(`^\w+|\b[A-Z]\w*|\[[\w.*]+\]`)

// commentsOf returns the comments of a Go file without names: links, identifiers of the file that are exported, and the one with which
// a comment begins.
func commentsOf(places *token.FileSet, file *ast.File) (blocks []prose.Block) {
	names := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			names[id.Name] = true
		}
		return true
	})
	for _, group := range file.Comments {
		text := named.ReplaceAllStringFunc(group.Text(), func(w string) string {
			if names[w] || w[0] == '[' {
				return "_"
			}
			return w
		})
		blocks = append(blocks, prose.Godoc(text, places.Position(group.Pos()).Line)...)
	}
	return blocks
}

// TestHouseWords looks for the words that the documentation, the comments, the program and the tests do not use.
func TestHouseWords(t *testing.T) {
	files := proseFiles(t)
	for _, name := range []string{
		"README.md", "docs/configuration.md", "docs/reference/weir-serve.md", "examples/weir.yaml", "cmd/weir/internal/serve/command.go",
		"limiter.go", "limiter_test.go", "policy/engine.go", "lab/house/words_test.go",
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

// TestHouseWordsAreFoundInGo: words are found in all comments and in printed texts of Go code, but not in names, code and data.
func TestHouseWordsAreFoundInGo(t *testing.T) {
	const comments = "// Package p shuts nobody out.\n" +
		"package p\n\n" +
		"// credit is what credit is, see [Unasked] and Unasked.\n" +
		"//\n" +
		"//\tnobody(he)\n" +
		"//\n" +
		"// A client is shut\n" +
		"// out.\n" +
		"var credit, Unasked = 1, 2 // unasked\n\n" +
		"func f() {\n" +
		"\t/* Whoever calls it. */\n" +
		"\tg(\"nobody is a name\", `nobody`)\n" +
		"\tt.Errorf(\"for %q\"+` he`, \"nobody has it\")\n" +
		"}\n"
	words := prose.NewWords(slices.Collect(maps.Keys(forbiddenWords))...)
	for name, want := range map[string][]string{
		"p/p.go":                   {"1 nobody", "4 credit", "8 shut out", "10 unasked", "13 whoever"},
		"p/p_test.go":              {"1 nobody", "4 credit", "8 shut out", "10 unasked", "13 whoever", "15 he"},
		"cmd/weir/internal/p/p.go": {"1 nobody", "4 credit", "8 shut out", "10 unasked", "13 whoever", "14 nobody", "15 he", "15 nobody"},
	} {
		var got []string
		for _, block := range goProse(t, name, comments) {
			words.Find(block, func(word string, line int) { got = append(got, fmt.Sprintf("%2d %s", line, word)) })
		}
		slices.Sort(got)
		for i, found := range got {
			got[i] = strings.TrimSpace(found)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if blocks := goProse(t, "p/p.go", "// Code generated by nobody. DO NOT EDIT.\n\npackage p\n"); len(blocks) > 0 {
		t.Errorf("generated code has %v", blocks)
	}
}
