package cli

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const references = "../../../../docs/reference"

// TestReferenceIsCurrent compares docs/reference with what go generate writes.
func TestReferenceIsCurrent(t *testing.T) {
	pages := Reference()
	there, err := filepath.Glob(filepath.Join(references, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range there {
		if _, ok := pages[filepath.Base(path)]; !ok {
			t.Errorf("docs/reference/%s belongs to no command: run go generate ./... in cmd/weir", filepath.Base(path))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		text, err := os.ReadFile(filepath.Join(references, name))
		if err != nil || string(text) != pages[name] {
			t.Errorf("docs/reference/%s is not what the program says: run go generate ./... in cmd/weir (%v)", name, err)
		}
	}
}

// TestReferenceHasEveryFlag looks each command and flag of the program up in the pages, without the code that writes them.
func TestReferenceHasEveryFlag(t *testing.T) {
	pages := Reference()
	commands, options := 0, 0
	var walk func(page string, cmd *cobra.Command)
	walk = func(page string, cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() {
			return
		}
		if page == "" {
			page = "weir-" + cmd.Name() + ".md"
		}
		commands++
		if !strings.Contains(pages[page], "# "+cmd.CommandPath()+"\n") && cmd.Runnable() {
			t.Errorf("%s has no heading for %s", page, cmd.CommandPath())
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" {
				return
			}
			options++
			if !strings.Contains(pages[page], "--"+f.Name+"`") && !strings.Contains(pages[page], "--"+f.Name+" ") {
				t.Errorf("%s does not have --%s of %s", page, f.Name, cmd.CommandPath())
			}
		})
		for _, sub := range cmd.Commands() {
			walk(page, sub)
		}
	}
	for _, cmd := range newRoot().Commands() {
		walk("", cmd)
	}
	if commands < 15 || options < 100 {
		t.Errorf("%d commands with %d flags: does the search still work?", commands, options)
	}
}

// TestReferenceIsTheSameEverywhere: what a machine, its user and its terminal are like makes no difference.
func TestReferenceIsTheSameEverywhere(t *testing.T) {
	before := Reference()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("USER", "somebody-else")
	t.Setenv("COLUMNS", "40")
	t.Setenv("GOMAXPROCS", "1")
	t.Setenv("LANG", "de_AT.UTF-8")
	t.Setenv("TZ", "Asia/Tokyo")
	if !maps.Equal(before, Reference()) {
		t.Error("the pages follow the environment")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range before {
		for _, own := range []string{home, host} {
			if len(own) > 3 && own != "localhost" && strings.Contains(text, own) {
				t.Errorf("%s has %q, which is of this machine", name, own)
			}
		}
	}
}
