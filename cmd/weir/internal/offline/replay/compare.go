package replay

import (
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// limitNames are the flags of a limit.
var limitNames = []string{"limit", "burst", "by", "max-keys"}

// compare runs the files through a configuration, or through two: if there is no --config, the first is the limit of the flags,
// of which one must be given then. The limit that holds without any flag is hardly what somebody has in force.
func compare(cmd *cobra.Command, o *options, files []string) error {
	var configurations []configuration
	if o.config == "" {
		if !slices.ContainsFunc(limitNames, cmd.Flags().Changed) {
			return flags.Errorf("--against needs something to compare with: give --config, or a limit by --limit")
		}
		one, err := ofLimit(&o.limit)
		if err != nil {
			return err
		}
		configurations = append(configurations, one)
	} else {
		for _, name := range limitNames {
			if cmd.Flags().Changed(name) {
				return flags.Errorf("--%s cannot be combined with --config, which has its own limits", name)
			}
		}
	}
	for _, name := range []string{o.config, o.against} {
		if name == "" {
			continue
		}
		one, err := load(name, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		configurations = append(configurations, one)
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
	r.Files = files
	r.Lines, r.Malformed = lines.lines, lines.malformed
	r.MalformedLines = append(r.MalformedLines, lines.examples...)
	r.Complete, r.Error = outcomeOf(failed)
	if o.chart != "" {
		failed = errors.Join(failed, draw(o.chart, r.picture()))
	}
	return finish(cmd, o, r, lines, elapsed, failed)
}
