package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// testTimeout is how long the tests of one package may take. The whole of CI has 25 minutes.
const testTimeout = 10 * time.Minute

// grace is how long a command that was told to stop may take before it is killed.
const grace = 10 * time.Second

// goTest is the go command that runs tests; noVet tells it to leave out go vet where that has run before.
const (
	goTest = "test"
	noVet  = "-vet=off"
)

// raceOptions are those of the race detector. A program waits a second at its end for races of goroutines that are left, if it is
// not told otherwise: so would the tests of every package, and every program that they run. In return a race is not seen that
// happens later than this after the last test. GORACE in the environment is used instead, if it is set.
const raceOptions = "atexit_sleep_ms=50"

// errNoTests says that a pass over all modules found nothing to run: the check would say nothing.
var errNoTests = errors.New("no test ran")

type testOptions struct {
	noVet      bool
	race       bool
	short      bool
	contention bool
}

// pass is one `go test` over every module.
type pass struct {
	title   string
	args    []string
	only    selection // of tests; nil for all
	modules int       // at a time
}

// passes lists what runs. As many modules are tested at a time as there are processors, and of each of them one package: with
// more, tests of servers wait for a processor. The contention tests are those with Contention in their name, and those with
// Million in it need as many of something. The race detector slows them down by an order of magnitude, so they run once more
// without it, one package at a time so that nothing else competes for the processors. Tests that compute in one goroutine are
// in files that are not built with the race detector: it finds nothing there, and they run only without. So do those again that
// ask whether it is there: they look at allocations only without it, or do less with it.
func passes(opts testOptions) []pass {
	first := pass{title: "vet and test", args: []string{"-vet=all", "-shuffle=on", "-p=1"}, modules: runtime.NumCPU()}

	if opts.noVet {
		first.title, first.args[0] = "test", noVet
	}

	if opts.race {
		first.title += " with the race detector"
		first.args = append(first.args, "-race")
	}

	if opts.short {
		first.title += ", short"
		first.args = append(first.args, "-short")
	}

	all := []pass{first}

	if opts.race {
		all = append(all, pass{
			title:   "tests of one goroutine at full speed",
			args:    []string{noVet, "-shuffle=on", "-p=1"},
			only:    notWithRace,
			modules: runtime.NumCPU(),
		})
	}

	if opts.contention {
		all = append(all, pass{
			title:   "contention tests and those with millions at full speed",
			args:    []string{noVet}, // one package at a time, which all processors build
			only:    named(contention),
			modules: 1,
		})
	}

	return all
}

// race reports whether the pass is with the race detector.
func (p *pass) race() bool { return slices.Contains(p.args, "-race") }

// runTests runs every pass over every module and ends with the line "N passed, N failed".
func runTests(ctx context.Context, out io.Writer, opts testOptions, modules []string) error {
	passed, failed := 0, 0

	files, end := testFiles(ctx)
	defer end()

	modules = longestFirst(modules)
	all := passes(opts)

	for i, p := range all {
		if i == 0 || p.race() != all[i-1].race() {
			compile(ctx, p.race(), modules)
		}

		headingf(out, "%s", p.title)

		good, bad := p.run(ctx, &oneAtATime{out: out}, files, modules)
		if good+bad == 0 && ctx.Err() == nil {
			fmt.Fprintln(out, "FAIL ", fmt.Errorf("%s: %w", p.title, errNoTests))

			bad++
		}

		passed += good
		failed += bad
	}

	fmt.Fprintf(out, "\n%d passed, %d failed\n", passed, failed)

	if failed > 0 {
		return errFailed
	}

	return nil
}

// compile compiles all packages of a workspace: modules that are tested at the same time would each compile what they share. It
// is by go list, as go build would also link every program, for nothing. What does not compile is reported by go test.
func compile(ctx context.Context, race bool, modules []string) {
	args := []string{"list", "-export"}

	if race {
		args = append(args, "-race")
	}

	for _, module := range modules {
		args = append(args, "./"+filepath.Join(module, "..."))
	}

	cmd := goCommand(ctx, ".", args)
	cmd.Stderr = nil
	_ = cmd.Run()
}

// seconds is how long the tests of modules take that take longest, on two processors. Those of durable/etcd wait for servers: the
// length of their sources says nothing.
var seconds = map[string]int{"cmd/weir": 700, "lab": 550, ".": 300, "durable/etcd": 220, "store/redis": 110}

// longestFirst returns the modules in the order of how long their tests take, or are where that is not known, so that none that
// takes long begins when all others are done.
func longestFirst(modules []string) []string {
	sizes := make(map[string]int64, len(modules))
	for _, module := range modules {
		sizes[module] = testBytes(module)
	}

	return slices.SortedStableFunc(slices.Values(modules), func(a, b string) int {
		return cmp.Or(cmp.Compare(seconds[b], seconds[a]), cmp.Compare(sizes[b], sizes[a]))
	})
}

