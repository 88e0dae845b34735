package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
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

// errNoTests says that a pass over all modules found nothing to run: the check would say nothing.
var errNoTests = errors.New("no test ran")

type testOptions struct {
	race       bool
	short      bool
	contention bool
}

// pass is one `go test` over every module.
type pass struct {
	title string
	args  []string
}

// passes lists what runs. The contention tests are those with Contention in their name, and those with Million in it need
// as many of something. The race detector slows them down by an order of magnitude, so they run once more without it,
// one package at a time so that nothing else competes for the processors.
func passes(opts testOptions) []pass {
	first := pass{title: "vet and test", args: []string{"-vet=all", "-shuffle=on"}}

	if opts.race {
		first.title += " with the race detector"
		first.args = append(first.args, "-race")
	}

	if opts.short {
		first.title += ", short"
		first.args = append(first.args, "-short")
	}

	all := []pass{first}

	if opts.contention {
		all = append(all, pass{
			title: "contention tests and those with millions at full speed",
			args:  []string{noVet, "-p=1", "-run=Contention|Million"},
		})
	}

	return all
}

// runTests runs every pass over every module and ends with the line "N passed, N failed".
func runTests(ctx context.Context, out io.Writer, opts testOptions, modules []string) error {
	var errs []error

	total := newTally(out)

	for _, p := range passes(opts) {
		before := total.passed + total.failed

		for _, module := range modules {
			headingf(out, "%s: %s", p.title, module)

			if err := testModule(ctx, total, module, p.args); err != nil {
				errs = append(errs, err)
			}
		}

		if total.passed+total.failed == before && ctx.Err() == nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.title, errNoTests))
		}
	}

	for _, err := range errs {
		total.failed++

		fmt.Fprintln(out, "FAIL ", err)
	}

	fmt.Fprintf(out, "\n%d passed, %d failed\n", total.passed, total.failed)

	if total.failed > 0 {
		return errFailed
	}

	return nil
}

// testModule runs go test in one module and adds what it reports to t. The error tells of a failure that go test's exit
// code shows and its report does not.
func testModule(ctx context.Context, t *tally, module string, args []string) error {
	args = append([]string{goTest, "-json", "-count=1", "-timeout=" + testTimeout.String()}, args...)
	before := t.failed

	err := stream(ctx, t.out, module, append(args, "./..."), t.add)
	t.close()

	if err != nil && t.failed == before {
		return fmt.Errorf("go %s in %s: %w", strings.Join(args, " "), module, err)
	}

	return nil
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

// goCommand prepares a go command in the directory of a module. It gets no standard input, and an interrupt when ctx
// ends.
func goCommand(ctx context.Context, module string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = grace

	return cmd
}

func headingf(out io.Writer, format string, args ...any) {
	fmt.Fprintf(out, "\n== "+format+"\n", args...)
}
