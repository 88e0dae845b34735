package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteText writes the report for a terminal of 100 columns.
func (r Report) WriteText(w io.Writer) {
	fmt.Fprintln(w, r.Machine)
	for _, warning := range r.Warnings() {
		fmt.Fprintf(w, "warning: %s\n", warning)
	}
	if len(r.Rows) > 0 {
		fmt.Fprintf(w, "\nNanoseconds a call: medians of %d interleaved rounds of %s. ±: half of the rounds are as close to\n"+
			"the ratio. go: goroutines. al: allocations a call of weir.\n\n", r.Count, r.Time)
		ratioTable(r.Rows).writeText(w)
	}
	if len(r.Admission) > 0 {
		fmt.Fprint(w, "\n64 goroutines ask one limiter as fast as they can: granted / allowed (met: 0.99 to 1.01)\n\n")
		r.admissionTable().writeText(w)
	}
	for _, c := range r.Crowds {
		fmt.Fprintf(w, "\n%s\n\n", c.Name)
		c.table().writeText(w)
	}
	for _, s := range r.Streams {
		fmt.Fprintf(w, "\n%s\n\n", s.Name)
		s.table().writeText(w)
	}
	for _, t := range r.Keyed.tables() {
		fmt.Fprintf(w, "\n%s\n\n", t.Name)
		t.Table.writeText(w)
	}
	if len(r.Rules.Results) > 0 {
		fmt.Fprint(w, "\nRules: nanoseconds a decision\n\n")
		r.Rules.table().writeText(w)
	}
	for _, t := range r.Redis.tables() {
		fmt.Fprintf(w, "\nLimits in Redis %s: %s\n\n", r.Redis.Server, t.Name)
		t.Table.writeText(w)
	}
	for _, t := range r.Durable.tables() {
		fmt.Fprintf(w, "\nDurable limits: %s\n\n", t.Name)
		t.Table.writeText(w)
	}
	if r.Wire.Why != "" {
		fmt.Fprintf(w, "\nServers were not measured: %s.\n", r.Wire.Why)
	}
	for _, t := range r.Wire.tables() {
		fmt.Fprintf(w, "\nServers: %s\n\n", t.Name)
		t.Table.writeText(w)
	}
	r.writeGoals(w)
}

func (r Report) writeGoals(w io.Writer) {
	goals := r.Goals()
	missed := 0
	for _, g := range goals {
		if !g.Met {
			missed++
		}
	}
	switch {
	case len(goals) == 0:
		return
	case missed == 0:
		fmt.Fprintf(w, "\nAll %d targets were met.\n", len(goals))
		return
	}
	fmt.Fprintf(w, "\nMISSED: %d of %d targets\n", missed, len(goals))
	for _, g := range goals {
		if !g.Met {
			fmt.Fprintf(w, "  %s: %s\n", g.Name, g.Found)
		}
	}
}

// Warnings say what makes the figures less trustworthy than they look.
func (r Report) Warnings() (all []string) {
	if r.Machine.Load < 0 {
		all = append(all, "the load of the machine is not known")
	}
	if r.Machine.Busy() {
		all = append(all, fmt.Sprintf("the machine was busy with other work: load average %.2f on %d cores",
			r.Machine.Load, r.Machine.Cores))
	}
	var disturbed []string
	for _, row := range slices.Concat(r.Rows, r.Keyed.Rows(), r.Rules.Rows()) {
		if !row.Undisturbed {
			disturbed = append(disturbed, fmt.Sprintf("%s x%d", row.Name, row.Goroutines))
		}
	}
	if len(disturbed) > 0 {
		all = append(all, "in some round a limiter did not have a processor for each goroutine all of the time, in the rows "+
			strings.Join(disturbed, "; "))
	}
	for _, size := range r.Keyed.Sizes {
		if len(size.Skipped) > 0 {
			all = append(all, fmt.Sprintf("the machine had no memory for %s keys of %s", count(size.Keys),
				strings.Join(size.Skipped, ", ")))
		}
	}
	return all
}
