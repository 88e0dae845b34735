//go:build !race

package house_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// publicNames returns what programs can name of every package of the repository, by the name of the package: its exported
// functions, types, variables and constants, and as Type.Name the methods and fields of the types.
func publicNames(t *testing.T) map[string]map[string]bool {
	t.Helper()
	names := map[string]map[string]bool{}
	repositoryFiles(t, func(name string) {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "internal/") ||
			strings.HasPrefix(name, "lab/") || strings.HasPrefix(name, "examples/") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if file.Name.Name == "main" {
			return
		}
		of := names[file.Name.Name]
		if of == nil {
			of = map[string]bool{}
			names[file.Name.Name] = of
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				receiver := ""
				if d.Recv != nil {
					receiver = typeName(d.Recv.List[0].Type) + "."
				}
				of[receiver+d.Name.Name] = true
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.ValueSpec:
						for _, n := range s.Names {
							of[n.Name] = true
						}
					case *ast.TypeSpec:
						addType(of, s)
					}
				}
			}
		}
	})
	return names
}

// addType adds a type, and its fields or methods. What it embeds is added under its own name only.
func addType(of map[string]bool, s *ast.TypeSpec) {
	of[s.Name.Name] = true
	var members *ast.FieldList
	switch typ := s.Type.(type) {
	case *ast.StructType:
		members = typ.Fields
	case *ast.InterfaceType:
		members = typ.Methods
	default:
		return
	}
	for _, f := range members.List {
		for _, n := range f.Names {
			of[s.Name.Name+"."+n.Name] = true
		}
		if len(f.Names) == 0 {
			of[s.Name.Name+".*"] = true
		}
	}
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// qualified is a name of a package, and of what is in it: policy.Engine.Do. What comes before, such as that of a module or the
// value of a field, shows that it is something else.
var qualified = regexp.MustCompile(`(?:^|[^\w./])\*?([a-z]\w*)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)

// method is a method or a field of a type, in code.
var method = regexp.MustCompile("`([A-Z]\\w*)\\.([A-Z]\\w*)\\b[^`]*`")

// others are names of packages of other modules that are called as ours are.
var others = map[string]bool{
	"httplimit.NewMiddleware": true, "httplimit.IPKeyFunc": true, "store.Get": true, "store.Set": true, "store.Burst": true,
	"Request.Pattern": true, // of net/http
}

// TestPagesNameWhatExists looks up what pages say is in a package of the repository, or is a method or a field of one of its types.
// The history and the figures of peers have names of others, and of before.
func TestPagesNameWhatExists(t *testing.T) {
	names := publicNames(t)
	for _, pkg := range []string{"weir", "policy", "store", "durable", "httplimit", "guard", "config"} {
		if len(names[pkg]) == 0 {
			t.Fatalf("package %s has no names: were files moved without changing this test?", pkg)
		}
	}
	types, members := map[string]bool{}, map[string]bool{}
	for _, of := range names {
		for n := range of {
			if typ, _, ok := strings.Cut(n, "."); ok {
				types[typ], members[n] = true, true
			}
		}
	}
	found := 0
	repositoryFiles(t, func(name string) {
		if path.Ext(name) != ".md" || name == "CHANGELOG.md" || strings.HasPrefix(name, "docs/decisions/") || name == "docs/benchmarks/raw.md" {
			return
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			for _, m := range qualified.FindAllStringSubmatch(line, -1) {
				of, known := names[m[1]]
				if !known || others[m[1]+"."+m[2]] {
					continue
				}
				found++
				if !of[m[2]] {
					t.Errorf("%s:%d: package %s has no %s", name, number, m[1], m[2])
				} else if m[3] != "" && !of[m[2]+"."+m[3]] && !of[m[2]+".*"] {
					t.Errorf("%s:%d: %s.%s has no %s", name, number, m[1], m[2], m[3])
				}
			}
			for _, m := range method.FindAllStringSubmatch(line, -1) {
				if n := m[1] + "." + m[2]; types[m[1]] && !members[n] && !members[m[1]+".*"] && !others[n] {
					t.Errorf("%s:%d: no type has %s", name, number, n)
				}
			}
		}
	})
	if found < 200 {
		t.Errorf("only %d names were looked up", found)
	}
}
