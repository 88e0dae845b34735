package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// perFile makes a policy of each file, whose name is the content.
func perFile(f Files) (Parsed, error) {
	set := &policy.Set{}
	for _, file := range f.More {
		set.Policies = append(set.Policies, policy.Policy{
			Name: string(file.Data), Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(3), 0)}},
		})
	}
	return Parsed{Set: set, Extra: len(f.More)}, nil
}

// TestDirectoryOfFiles: files that are linked into a directory, as those of a ConfigMap are, are read in the order of their
// names, again when the link is swapped, and a new one is found.
func TestDirectoryOfFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, name string) {
		t.Helper()
		temporary := filepath.Join(dir, ".new")
		if err := errors.Join(os.Symlink(target, temporary), os.Rename(temporary, filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
	}
	write("..1/b.yaml", "b1")
	write("..2/b.yaml", "b2")
	link("..1", "..data")
	link("..data/b.yaml", "b.yaml")
	write("a.yml", "a")

	l, err := Load(Options{More: dir, Logger: slog.New(slog.DiscardHandler), Parse: perFile})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Engine().Close()
	has := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return !l.Has(n) }) && l.Extra() == len(names)
	}
	if !has("a", "b1") || l.Status().File != dir {
		t.Fatalf("%+v", l.Status())
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := l.Watch(ctx)
	defer func() { cancel(); <-ended }()
	link("..2", "..data")
	eventually(t, func() bool { return has("a", "b2") })
	write("c.yaml", "c")
	eventually(t, func() bool { return has("a", "b2", "c") })
	if err := os.Remove(filepath.Join(dir, "a.yml")); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return has("b2", "c") })
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
	}
}

// TestFilesOfSubdirectories: all files of a directory and of those below it are read, whatever their names, as envoyproxy/ratelimit reads
// them: the limits of one that is left out would not apply. What changes in any of them is seen.
func TestFilesOfSubdirectories(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(filepath.Base(name)), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(t.TempDir(), "outside")
	for _, name := range []string{
		"noext", "a.yaml", "b.conf", "sub/c.yaml", "sub/deep/er/d", "yaml.d/e", ".hidden.yaml", ".dot/f", "..g", "mounted/..1/h", "..i/j",
	} {
		write(name)
	}
	if err := errors.Join(os.WriteFile(outside, []byte("linked"), 0o600), os.Symlink(outside, filepath.Join(dir, "sub", "link")),
		os.Symlink("..1", filepath.Join(dir, "mounted", "..data")), os.Symlink("..data/h", filepath.Join(dir, "mounted", "h")),
		os.Symlink("sub", filepath.Join(dir, "sub2"))); err != nil {
		t.Fatal(err)
	}
	plain := []string{"noext", "a.yaml", "b.conf", "c.yaml", "d", "e", "h", "linked"}
	for _, c := range []struct {
		ignore bool
		want   []string
	}{{false, append([]string{".hidden.yaml", "f", "..g", "j"}, plain...)}, {true, plain}} {
		l, err := Load(Options{More: dir, IgnoreDotFiles: c.ignore, Logger: slog.New(slog.DiscardHandler), Parse: perFile})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Engine().Close() })
		has := func(names ...string) bool {
			return !slices.ContainsFunc(names, func(n string) bool { return !l.Has(n) }) && l.Extra() == len(names)
		}
		if !has(c.want...) {
			t.Errorf("ignoring %v: %v are read, want %v", c.ignore, l.Engine().Set().Policies, c.want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := l.Watch(ctx)
		write("sub/deep/er/new")
		eventually(t, func() bool { return has(append(c.want, "new")...) })
		write("made/later/k")
		eventually(t, func() bool { return has(append(c.want, "new", "k")...) })
		if err := os.WriteFile(outside, []byte("changed"), 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool { return l.Has("changed") && !l.Has("linked") })
		if err := errors.Join(os.RemoveAll(filepath.Join(dir, "made")), os.Remove(filepath.Join(dir, "sub", "deep", "er", "new")),
			os.WriteFile(outside, []byte("linked"), 0o600)); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool { return has(c.want...) })
		cancel()
		<-ended
	}
}

// TestFilesThatCannotBeRead: the error says which, and why.
func TestFilesThatCannotBeRead(t *testing.T) {
	empty, large, broken := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.Symlink("nowhere", filepath.Join(broken, "gone.yaml")); err != nil {
		t.Fatal(err)
	}
	for name := range 2 {
		path := filepath.Join(large, fmt.Sprint(name)+".yaml")
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, mostBytes*2/3)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		empty:                      "has no file",
		broken:                     "gone.yaml: no such file or directory",
		large:                      "1.yaml: it is, or all files are, longer than 16777216 bytes",
		filepath.Join(empty, "no"): "no such file or directory",
	} {
		_, err := Load(Options{More: path, Logger: slog.New(slog.DiscardHandler), Parse: perFile})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestFixed: limits of the command line answer checks, and are never reloaded.
func TestFixed(t *testing.T) {
	set := &policy.Set{Policies: []policy.Policy{{
		Name: "default", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(3), 0)}}, Key: policy.NamedKey(),
	}}}
	l, err := Fixed(set, policy.EngineOptions{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Engine().Close()
	if _, err := l.Reload("test"); !errors.Is(err, ErrFixed) {
		t.Error(err)
	}
	if !l.Has("default") || l.MayLackKey("default") || l.Status().File != "" || l.Extra() != nil {
		t.Errorf("%+v", l.Status())
	}
	var v policy.Verdict
	for key, want := range map[string]int64{"a": 1, "b": 0} {
		l.Engine().Take(&policy.Request{Named: &policy.Named{Policy: []byte("default"), Key: []byte(key), Cost: 3 - want}, Context: t.Context()}, &v)
		if d := v.Decision(); !d.Allowed || d.Remaining != want || d.Policy != "default" {
			t.Errorf("%s: %+v", key, d)
		}
		v.Release()
	}
}
