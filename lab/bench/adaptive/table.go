package adaptive

import (
	"fmt"
	"io"
	"time"

	"github.com/weirhq/weir/overload"
)

// WriteTable writes the summaries of courses of one scenario as a table in Markdown.
func WriteTable(w io.Writer, courses []*Course) {
	fmt.Fprintln(w, "| | goodput | p50 | p99 | critical | normal | background |")
	fmt.Fprintln(w, "|---|--:|--:|--:|--:|--:|--:|")
	for _, phase := range courses[0].Scenario.Phases() {
		fmt.Fprintf(w, "| **%s**, %g to %g s | | | | | | |\n", phase.Name, phase.From.Seconds(), phase.To.Seconds())
		for _, c := range courses {
			s := c.Summary(phase.From, phase.To)
			fmt.Fprintf(w, "| %s | %.0f/s | %s | %s | %s | %s | %s |\n", c.Name, s.Goodput, readable(s.P50), readable(s.P99),
				percent(s.InTime[overload.PriorityCritical]), percent(s.InTime[overload.PriorityNormal]),
				percent(s.InTime[overload.PriorityBackground]))
		}
	}
}

func percent(x float64) string { return fmt.Sprintf("%.0f %%", 100*x) }

func readable(d time.Duration) string {
	if d >= 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
}
