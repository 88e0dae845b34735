// Command adaptive simulates a service whose capacity halves and comes back, behind no limit, a fixed one, and one that
// adapts. It prints what became of the requests, as a table, and draws it. It takes some seconds, and answers the same
// every time.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/weirhq/weir/lab/bench/adaptive"
)

// The exit codes.
const (
	exitFailed = 1
	exitMisuse = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("adaptive", flag.ContinueOnError)
	flags.SetOutput(stderr)
	image := flags.String("image", "docs/images/adaptive.svg", "write the picture to this file; \"\" for none")
	seed := flags.Uint64("seed", adaptive.Standard().Seed, "of the random arrivals and service times")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitMisuse
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "weir: adaptive: unexpected argument %q: there are only flags\n", flags.Arg(0))
		return exitMisuse
	}
	scenario := adaptive.Standard()
	scenario.Seed = *seed
	if err := simulate(scenario, *image, stdout); err != nil {
		fmt.Fprintf(stderr, "weir: adaptive: %v\n", err)
		return exitFailed
	}
	return 0
}

func simulate(scenario adaptive.Scenario, image string, stdout io.Writer) (err error) {
	var picture *os.File
	if image != "" { // before the work is done, so that it is not done for nothing
		picture, err = os.OpenFile(image, os.O_CREATE|os.O_WRONLY, 0o666) //nolint:gosec // whoever calls the command says where
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, picture.Close()) }()
	}
	var courses []*adaptive.Course
	for _, guard := range scenario.Guards() {
		course, err := scenario.Run(guard)
		if err != nil {
			return err
		}
		courses = append(courses, course)
	}
	adaptive.WriteTable(stdout, courses)
	if image == "" {
		return nil
	}
	if err := picture.Truncate(0); err != nil {
		return err
	}
	return adaptive.Draw(picture, courses)
}
