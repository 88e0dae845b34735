// Package replay is the command that runs access logs through a limit in virtual time.
package replay

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// options are the flags of the command.
type options struct {
	limit   flags.Limit
	config  string
	against string
	chart   string
	top     int
	json    bool
}

// Command returns the command "replay".
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "replay [flags] FILE...",
		Short:   "Show what limits would have done to the traffic in an access log",
		Long:    long,
		Example: examples,
		Args:    arguments,
		RunE: func(cmd *cobra.Command, files []string) error {
			return run(cmd, &o, files)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	o.limit.Register(fs)
	fs.Var(flags.File(&o.config), "config", "a configuration to run the log through, instead of --limit (default: none)")
	fs.Var(flags.File(&o.against), "against", "another one to compare it, or --limit, with (default: none)")
	fs.Var(flags.TextOf("FILE", &o.chart, chartFile), "chart",
		"draw what was allowed and refused over time into this file,\nan .svg (default: none)")
	o.top = 10
	fs.Var(flags.Int(&o.top, 0, 10_000), "top", "keys in the table, those with the most refusals, from 0 to 10000")
	fs.BoolVar(&o.json, "json", false, "print one JSON object instead of tables")
	return cmd
}

func arguments(_ *cobra.Command, files []string) error {
	if len(files) == 0 {
		return flags.Errorf("replay needs a FILE, or - for the standard input")
	}
	stdin := 0
	for _, f := range files {
		if f == "-" {
			stdin++
		}
	}
	if stdin > 1 {
		return flags.Errorf("replay can read the standard input only once: - stands there %d times", stdin)
	}
	return nil
}

// report is what a replay found, in the form of --json.
type report interface {
	terminal.Report
	picture() *Picture
	read(files []string, lines *lineCounts, failed error)
}

// run runs the files through one configuration, or through two. A log in which no line was a request is an error, so that a
// script does not take it for one of which nothing is refused.
func run(cmd *cobra.Command, o *options, files []string) error {
	configurations, err := o.configurations(cmd)
	if err != nil {
		return err
	}
	total, err := totalSize(files)
	if err != nil {
		return err
	}
	start := time.Now()
	lines := &lineCounts{}
	c := newComparison(configurations...)
	failed := c.run(cmd.Context(), lines, files, cmd.InOrStdin(), newBar(cmd.ErrOrStderr(), total))
	elapsed := time.Since(start)

	r := c.report(o.top)
	r.read(files, lines, failed)
	if o.chart != "" {
		failed = errors.Join(failed, draw(o.chart, r.picture()))
	}
	if err := terminal.Print(cmd.OutOrStdout(), r, o.json); err != nil {
		return errors.Join(failed, fmt.Errorf("weir: writing the result: %w", err))
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s in %s, %s lines/s\n",
		plural(lines.lines, "line"), seconds(elapsed.Seconds()),
		terminal.Number(int64(float64(lines.lines)/max(elapsed.Seconds(), 1e-6))))
	if failed == nil {
		failed = lines.unreadable()
	}
	return failed
}
