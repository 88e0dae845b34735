//go:build linux

package soak

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"
)

// Report is what became of a run.
type Report struct {
	OK       bool          `json:"ok"`
	Failures []string      `json:"failures"`
	Notes    []string      `json:"notes,omitempty"`
	Seed     uint64        `json:"seed"`
	Duration time.Duration `json:"duration_ns"`
	Requests int64         `json:"requests"`
	Skipped  int64         `json:"skipped"`
	// Minted and Lost are how many permits of exact policies were granted from nothing, and refused although they were there.
	Minted   float64          `json:"minted"`
	Lost     float64          `json:"lost"`
	Policies []PolicyTotals   `json:"policies"`
	Errors   map[string]int64 `json:"errors"`
	Faults   map[string]int   `json:"faults"`
	Usage    []Usage          `json:"usage"`

	storms   []happened
	breaches []breach
	judged   []string // processes of nodes of which it can be told whether anything grows
}

// PolicyTotals are those of a policy.
type PolicyTotals struct {
	Policy   string  `json:"policy"`
	Scope    string  `json:"scope"`
	Exact    bool    `json:"exact"`
	Requests int64   `json:"requests"`
	Granted  int64   `json:"granted"`
	Refused  int64   `json:"refused"`
	Unknown  int64   `json:"unknown"`
	Allowed  float64 `json:"allowed"` // 0 if it was overridden
	Minted   float64 `json:"minted"`
	Lost     float64 `json:"lost"`
	Buckets  int     `json:"buckets"`
}

// report judges a run.
func (r *run) report(failed error) *Report {
	p := &Report{
		Seed: r.o.Seed, Duration: time.Duration(r.clocks.now()), Requests: r.traffic.asked.Load(),
		Skipped:  r.traffic.skipped.Load(),
		Failures: []string{},
	}
	sums := r.history.check(true)
	for _, q := range r.all {
		t := sums[q.name]
		if t == nil {
			t = new(totals)
		}
		p.Policies = append(p.Policies, PolicyTotals{
			Policy: q.name, Scope: q.scope.String(), Exact: q.exact(), Requests: t.requests, Granted: t.granted,
			Refused: t.refused, Unknown: t.unknown, Allowed: t.allowed, Minted: t.minted, Lost: t.lost, Buckets: t.groups,
		})
		if q.use == overridden {
			p.Policies[len(p.Policies)-1].Allowed = 0 // an operator has allowed more
		}
		p.Minted, p.Lost = p.Minted+t.minted, p.Lost+t.lost
		switch {
		case t.granted == 0:
			p.failf("nothing was granted of %s: it was not tried", q.name)
		case t.refused == 0 && q.use != second && q.use != spreads && r.o.Duration >= time.Minute:
			p.Notes = append(p.Notes, fmt.Sprintf("nothing was refused of %s: the rate is too low to try its limit", q.name))
		}
	}
	p.breaches = r.history.broke()
	for i := range p.breaches {
		b := &p.breaches[i]
		where := b.Node
		if where == "" {
			where = "all nodes"
		}
		p.failf("%s/%s of %q (%s): %.2f permits %s from %v to %v, seen %d times; it is %s", b.Policy, b.Limit, b.Key, where,
			b.Breach.Permits, b.What, b.Breach.From.Round(time.Microsecond), b.Breach.To.Round(time.Microsecond), b.Breach.Times,
			b.Holds)
	}
	var wrong, notes []string
	p.Errors, wrong = r.traffic.trouble()
	for _, w := range wrong {
		p.failf("a wrong answer: %s", w)
	}
	p.Faults, p.storms, notes = r.storm.done()
	p.Notes = append(p.Notes, notes...)
	p.Usage = r.meter.usage(p.Duration/2, p.Duration)
	p.judgeGrowth()
	if failed != nil {
		p.failf("%v", failed)
	}
	p.OK = len(p.Failures) == 0
	return p
}

// longEnough is a run in which the node that is not ended in the second half runs long enough for what it uses to be judged.
const longEnough = 8 * time.Minute

