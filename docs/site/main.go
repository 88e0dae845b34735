// Site makes the documentation site from the Markdown files of the repository, which stay as they are.
//
//	site [-root DIRECTORY] DIRECTORY
//
// README.md becomes index.html. Every page under docs, and every page that these link to, becomes a file of the same name. Links
// between them lead from page to page, links to other files to the repository. Pages load nothing from other hosts, and their
// addresses are relative: serve the directory under any path, or open it as files. A link that leads nowhere is an error.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// errUsage says that the command line makes no sense.
var errUsage = errors.New("site [-root DIRECTORY] DIRECTORY is expected")

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, args []string) error {
	flags := flag.NewFlagSet("site", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	root := flags.String("root", ".", "where the repository is")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("%w: %w", err, errUsage)
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("%d directories given: %w", flags.NArg(), errUsage)
	}
	s, err := read(os.DirFS(*root))
	if err != nil {
		return err
	}
	to := flags.Arg(0)
	if err := s.write(to); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d pages: %s/index.html\n", len(s.pages), to)
	return nil
}
