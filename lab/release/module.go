package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// module is one of the repository.
type module struct {
	dir, path string
	needs     []string // paths of the modules of the repository that it requires
	replaces  []string // paths of those that it replaces
}

// sum is what go.sum has of a module, of all its files and of its go.mod.
//
//nolint:tagliatelle // the names are those of go mod download
type sum struct {
	All   string `json:"Sum"`
	GoMod string `json:"GoModSum"`
}

// versionOf is a module as go.mod names it.
//
//nolint:tagliatelle // the names are those of go mod edit
type versionOf struct {
	Path string `json:"Path"`
}

func (m *module) development() bool { return slices.Contains(development, m.dir) }

// tag is where the go command looks for a version of the module.
func (m *module) tag(version string) string { return path.Join(m.dir, version) }

// ready reports whether the sums of all that the module needs are known.
func (m *module) ready(sums map[string]sum) bool {
	return !slices.ContainsFunc(m.needs, func(need string) bool {
		_, ok := sums[need]
		return !ok
	})
}

func paths(modules []*module) []string {
	all := make([]string, 0, len(modules))
	for _, m := range modules {
		all = append(all, m.path)
	}

	return all
}

// readModules reads the modules that go.work lists.
func readModules(ctx context.Context, root string) ([]*module, error) {
	//nolint:tagliatelle // the names are those of go work edit
	var workspace struct {
		Use []struct {
			DiskPath string `json:"DiskPath"`
		} `json:"Use"`
	}

	if err := goJSON(ctx, root, &workspace, "work", "edit", "-json", "go.work"); err != nil {
		return nil, err
	}

	modules := make([]*module, 0, len(workspace.Use))

	for _, use := range workspace.Use {
		m := &module{dir: path.Clean(use.DiskPath)}

		//nolint:tagliatelle // the names are those of go mod edit
		var file struct {
			Module  versionOf   `json:"Module"`
			Require []versionOf `json:"Require"`
			Replace []struct {
				Old versionOf `json:"Old"`
			} `json:"Replace"`
		}

		if err := goJSON(ctx, filepath.Join(root, m.dir), &file, "mod", "edit", "-json"); err != nil {
			return nil, err
		}

		m.path = file.Module.Path

		for _, r := range file.Require {
			if own(r.Path) {
				m.needs = append(m.needs, r.Path)
			}
		}

		for _, r := range file.Replace {
			if own(r.Old.Path) {
				m.replaces = append(m.replaces, r.Old.Path)
			}
		}

		modules = append(modules, m)
	}

	return modules, nil
}

// own reports whether a module is one of this repository.
func own(module string) bool { return module == rootPath || strings.HasPrefix(module, rootPath+"/") }

// require makes the module require the others at a version.
func (m *module) require(ctx context.Context, root, version string) error {
	return m.edit(ctx, root, m.needs, func(need string) string { return "-require=" + need + "@" + version })
}

// drop takes the directives out that are for development.
func (m *module) drop(ctx context.Context, root string) error {
	return m.edit(ctx, root, m.replaces, func(replaced string) string { return "-dropreplace=" + replaced })
}

func (m *module) edit(ctx context.Context, root string, which []string, flag func(string) string) error {
	if len(which) == 0 {
		return nil
	}

	args := []string{"mod", "edit"}
	for _, other := range which {
		args = append(args, flag(other))
	}

	_, err := goCommand(ctx, filepath.Join(root, m.dir), nil, args...)

	return err
}

// addSums adds the sums of what the module needs to its go.sum, where the go command would write them.
func (m *module) addSums(root, version string, sums map[string]sum) error {
	if len(m.needs) == 0 {
		return nil
	}

	name := filepath.Join(root, m.dir, "go.sum")

	text, err := os.ReadFile(name) //nolint:gosec // a file of the repository
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	lines := slices.Collect(strings.Lines(string(text)))
	for _, need := range m.needs {
		s := sums[need]
		lines = append(lines, need+" "+version+" "+s.All+"\n", need+" "+version+"/go.mod "+s.GoMod+"\n")
	}

	// The versions of one module stay in their order.
	slices.SortStableFunc(lines, func(a, b string) int {
		a, _, _ = strings.Cut(a, " ")
		b, _, _ = strings.Cut(b, " ")

		return strings.Compare(a, b)
	})

	return os.WriteFile(name, []byte(strings.Join(lines, "")), 0o644) //nolint:gosec // it is for all to read
}

// download has the go command read modules from a clone, into a cache of their own, and returns their sums. The clone stands in
// for the server of the repository.
func download(ctx context.Context, cache, clone string, paths []string, version string) (map[string]sum, error) {
	args := slices.Concat([]string{"mod", "download", "-json", "-modcacherw"}, paths)
	for i := range paths {
		args[len(args)-1-i] += "@" + version
	}

	out, err := goCommand(ctx, cache, []string{
		"GOMODCACHE=" + cache, "GOPROXY=direct", "GONOSUMDB=" + rootPath, "GOFLAGS=",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://" + filepath.ToSlash(clone) + ".insteadOf",
		"GIT_CONFIG_VALUE_0=https://" + rootPath,
	}, args...)
	if err != nil {
		return nil, err
	}

	sums := map[string]sum{}
	decoder := json.NewDecoder(bytes.NewReader(out))

	for {
		var m struct {
			versionOf
			sum
		}

		switch err = decoder.Decode(&m); {
		case errors.Is(err, io.EOF):
			return sums, nil
		case err != nil:
			return nil, err
		}

		sums[m.Path] = m.sum
	}
}

func goJSON(ctx context.Context, dir string, into any, args ...string) error {
	out, err := goCommand(ctx, dir, nil, args...)
	if err != nil {
		return err
	}

	return json.Unmarshal(out, into)
}

// goCommand runs go in a directory, outside of any workspace, and returns what it prints.
func goCommand(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	return output(ctx, dir, append([]string{"GOWORK=off"}, env...), "go", args...)
}

// git runs git in a directory and returns what it prints, without the end of the last line.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := output(ctx, dir, nil, "git", args...)

	return strings.TrimSuffix(string(out), "\n"), err
}

func output(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer

	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr

	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, stdout.Bytes(), stderr.Bytes())
	}

	return stdout.Bytes(), nil
}
