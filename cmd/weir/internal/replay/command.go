// Package replay is the command that runs access logs through a limit in virtual time.
package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flagvalue"
	"github.com/weirhq/weir/cmd/weir/internal/limitflags"
	"github.com/weirhq/weir/cmd/weir/internal/misuse"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// options are the flags of the command.
type options struct {
	limit   limitflags.Limit
	config  string
	against string
	chart   string
	top     int
	json    bool
}

// Command answers the command "replay".
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "replay [flags] FILE...",
		Short: "Show what limits would have done to the traffic in an access log",
		Long: `replay runs the requests of access logs through a limit, or with --config through
a configuration, and shows who would have been refused, when, and by how much.
With --against it compares that with another configuration: which requests would
be newly refused, and which newly admitted.

Time is that of the log: nothing waits, and the same log gives the same result.
Servers write a line when a request ends, so the lines are not in the order of
the requests. replay puts them in order, also those of several files, which
are one log. It looks a million requests ahead; one that is further out of
order is taken at the time of the latest before it, and counted as late. A log
that is exact to a second, as most are, shows the requests of a second as one
burst.

A FILE is in the common or combined format, or has a JSON object on each line,
also mixed, and may be compressed with gzip. "-" is the standard input. Lines
that are no request are counted as malformed and skipped.

With a limit, the table has the keys that were refused most, --top of them, worst
first. In it, "wait" is the longest time that a refused request of the key was
told to wait, and "peak" the most requests of the key in one period of --limit,
at least a second. Memory is bounded: statistics of keys are kept for --max-keys
of them; past that, keys that are not refused are left out, and of those that
are, the half with the fewest refusals makes room for others, so what the table
says is then a lower bound.

With a configuration, there is a row for each policy: the requests that it held
for, and those that it refused itself. A request that several policies refuse
counts for each. "newly refused" are requests that --config lets pass and
--against refuses. The keys are those that this happened to most. A log does not
tell all that rules can look at, such as most header fields: notes say what was
missed.

--chart draws what was admitted and refused over time, for all requests and for
the policies with the most refusals; of two configurations one above the other.

--json prints one object. Times are in RFC 3339, durations in seconds:
  limit, burst, by, files       what was replayed
  complete, error               whether all of it was, and why not
  lines, requests, malformed    how many of each there were
  admitted, refused             what became of the requests
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
                                with requests, admitted, refused, exempt,
                                unlimited and timeline; and change with
                                newly_refused and newly_admitted
  policies                      the same for each policy, with name, mode,
                                refused_keys, newly_refused_keys and
                                newly_admitted_keys
  timeline_start, timeline_step when each timeline begins, and its steps

The exit status is 0 even if lines were malformed, 1 if a file could not be
read, 2 if a configuration has mistakes, and 130 after SIGINT; what was done
until then is printed.`,
		Example: `  weir replay access.log
  weir replay access.log --limit 1/s --burst 5 --by client.ip
  weir replay access.log --config weir.yaml
  weir replay access.log --config weir.yaml --against stricter.yaml --chart change.svg
  weir replay access.log.2.gz access.log.1 access.log --limit 1000/h --by client.net,host
  zcat -f /var/log/nginx/access.log* | weir replay - --by path --json | jq .refused`,
		Args: arguments,
		RunE: func(cmd *cobra.Command, files []string) error {
			return run(cmd, &o, files)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	o.limit.Register(fs)
	fs.Var(flagvalue.File(&o.config), "config", "a configuration to run the log through, instead of --limit (default: none)")
	fs.Var(flagvalue.File(&o.against), "against", "another one to compare it with (default: none)")
	fs.Var(chartFile{&o.chart}, "chart", "draw what was admitted and refused over time into this file,\n.svg or .png (default: none)")
	o.top = 10
	fs.Var(flagvalue.Int(&o.top, 0, 10_000), "top", "keys in the table, those with the most refusals, from 0 to 10000")
	fs.BoolVar(&o.json, "json", false, "print one JSON object instead of tables")
	return cmd
}

func arguments(_ *cobra.Command, files []string) error {
	if len(files) == 0 {
		return misuse.Errorf("replay needs a FILE, or - for the standard input")
	}
	stdin := 0
	for _, f := range files {
		if f == "-" {
			stdin++
		}
	}
	if stdin > 1 {
		return misuse.Errorf("replay can read the standard input only once: - stands there %d times", stdin)
	}
	return nil
}

func run(cmd *cobra.Command, o *options, files []string) error {
	if o.config == "" {
		if err := o.limit.By.CheckRecords(); err != nil {
			return err
		}
	}
	if o.config != "" || o.against != "" {
		return compare(cmd, o, files)
	}
	s, err := newSimulation(&o.limit)
	if err != nil {
		return err
	}
	total, err := totalSize(files)
	if err != nil {
		return err
	}
	start := time.Now()
	lines := &lineCounts{}
	failed := lines.readAll(cmd.Context(), s.read, files, cmd.InOrStdin(), newBar(cmd.ErrOrStderr(), total))
	s.sequence.drain()
	elapsed := time.Since(start)

	r := newReport(s, &o.limit, o.top)
	r.Files = files
	r.Lines, r.Malformed = lines.lines, lines.malformed
	r.MalformedLines = append(r.MalformedLines, lines.examples...)
	r.Complete, r.Error = outcomeOf(failed)
	if o.chart != "" {
		failed = errors.Join(failed, draw(o.chart, r.picture()))
	}
	return finish(cmd, o, r, lines.lines, elapsed, failed)
}

// outcomeOf answers what a report says of how a replay ended.
func outcomeOf(failed error) (complete bool, text string) {
	switch {
	case failed == nil:
		return true, ""
	case errors.Is(failed, context.Canceled):
		return false, "interrupted"
	default:
		return false, failed.Error()
	}
}

// finish writes a report, and how fast it was made.
func finish(cmd *cobra.Command, o *options, r printed, lines int64, elapsed time.Duration, failed error) error {
	if err := write(cmd.OutOrStdout(), r, o.json); err != nil {
		return errors.Join(failed, fmt.Errorf("weir: writing the result: %w", err))
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s in %s, %s lines/s\n",
		plural(lines, "line"), seconds(elapsed.Seconds()), thousands(int64(float64(lines)/max(elapsed.Seconds(), 1e-6))))
	return failed
}

// printed is a report.
type printed interface {
	print(w io.Writer, out terminal.Output)
}

// write writes the report to w, at once.
func write(w io.Writer, r printed, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(r)
	}
	var text bytes.Buffer
	r.print(&text, terminal.Of(w))
	_, err := w.Write(text.Bytes())
	return err
}
