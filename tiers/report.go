package tiers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// maxRows is how many policies a structured report has.
const maxRows = 32

// Report is the state of Tiers at one moment.
type Report struct {
	// Time is when the report was made, in UTC.
	Time time.Time `json:"time"`
	// Active is how many limiters there are, and MaxPolicies how many there may be.
	Active      int `json:"active_policies"`
	MaxPolicies int `json:"max_policies"`
	// Checks counts the checks that came to a limiter since the Tiers were made.
	Checks uint64 `json:"checks"`
	// Policies are the limiters by descending RPS and, where that is equal, descending burst: the first 32.
	Policies []Row `json:"policies"`
}

// Row is one limiter in a [Report].
type Row struct {
	// RPS and Burst are its tiers.
	RPS   float64 `json:"rps"`
	Burst int     `json:"burst"`
	// Shared is how many further pairs of tiers it serves, because there was no room for limiters of their own.
	Shared int `json:"shared"`
	// LastUsed is when it was last asked, in UTC.
	LastUsed time.Time `json:"last_used"`
}

// Report returns what limiters there are: all counts, and the first 32 of the limiters.
func (t *Tiers) Report() Report { return t.report(maxRows) }

// String is the report as text, with all limiters, which are 64 at most.
func (t *Tiers) String() string { return t.report(maxPolicies).String() }

func (t *Tiers) report(rows int) Report {
	now, clock := time.Now().UTC().Round(0), t.now()
	r := Report{Time: now, MaxPolicies: t.max, Checks: t.checks.Load(), Policies: []Row{}}
	t.mu.Lock()
	r.Active = len(t.entries)
	for _, e := range t.entries {
		r.Policies = append(r.Policies, Row{
			RPS: e.rps, Burst: e.burst, Shared: len(e.bindings) - 1,
			LastUsed: now.Add(-time.Duration(max(clock-e.lastUsed(), 0))),
		})
	}
	t.mu.Unlock()
	slices.SortFunc(r.Policies, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.RPS, a.RPS), cmp.Compare(b.Burst, a.Burst))
	})
	r.Policies = r.Policies[:min(len(r.Policies), rows)]
	return r
}

// String is the report as text: a line each for the time, the limiters and the checks, and a table of the limiters.
func (r Report) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "Policy tiers at %s\n", r.Time.Format(time.RFC3339))
	fmt.Fprintf(&text, "Active policies: %d of %d\n", r.Active, r.MaxPolicies)
	fmt.Fprintf(&text, "Checks: %d\n", r.Checks)
	if len(r.Policies) == 0 {
		return text.String()
	}
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "RPS\tBurst\tShared\tLast used (UTC)\t\n")
	for _, p := range r.Policies {
		fmt.Fprintf(table, "%g\t%d\t%d\t%s\t\n", p.RPS, p.Burst, p.Shared, p.LastUsed.Format(time.RFC3339))
	}
	_ = table.Flush() // a strings.Builder fails at nothing
	if more := r.Active - len(r.Policies); more > 0 {
		fmt.Fprintf(&text, "and %d more\n", more)
	}
	return text.String()
}
