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

// raceFlags have the race detector, and no function of a library in the place of its call: with the detector these take a third
// less time to compile, and what they do is the same. The tests of cmd/weir build the program with the same flags.
var raceFlags = []string{
	"-race", "-gcflags=all=-l -dwarf=false", "-gcflags=std=-dwarf=false", "-gcflags=github.com/weirhq/weir/...=-dwarf=false",
}

// errNoTests says that a pass over all modules found nothing to run: the check would say nothing.
var errNoTests = errors.New("no test ran")

type testOptions struct {
	noVet      bool
	race       bool
	short      bool
	contention bool
}

// round is what runs after all tests of all modules: some of them again, in another way.
type round struct {
	title   string
	only    selection
	flags   []string // of the tests
	atATime int      // packages
}

// atATime is how many modules are tested at a time, and of each of them one package; later how many packages. It is one more than
// there are processors, as tests of servers wait for a fifth of the time. With many more they would wait for a processor.
var atATime = runtime.NumCPU() + 1

// first returns how all tests run: what it is called, and the arguments of go test.
func first(opts testOptions) (title string, args []string) {
	title, args = "vet and test", []string{"-vet=all", "-shuffle=on", "-p=1"}

	if opts.noVet {
		title, args[0] = "test", noVet
	}

	if opts.race {
		title += " with the race detector"
		args = append(args, raceFlags...)
	}

	if opts.short {
		title += ", short"
		args = append(args, "-short")
	}

	return title, args
}

// rounds lists what runs then, without the race detector. The contention tests are those with Contention in their name, and those
// with Million in it need as many of something. The race detector slows them down by an order of magnitude, so they run once more
// without it, one package at a time so that nothing else competes for the processors. Tests that compute in one goroutine are
// in files that are not built with the race detector: it finds nothing there, and they run only without. So do those again that
// ask whether it is there: they look at allocations only without it, or do less with it.
func rounds(opts testOptions) []round {
	var all []round

	if opts.race {
		all = append(all, round{
			title:   "tests of one goroutine at full speed",
			only:    notWithRace,
			flags:   []string{"-test.shuffle=on"},
			atATime: atATime,
		})
	}

	if opts.contention {
		all = append(all, round{
			title:   "contention tests and those with millions at full speed",
			only:    named(contention),
			atATime: 1,
		})
	}

	return all
}

// runTests runs all tests of every module, then the rounds, and ends with the line "N passed, N failed".
func runTests(ctx context.Context, out io.Writer, opts testOptions, modules []string) error {
	passed, failed := 0, 0
	count := func(title string, good, bad int) {
		if good+bad == 0 && ctx.Err() == nil {
			fmt.Fprintln(out, "FAIL ", fmt.Errorf("%s: %w", title, errNoTests))

			bad++
		}

		passed += good
		failed += bad
	}

	files, end := testFiles(ctx)
	defer end()

	later, err := newRounds(ctx, opts)
	if err != nil {
		return err
	}

	defer later.built.remove()

	modules = longestFirst(modules)
	title, args := first(opts)

	compile(ctx, opts.race, modules)

	if opts.race { // for the rounds, and for tests that build the program without it: their time is bounded
		compile(ctx, false, modules)
	}

	headingf(out, "%s", title)

	told := &oneAtATime{out: out}
	good, bad := tasks(len(modules)+1, atATime, func(i int) (passed, failed int) {
		if i == len(modules) { // the tests that take longest are still under way
			return 0, later.build(ctx, told, modules)
		}

		return testModule(ctx, told, modules[i], slices.Concat(args, execBy(files()), []string{"./..."}))
	})
	count(title, good, bad)

	for i := range later.all {
		headingf(out, "%s", later.all[i].title)

		good, bad := later.all[i].run(ctx, told, later.events, files, later.built, later.found[i])
		count(later.all[i].title, good, bad)
	}

	fmt.Fprintf(out, "\n%d passed, %d failed\n", passed, failed)

	if failed > 0 {
		return errFailed
	}

	return nil
}

// laterRounds are the rounds, and what they run.
type laterRounds struct {
	all    []round
	found  [][]testPackage // of each round
	built  *programs
	events string // the program that tells as events what tests print
}

func newRounds(ctx context.Context, opts testOptions) (*laterRounds, error) {
	events, err := goCommand(ctx, ".", []string{"tool", "-n", "test2json"}).Output()
	if err != nil {
		return nil, fmt.Errorf("go tool -n test2json: %w", err)
	}

	built, err := newPrograms()
	if err != nil {
		return nil, err
	}

	all := rounds(opts)

	return &laterRounds{
		all: all, found: make([][]testPackage, len(all)), built: built, events: strings.TrimSpace(string(events)),
	}, nil
}

