package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// alone keeps what the developer has told git out of a test.
func alone(t *testing.T) {
	t.Helper()

	for name, value := range map[string]string{
		"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_NOSYSTEM": "1",
		"GIT_AUTHOR_NAME": "test", "GIT_AUTHOR_EMAIL": "test@localhost",
		"GIT_COMMITTER_NAME": "test", "GIT_COMMITTER_EMAIL": "test@localhost",
	} {
		t.Setenv(name, value)
	}
}

// do runs a command that has to succeed and returns what it prints.
func do(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()

	out, err := output(t.Context(), dir, env, name, args...)
	if err != nil {
		t.Fatal(err)
	}

	return string(out)
}

// repository makes a repository of the files that are here now.
func repository(t *testing.T) string {
	t.Helper()
	alone(t)

	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}

	temp := t.TempDir()
	here, clone := []string{"--git-dir=" + filepath.Join(temp, "git"), "--work-tree=" + root}, filepath.Join(temp, "clone")

	for _, args := range [][]string{{"init", "--quiet"}, {"add", "--all"}, {"commit", "--quiet", "--message=now"}} {
		do(t, root, nil, "git", append(slices.Clone(here), args...)...)
	}

	do(t, temp, nil, "git", "clone", "--quiet", "git", clone)

	return clone
}

// unusual is a version that nothing else has, so that the cache of modules may have it for a while. It goes at the end of the test.
func unusual(t *testing.T) string {
	t.Helper()

	version := fmt.Sprintf("v0.1.0-test.p%d.t%d", os.Getpid(), time.Now().UnixNano())
	cache := strings.TrimSpace(do(t, ".", nil, "go", "env", "GOMODCACHE"))

	t.Cleanup(func() {
		for _, dir := range []string{filepath.Join(cache, "github.com", "weirhq"), filepath.Join(cache, "cache", "download", "github.com", "weirhq")} {
			err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
				switch base := filepath.Base(name); {
				case err != nil:
					return err
				case strings.HasPrefix(base, version+"."):
					return os.Remove(name)
				case !strings.HasSuffix(base, "@"+version):
					return nil
				case !entry.IsDir():
					return fmt.Errorf("%s: %w", name, fs.ErrInvalid)
				}

				if failed := os.RemoveAll(name); failed != nil {
					return failed
				}

				return fs.SkipDir
			})
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
	})

	return version
}

// outside is a program of a module elsewhere.
const outside = `package main

import (
	"errors"
	"fmt"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/store/redis"
)

func main() {
	_, err := config.Parse("weir.yaml", []byte("version: 0"), config.Options{})
	_, ok := errors.AsType[*yamlread.Errors](err)
	_, unknown := redis.Open(redis.Options{Prefix: "{"})
	fmt.Println(weir.PerSecond(10), ok, unknown != nil)
}
`

