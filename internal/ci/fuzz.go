package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// fuzzAttempts is how often a target is run when the fuzzer itself fails. See lostRace.
const fuzzAttempts = 3

var errNoFuzzTargets = errors.New("no fuzz target found")

// fuzzTarget is one Fuzz function of one package.
type fuzzTarget struct {
	module string
	pkg    string
	name   string
}

// runFuzz finds the fuzz targets of all modules and fuzzes each for the given time: as many at a time as there are processors,
// each with one worker. Most of a short run is getting ready, which one target does on one processor.
func runFuzz(ctx context.Context, out io.Writer, length time.Duration, modules []string) error {
	headingf(out, "fuzz every target for %s", length)

	targets, ok := listTargets(ctx, out, modules)

	if len(targets) == 0 && ok {
		return errNoFuzzTargets
	}

	var (
		workers sync.WaitGroup
		next    atomic.Int64
		failed  atomic.Bool
	)

	told := &oneAtATime{out: out}

	for range runtime.NumCPU() {
		workers.Go(func() {
			for at := next.Add(1); int(at) <= len(targets) && ctx.Err() == nil; at = next.Add(1) {
				if !targets[at-1].fuzz(ctx, told, length) {
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

// listTargets finds the targets. It is not ok if a package cannot be listed because it does not build.
func listTargets(ctx context.Context, out io.Writer, modules []string) (targets []fuzzTarget, ok bool) {
	ok = true

	for _, module := range modules {
		var said []string

		add := func(e event) {
			line := strings.TrimSpace(e.Output)

			switch {
			case e.Action == output && strings.HasPrefix(line, "Fuzz"):
				targets = append(targets, fuzzTarget{module: module, pkg: e.Package, name: line})
			case e.Action == buildOutput, e.Action == output:
				said = append(said, e.Output)
			}
		}

		args := []string{goTest, "-json", noVet, "-list=^Fuzz", "./..."}
		if err := stream(ctx, out, module, args, add); err != nil {
			ok = false

			fmt.Fprintf(out, "FAIL  list the fuzz targets of %s: %v\n      %s", module, err, strings.Join(said, "      "))
		}
	}

	return targets, ok
}

// fuzz reports whether the target found nothing wrong.
func (f fuzzTarget) fuzz(ctx context.Context, out io.Writer, length time.Duration) bool {
	args := []string{
		goTest, noVet, "-run=^$", "-fuzz=^" + f.name + "$", "-parallel=1",
		"-fuzztime=" + length.String(), "-fuzzminimizetime=" + (length / 5).String(), f.pkg,
	}

	for attempt := 1; ; attempt++ {
		var said bytes.Buffer

		cmd := goCommand(ctx, f.module, args)
		cmd.Stdout, cmd.Stderr = &said, &said

		err := cmd.Run()

		switch {
		case err == nil:
			fmt.Fprintf(out, "ok    %s %s  %s\n", f.pkg, f.name, lastProgress(said.String()))

			return true
		case lostRace(said.String()) && attempt < fuzzAttempts:
			fmt.Fprintf(out, "again %s %s: the fuzzer did not stop in time\n", f.pkg, f.name)
		default:
			fmt.Fprintf(out, "FAIL  %s %s: %v\n%s", f.pkg, f.name, err, said.String())

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
