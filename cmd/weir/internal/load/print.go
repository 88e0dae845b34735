package load

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/mattn/go-runewidth"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/internal/inwords"
)

// columns is how wide a report is at most.
const columns = 80

// Print writes the report for people.
func (p *report) Print(w io.Writer, out terminal.Output) {
	c := &p.Configuration
	fmt.Fprintln(w, out.Bold(fit(p.Request, columns)))
	fmt.Fprintln(w, terminal.Wrap(p.setting(), 0, columns))
	fmt.Fprintln(w)
	line := func(name, value, more string) {
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%-10s %15s  %s", name, value, more), " "))
	}
	line("requests", terminal.Number(p.Requests), "in "+tenths(seconds(p.ElapsedSeconds)))
	line("rate", terminal.Number(int64(p.RatePerSecond))+"/s", wanted(c))
	if p.Allowed != nil && p.Refused != nil {
		line("allowed", terminal.Number(*p.Allowed), share(*p.Allowed, p.Requests))
		line("refused", terminal.Number(*p.Refused), share(*p.Refused, p.Requests))
	}
	line("errors", terminal.Number(p.Errors), share(p.Errors, p.Requests))
	for _, k := range p.ErrorKinds {
		text := k.First
		if !strings.HasPrefix(text, k.Kind) {
			text = k.Kind + ": " + text
		}
		fmt.Fprintln(w, fit(fmt.Sprintf("%26s  %s", terminal.Number(k.Count), text), columns))
	}
	if p.Reconnects > 0 {
		line("reconnects", terminal.Number(p.Reconnects), "")
	}
	if open := p.OpenLoop; open != nil && open.NotSent > 0 {
		line("not sent", terminal.Number(open.NotSent), share(open.NotSent, open.Scheduled)+" of those that were due")
	}
	fmt.Fprintln(w)
	p.printLatencies(w, out)
	fmt.Fprintln(w)
	fmt.Fprintln(w, p.cost())
	for _, n := range p.Notes {
		fmt.Fprintln(w, terminal.Wrap("note: "+n, 0, columns))
	}
}

// setting is how it was measured.
func (p *report) setting() string {
	c := &p.Configuration
	text := "at " + c.Address
	if c.TLS {
		text += " by TLS"
	}
	text += ", " + c.Loop + " loop, " + terminal.Plural(c.Connections, "connection", "connections")
	switch {
	case p.OpenLoop != nil && p.Front != frontHTTP:
		text += " of at most " + terminal.Number(int64(c.InFlight)) + " in flight"
	case p.Front == frontRESP:
		text += ", pipeline " + terminal.Number(int64(c.InFlight))
	case p.Front == frontRLS:
		text += " of " + terminal.Number(int64(c.InFlight)) + " in flight"
	}
	text += ", " + terminal.Plural(c.Keys, "key", "keys") + " " + c.Distribution
	if c.Distribution == zipf {
		text += fmt.Sprintf(" %v", c.ZipfS)
	}
	return text + fmt.Sprintf(", seed %d, after %s of warm-up", c.Seed, inwords.Short(seconds(c.WarmupSeconds)))
}

func wanted(c *configurationJSON) string {
	if c.RatePerSecond == 0 {
		return ""
	}
	text := humanize.Commaf(c.RatePerSecond) + "/s wanted"
	if c.Arrivals == poisson {
		text += ", at random"
	}
	return text
}

func (p *report) printLatencies(w io.Writer, out terminal.Output) {
	row := func(name string, cells ...string) string {
		var text strings.Builder
		fmt.Fprintf(&text, "%-10s", name)
		for _, cell := range cells {
			text.WriteString(strings.Repeat(" ", max(1, 11-runewidth.StringWidth(cell))) + cell)
		}
		return text.String()
	}
	fmt.Fprintln(w, out.Bold(row("latency", "p50", "p90", "p99", "p99.9", "max")))
	values := func(name string, l *latencyJSON) {
		if l.Count == 0 {
			fmt.Fprintln(w, row(name, "-", "-", "-", "-", "-"))
			return
		}
		cells := make([]string, 0, 5)
		for _, s := range []float64{l.P50, l.P90, l.P99, l.P999, l.Max} {
			cells = append(cells, latencySeconds(s))
		}
		fmt.Fprintln(w, row(name, cells...))
	}
	values("response", &p.Response)
	if p.OpenLoop != nil {
		values("service", &p.OpenLoop.Service)
		values("sent late", &p.OpenLoop.SentLate)
		fmt.Fprintln(w)
		fmt.Fprintln(w, terminal.Wrap("response counts from when a request was due, and service from when it was sent. "+
			"sent late is what the generator itself has added.", 0, columns))
	}
}

// cost is what the generator has used.
func (p *report) cost() string {
	used := p.Generator.CPUSeconds
	if used == nil {
		return "generator: its CPU time is not known on " + p.Versions.OS
	}
	text := fmt.Sprintf("generator: %s of CPU", tenths(seconds(*used)))
	if p.ElapsedSeconds > 0 {
		text += fmt.Sprintf(", %.0f %% of one of %s", 100**used/p.ElapsedSeconds,
			terminal.Plural(p.Generator.Processors, "processor", "processors"))
	}
	if p.Requests > 0 {
		text += ", " + latencySeconds(*used/float64(p.Requests)) + " a request"
	}
	return text
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func latencySeconds(s float64) string { return latency(seconds(s)) }

// latency is d with three digits and its unit.
func latency(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < time.Millisecond:
		return three(float64(d)/float64(time.Microsecond)) + " µs"
	case d < time.Second:
		return three(float64(d)/float64(time.Millisecond)) + " ms"
	default:
		return three(d.Seconds()) + " s"
	}
}

func three(f float64) string {
	switch {
	case f < 9.995:
		return fmt.Sprintf("%.2f", f)
	case f < 99.95:
		return fmt.Sprintf("%.1f", f)
	default:
		return fmt.Sprintf("%.0f", f)
	}
}

// share is n of all in per cent.
func share(n, all int64) string {
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f %%", 100*float64(n)/float64(all))
}

// fit is text in one line of at most width columns, without what would move the cursor.
func fit(text string, width int) string {
	return runewidth.Truncate(terminal.Printable(text), width, "…")
}

// commandText is a command as it is shown.
func commandText(args []string) string {
	shown := make([]string, len(args))
	for i, arg := range args {
		if shown[i] = arg; arg == "" || strings.ContainsAny(arg, " \t\"'") {
			shown[i] = fmt.Sprintf("%q", arg)
		}
	}
	return strings.Join(shown, " ")
}