// judgeGrowth tells what has grown. That nothing has is said only of a run that was long enough, and in such a one something must
// have been measured.
func (p *Report) judgeGrowth() {
	for i := range p.Usage {
		u := &p.Usage[i]
		goroutines := false
		for _, g := range u.Growth {
			goroutines = goroutines || g.What == ofGoroutines && g.First > 0
			if g.Leaks {
				p.failf("%s of %s grew from %.0f to %.0f, by %.0f, which is more than %.0f", g.What, u.Who, g.First, g.Last,
					g.Grown, g.Tolerated)
			}
		}
		if u.Judged && goroutines {
			p.judged = append(p.judged, u.Who)
		}
	}
	switch {
	case len(p.judged) > 0:
	case p.Duration >= longEnough:
		p.failf("of no node it can be told whether its memory, its goroutines and its open files grow: too little was measured")
	default:
		p.Notes = append(p.Notes, fmt.Sprintf("whether anything grows can be told of a run of %v and longer", longEnough))
	}
}

func (p *Report) failf(format string, args ...any) {
	p.Failures = append(p.Failures, fmt.Sprintf(format, args...))
}

// WriteHistory writes what happened around every breach, and the faults, as lines of JSON.
func (p *Report) WriteHistory(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) //nolint:gosec // the file that was asked for
	if err != nil {
		return fmt.Errorf("the history: %w", err)
	}
	to := json.NewEncoder(f)
	for i := range p.breaches {
		if err == nil {
			err = to.Encode(p.breaches[i])
		}
	}
	for _, s := range p.storms {
		if err == nil {
			err = to.Encode(s)
		}
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("the history: %w", err)
	}
	return nil
}

// Print writes the report for people, in lines of at most 100 columns.
func (p *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "\nseed %d, %v, %d requests\n\n", p.Seed, p.Duration.Round(time.Second), p.Requests)
	fmt.Fprintf(w, "%-17s %-9s %9s %10s %12s %5s %8s %8s %6s %6s\n", "policy", "kept", "requests", "admitted", "allowed", "used",
		"refused", "unknown", "minted", "lost")
	for _, t := range p.Policies {
		lost := "-"
		if t.Exact {
			lost = fmt.Sprintf("%.0f", math.Ceil(t.Lost))
		}
		allowed, used := "-", "-"
		if t.Allowed > 0 {
			allowed, used = fmt.Sprintf("%.0f", t.Allowed), fmt.Sprintf("%.0f%%", 100*float64(t.Granted)/t.Allowed)
		}
		fmt.Fprintf(w, "%-17s %-9s %9d %10d %12s %5s %8d %8d %6.0f %6s\n", t.Policy, t.Scope, t.Requests, t.Granted,
			allowed, used, t.Refused, t.Unknown, math.Ceil(t.Minted), lost)
	}
	fmt.Fprintf(w, "\n%-22s %10s %9s %11s %8s %11s %8s %8s\n", "process, second half", "memory MB", "grown MB",
		"goroutines", "grown", "open files", "grown", "cores")
	for _, u := range p.Usage {
		m, g, f := u.Growth[0], u.Growth[1], u.Growth[2]
		who := u.Who
		if !u.Judged {
			who += " *"
		}
		fmt.Fprintf(w, "%-22s %10.1f %9.1f %11.0f %8.1f %11.0f %8.1f %8.2f\n", who, m.Last/1e6, m.Grown/1e6, g.Last,
			g.Grown, f.Last, f.Grown, u.Cores)
	}
	fmt.Fprintln(w, "* ran for too short a time to tell whether it grows")
	wrap(w, "\nfaults: ", p.Faults)
	wrap(w, "\nanswers that were neither yes nor no: ", p.Errors)
	for _, n := range p.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	for _, f := range p.Failures {
		fmt.Fprintf(w, "FAILED: %s\n", f)
	}
	if p.OK {
		fmt.Fprintf(w, "ok: 0 permits minted; 0 lost on exact policies")
		if len(p.judged) > 0 {
			fmt.Fprintf(w, "; nothing grew beyond what is tolerated in %s", strings.Join(p.judged, " and in "))
		}
		fmt.Fprintln(w)
	}
}

// wrap writes counts in lines that are not too long.
func wrap[N int | int64](w io.Writer, title string, counts map[string]N) {
	words := make([]string, 0, len(counts))
	for _, k := range sorted(counts) {
		words = append(words, fmt.Sprintf("%s %d", k, counts[k]))
	}
	if len(words) == 0 {
		words = append(words, reasonNone)
	}
	line := title
	for i, word := range words {
		if i < len(words)-1 {
			word += ", "
		}
		if len(strings.TrimLeft(line, "\n"))+len(word) > 98 {
			fmt.Fprintln(w, line)
			line = "  "
		}
		line += word
	}
	fmt.Fprintln(w, line)
}
