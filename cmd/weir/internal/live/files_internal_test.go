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
			Name: string(file.Data), Limits: []policy.Limit{{Limit: weir.Limit{Rate: weir.PerHour(3)}}},
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
	write("readme.txt", "no")
	write(".hidden.yaml", "no")
	write("directory.yaml/c.yaml", "no")
	link("nowhere", "gone.yaml")

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
	ended, err := l.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
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

// TestFilesThatCannotBeRead: the error says which, and why.
func TestFilesThatCannotBeRead(t *testing.T) {
	empty, large := t.TempDir(), t.TempDir()
	for name := range 2 {
		path := filepath.Join(large, fmt.Sprint(name)+".yaml")
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, mostBytes*2/3)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		empty:                      "has no file whose name ends in .yaml or .yml",
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
		Name: "default", Limits: []policy.Limit{{Limit: weir.Limit{Rate: weir.PerHour(3)}}}, Key: KeyOfCheck(),
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
	var (
		r policy.Request
		v policy.Verdict
	)
	for key, want := range map[string]int64{"a": 1, "b": 0} {
		CheckRequest(t.Context(), &r, []byte("default"), []byte(key), 3-want)
		l.Engine().Take(&r, &v)
		if d := v.Decision(); !d.Allowed || d.Remaining != want || d.Policy != "default" {
			t.Errorf("%s: %+v", key, d)
		}
		v.Release()
	}
}
