package offline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/internal/regularfile"
)

// options are the flags of the command.
type options struct {
	run     *regexp.Regexp
	verbose bool
	json    bool
}

// UnitTestCommand returns the command "test".
func UnitTestCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "test [flags] FILE...",
		Short: "Run unit tests of a configuration",
		Long: `test sends requests to a configuration in virtual time, and compares what
becomes of them with what a file expects. Nothing waits and nothing is sent
over a network, so a month takes no time, and the same tests give the same
result. Shared policies are kept in this process, whatever their consistency
is. Of leased ones servers grant less at once, as "weir config check" tells.

A FILE is YAML. It names the configuration that it tests, as seen from the file,
and has tests, each of which begins with fresh state:

  config: weir.yaml
  tests:
    - name: five logins a minute
      steps:
        - request: POST /login
          client: 192.0.2.1
          times: 6
          expect: {allowed: 5, policy: login, retry_after: 12s}
        - wait: 12s
          request: POST /login
          client: 192.0.2.1
          expect: {allowed: true}

A step may wait, and then send a request: once, or as many "times" as it says,
one "every" so often. What all requests have, such as the client, may stand in
the test or at the top of the file. docs/testing.md lists all keys.

A failure is told with its place in the file, what was expected and got, and why
the configuration has decided so.

The exit status is 0 if all tests pass, 1 if one fails, and 2 if a file or its
configuration has mistakes; 130 after SIGINT.`,
		Example: `  weir test weir_test.yaml
  weir test weir_test.yaml --run login -v
  weir test *_test.yaml --json | jq '.files[].tests[] | select(.passed | not)'`,
		Args: func(_ *cobra.Command, files []string) error {
			if len(files) == 0 {
				return flags.Errorf("test needs a FILE of tests")
			}
			return nil
		},
		ValidArgsFunction: yamlFiles,
		RunE:              func(cmd *cobra.Command, files []string) error { return run(cmd, &o, files) },
	}
	set := cmd.Flags()
	set.SortFlags = false
	set.Var(pattern(&o.run), "run", "run only the tests whose names this regular expression matches\n(default: all)")
	set.BoolVarP(&o.verbose, "verbose", "v", false, "list all tests, and not only those that fail")
	set.BoolVar(&o.json, "json", false, "print one JSON object")
	return cmd
}

// pattern returns a flag value that is a regular expression, nil if it is not given.
func pattern(p **regexp.Regexp) *flags.Value {
	show := func(r *regexp.Regexp) string {
		if r == nil {
			return ""
		}
		return r.String()
	}
	return flags.Of("regexp", p, show, func(s string) (*regexp.Regexp, error) {
		compiled, err := regexp.Compile(s)
		if err != nil {
			return nil, flags.Errorf("is not a regular expression: %s", err)
		}
		return compiled, nil
	})
}

func run(cmd *cobra.Command, o *options, files []string) error {
	w, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	all := &report{Files: []fileReport{}}
	var invalid error
	for _, name := range files {
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		r, err := runFile(cmd.Context(), name, o, stderr)
		if errors.Is(err, context.Canceled) {
			return err
		}
		if err != nil {
			invalid = errors.Join(invalid, err)
			continue
		}
		all.add(r)
		if !o.json {
			var text bytes.Buffer
			r.print(&text, terminal.Of(w), o.verbose)
			if _, err := text.WriteTo(w); err != nil {
				return fmt.Errorf("weir: writing the result: %w", err)
			}
		}
	}
	if o.json {
		if err := terminal.PrintJSON(w, all); err != nil {
			return fmt.Errorf("weir: writing the result: %w", err)
		}
	}
	switch {
	case invalid != nil:
		return invalid
	case o.run != nil && all.Passed+all.Failed == 0:
		return flags.BadValue("run", o.run.String(), "matches the name of no test")
	case all.Failed > 0:
		return fmt.Errorf("weir: %d of %s failed", all.Failed, terminal.Plural(all.Passed+all.Failed, "test", "tests"))
	}
	return nil
}

// runFile runs the tests of a file. Its error is a [*flags.InputError] once it has written all mistakes to stderr.
func runFile(ctx context.Context, name string, o *options, stderr io.Writer) (*fileReport, error) {
	data, err := regularfile.Read(name, yamlread.MaxBytes)
	switch {
	case errors.Is(err, regularfile.ErrTooLong):
		return nil, flags.Inputf("tests: %s has more than %d MB", name, yamlread.MaxBytes>>20)
	case errors.Is(err, fs.ErrNotExist):
		return nil, flags.Inputf("tests: %s; docs/testing.md begins with an example", err)
	case err != nil:
		return nil, flags.Inputf("tests: %s", err)
	}
	s, err := read(name, data)
	if err != nil {
		return nil, flags.InvalidFile(stderr, err)
	}
	file, err := config.Load(s.config, config.Options{Env: s.lookup, HasStore: true})
	if err != nil {
		if wrong := (*yamlread.Errors)(nil); errors.As(err, &wrong) {
			return nil, flags.InvalidFile(stderr, err)
		}
		s.file.WrongAs(s.place.Itself(), "", "the configuration cannot be read: "+err.Error(),
			"give its name as seen from this file")
		return nil, flags.InvalidFile(stderr, s.file.Errors())
	}
	if err := s.check(file.Set); err != nil {
		return nil, flags.InvalidFile(stderr, err)
	}
	flags.WarnMistakes(stderr, terminal.Of(stderr), file.Warnings)
	r := &fileReport{File: name, Config: s.config, Tests: []testReport{}}
	for i := range s.tests {
		t := &s.tests[i]
		if o.run != nil && !o.run.MatchString(t.name) {
			r.Skipped++
			continue
		}
		failures, err := s.run(ctx, t)
		if err != nil {
			return nil, err
		}
		r.add(t, failures)
	}
	return r, nil
}
