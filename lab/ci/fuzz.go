package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// fuzzAttempts is how often a target is run when the fuzzer itself fails. See lostRace.
const fuzzAttempts = 3

// shortening is how often an interesting input is tried in a shorter form. By a part of the time it leaves none for other inputs,
// if many are interesting: in 20 s the target of package config has tried 16 of them with a fifth, and 150,000 with this.
const shortening = "10x"

// instrumented has the fuzzer see which code of weir an input reaches, and not which code of the libraries that weir calls: these
// would be compiled once more, and a target would try a fifth as many inputs.
const instrumented = "-gcflags=github.com/weirhq/weir/...=-d=libfuzzer -dwarf=false"

var errNoFuzzTargets = errors.New("no fuzz target found")

// fuzzed selects fuzz targets.
var fuzzed = named(regexp.MustCompile(`^Fuzz`))

// runFuzz finds the fuzz targets of all modules and fuzzes each for a length, which is that of go test -fuzztime: a time, or how
// many inputs. It fuzzes as many packages at a time as there are processors, each target with one worker. Most of a short run is
// getting ready, which one target does on one processor.
func runFuzz(ctx context.Context, out io.Writer, length string, modules []string) error {
	if err := checkLength(length); err != nil {
		return fmt.Errorf("%w: %w", err, errUsage)
	}

	headingf(out, "fuzz every target for %s", length)

	packages, ok := fuzzPackages(ctx, out, modules)

	if len(packages) == 0 && ok {
		return errNoFuzzTargets
	}

	cache, err := goCommand(ctx, ".", []string{"env", "GOCACHE"}).Output()
	if err != nil {
		return fmt.Errorf("go env GOCACHE: %w", err)
	}

	programs, err := os.MkdirTemp("", "weir-fuzz-")
	if err != nil {
		return fmt.Errorf("make a directory for the programs: %w", err)
	}

	defer func() { _ = os.RemoveAll(programs) }()

	f := fuzzer{
		length: length, programs: programs,
		inputs: filepath.Join(strings.TrimSpace(string(cache)), "fuzz"),
	}

	var (
		workers sync.WaitGroup
		next    atomic.Int64
		failed  atomic.Bool
	)

	told := &oneAtATime{out: out}

	for range runtime.NumCPU() {
		workers.Go(func() {
			for at := next.Add(1); int(at) <= len(packages) && ctx.Err() == nil; at = next.Add(1) {
				if !f.fuzz(ctx, told, &packages[at-1]) {
					failed.Store(true)
				}
			}
		})
	}

	workers.Wait()

	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("fuzz: %w", ctx.Err())
	case !ok || failed.Load():
		return errFailed
	}

	return nil
}

// checkLength refuses what is neither a time nor a number of inputs.
func checkLength(length string) error {
	if inputs, counted := strings.CutSuffix(length, "x"); counted {
		if _, err := strconv.Atoi(inputs); err != nil {
			return fmt.Errorf("how many inputs: %w", err)
		}

		return nil
	}

	if _, err := time.ParseDuration(length); err != nil {
		return fmt.Errorf("how long each target is fuzzed: %w", err)
	}

	return nil
}

// oneAtATime keeps apart what several write.
type oneAtATime struct {
	mu  sync.Mutex
	out io.Writer
}

func (o *oneAtATime) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()

	return o.out.Write(p) //nolint:wrapcheck // that of the writer
}

// fuzzPackages finds the targets. It is not ok if those of a module cannot be found.
func fuzzPackages(ctx context.Context, out io.Writer, modules []string) (packages []testPackage, ok bool) {
	ok = true

	for _, module := range modules {
		found, err := fuzzed(ctx, module)
		if err != nil {
			ok = false

			fmt.Fprintf(out, "FAIL  find the fuzz targets of %s: %v\n", module, err)
		}

		packages = append(packages, found...)
	}

	return packages, ok
}

// fuzzer fuzzes packages.
type fuzzer struct {
	length   string // -fuzztime
	programs string // a directory
	inputs   string // where go test -fuzz keeps those that it has found interesting, in earlier runs, too

	building sync.Mutex
}

// fuzz builds the tests of a package as a program, once for all of its targets, and reports whether these found nothing wrong.
// Like go test, it leaves out what only debuggers need. One is built at a time: go has all processors, and two would both compile
// what they share.
func (f *fuzzer) fuzz(ctx context.Context, out io.Writer, p *testPackage) bool {
	var said bytes.Buffer

	program := filepath.Join(f.programs, strings.ReplaceAll(p.path, "/", "_")+".test")
	build := goCommand(ctx, p.dir, []string{goTest, noVet, "-c", instrumented, "-ldflags=-s -w", "-o=" + program, "."})
	build.Stdout, build.Stderr = &said, &said

	f.building.Lock()
	err := build.Run()
	f.building.Unlock()

	if err != nil {
		fmt.Fprintf(out, "FAIL  %s: %v\n%s", p.path, err, said.String())

		return false
	}

	defer func() { _ = os.Remove(program) }() //nolint:gosec // it was made here

	held := true

	for _, name := range p.names {
		held = f.target(ctx, out, p, program, name) && held
	}

	return held
}

// target runs the program as go test -fuzz does.
func (f *fuzzer) target(ctx context.Context, out io.Writer, p *testPackage, program, name string) bool {
	args := []string{
		"-test.paniconexit0", "-test.run=^$", "-test.fuzz=^" + name + "$", "-test.parallel=1",
		"-test.fuzzcachedir=" + filepath.Join(f.inputs, filepath.FromSlash(p.path)),
		"-test.fuzztime=" + f.length, "-test.fuzzminimizetime=" + shortening,
	}

	for attempt := 1; ; attempt++ {
		var said bytes.Buffer

		cmd := command(ctx, p.dir, program, args)
		cmd.Stdout, cmd.Stderr = &said, &said

		err := cmd.Run()

		switch {
		case err == nil:
			fmt.Fprintf(out, "ok    %s %s  %s\n", p.path, name, lastProgress(said.String()))

			return true
		case lostRace(said.String()) && attempt < fuzzAttempts:
			fmt.Fprintf(out, "again %s %s: the fuzzer did not stop in time\n", p.path, name)
		default:
			fmt.Fprintf(out, "FAIL  %s %s: %v\n%s", p.path, name, err, said.String())

			return false
		}
	}
}

// lostRace recognizes a failure of the fuzzer of Go 1.26 that says nothing about the target: at the end of its time a
// worker is sometimes caught in the midst of an input, and the end of the time is then reported as an error. A failure
// of the target writes the failing input, or says more than this one line. Go 1.27 has the repair
// (https://go.dev/issue/75804).
func lostRace(said string) bool {
	lost := false

	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)

		switch {
		case line == "context deadline exceeded":
			lost = true
		case line == "", line == "FAIL",
			strings.HasPrefix(line, "fuzz: "),
			strings.HasPrefix(line, "--- FAIL: Fuzz"),
			strings.HasPrefix(line, "FAIL\t"),
			strings.HasPrefix(line, "exit status"):
		default:
			return false
		}
	}

	return lost
}

// lastProgress is the last line in which the fuzzer told how far it is.
func lastProgress(said string) string {
	last := ""

	for line := range strings.Lines(said) {
		if rest, ok := strings.CutPrefix(line, "fuzz: elapsed: "); ok {
			last = strings.TrimSpace(rest)
		}
	}

	return last
}
