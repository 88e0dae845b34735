// Package programtest builds programs for tests, and runs them until the test ends.
package programtest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// built is where programs are built, while Main runs.
var built string

// Main runs the tests of a package, which may build programs, and returns the status of the process.
func Main(m *testing.M) int {
	flag.Parse()
	dir, err := os.MkdirTemp("", "weir-programs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left there is nothing to a test
	built = dir
	return m.Run()
}

// Program is one that is built from its sources when it is first asked for, once for all tests of a package.
type Program struct {
	// Name is that of the file, and Dir where the package main is.
	Name, Dir string
	// Flags are those of go build, and Env what its environment has more than that of the test.
	Flags, Env []string

	once sync.Once
	err  error
}

// Path is where the program is.
func (p *Program) Path(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(built, p.Name)
	p.once.Do(func() { p.err = p.build(path) })
	if p.err != nil {
		tb.Fatal(p.err)
	}
	return path
}

// build leaves out what only debuggers read, as go test does, and is done sooner.
func (p *Program) build(path string) error {
	args := append(append([]string{"build", "-ldflags=-s -w", "-o", path}, p.Flags...), ".")
	cmd := exec.CommandContext(context.Background(), "go", args...) //nolint:gosec // what a test has named
	cmd.Dir, cmd.Env = p.Dir, append(os.Environ(), p.Env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", p.Name, err, out)
	}
	return nil
}

// Installed is where a program is that the machine must have.
func Installed(tb testing.TB, name string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		tb.Fatalf("%s is not installed (make deps installs it on Debian): %v", name, err)
	}
	return path
}
