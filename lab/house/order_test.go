//go:build !race

package house_test

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/weirhq/weir"

// rooms is the order of the house: a package may import packages of the rooms listed before its own, and of its own
// room, and none of a later one. A room is a path below the module with all that lies below it, and the longest path
// counts. Rooms on one line do not import each other. "." is package weir itself.
var rooms = [][]string{
	{"algo"},
	{"internal"},
	{"clientip", "manualclock"},
	{"."},
	{"guard", "overload", "keyset", "internal/limits"},
	{"tiers"},
	{"dispatch"},
	{"store"},
	{"durable", "policy/match"},
	{"policy"},
	{"ratelimitfields"},
	{"httplimit", "httpclient", "internal/fold"},
	{"examples"},
}

// standing are the packages that the order must not lose, so that a renamed package cannot escape from it.
var standing = []string{"algo", "internal/queue", "."}

// listedPackage is what the tests read of a package that go list describes.
//
//nolint:tagliatelle // the names are those of go list
type listedPackage struct {
	ImportPath string   `json:"ImportPath"`
	Standard   bool     `json:"Standard"`
	Imports    []string `json:"Imports"`
	Deps       []string `json:"Deps"`
}

// moduleFile is what the tests read of a go.mod.
//
//nolint:tagliatelle // the names are those of go mod edit
type moduleFile struct {
	Module  moduleVersion   `json:"Module"`
	Require []moduleVersion `json:"Require"`
	Replace []struct {
		Old moduleVersion `json:"Old"`
	} `json:"Replace"`
	Tool []moduleVersion `json:"Tool"`
}

//nolint:tagliatelle // the names are those of go mod edit
type moduleVersion struct {
	Path    string `json:"Path"`
	Version string `json:"Version"`
}

// runGo runs go in dir outside of any workspace and returns what it prints.
func runGo(t *testing.T, dir string, env []string, args ...string) []byte {
	t.Helper()

	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOWORK=off"), env...)

	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go %s in %s: %v\n%s", strings.Join(args, " "), dir, err, exit.Stderr)
		}

		t.Fatalf("go %s in %s: %v", strings.Join(args, " "), dir, err)
	}

	return out
}

// listPackages returns the packages that go list finds in the core module.
func listPackages(t *testing.T, env []string, args ...string) []listedPackage {
	t.Helper()

	args = append([]string{"list", "-json=ImportPath,Standard,Imports,Deps"}, args...)
	decoder := json.NewDecoder(strings.NewReader(string(runGo(t, ".", env, args...))))

	var all []listedPackage

	for {
		var p listedPackage

		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		}

		all = append(all, p)
	}
}

// readModule reads dir/go.mod.
func readModule(t *testing.T, dir string) moduleFile {
	t.Helper()

	var m moduleFile

	if err := json.Unmarshal(runGo(t, dir, nil, "mod", "edit", "-json"), &m); err != nil {
		t.Fatal(err)
	}

	return m
}

// repositoryFiles calls visit for every file of the repository, without hidden directories, what was built and the data of
// tests.
func repositoryFiles(t *testing.T, visit func(name string)) {
	t.Helper()

	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !entry.IsDir():
			visit(filepath.ToSlash(name))

			return nil
		case name == ".":
			return nil
		}

		base := entry.Name()
		if strings.HasPrefix(base, ".") || slices.Contains([]string{"bin", "dist", "node_modules", "testdata"}, base) {
			return fs.SkipDir
		}

		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestCoreRequiresNoModule(t *testing.T) {
	m := readModule(t, ".")

	if m.Module.Path != modulePath {
		t.Errorf("go.mod names %q, want %q", m.Module.Path, modulePath)
	}

	if len(m.Require) > 0 || len(m.Replace) > 0 || len(m.Tool) > 0 {
		t.Errorf("the core's go.mod has require %v, replace %v, tool %v; it must have none", m.Require, m.Replace, m.Tool)
	}

	if _, err := os.Stat("go.sum"); err == nil {
		t.Error("the core has a go.sum, so it depends on something")
	}
}

func TestCoreImportsTheStandardLibraryOnly(t *testing.T) {
	for _, platform := range []string{"linux/amd64", "darwin/arm64", "windows/amd64"} {
		t.Run(strings.ReplaceAll(platform, "/", "-"), func(t *testing.T) {
			system, arch, _ := strings.Cut(platform, "/")
			env := []string{"GOOS=" + system, "GOARCH=" + arch}
			own := 0

			for _, p := range listPackages(t, env, "-deps", "-test", "./...") {
				// A package that is built anew for a test is listed as "path [path.test]".
				importPath, _, _ := strings.Cut(p.ImportPath, " ")

				switch {
				case p.Standard:
				case importPath == modulePath, importPath == modulePath+".test",
					strings.HasPrefix(importPath, modulePath+"_test"),
					strings.HasPrefix(importPath, modulePath+"/"):
					own++
				default:
					t.Errorf("%s is neither in the standard library nor in %s", importPath, modulePath)
				}
			}

			if own == 0 {
				t.Error("go list found no package of the core")
			}
		})
	}
}

// roomOf returns the place of a package in rooms and the room itself.
func roomOf(importPath string) (rank int, room string, ok bool) {
	for i, line := range rooms {
		for _, r := range line {
			if isBelow(importPath, r) && len(r) > len(room) {
				rank, room, ok = i, r, true
			}
		}
	}

	return rank, room, ok
}