// build builds the tests of all packages that the rounds need, once for all of them. It returns how often it could not find them.
func (l *laterRounds) build(ctx context.Context, out io.Writer, modules []string) (failed int) {
	if len(l.all) == 0 {
		return 0
	}

	for _, module := range modules {
		var needed []string

		for i := range l.all {
			packages, err := l.all[i].only(ctx, module)
			if err != nil {
				fmt.Fprintf(out, "FAIL  find the tests: %v\n", err)

				failed++
			}

			l.found[i] = append(l.found[i], packages...)

			for j := range packages {
				if path := packages[j].path; !slices.Contains(needed, path) {
					needed = append(needed, path)
				}
			}
		}

		l.built.build(ctx, out, module, needed)
	}

	for i := range l.found {
		slices.SortStableFunc(l.found[i], func(a, b testPackage) int {
			return cmp.Compare(secondsAtFullSpeed[b.path], secondsAtFullSpeed[a.path])
		})
	}

	return failed
}

// compile compiles all packages of a workspace: modules that are tested at the same time would each compile what they share. It
// is by go list, as go build would also link every program, for nothing. What does not compile is reported by go test.
func compile(ctx context.Context, race bool, modules []string) {
	args := []string{"list", "-export"}

	if race {
		args = append(args, raceFlags...)
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

// secondsAtFullSpeed is how long the tests of packages take that take longest without the race detector: they begin first.
var secondsAtFullSpeed = map[string]int{
	"github.com/weirhq/weir/durable/etcd": 80, "github.com/weirhq/weir/store/redis": 40,
}

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

// testFiles returns what runs tests that begin, so that they have their files in memory, if there is room for them, and what is
// to be done at the end. What go itself builds may be larger, and stays where it was: it goes by GOTMPDIR, and so would tests if
// they saw it.
func testFiles(ctx context.Context) (files func() []string, end func()) {
	directory, remove := memoryDirectory(ctx)
	if directory == "" {
		return func() []string { return nil }, func() {}
	}

	return func() []string {
		if memoryIsLow() {
			return nil
		}

		return filesIn(directory)
	}, remove
}

// execBy is the argument of go test to run tests by another program, if there is one.
func execBy(files []string) []string {
	if len(files) == 0 {
		return nil
	}

	return []string{"-exec='" + strings.Join(files, "' '") + "'"}
}

// filesIn is what runs a program that has its files in a directory.
func filesIn(directory string) []string {
	return []string{"env", "-u", "GOTMPDIR", "TMPDIR=" + directory}
}

// tasks does something for each of n things, some at a time in their order, and returns how many tests passed and failed.
func tasks(n, atATime int, do func(i int) (passed, failed int)) (passed, failed int) {
	var (
		workers sync.WaitGroup
		mu      sync.Mutex
		next    int
	)

	for range atATime {
		workers.Go(func() {
			mu.Lock()
			defer mu.Unlock()

			for next < n {
				i := next
				next++

				mu.Unlock()

				good, bad := do(i)

				mu.Lock()

				passed += good
				failed += bad
			}
		})
	}

	workers.Wait()

	return passed, failed
}

// run runs those tests of every package that the round is about, as go test does; events is the program that tells what they
// print as events. A package whose tests did not build fails.
func (r *round) run(ctx context.Context, out io.Writer, events string, files func() []string, built *programs,
	packages []testPackage,
) (passed, failed int) {
	return tasks(len(packages), r.atATime, func(i int) (passed, failed int) {
		p := &packages[i]

		// A test that takes too long ends its program, if that is able to.
		running, cancel := context.WithTimeout(ctx, testTimeout+time.Minute)
		defer cancel()

		return test(out, command(running, p.dir, events, slices.Concat([]string{"-t", "-p", p.path}, files(), []string{
			built.of[p.path], "-test.paniconexit0", "-test.v=test2json", "-test.timeout=" + testTimeout.String(),
			"-test.run=^(" + strings.Join(p.names, "|") + ")$",
		}, r.flags)))
	})
}

// testModule runs go test in one module.
func testModule(ctx context.Context, out io.Writer, module string, args []string) (passed, failed int) {
	args = append([]string{goTest, "-json", "-count=1", "-timeout=" + testTimeout.String()}, args...)

	return test(out, goCommand(ctx, module, args))
}

// test runs what runs tests, and writes what it reports of them, a package at a time. A failure that its exit code shows and its
// report does not is one more.
func test(out io.Writer, cmd *exec.Cmd) (passed, failed int) {
	var said bytes.Buffer

	t := newTally(&said)

	tell := func() {
		if said.Len() > 0 {
			_, _ = out.Write(said.Bytes()) // to the terminal, or the log of CI
		}

		said.Reset()
	}

	err := stream(out, cmd, func(e event) {
		t.add(e)
		tell()
	})

	t.close()

	if err != nil && t.failed == 0 {
		t.failed++

		fmt.Fprintf(&said, "FAIL  %s in %s: %v\n", strings.Join(cmd.Args, " "), cmd.Dir, err)
	}

	tell()

	return t.passed, t.failed
}

// stream runs a command and calls add for every event that it prints; a line that is no event is copied to out.
func stream(out io.Writer, cmd *exec.Cmd, add func(event)) error {
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
