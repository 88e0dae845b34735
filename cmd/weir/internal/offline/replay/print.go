package replay

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// Print writes the report for people.
func (r *report) Print(w io.Writer, out terminal.Output) {
	p := printer{w, out}
	p.summary(r)
	p.timeline(r)
	p.top(r)
	p.malformed(r.Malformed, r.MalformedLines)
	if !r.Complete {
		fmt.Fprintf(w, "\n%s\n", out.Red("incomplete: "+printable(r.Error)))
	}
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

func (p printer) summary(r *report) {
	p.rowf("limit", "%s, burst %d, by %s", r.Limit, r.Burst, r.By)
	p.log(r.Files, r.First, r.Last)
	width := len(terminal.Number(max(r.Requests, r.Malformed)))
	count := func(n int64) string { return fmt.Sprintf("%*s", width, terminal.Number(n)) }
	p.rowf("requests", "%s", count(r.Requests))
	p.rowf("allowed", "%s  %s", count(r.Admitted), percent(r.Admitted, r.Requests))
	refused := fmt.Sprintf("%s  %s", count(r.Refused), percent(r.Refused, r.Requests))
	if r.Refused > 0 {
		refused = p.out.Red(refused)
	}
	if r.TableFull > 0 {
		refused += fmt.Sprintf("  (%s of new keys, beyond --max-keys)", terminal.Number(r.TableFull))
	}
	p.rowf(refusedName, "%s", refused)
	p.rowf("malformed", "%s", count(r.Malformed))
	p.reordered(width, r.Reordered, r.Late, r.FurthestReordered)
	more := ""
	if !r.KeysExact {
		more = "more than "
	}
	p.rowf("keys", "%s%s, %s with refusals", more, terminal.Number(r.Keys), terminal.Number(int64(r.RefusedKeys)))
}

// log writes what was replayed.
func (p printer) log(files []string, first, last *time.Time) {
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = printable(f)
	}
	p.rowf("log", "%s", strings.Join(names, ", "))
	if first != nil {
		p.rowf("span", "%s to %s UTC (%s)", first.Format(time.DateTime), last.Format(time.DateTime), span(last.Sub(*first)))
	}
}

// reordered writes how many requests stand behind later ones.
func (p printer) reordered(width int, reordered, late int64, furthest float64) {
	if reordered == 0 {
		p.rowf("reordered", "%*s", width, "0")
		return
	}
	how := "sorted"
	if late > 0 {
		how = fmt.Sprintf("sorted, except %s that came too late", terminal.Number(late))
	}
	lines := "lines out of order by up to"
	if reordered == 1 {
		lines = "line out of order by"
	}
	p.rowf("reordered", "%*s  %s %s; %s", width, terminal.Number(reordered), lines, seconds(furthest), how)
}

// labelWidth is the columns of a label, with the space after it.
const labelWidth = 11

// leastSteps is the least width of the chart. Its two times need that much room too.
const leastSteps = 24

// timeline draws the chart, in no more steps than the width of the output has room for.
func (p printer) timeline(r *report) {
	if r.times == nil || r.Refused == 0 {
		return
	}
	t := r.times.report(min(max(p.out.Width-labelWidth, leastSteps), timelineSteps))
	step := time.Duration(math.Round(t.Step * float64(time.Second)))
	requests, mostRequests := spark(t.Requests)
	refusals, mostRefusals := spark(t.Refused)
	fmt.Fprintf(p.w, "\n%s\n", p.out.Bold(fmt.Sprintf("when, in steps of %s (at most %s, %s refused)",
		span(step), plural(mostRequests, "request"), terminal.Number(mostRefusals))))
	p.rowf("requests", "%s", requests)
	p.rowf(refusedName, "%s", p.out.Red(strings.TrimRight(refusals, " ")))
	p.timeAxis(t.Start, step, len(t.Requests))
}

// bars are the levels of a spark line, the first for 0.
var bars = []rune(" ▁▂▃▄▅▆▇█")

// spark draws counts as bars of a height from 1 to 8, rounded up, and returns the greatest.
func spark(counts []int64) (line string, most int64) {
	for _, n := range counts {
		most = max(most, n)
	}
	return sparkOf(counts, most), most
}

// sparkOf draws counts as bars of a height from 1 to 8, of which the highest stands for most.
func sparkOf(counts []int64, most int64) string {
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

func (p printer) malformed(count int64, lines []malformedLine) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(p.w, "\n%s\n", p.out.Bold("malformed lines"))
	for _, l := range lines {
		fmt.Fprintf(p.w, "  %s:%d: %s: %s\n", printable(l.File), l.Line, l.Reason, l.Text)
	}
	if rest := count - int64(len(lines)); rest > 0 {
		fmt.Fprintf(p.w, "  and %s more\n", terminal.Number(rest))
	}
}

// printable is s with escapes for all that does not print, such as the control characters that terminals obey.
func printable(s string) string {
	clean := true
	for _, r := range s {
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b []byte
	for s != "" {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			b = fmt.Appendf(b, `\x%02x`, s[0])
		case strconv.IsPrint(r):
			b = append(b, s[:size]...)
		default:
			quoted := strconv.QuoteRune(r)
			b = append(b, quoted[1:len(quoted)-1]...)
		}
		s = s[size:]
	}
	return string(b)
}

// plural is n with a noun, which is made a plural unless n is 1.
func plural(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return terminal.Number(n) + " " + noun
}

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
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
