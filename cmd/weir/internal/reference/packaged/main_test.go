package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

var root = filepath.Join("..", "..", "..", "..", "..")

// written is where what packages have is for a test.
func written(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := write(filepath.Join(root, "deploy", "systemd", "weir.service"), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestReleaseHasWhatIsWritten compares what is written with the names in .goreleaser.yaml: each file that goes into a package is
// there, and each manual page and each completion goes into all of them.
func TestReleaseHasWhatIsWritten(t *testing.T) {
	dir := written(t)
	text, err := os.ReadFile(filepath.Join(root, ".goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var release struct {
		Archives []struct{ Files []source }
		Nfpms    []struct {
			Contents []source
			Scripts  map[string]string
		}
		Casks []struct {
			Manpages    []string
			Completions map[string]string
		} `yaml:"homebrew_casks"`
	}
	if err = yaml.Unmarshal(text, &release); err != nil {
		t.Fatal(err)
	}
	if len(release.Archives) != 1 || len(release.Nfpms) != 1 || len(release.Casks) != 1 {
		t.Fatalf("%d archives, %d packages, %d casks", len(release.Archives), len(release.Nfpms), len(release.Casks))
	}
	archive := names(t, dir, release.Archives[0].Files)
	packages := names(t, dir, release.Nfpms[0].Contents)
	for _, script := range release.Nfpms[0].Scripts {
		packages = append(packages, names(t, dir, []source{{script}})...)
	}
	cask := release.Casks[0].Manpages
	for _, completion := range release.Casks[0].Completions {
		cask = append(cask, completion)
	}
	for _, pattern := range []string{"man/*", "completions/*"} {
		for _, name := range names(t, dir, []source{{"bin/packaged/" + pattern}}) {
			if !slices.Contains(archive, name) {
				t.Errorf("archives have no %s", name)
			}
			if strings.HasSuffix(name, ".ps1") {
				continue // of Windows, for which there are archives alone
			}
			if !slices.Contains(packages, name) {
				t.Errorf("packages have no %s", name)
			}
			if !slices.Contains(cask, name) {
				t.Errorf("the cask has no %s", name)
			}
		}
	}
	for _, name := range cask {
		if !slices.Contains(archive, name) {
			t.Errorf("the cask has %s, and archives do not", name)
		}
	}
}

type source struct{ Src string }

// names are those of the files that sources name, of what is written without the directory.
func names(t *testing.T, dir string, sources []source) []string {
	t.Helper()
	var all []string
	for _, s := range sources {
		base, pattern := root, s.Src
		if made, ok := strings.CutPrefix(s.Src, "bin/packaged/"); ok {
			base, pattern = dir, made
		}
		found, err := filepath.Glob(filepath.Join(base, filepath.FromSlash(pattern)))
		if err != nil || len(found) == 0 {
			t.Errorf("%s: there is no such file: %v", s.Src, err)
		}
		for _, path := range found {
			name, err := filepath.Rel(base, path)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, filepath.ToSlash(name))
		}
	}
	return all
}

// TestWrittenAlike: two builds of one revision have the same packages.
func TestWrittenAlike(t *testing.T) {
	one, another := written(t), written(t)
	files := 0
	err := filepath.WalkDir(one, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		name, err := filepath.Rel(one, path)
		if err != nil {
			return err
		}
		first, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		second, err := os.ReadFile(filepath.Join(another, name))
		if err == nil && !bytes.Equal(first, second) {
			t.Errorf("%s differs", name)
		}
		return err
	})
	if err != nil || files < 10 {
		t.Errorf("%d files: %v", files, err)
	}
}

// TestBashReadsTheCompletion has bash parse the script for it.
func TestBashReadsTheCompletion(t *testing.T) {
	script := filepath.Join(written(t), "completions", "weir.bash")
	if out, err := exec.CommandContext(t.Context(), "bash", "-n", script).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestPackagedUnit(t *testing.T) {
	const unit = "# By hand:\n\n[Unit]\nDescription=x\n[Service]\nExecStart=/usr/local/bin/weir serve\n"
	got, err := packagedUnit(unit)
	if want := "[Unit]\nDescription=x\n[Service]\nExecStart=/usr/bin/weir serve\n"; got != want || err != nil {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	for _, wrong := range []string{"", "[Service]\n", strings.Replace(unit, "/local", "", 1), unit + "ExecStart=/usr/local/bin/weir top\n"} {
		if got, err := packagedUnit(wrong); !errors.Is(err, errUnit) {
			t.Errorf("%q: %q, %v", wrong, got, err)
		}
	}
}