// testBytes returns how long the sources of a module's tests are. What cannot be read counts nothing: go test says why.
func testBytes(module string) int64 {
	var sum int64

	//nolint:gosec // the caller names the directory
	_ = filepath.WalkDir(module, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // see above
		case entry.IsDir() && path != module && isModule(path):
			return fs.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			if info, err := entry.Info(); err == nil {
				sum += info.Size()
			}
		}

		return nil
	})

	return sum
}

func isModule(directory string) bool {
	_, err := os.Stat(filepath.Join(directory, "go.mod"))

	return err == nil
}

// testFiles returns the arguments of go test with which tests that begin have their files in memory, if there is room for them,
// and what is to be done at the end. What go itself builds may be larger, and stays where it was: it goes by GOTMPDIR, and so
// would tests if they saw it.
func testFiles(ctx context.Context) (args func() []string, end func()) {
	directory, remove := memoryDirectory(ctx)
	if directory == "" {
		return func() []string { return nil }, func() {}
	}

	return func() []string {
		if memoryIsLow() {
			return nil
		}

		return []string{execIn(directory)}
	}, remove
}

// execIn is the argument of go test for that.
func execIn(directory string) string {
	return "-exec='" + strings.Join(filesIn(directory), "' '") + "'"
}

// filesIn is what runs a program that has its files in a directory.
func filesIn(directory string) []string {
	return []string{"env", "-u", "GOTMPDIR", "TMPDIR=" + directory}
}

// run runs the tests of every module, as many modules at a time as the pass allows.
func (p *pass) run(ctx context.Context, out io.Writer, files func() []string, modules []string) (passed, failed int) {
	var (
		workers sync.WaitGroup
		mu      sync.Mutex
		next    int
	)

	for range p.modules {
		workers.Go(func() {
			mu.Lock()
			defer mu.Unlock()

			for next < len(modules) {
				module := modules[next]
				next++

				mu.Unlock()

				good, bad := p.runModule(ctx, out, module, slices.Concat(p.args, files()))

				mu.Lock()

				passed += good
				failed += bad
			}
		})
	}

	workers.Wait()

	return passed, failed
}

// runModule runs those tests of a module that the pass is about.
func (p *pass) runModule(ctx context.Context, out io.Writer, module string, args []string) (passed, failed int) {
	if p.only == nil {
		return testModule(ctx, out, module, append(args, "./..."))
	}

	packages, err := p.only(ctx, module)
	if err != nil {
		fmt.Fprintf(out, "FAIL  find the tests: %v\n", err)

		return 0, 1
	}

	// Tests of the same name in two packages are of the same selection, or not: each package runs alone.
	for i := range packages {
		only := append(slices.Clone(args), "-run=^("+strings.Join(packages[i].names, "|")+")$", packages[i].path)
		good, bad := testModule(ctx, out, module, only)
		passed, failed = passed+good, failed+bad
	}

	return passed, failed
}

// testModule runs go test in one module and writes what it reports, a package at a time. A failure that go test's exit code
// shows and its report does not is one more.
func testModule(ctx context.Context, out io.Writer, module string, args []string) (passed, failed int) {
	var said bytes.Buffer

	args = append([]string{goTest, "-json", "-count=1", "-timeout=" + testTimeout.String()}, args...)
	t := newTally(&said)

	tell := func() {
		if said.Len() > 0 {
			_, _ = out.Write(said.Bytes()) // to the terminal, or the log of CI
		}

		said.Reset()
	}

	err := stream(ctx, out, module, args, func(e event) {
		t.add(e)
		tell()
	})

	t.close()

	if err != nil && t.failed == 0 {
		t.failed++

		fmt.Fprintf(&said, "FAIL  go %s in %s: %v\n", strings.Join(args, " "), module, err)
	}

	tell()

	return t.passed, t.failed
}

// stream runs go in a module and calls add for every event that it prints; a line that is no event is copied to out.
func stream(ctx context.Context, out io.Writer, module string, args []string, add func(event)) error {
	cmd := goCommand(ctx, module, args)

	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("pipe: %w", err)
	}

	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start: %w", err)
	}

	lines := bufio.NewReader(stdout)

	for {
		line, readErr := lines.ReadBytes('\n')

		if line = bytes.TrimSpace(line); len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil && e.Action != "" {
				add(e)
			} else {
				fmt.Fprintf(out, "%s\n", line)
			}
		}

		if readErr != nil {
			break
		}
	}

	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("exit: %w", err)
	}

	return nil
}

// goCommand prepares a go command in a directory. It gets no standard input, and an interrupt when ctx ends.
func goCommand(ctx context.Context, module string, args []string) *exec.Cmd {
	cmd := command(ctx, module, "go", args)
	cmd.Env = append(os.Environ(), "GORACE="+cmp.Or(os.Getenv("GORACE"), raceOptions))

	return cmd
}

// command prepares one of any program.
func command(ctx context.Context, directory, program string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = directory
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = grace

	return cmd
}

func headingf(out io.Writer, format string, args ...any) {
	fmt.Fprintf(out, "\n== "+format+"\n", args...)
}
