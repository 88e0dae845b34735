package replay

import (
	"fmt"
	"math"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// top writes the table of keys. The key stands last, where it cannot push others out of line; on a terminal it is cut at
// the edge.
func (p printer) top(r *limitReport) {
	if len(r.Top) == 0 {
		return
	}
	layout := "01-02 15:04:05"
	if r.Last.Year() != r.First.Year() {
		layout = time.DateTime
	}
	window := time.Duration(math.Round(r.PeakWindow * float64(time.Second)))
	rows := [][]string{{refusedName, "requests", "%", "first refused", "wait", "peak/" + span(window), r.By}}
	for _, k := range r.Top {
		rows = append(rows, []string{
			terminal.Number(k.Refused), terminal.Number(k.Requests),
			fmt.Sprintf("%.1f", 100*float64(k.Refused)/float64(k.Requests)),
			k.FirstRefused.Format(layout), seconds(k.WorstRetryAfter), terminal.Number(k.Peak), r.name(k),
		})
	}
	fmt.Fprintln(p.w)
	p.table(rows, 1)
	if rest := r.RefusedKeys - len(r.Top); rest > 0 {
		fmt.Fprintf(p.w, "and %s more; --top shows more of them\n", terminal.Number(int64(rest)))
	}
}

// name is how the key of a row is written.
func (r *limitReport) name(k topKey) string {
	switch {
	case r.By == "none":
		return allRequests
	case k.Key == "":
		return `""`
	default:
		return printable(k.Key)
	}
}

// table writes rows, the first of which are heads. All columns but the last are numbers.
func (p printer) table(rows [][]string, heads int) {
	operator.WriteTable(p.w, p.out, rows, heads, len(rows[0])-1)
}
