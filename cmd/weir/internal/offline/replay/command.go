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

// run runs the files through one configuration, or through two. A log in which no line was a request is wrong input, and its
// report is not complete, so that a script does not take it for one of which nothing is refused.
func run(cmd *cobra.Command, o *options, files []string) error {
	configurations, err := o.configurations(cmd)
	if err != nil {
		return err
	}
	total, err := totalSize(files)
	if err != nil {
		return err
	}
	if o.chart != "" {
		if err := chartPlace(o.chart); err != nil {
			return err
		}
	}
	start := time.Now()
	lines := &lineCounts{}
	c := newComparison(configurations...)
	failed := c.run(cmd.Context(), lines, files, cmd.InOrStdin(), newBar(cmd.ErrOrStderr(), total))
	elapsed := time.Since(start)

	switch {
	case failed == nil:
		failed = lines.unreadable()
	case lines.lines == 0:
		return failed // there is nothing to report
	}

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
	return failed
}

const long = `replay runs the requests of access logs through a limit, or with --config
through a configuration, and shows who would have been refused, when, and by
how much. With --against it compares that with another configuration: which
requests would be newly refused, and which newly allowed.

Time is that of the log: nothing waits, and the same log gives the same result.
Servers write a line when a request ends, so the lines are not in the order of
the requests. replay puts them in order, also those of several files, which
are one log. It looks a million requests ahead; one that is further out of
order is taken at the time of the latest before it, and counted as late. A log
that is exact to a second, as most are, shows the requests of a second as one
burst.

A FILE is in the common or combined format, or has a JSON object on each line,
also mixed, and may be compressed with gzip; docs/replay.md lists the members of
JSON that count. "-" is the standard input. Lines that are no request are
counted as malformed and skipped.

With a limit, the table has the keys that were refused most, --top of them,
worst first. In it, "wait" is the longest time that a refused request of the
key was told to wait, and "peak" the most requests of the key in one period of
--limit, at least a second. Memory is bounded: statistics of keys are kept for
--max-keys of them; past that, keys that are not refused are left out, and of
those that are, the half with the fewest refusals makes room for others, so
what the table says is then a lower bound.

With a configuration, there is a row for each policy: the requests that it
applied to, and those that it refused itself. A request that several policies
refuse counts for each. "newly refused" are requests that --config allows and
--against refuses. The keys are those that this happened to most. A log does
not have all that rules can look at, such as most header fields: notes name
what was missing. Shared policies are kept in this process, as if one server
had them all.

--chart draws what was allowed and refused over time, for all requests and for
the policies with the most refusals; of two configurations one above the other.

--json prints one object. Times are in RFC 3339, durations in seconds:
  limit, burst, by, files       what was replayed
  complete, error               whether all of it was, and why not
  lines, requests, malformed    how many of each there were
  allowed, refused              what became of the requests
  table_full                    of the refused, those beyond --max-keys
  reordered, furthest_reordered requests whose line stands behind a later one,
                                and how much earlier they are at most
  late                          of them, those too far out of order
  keys, keys_exact              how many keys; more than that if not exact
  refused_keys                  how many of them were refused
  first, last, span             the time of the log
  top                           for each key of the table: key, requests,
                                refused, first_refused, last_refused,
                                worst_retry_after, peak
  peak_window                   the period in which peaks are counted
  timeline                      start, step, and requests and refused in each
                                step of time
  malformed_lines               file, line, reason and text of the first few
With --config or --against there is, instead of what speaks of a limit:
  config, against               the configurations
  notes                         what the log does not tell
  all                           what became of all requests: config and against
                                with requests, allowed, refused, denied,
                                exempt, unlimited and timeline; and change with
                                newly_refused and newly_allowed
  policies                      the same for each policy, with name, mode,
                                refused_keys, newly_refused_keys and
                                newly_allowed_keys
  timeline_start, timeline_step when each timeline begins, and its steps

The exit status is 0 even if lines were malformed or the log is empty, 1 if a
log could not be read to its end, 2 if no line of it is a request, or if it or a
configuration is not there or has mistakes, and 130 after SIGINT; what was done
until then is printed.`

const examples = `  weir replay access.log
  weir replay access.log --limit 1/s --burst 5 --by client.ip
  weir replay access.log --config weir.yaml
  weir replay access.log --config weir.yaml --against stricter.yaml --chart change.svg
  weir replay access.log.2.gz access.log.1 access.log --limit 1000/h --by client.net,host
  zcat -f /var/log/nginx/access.log* | weir replay - --by path --json | jq .refused`
