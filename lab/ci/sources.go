package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"regexp"
	"slices"
)

// testPackage is a package and those functions of its tests, examples and fuzz targets that have been looked for.
type testPackage struct {
	path  string
	dir   string
	names []string
}

// listed is what `go list -json` says about a package. The names are its own.
//
//nolint:tagliatelle // see above
type listed struct {
	ImportPath   string   `json:"ImportPath"`
	Dir          string   `json:"Dir"`
	TestGoFiles  []string `json:"TestGoFiles"`
	XTestGoFiles []string `json:"XTestGoFiles"`
}

// selection finds the packages of a module whose tests have certain functions, and these. It reads the sources: to list the names
// by go test links the tests of every package, and most have none of these.
type selection func(ctx context.Context, module string) ([]testPackage, error)

// Names of tests: of any, and of those that run again without the race detector.
var (
	tests      = regexp.MustCompile(`^(Test|Example|Fuzz)`)
	contention = regexp.MustCompile(`Contention|Million`)
)

// named selects functions of such names.
func named(name *regexp.Regexp) selection {
	return func(ctx context.Context, module string) ([]testPackage, error) {
		packages, err := list(ctx, module)
		if err != nil {
			return nil, err
		}

		return packagesOf(packages, func(_ string, f *ast.FuncDecl) bool { return name.MatchString(f.Name.Name) })
	}
}

// notWithRace selects the tests, examples and fuzz targets of files that are not built with the race detector, and those that ask
// whether it is there, as they do less with it, but for those that run again without it anyway.
func notWithRace(ctx context.Context, module string) ([]testPackage, error) {
	packages, err := list(ctx, module)
	if err != nil {
		return nil, err
	}

	others, err := list(ctx, module, "-race")
	if err != nil {
		return nil, err
	}

	with := map[string][]string{}
	for _, p := range others {
		with[p.ImportPath] = p.tests()
	}

	without := map[string]bool{}
	for i := range packages {
		for _, file := range packages[i].tests() {
			without[filepath.Join(packages[i].Dir, file)] = !slices.Contains(with[packages[i].ImportPath], file)
		}
	}

	return packagesOf(packages, func(path string, f *ast.FuncDecl) bool {
		name := f.Name.Name
		return tests.MatchString(name) && !contention.MatchString(name) && (without[path] || asksForRace(f))
	})
}

// asksForRace reports whether a function has race.Enabled in it.
func asksForRace(f *ast.FuncDecl) (asks bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Enabled" {
			x, isName := s.X.(*ast.Ident)
			asks = asks || isName && x.Name == "race"
		}

		return !asks
	})

	return asks
}

// list is what `go list -json` says about the packages of a module, with some flags.
func list(ctx context.Context, module string, flags ...string) ([]listed, error) {
	args := append([]string{"list", "-e", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles"}, flags...)

	said, err := goCommand(ctx, module, append(args, "./...")).Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w", module, err)
	}

	var packages []listed

	for decoder := json.NewDecoder(bytes.NewReader(said)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list in %s: %w", module, err)
		}

		packages = append(packages, p)
	}
}

func (p *listed) tests() []string { return slices.Concat(p.TestGoFiles, p.XTestGoFiles) }

// packagesOf returns those packages whose tests have functions that are selected by the path of their file and what they are.
func packagesOf(packages []listed, selected func(path string, f *ast.FuncDecl) bool) ([]testPackage, error) {
	var found []testPackage

	for i := range packages {
		p := &packages[i]
		with := testPackage{path: p.ImportPath, dir: p.Dir}

		for _, file := range p.tests() {
			names, err := functions(filepath.Join(p.Dir, file), selected)
			if err != nil {
				return nil, err
			}

			with.names = append(with.names, names...)
		}

		if len(with.names) > 0 {
			found = append(found, with)
		}
	}

	return found, nil
}

// functions returns the names of those functions of a file that are no methods and selected.
func functions(file string, selected func(path string, f *ast.FuncDecl) bool) ([]string, error) {
	source, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("read the names of tests: %w", err)
	}

	var names []string

	for _, declared := range source.Decls {
		if f, ok := declared.(*ast.FuncDecl); ok && f.Recv == nil && selected(file, f) {
			names = append(names, f.Name.Name)
		}
	}

	return names, nil
}