// TestInstallsFromTheTags tags the repository as a release does, and then does what users do: install the program, and require
// the library from a module of their own.
func TestInstallsFromTheTags(t *testing.T) {
	repo, version := repository(t), unusual(t)
	proxy := filepath.Join(t.TempDir(), "proxy")

	var said strings.Builder
	if err := run(t.Context(), &said, []string{"-repository", repo, "-proxy", proxy, version}); err != nil {
		t.Fatal(err)
	}

	expectTags(t, repo, version, said.String())

	bin := t.TempDir()
	upstream := strings.TrimSpace(do(t, ".", nil, "go", "env", "GOPROXY"))
	// With the flags of the Makefile most of what the program requires is compiled already, and of itself nothing is optimized: what a
	// version lacks fails all the same.
	flags := "-modcacherw -tags=grpcnotrace -gcflags=all=-dwarf=false '-gcflags=" + rootPath + "/...=-N -l -dwarf=false'"
	env := []string{
		"GOPROXY=file://" + filepath.ToSlash(proxy) + "," + upstream, "GONOSUMDB=" + rootPath, "GOWORK=off", "GOFLAGS=" + flags,
		"GOBIN=" + bin,
	}

	do(t, repo, nil, "git", "checkout", "--quiet", version)

	chart := do(t, repo, nil, "git", "show", version+":deploy/helm/weir/Chart.yaml")
	if number := version[1:]; !strings.Contains(chart, "\nversion: "+number+"\nappVersion: "+number+"\n") {
		t.Errorf("the chart of %s:\n%s", version, chart)
	}

	released, err := readModules(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}

	for _, m := range released {
		if !m.development() {
			do(t, filepath.Join(repo, m.dir), env, "go", "mod", "tidy", "-diff")
		}
	}

	elsewhere := t.TempDir()
	do(t, elsewhere, env, "go", documented(t, "install", version)...)

	if got := do(t, elsewhere, nil, filepath.Join(bin, "weir"), "version"); !strings.HasPrefix(got, "weir "+version+"\n") {
		t.Errorf("weir version: %q, want %s", got, version)
	}

	if err = os.WriteFile(filepath.Join(elsewhere, "main.go"), []byte(outside), 0o600); err != nil {
		t.Fatal(err)
	}

	do(t, elsewhere, env, "go", "mod", "init", "example.com/outside")
	do(t, elsewhere, env, "go", documented(t, "get", version)...)
	do(t, elsewhere, env, "go", "get", rootPath+"/config@"+version, rootPath+"/store/redis@"+version)

	if got, want := do(t, elsewhere, env, "go", "run", "."), "10/s true true\n"; got != want {
		t.Errorf("the program elsewhere prints %q, want %q", got, want)
	}
}

// documented are the arguments of the go command as docs/install.md has them, for another version.
func documented(t *testing.T, command, version string) []string {
	t.Helper()

	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}

	_, rest, found := strings.Cut(string(page), "`go "+command+" "+rootPath)
	path, _, ends := strings.Cut(rest, "@v0.1.0`")

	if !found || !ends {
		t.Fatalf("docs/install.md has no go %s of v0.1.0", command)
	}

	return []string{command, rootPath + path + "@" + version}
}

// expectTags expects that each module which others need has a tag on one commit, where it replaces nothing.
func expectTags(t *testing.T, repo, version, said string) {
	t.Helper()

	modules, err := readModules(t.Context(), repo)
	if err != nil {
		t.Fatal(err)
	}

	// More than three tags at once start no workflow, so that of the release comes alone, and last.
	if !strings.HasSuffix(said, "\n    git push origin "+version+"\n") {
		t.Errorf("%q does not end with the tag that starts the workflow", said)
	}

	head := do(t, repo, nil, "git", "rev-parse", "HEAD", version+"^{commit}~1")
	if lines := strings.Fields(head); lines[0] != lines[1] {
		t.Errorf("%s is not the commit after the last one", version)
	}

	for _, m := range modules {
		tag := m.tag(version)

		if m.development() {
			if do(t, repo, nil, "git", "tag", "--list", tag) != "" {
				t.Errorf("%s is tagged, and is for development only", m.path)
			}

			continue
		}

		if do(t, repo, nil, "git", "rev-parse", tag+"^{commit}") != do(t, repo, nil, "git", "rev-parse", version+"^{commit}") {
			t.Errorf("%s is not on the commit of %s", tag, version)
		}

		if text := do(t, repo, nil, "git", "show", tag+":"+filepath.ToSlash(filepath.Join(m.dir, "go.mod"))); strings.Contains(text, "replace") ||
			strings.Contains(text, rootPath+" v0.0.0\n") {
			t.Errorf("%s:\n%s", tag, text)
		}

		if !slices.Contains(strings.Fields(said), tag) {
			t.Errorf("%s is not pushed by %q", tag, said)
		}
	}
}

func TestDevelopmentModulesExist(t *testing.T) {
	modules, err := readModules(t.Context(), filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}

	for _, dir := range development {
		if !slices.ContainsFunc(modules, func(m *module) bool { return m.dir == dir }) {
			t.Errorf("there is no module %s", dir)
		}
	}
}

