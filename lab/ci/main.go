// Ci runs the tests and the fuzz targets of every module of the repository, and counts the words of its pages. The Makefile
// builds and calls it:
//
//	ci test [-contention] [-novet] [-race] [-short] MODULE...
//	ci fuzz [-time 30s|1000x] MODULE...
//	ci docs PAGE...
//
// A MODULE is the directory of a go.mod. Everything runs even when something before it failed; the exit code is 0 if
// nothing failed, 1 if something did and 2 for a call that makes no sense.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// errFailed says that what was run has failed and that the output has already told so.
var errFailed = errors.New("something failed")

// errUsage says that the command line makes no sense.
var errUsage = errors.New("ci test [-contention] [-novet] [-race] [-short] MODULE..., ci fuzz [-time 30s|1000x] MODULE... " +
	"or ci docs PAGE... is expected")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])

	stop()

	switch {
	case err == nil:
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "ci:", err)
		os.Exit(2)
	default:
		if !errors.Is(err, errFailed) {
			fmt.Fprintln(os.Stderr, "ci:", err)
		}

		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	if len(args) == 0 {
		return errUsage
	}

	flags := flag.NewFlagSet("ci "+args[0], flag.ContinueOnError)
	flags.SetOutput(io.Discard)

	switch args[0] {
	case "test":
		var opts testOptions

		flags.BoolVar(&opts.noVet, "novet", false, "leave out go vet")
		flags.BoolVar(&opts.race, "race", false, "run the first pass with the race detector")
		flags.BoolVar(&opts.short, "short", false, "pass -short to the tests")
		flags.BoolVar(&opts.contention, "contention", false, "run the contention tests again, alone and at full speed")

		if err := parse(flags, args[1:]); err != nil {
			return err
		}

		return runTests(ctx, out, opts, flags.Args())
	case "fuzz":
		length := flags.String("time", "30s", "how long each target is fuzzed, or how many inputs, as in 1000x")

		if err := parse(flags, args[1:]); err != nil {
			return err
		}

		return runFuzz(ctx, out, *length, flags.Args())
	case "docs":
		if err := parse(flags, args[1:]); err != nil {
			return err
		}

		return runDocs(out, flags.Args())
	default:
		return fmt.Errorf("unknown command %q: %w", args[0], errUsage)
	}
}

// parse fills flags from args and insists on at least one module or page.
func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", err, errUsage)
	}

	if flags.NArg() == 0 {
		return fmt.Errorf("no module or page given: %w", errUsage)
	}

	return nil
}