func TestArrowsGoOnlyDownwards(t *testing.T) {
	seen := map[string]bool{}

	for _, p := range listPackages(t, nil, "./...") {
		rank, room, ok := roomOf(p.ImportPath)
		if !ok {
			t.Errorf("%s has no place in the order of the house: add it to rooms", p.ImportPath)

			continue
		}

		seen[path.Join(".", strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, modulePath), "/"))] = true

		for _, imported := range p.Imports {
			if imported != modulePath && !strings.HasPrefix(imported, modulePath+"/") {
				continue
			}

			to, toRoom, known := roomOf(imported)
			if known && toRoom != room && to >= rank {
				t.Errorf("%s imports %s, which does not lie below it", p.ImportPath, imported)
			}
		}
	}

	for _, name := range standing {
		if !seen[name] {
			t.Errorf("package %s is gone: was it renamed without changing this test?", name)
		}
	}
}

// isBelow reports whether an import path is that of a room or of a package in it.
func isBelow(importPath, room string) bool {
	room = path.Join(modulePath, room)

	return importPath == room || (room != modulePath && strings.HasPrefix(importPath, room+"/"))
}

// TestArrowsThatMustNotExist repeats the most important arrows by name and over any number of steps, so that a change
// to rooms cannot take them away unnoticed.
func TestArrowsThatMustNotExist(t *testing.T) {
	forbidden := map[string][]string{
		"algo":           {".", "internal", "httplimit", "policy", "store", "durable"},
		"internal/queue": {".", "httplimit", "policy", "store", "durable"},
		".":              {"httplimit", "policy", "store", "durable"},
	}

	for _, p := range listPackages(t, nil, "./...") {
		name := path.Join(".", strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, modulePath), "/"))

		for _, below := range forbidden[name] {
			for _, dep := range p.Deps {
				if isBelow(dep, below) {
					t.Errorf("%s depends on %s", p.ImportPath, dep)
				}
			}
		}
	}
}

func TestPackageNamesSayWhatTheyHold(t *testing.T) {
	empty := []string{"util", "utils", "common", "helper", "helpers", "types"}
	fset := token.NewFileSet()
	count := 0

	repositoryFiles(t, func(name string) {
		if !strings.HasSuffix(name, ".go") {
			return
		}

		count++

		file, err := parser.ParseFile(fset, name, nil, parser.PackageClauseOnly)
		if err != nil {
			t.Error(err)

			return
		}

		pkg := strings.TrimSuffix(file.Name.Name, "_test")
		if slices.Contains(empty, pkg) || slices.Contains(empty, path.Base(path.Dir(name))) {
			t.Errorf("%s: package %s has a name that says nothing", name, pkg)
		}
	})

	if count == 0 {
		t.Error("found no Go file")
	}
}

func TestWorkspaceHoldsEveryModule(t *testing.T) {
	//nolint:tagliatelle // the names are those of go work edit
	var work struct {
		Use []struct {
			DiskPath string `json:"DiskPath"`
		} `json:"Use"`
	}

	if err := json.Unmarshal(runGo(t, ".", []string{"GOWORK="}, "work", "edit", "-json"), &work); err != nil {
		t.Fatal(err)
	}

	used := make([]string, 0, len(work.Use))

	for _, use := range work.Use {
		dir := path.Clean(use.DiskPath)
		used = append(used, dir)

		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
			t.Errorf("go.work uses %s: %v", dir, err)
		}
	}

	var found []string

	repositoryFiles(t, func(name string) {
		// lab/tools pins the versions of development tools. Its requirements must not weigh on those of the workspace.
		if path.Base(name) == "go.mod" && path.Dir(name) != "lab/tools" {
			found = append(found, path.Dir(name))
		}
	})

	slices.Sort(used)
	slices.Sort(found)

	if !slices.Equal(used, found) {
		t.Errorf("go.work uses %v, but there is a go.mod in %v", used, found)
	}

	for _, dir := range found {
		m := readModule(t, dir)

		want := path.Join(modulePath, dir)
		if dir == "durable/etcd/go-cmp" { // it stands in for another: docs/decisions/0018-a-lean-program.md
			want = "github.com/google/go-cmp"
		}

		if m.Module.Path != want {
			t.Errorf("%s/go.mod names the module %s, want %s", dir, m.Module.Path, want)
		}

		for _, r := range m.Require {
			if isBelow(r.Path, "lab") || r.Path == modulePath+"/docs/site" {
				t.Errorf("%s requires %s, which is for development only", dir, r.Path)
			}
		}
	}
}

// TestModulesAgreeOnVersions fails where two modules require different versions of a third. Then a package is compiled twice, and
// a module by itself runs other code than in the workspace. `go work sync`, and `go mod tidy` in each module, mend it.
func TestModulesAgreeOnVersions(t *testing.T) {
	type requirement struct{ dir, version string }

	first := map[string]requirement{}

	repositoryFiles(t, func(name string) {
		dir := path.Dir(name)
		if path.Base(name) != "go.mod" || dir == "lab/tools" {
			return
		}

		for _, r := range readModule(t, dir).Require {
			switch other, known := first[r.Path]; {
			case !known:
				first[r.Path] = requirement{dir, r.Version}
			case other.version != r.Version:
				t.Errorf("%s requires %s %s, and %s requires %s", dir, r.Path, r.Version, other.dir, other.version)
			}
		}
	})

	if len(first) == 0 {
		t.Error("found no requirement")
	}
}
