package replay

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/offline/accesslog"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/internal/inwords"
)

// Print writes the report for people.
func (r *limitReport) Print(w io.Writer, out terminal.Output) {
	p := printer{w, out}
	p.summary(r)
	p.timeline(r)
	p.top(r)
	p.malformed(r.replayed)
	p.incomplete(r.replayed)
}

// Words that stand in several places.
const (
	allRequests = "all requests"
	refusedName = "refused"
)

type printer struct {
	w   io.Writer
	out terminal.Output
}

func (p printer) rowf(name, format string, args ...any) {
	fmt.Fprintf(p.w, "%-*s %s\n", labelWidth-1, name, fmt.Sprintf(format, args...))
}

func (p printer) summary(r *limitReport) {
	p.rowf("limit", "%s", r.of.Config)
	p.log(r.replayed, func(count func(int64) string) {
		p.rowf("allowed", "%s  %s", count(r.Allowed), percent(r.Allowed, r.Requests))
		refused := fmt.Sprintf("%s  %s", count(r.Refused), percent(r.Refused, r.Requests))
		if r.Refused > 0 {
			refused = p.out.Red(refused)
		}
		if r.TableFull > 0 {
			refused += fmt.Sprintf("  (%s of new keys, beyond --max-keys)", terminal.Number(r.TableFull))
		}
		p.rowf(refusedName, "%s", refused)
	})
	more := ""
	if !r.KeysExact {
		more = "more than "
	}
	p.rowf("keys", "%s%s, %s with refusals", more, terminal.Number(r.Keys), terminal.Number(int64(r.RefusedKeys)))
}

// log writes what was replayed, with what became of the requests, in numbers of one width.
func (p printer) log(r *replayed, became func(count func(int64) string)) {
	names := make([]string, len(r.Files))
	for i, f := range r.Files {
		names[i] = printable(f)
	}
	p.rowf("log", "%s", strings.Join(names, ", "))
	if r.First != nil {
		p.rowf("span", "%s to %s UTC (%s)",
			r.First.Format(time.DateTime), r.Last.Format(time.DateTime), span(r.Last.Sub(*r.First)))
	}
	width := len(terminal.Number(max(r.Requests, r.Malformed)))
	count := func(n int64) string { return fmt.Sprintf("%*s", width, terminal.Number(n)) }
	p.rowf("requests", "%s", count(r.Requests))
	became(count)
	p.rowf("malformed", "%s", count(r.Malformed))
	p.rowf("reordered", "%s%s", count(r.Reordered), r.order())
}

// order says how far lines were out of order, "" if none was.
func (r *replayed) order() string {
	if r.Reordered == 0 {
		return ""
	}
	how := "sorted"
	if r.Late > 0 {
		how = fmt.Sprintf("sorted, except %s that came too late", terminal.Number(r.Late))
	}
	lines := "lines out of order by up to"
	if r.Reordered == 1 {
		lines = "line out of order by"
	}
	return fmt.Sprintf("  %s %s; %s", lines, seconds(r.FurthestReordered), how)
}

// labelWidth is the columns of a label, with the space after it.
const labelWidth = 11

// leastSteps is the least width of the chart. Its two times need that much room too.
const leastSteps = 24

// steps is how many steps the width of the output has room for.
func (p printer) steps() int { return min(max(p.out.Width-labelWidth, leastSteps), timelineSteps) }

// timeline draws the chart.
func (p printer) timeline(r *limitReport) {
	courses := r.of.c.courses(p.steps())
	if len(courses) == 0 || r.Refused == 0 {
		return
	}
	c := courses[0]
	requests, refused := c.counts(-1)
	mostRequests, mostRefused := slices.Max(requests), slices.Max(refused)
	fmt.Fprintf(p.w, "\n%s\n", p.out.Bold(fmt.Sprintf("when, in steps of %s (at most %s, %s refused)",
		span(c.width), plural(mostRequests, "request"), terminal.Number(mostRefused))))
	p.rowf("requests", "%s", spark(requests, mostRequests))
	p.refusals(refusedName, refused, mostRefused)
	p.timeAxis(at(c.start), c.width, c.steps)
}

func (p printer) refusals(name string, counts []int64, most int64) {
	p.rowf(name, "%s", p.out.Red(strings.TrimRight(spark(counts, most), " ")))
}

// bars are the levels of a spark line, the first for 0.
var bars = []rune(" ▁▂▃▄▅▆▇█")

// spark draws counts as bars of a height from 1 to 8, rounded up, of which the highest stands for most.
func spark(counts []int64, most int64) string {
	var b strings.Builder
	for _, n := range counts {
		level := int64(0)
		if n > 0 {
			level = int64(math.Ceil(float64(n) / float64(most) * float64(len(bars)-1)))
		}
		b.WriteRune(bars[level])
	}
	return b.String()
}

// timeAxis writes the time of the first step, and the end of the last, below a chart.
func (p printer) timeAxis(start time.Time, step time.Duration, steps int) {
	end := start.Add(step * time.Duration(steps))
	layout := time.TimeOnly
	if end.Sub(start) >= day {
		layout = "01-02 15:04"
	}
	left, right := start.Format(layout), end.Format(layout)
	gap := max(1, steps-len(left)-len(right))
	p.rowf("", "%s", p.out.Dim(left+strings.Repeat(" ", gap)+right))
}

func (p printer) malformed(r *replayed) {
	if len(r.MalformedLines) == 0 {
		return
	}
	fmt.Fprintf(p.w, "\n%s\n", p.out.Bold("malformed lines"))
	for _, l := range r.MalformedLines {
		fmt.Fprintf(p.w, "  %s:%d: %s: %s\n", printable(l.File), l.Line, l.Reason, l.Text)
	}
	if rest := r.Malformed - int64(len(r.MalformedLines)); rest > 0 {
		fmt.Fprintf(p.w, "  and %s more\n", terminal.Number(rest))
	}
}

func (p printer) incomplete(r *replayed) {
	if !r.Complete {
		fmt.Fprintf(p.w, "\n%s\n", p.out.Red("incomplete: "+printable(r.Error)))
	}
}

// printable is s with escapes for all that does not print, such as the control characters that terminals obey.
func printable(s string) string { return accesslog.Printable([]byte(s), math.MaxInt) }

// plural is n with a noun, which is made a plural unless n is 1.
func plural(n int64, noun string) string { return terminal.Plural(n, noun, noun+"s") }

func percent(n, of int64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%5.1f %%", 100*float64(n)/float64(of))
}

// seconds is a time with three digits at least as far as they count: 0.25s, 12s, 3m20s.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	default:
		return span(d)
	}
}

// span is d in whole seconds from a minute on, and in days from 100 hours on.
func span(d time.Duration) string {
	if d >= 100*time.Hour {
		return strconv.FormatFloat(d.Hours()/24, 'f', 1, 64) + " days"
	}
	if d >= time.Minute {
		d = d.Round(time.Second)
	}
	return inwords.Short(d)
}
