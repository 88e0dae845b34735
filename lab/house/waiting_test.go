//go:build !race

package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// outcomes are the types that say whether permits were granted, beside error.
var outcomes = []string{"error", "Answer", "Result", "Verdict", "Lease", "Decision"}

// TestCallsThatMayWaitTellTheOutcome: in no package of the core can a call for permits that has a context return as if they had been
// granted: each exported function and method whose name begins with Acquire, Reserve, Wait or Do, also one of an interface, returns an
// error or an outcome, or fills the Verdict that it is given.
func TestCallsThatMayWaitTellTheOutcome(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, file := range coreFiles(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			var name string
			var call *ast.FuncType
			switch n := n.(type) {
			case *ast.FuncDecl:
				name, call = n.Name.Name, n.Type
			case *ast.Field:
				f, ok := n.Type.(*ast.FuncType)
				if !ok || len(n.Names) != 1 {
					return true
				}
				name, call = n.Names[0].Name, f
			default:
				return true
			}
			if !asksForPermits(name) || !slices.ContainsFunc(typesOf(call.Params), func(s string) bool { return s == "Context" }) {
				return true
			}
			seen[file.Name.Name+"."+name] = true
			told := slices.ContainsFunc(typesOf(call.Results), func(s string) bool { return slices.Contains(outcomes, s) })
			if !told && !slices.Contains(typesOf(call.Params), "Verdict") {
				t.Errorf("%s.%s returns neither an error nor an outcome", file.Name.Name, name)
			}
			return true
		})
	}
	for _, name := range []string{
		"weir.Acquire", "weir.Do", "weir.Wait", "keyset.AcquireAll", "policy.Wait", "policy.ReserveAll", "store.Do", "durable.Do",
	} {
		if !seen[name] {
			t.Errorf("%s was not found, but %d others", name, len(seen))
		}
	}
}

// asksForPermits reports whether a function of this name is a call for permits.
func asksForPermits(name string) bool {
	return slices.ContainsFunc([]string{"Acquire", "Reserve", "Wait", "Do"}, func(verb string) bool {
		rest, ok := strings.CutPrefix(name, verb)
		return ok && (rest == "" || rest[0] >= 'A' && rest[0] <= 'Z')
	})
}

// typesOf are the names of the types of some fields, without packages, pointers and type parameters.
func typesOf(fields *ast.FieldList) (names []string) {
	if fields == nil {
		return nil
	}
	for _, f := range fields.List {
		x := f.Type
		if star, ok := x.(*ast.StarExpr); ok {
			x = star.X
		}
		switch x := x.(type) {
		case *ast.SelectorExpr:
			names = append(names, x.Sel.Name)
		case *ast.Ident:
			names = append(names, x.Name)
		}
	}
	return names
}

// coreFiles are the parsed files of the packages of the core that others can import.
func coreFiles(t *testing.T) (files []*ast.File) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			_, module := os.Stat(filepath.Join(name, "go.mod"))
			if name != "." && (module == nil || slices.Contains([]string{"internal", "testdata", "examples"}, entry.Name()) ||
				strings.HasPrefix(entry.Name(), ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		files = append(files, file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
