// Release makes the tags of a version in this repository. Nothing leaves the machine: it prints the command that pushes them.
//
//	release [-repository DIRECTORY] [-proxy DIRECTORY] VERSION
//
// A version is one commit on top of the last one, which lies on no branch. In it every module that others may import or install
// requires the others at that version, replaces none of them, and has their sums. Each of these modules has a tag on that commit.
// docs/decisions/0002-modules-and-replace.md says why.
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

// errUsage says that the command line makes no sense.
var errUsage = errors.New("release [-repository DIRECTORY] [-proxy DIRECTORY] VERSION is expected")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])

	stop()

	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)

		if errors.Is(err, errUsage) {
			os.Exit(2)
		}

		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	repository := flags.String("repository", ".", "where the repository is")
	proxy := flags.String("proxy", "", "a directory that is made, with the tagged modules as a module proxy serves them")

	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", err, errUsage)
	}

	if flags.NArg() != 1 {
		return fmt.Errorf("%d versions given: %w", flags.NArg(), errUsage)
	}

	return release(ctx, out, *repository, flags.Arg(0), *proxy)
}
