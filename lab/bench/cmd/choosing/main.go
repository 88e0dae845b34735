// Command choosing simulates each algorithm under the same requests, draws what becomes of them for docs/choosing.md, and
// prints the table of that page. It takes a second, and answers the same every time.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/weirhq/weir/lab/bench/choosing"
)

// The exit codes.
const (
	exitFailed = 1
	exitMisuse = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("choosing", flag.ContinueOnError)
	flags.SetOutput(stderr)
	images := flags.String("images", "docs/images", "write the pictures into this directory; \"\" for none")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitMisuse
	case flags.NArg() > 0:
		fmt.Fprintf(stderr, "weir: choosing: unexpected argument %q: there are only flags\n", flags.Arg(0))
		return exitMisuse
	}
	if err := simulate(*images, stdout); err != nil {
		fmt.Fprintf(stderr, "weir: choosing: %v\n", err)
		return exitFailed
	}
	return 0
}

func simulate(images string, stdout io.Writer) error {
	bursts, err := choosing.Bursts()
	if err != nil {
		return err
	}
	if err = choosing.WriteTable(stdout, bursts); err != nil || images == "" {
		return err
	}
	queues, err := choosing.Queues()
	if err != nil {
		return err
	}
	slow, err := choosing.Slow()
	if err != nil {
		return err
	}
	for name, draw := range map[string]func(io.Writer) error{
		"choosing-bursts.svg": func(w io.Writer) error { return choosing.DrawBursts(w, bursts) },
		"choosing-queues.svg": func(w io.Writer) error { return choosing.DrawQueues(w, queues) },
		"choosing-slow.svg":   func(w io.Writer) error { return choosing.DrawSlow(w, slow) },
	} {
		var b bytes.Buffer
		if err := draw(&b); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(images, name), b.Bytes(), 0o644); err != nil { //nolint:gosec // a picture is for all
			return err
		}
	}
	return nil
}
