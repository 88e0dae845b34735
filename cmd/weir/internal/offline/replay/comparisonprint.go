package replay

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/policy"
)

// Print writes the report for people.
func (r *comparisonReport) Print(w io.Writer, out terminal.Output) {
	p := printer{w, out}
	p.comparisonSummary(r)
	p.policyTable(r)
	p.policyTimelines(r)
	p.keyChanges(r)
	p.candidates(r)
	p.malformed(&r.replayed)
	for i, note := range r.Notes {
		if i == 0 {
			fmt.Fprintln(w)
		}
		const label = "note: "
		lines := terminal.Wrap(printable(note), len(label), max(out.Width, leastSteps))
		fmt.Fprintf(w, "%s%s\n", label, lines[len(label):])
	}
	p.incomplete(&r.replayed)
}

func (p printer) comparisonSummary(r *comparisonReport) {
	p.rowf("config", "%s", printable(r.Config))
	if r.Against != "" {
		p.rowf("against", "%s", printable(r.Against))
	}
	p.log(&r.replayed, func(func(int64) string) {})
	exempt := func(v *verdicts) string {
		text := fmt.Sprintf("%s exempt, %s without a limit", terminal.Number(v.Exempt), terminal.Number(v.Unlimited))
		if v.Denied > 0 {
			text = terminal.Number(v.Denied) + " denied by a rule, " + text
		}
		return text
	}
	if r.Against == "" {
		p.rowf("of these", "%s", exempt(r.All.Config))
		return
	}
	p.rowf("of these", "%s; against: %s", exempt(r.All.Config), exempt(r.All.Against))
}

// policyTable has a row for all requests and one for each policy that held for one.
func (p printer) policyTable(r *comparisonReport) {
	subjects := []subject{r.All}
	for _, s := range r.Policies {
		if s.Config != nil && s.Config.Requests > 0 || s.Against != nil && s.Against.Requests > 0 {
			subjects = append(subjects, s)
		}
	}
	var rows [][]string
	headers := 1
	if r.Against == "" {
		rows = append(rows, []string{"requests", "allowed", refusedName, "%", "policy"})
		for _, s := range subjects {
			v := s.Config
			rows = append(rows, []string{
				terminal.Number(v.Requests), terminal.Number(v.Allowed), terminal.Number(v.Refused), share(v), s.label(),
			})
		}
	} else {
		headers = 2
		rows = append(rows, []string{"", "", "", "against:", "", "newly", "newly", ""},
			[]string{"requests", refusedName, "%", refusedName, "%", refusedName, "allowed", "policy"})
		for _, s := range subjects {
			requests := int64(0)
			for _, v := range s.both() {
				if v != nil {
					requests = max(requests, v.Requests)
				}
			}
			rows = append(rows, []string{
				terminal.Number(requests), refusals(s.Config), share(s.Config), refusals(s.Against), share(s.Against),
				terminal.Number(s.Change.NewlyRefused), terminal.Number(s.Change.NewlyAdmitted), s.label(),
			})
		}
	}
	fmt.Fprintln(p.w)
	p.table(rows, headers)
	if silent := len(r.Policies) + 1 - len(subjects); silent > 0 {
		fmt.Fprintf(p.w, "%s applied to no request\n", terminal.Plural(silent, "more policy", "more policies"))
	}
}

func refusals(v *verdicts) string {
	if v == nil {
		return "-"
	}
	return terminal.Number(v.Refused)
}

func share(v *verdicts) string {
	if v == nil || v.Requests == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", 100*float64(v.Refused)/float64(v.Requests))
}

// label is the name, with the modes if they are not enforce.
func (s subject) label() string {
	if s.number < 0 {
		return allRequests
	}
	label := printable(s.Name)
	var modes []string
	for _, v := range s.both() {
		if v != nil {
			modes = append(modes, v.Mode.String())
		}
	}
	enforce := policy.ModeEnforce.String()
	modes = slices.Compact(modes)
	if len(modes) > 1 || modes[0] != enforce {
		label += " (" + strings.Join(modes, ", then ") + ")"
	}
	return label
}

// mostTimelines is how many policies have a chart on the terminal.
const mostTimelines = 6

