//go:build !race

package house_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// mostNames is how many public names package weir may have. What only some programs need is in a package beside it.
const mostNames = 200

// TestHouseNames counts the types, functions, methods, fields, constants and variables that go doc shows of package weir.
func TestHouseNames(t *testing.T) {
	fset := token.NewFileSet()
	var files []*ast.File
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, wrong := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if wrong != nil {
			t.Fatal(wrong)
		}
		files = append(files, file)
	}
	p, err := doc.NewFromFiles(fset, files, modulePath)
	if err != nil {
		t.Fatal(err)
	}
	names := namesOf(p.Consts) + namesOf(p.Vars) + len(p.Funcs)
	for _, typ := range p.Types {
		names += 1 + len(typ.Funcs) + len(typ.Methods) + namesOf(typ.Consts) + namesOf(typ.Vars)
		ast.Inspect(typ.Decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.StructType:
				names += exportedIn(n.Fields)
			case *ast.InterfaceType:
				names += exportedIn(n.Methods)
			}
			return true
		})
	}
	if names > mostNames {
		t.Errorf("package weir has %d public names: at most %d", names, mostNames)
	}
	if names < mostNames/2 {
		t.Errorf("only %d names were found: were files moved without changing this test?", names)
	}
}

func namesOf(values []*doc.Value) (n int) {
	for _, v := range values {
		for _, name := range v.Names {
			if ast.IsExported(name) {
				n++
			}
		}
	}
	return n
}

func exportedIn(fields *ast.FieldList) (n int) {
	for _, f := range fields.List {
		for _, name := range f.Names {
			if name.IsExported() {
				n++
			}
		}
	}
	return n
}