// small makes a repository of two modules, of which the one in the root requires what is given.
func small(t *testing.T, requirement, chart string) string {
	t.Helper()
	alone(t)

	repo := t.TempDir()
	for name, text := range map[string]string{
		"go.work":  "go 1.26.0\n\nuse (\n\t.\n\t./a\n)\n",
		"go.mod":   "module " + rootPath + "\n\ngo 1.26.0\n" + requirement,
		"a/go.mod": "module " + rootPath + "/a\n\ngo 1.26.0\n\nrequire " + rootPath + " v0.0.0\n\nreplace " + rootPath + " => ..\n",
		"a/a.go":   "package a\n",
		"weir.go":  "package weir\n",

		"deploy/helm/weir/Chart.yaml": chart,
	} {
		if err := errors.Join(os.MkdirAll(filepath.Join(repo, filepath.Dir(name)), 0o750),
			os.WriteFile(filepath.Join(repo, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}

	for _, args := range [][]string{{"init", "--quiet"}, {"add", "--all"}, {"commit", "--quiet", "--message=now"}} {
		do(t, repo, nil, "git", args...)
	}

	return repo
}

func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		requirement string
		chart       string
		args        []string
		before      func(t *testing.T, repo string)
		want        error
	}{
		"no version":           {args: nil, want: errUsage},
		"two versions":         {args: []string{"v0.1.0", "v0.2.0"}, want: errUsage},
		"unknown flag":         {args: []string{"-push", "v0.1.0"}, want: errUsage},
		"no v":                 {args: []string{"0.1.0"}, want: errVersion},
		"two numbers":          {args: []string{"v0.1"}, want: errVersion},
		"leading zero":         {args: []string{"v0.01.0"}, want: errVersion},
		"another module path":  {args: []string{"v2.0.0"}, want: errVersion},
		"an option of git":     {args: []string{"--", "--force"}, want: errVersion},
		"a pre-release number": {args: []string{"v0.1.0-1"}, want: errVersion},
		"changes": {args: []string{"v0.1.0"}, want: errChanged, before: func(t *testing.T, repo string) {
			t.Helper()

			if err := os.WriteFile(filepath.Join(repo, "new.go"), []byte("package weir\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		"tagged": {args: []string{"v0.1.0"}, want: errTagged, before: func(t *testing.T, repo string) {
			t.Helper()
			do(t, repo, nil, "git", "tag", "a/v0.1.0")
		}},
		"chart with a version": {args: []string{"v0.1.0"}, want: errChart, chart: "name: weir\nversion: 0.1.0\nappVersion: latest\n"},
		"circle": {
			args: []string{"v0.1.0"}, want: errCycle, chart: "name: weir\nversion: 0.0.0\nappVersion: latest\n",
			requirement: "\nrequire " + rootPath + "/a v0.0.0\n\nreplace " + rootPath + "/a => ./a\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			repo := small(t, test.requirement, test.chart)
			if test.before != nil {
				test.before(t, repo)
			}

			before := do(t, repo, nil, "git", "for-each-ref")

			err := run(t.Context(), io.Discard, append([]string{"-repository", repo}, test.args...))
			if !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}

			if after := do(t, repo, nil, "git", "for-each-ref"); after != before {
				t.Errorf("there is a tag now: %s", after)
			}
		})
	}
}

// TestReplacedModulesCannotBeInstalled shows what the release is for.
func TestReplacedModulesCannotBeInstalled(t *testing.T) {
	repo := small(t, "", "")

	if err := os.WriteFile(filepath.Join(repo, "a", "a.go"), []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	do(t, repo, nil, "git", "commit", "--quiet", "--all", "--message=a program")
	do(t, repo, nil, "git", "tag", "a/v0.1.0")

	cache := t.TempDir()
	if _, err := download(t.Context(), cache, repo, []string{rootPath + "/a"}, "v0.1.0"); err != nil {
		t.Fatal(err)
	}

	cmd := exec.CommandContext(t.Context(), "go", "install", rootPath+"/a@v0.1.0")
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GOMODCACHE="+cache, "GONOSUMDB="+rootPath, "GOFLAGS=-modcacherw", "GOPROXY=file://"+filepath.ToSlash(filepath.Join(cache, "cache", "download")), "GOBIN="+t.TempDir())

	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "replace directives") {
		t.Errorf("%v: %s", err, out)
	}
}