// policyTimelines draws charts in no more steps than the width of the output has room for: of all requests, and of the policies
// with the most refusals. Bars of one kind have the same scale in both configurations.
func (p printer) policyTimelines(r *comparisonReport) {
	courses := r.c.courses(p.steps())
	if len(courses) == 0 {
		return
	}
	width := courses[0].width
	subjects := []subject{r.All}
	for _, s := range r.busiest(mostTimelines) {
		if s.Config != nil && s.Config.Refused > 0 || s.Against != nil && s.Against.Refused > 0 {
			subjects = append(subjects, s)
		}
	}
	if len(subjects) == 1 {
		return
	}
	fmt.Fprintf(p.w, "\n%s\n", p.out.Bold("when, in steps of "+span(width)))
	for _, s := range subjects {
		var requests []int64
		var refused [][]int64
		most := int64(0)
		for _, c := range courses {
			of, counts := c.counts(s.number)
			if requests == nil {
				requests = make([]int64, len(of))
			}
			for i, n := range of {
				requests[i] = max(requests[i], n)
			}
			refused, most = append(refused, counts), max(most, slices.Max(counts))
		}
		fmt.Fprintf(p.w, "%s  %s\n", s.label(), p.out.Dim(fmt.Sprintf("at most %s, %s refused in a step",
			plural(slices.Max(requests), "request"), terminal.Number(most))))
		p.rowf("requests", "%s", spark(requests, slices.Max(requests)))
		for i, v := range s.both()[:len(courses)] {
			if v != nil { // otherwise it has no such policy
				p.refusals([]string{refusedName, "against"}[i], refused[i], most)
			}
		}
	}
	p.timeAxis(at(courses[0].start), width, courses[0].steps)
}

// keyRow is a key in the list of those that change, or are refused, most.
type keyRow struct {
	counts [2]int64
	policy string
	key    string
}

// keyChanges lists the keys that were refused most, or if two configurations are compared those for which most changes.
func (p printer) keyChanges(r *comparisonReport) {
	var rows []keyRow
	for _, s := range r.Policies {
		name := printable(s.Name)
		if r.Against == "" {
			for _, k := range s.Config.RefusedKeys {
				rows = append(rows, keyRow{[2]int64{k.Count}, name, k.Key})
			}
			continue
		}
		for _, k := range s.Change.NewlyRefusedKeys {
			rows = append(rows, keyRow{[2]int64{k.Count, 0}, name, k.Key})
		}
		for _, k := range s.Change.NewlyAdmittedKeys {
			same := slices.IndexFunc(rows, func(row keyRow) bool { return row.policy == name && row.key == k.Key })
			if same >= 0 {
				rows[same].counts[1] = k.Count
			} else {
				rows = append(rows, keyRow{[2]int64{0, k.Count}, name, k.Key})
			}
		}
	}
	if len(rows) == 0 {
		return
	}
	slices.SortStableFunc(rows, func(a, b keyRow) int {
		return int(min(max(b.counts[0]+b.counts[1]-a.counts[0]-a.counts[1], -1), 1))
	})
	rows = rows[:min(r.top, len(rows))]
	table := [][]string{{refusedName, "policy and key"}}
	if r.Against != "" {
		table = [][]string{{"newly refused", "newly allowed", "policy and key"}}
	}
	for _, row := range rows {
		key := printable(row.key)
		if key == "" {
			key = `""`
		}
		cells := []string{terminal.Number(row.counts[0])}
		if r.Against != "" {
			cells = append(cells, terminal.Number(row.counts[1]))
		}
		table = append(table, append(cells, row.policy+"  "+key))
	}
	fmt.Fprintln(p.w)
	p.table(table, 1)
}

// candidates tells what candidates would change.
func (p printer) candidates(r *comparisonReport) {
	first := true
	for _, s := range r.Policies {
		for i, v := range s.both() {
			if v == nil || v.Difference == nil || v.Mode != policy.ModeEnforce {
				continue
			}
			if first {
				fmt.Fprintln(p.w)
				first = false
			}
			fmt.Fprintf(p.w, "the candidate of %s in %s would newly refuse %s and allow %s\n", printable(s.Name),
				printable([]string{r.Config, r.Against}[i]), plural(int64(v.Difference.NewlyRefused), "request"),
				terminal.Number(int64(v.Difference.NewlyAdmitted)))
		}
	}
}
