//go:build !race

package house_test

import (
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

// meanSentence is how many words the sentences of a package's godoc may have on average.
const meanSentence = 18

// godocWords are words that the comments of exported names do not use, besides forbiddenWords.
var godocWords = map[string]string{
	"admit":            "allow",
	"admits":           "allows",
	"admitted":         "allowed",
	"answered":         "returned, decided, refused",
	"answers":          "returns, decides, responds",
	"binds":            "decides, refuses",
	"granted":          "allowed, or taken",
	"grants":           "allows, or gives",
	"held to":          "under the limit",
	"permits left":     "remaining permits",
	"says how":         "is how",
	"says that":        "is returned if, means that",
	"says what":        "is what, names",
	"says which":       "is which, names",
	"says who":         "is who",
	"says why":         "is why",
	"tells how":        "is how",
	"tells that":       "is true if",
	"tells what":       "returns what",
	"the most permits": "the max number of permits",
	"what is left":     "what remains",
}

// godocFile is what is public in a file of a package that programs can import.
type godocFile struct {
	pkg      string // its folder
	comments []prose.Block
	errors   []prose.Block   // texts of errors, of exported names or not
	names    map[string]bool // exported ones, which are no words
}

// godocFiles reads all files of packages that are neither main nor internal, by their names. Programs do not import the
// lab.
func godocFiles(t *testing.T) map[string]godocFile {
	t.Helper()
	files := map[string]godocFile{}
	repositoryFiles(t, func(name string) {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "internal/") ||
			strings.Contains(name, "testdata/") || strings.HasPrefix(name, "lab/") {
			return
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		places := token.NewFileSet()
		file, err := parser.ParseFile(places, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if file.Name.Name == "main" {
			return
		}
		f := godocFile{pkg: path.Dir(name), names: map[string]bool{}, errors: callTexts(places, file, errorCalls)}
		ast.FileExports(file)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BlockStmt:
				return false
			case *ast.Ident:
				f.names[n.Name] = n.IsExported()
			case *ast.CommentGroup:
				f.comments = append(f.comments, prose.Godoc(n.Text(), places.Position(n.Pos()).Line)...)
			}
			return true
		})
		files[name] = f
	})
	return files
}

// errorCalls and testCalls are the calls that make texts of errors, and those with which tests print.
var (
	errorCalls = regexp.MustCompile(`^(errors\.New|fmt\.Errorf)$`)
	testCalls  = regexp.MustCompile(`^(t|tb|b)\.(Error|Fatal|Log|Skip)f?$`)
)

// callTexts returns the texts in the first arguments of those calls in a file whose names match.
func callTexts(places *token.FileSet, file *ast.File, calls *regexp.Regexp) (blocks []prose.Block) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		from, ok := f.X.(*ast.Ident)
		if !ok || !calls.MatchString(from.Name+"."+f.Sel.Name) {
			return true
		}
		ast.Inspect(call.Args[0], func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				blocks = append(blocks, prose.Block{Line: places.Position(l.Pos()).Line, Text: l.Value})
			}
			return true
		})
		return true
	})
	return blocks
}

var word = regexp.MustCompile(`\w+`)

// TestHouseGodocWords looks for words that the comments of exported names, and the texts of errors, do not use.
func TestHouseGodocWords(t *testing.T) {
	files := godocFiles(t)
	packages, names := map[string]bool{}, map[string]bool{}
	for _, f := range files {
		packages[f.pkg] = true
		for n, exported := range f.names {
			if exported {
				names[n] = true
			}
		}
	}
	for _, pkg := range []string{".", "algo", "policy", "policy/match", "store/redis", "durable/etcd", "config", "grpclimit", "weirprom"} {
		if !packages[pkg] {
			t.Fatalf("package %s is not among the %d that were found", pkg, len(packages))
		}
	}
	say := maps.Clone(forbiddenWords)
	maps.Copy(say, godocWords)
	words := prose.NewWords(slices.Collect(maps.Keys(say))...)
	for name, f := range files {
		find := func(block prose.Block) {
			words.Find(block, func(word string, line int) {
				t.Errorf("%s:%d: %q: say %s", name, line, word, say[word])
			})
		}
		for _, block := range f.comments {
			block.Text = word.ReplaceAllStringFunc(block.Text, func(w string) string {
				if names[w] {
					return "`"
				}
				return w
			})
			find(block)
		}
		for _, block := range f.errors {
			find(block)
		}
	}
}

// TestHouseGodocSentences finds packages whose comments have long sentences.
func TestHouseGodocSentences(t *testing.T) {
	counts := map[string]*prose.Count{}
	for _, f := range godocFiles(t) {
		if counts[f.pkg] == nil {
			counts[f.pkg] = &prose.Count{}
		}
		for _, block := range f.comments {
			counts[f.pkg].Add(block)
		}
	}
	for pkg, c := range counts {
		if mean := c.Mean(); mean > meanSentence {
			t.Errorf("package %s: its %d sentences have %.1f words on average, more than %d", pkg, c.Sentences, mean, meanSentence)
		}
	}
}
