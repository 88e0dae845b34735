package admintext

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/admin"
	"github.com/weirhq/weir/cmd/weir/internal/table"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/internal/inwords"
)

// Refusal writes why a request was refused, with the numbers of that moment; now tells how long ago it was.
func Refusal(w io.Writer, out terminal.Output, r *admin.Refusal, now time.Time) {
	what := Request(r)
	if what != "" {
		what = ": " + what
	}
	fmt.Fprintf(w, "%s %s%s%s\n", out.Red("refused"), table.Time(r.Time), ago(r.Time, now), what)
	why := retry(r.Reason, r.RetryAfter, r.Time)
	if r.DeniedBy != "" {
		where := ""
		if r.Source != "" {
			where = out.Dim(" (" + table.Printable(r.Source) + ")")
		}
		why = "denied by rule " + table.Printable(r.DeniedBy) + where + ", and it never can pass"
	}
	fmt.Fprintf(w, "  %s; refusal %s, configuration %d\n", why, table.Printable(r.ID), r.Version)
	for i := range r.Limits {
		RefusedLimit(w, out, &r.Limits[i], i == r.Binding, "  ", r.Time)
	}
}

func ago(t, now time.Time) string {
	if d := now.Sub(t); !now.IsZero() && d >= 0 {
		return " (" + inwords.Duration(d.Truncate(time.Second)) + " ago)"
	}
	return ""
}

// Request is the request that was refused in words, "" if it is not known.
func Request(r *admin.Refusal) string {
	text := r.Method
	if at := r.Host + r.Path; at != "" {
		text += " " + at
	}
	if r.Client != "" {
		text += " from " + r.Client
	}
	if r.Protocol != "" {
		text += " by " + r.Protocol
	}
	return table.Printable(strings.TrimSpace(text))
}

// LimitName is "policy/limit", or the policy alone if its limit has no name.
func LimitName(l *admin.RefusedLimit) string {
	if l.Limit == "" {
		return table.Printable(l.Policy)
	}
	return table.Printable(l.Policy + "/" + l.Limit)
}

// DeniedBy is the rule that denies a request, in words.
func DeniedBy(r *admin.Refusal) string { return "denied by " + table.Printable(r.DeniedBy) }

// RefusedLimit writes a limit that held for a request which was refused at a time, each line after indent.
func RefusedLimit(w io.Writer, out terminal.Output, l *admin.RefusedLimit, binds bool, indent string, at time.Time) {
	mark := ""
	if binds {
		mark = out.Dim(" (decides)")
	}
	fmt.Fprintf(w, "%s%s: %s%s\n", indent, out.Bold("limit "+LimitName(l)), table.Printable(l.Holds), mark)
	rule := ""
	if l.Rule != "" {
		rule = ", by rule " + table.Printable(l.Rule)
	}
	if l.Source != "" {
		rule += out.Dim(" (" + table.Printable(l.Source) + ")")
	}
	key := "one state for all requests"
	if l.Key != "" {
		key = "key " + quoted(l.Key)
	}
	fmt.Fprintf(w, "%s  %s%s\n", indent, key, rule)
	answer := "allows it"
	if !l.Allowed {
		answer = out.Red("refuses it") + ": " + retry(l.Reason, l.RetryAfter, at)
	}
	back := ""
	if l.ResetAfter != 0 {
		back = ", all are back in " + in(l.ResetAfter, at)
	}
	fmt.Fprintf(w, "%s  %s of %s remaining%s; costs %s: %s\n", indent, table.Number(l.Remaining), table.Number(l.Max), back,
		table.Number(l.Cost), answer)
}

// Binding is the limit that binds, nil if none does.
func Binding(r *admin.Refusal) *admin.RefusedLimit {
	if r.Binding < 0 || r.Binding >= len(r.Limits) {
		return nil
	}
	return &r.Limits[r.Binding]
}

// Refusals writes a table of refusals, and of which they are.
func Refusals(w io.Writer, out terminal.Output, all *admin.Refusals) {
	if len(all.Refusals) == 0 {
		fmt.Fprintln(w, "none of the refusals that are kept is of these")
	} else {
		rows := make([][]string, 0, 1+len(all.Refusals))
		rows = append(rows, []string{"retry after", "when", "refusal", "limit", keyHead, "request"})
		for i := range all.Refusals {
			r := &all.Refusals[i]
			row := []string{table.Seconds(r.RetryAfter), table.Time(r.Time), r.ID, "-", "-", Request(r)}
			if l := Binding(r); l != nil {
				row[3], row[4] = LimitName(l), table.Key(l.Key)
			} else if r.DeniedBy != "" {
				row[3] = DeniedBy(r)
			}
			rows = append(rows, row)
		}
		table.Write(w, out, rows, 1)
	}
	since := ""
	if !all.Oldest.IsZero() {
		since = ", the oldest that is kept is of " + table.Time(all.Oldest)
	}
	fmt.Fprintf(w, "%s\n", out.Dim(fmt.Sprintf("%s were noted since the start%s; %s were too many at a time to be noted",
		table.Number(all.Kept), since, table.Number(all.Missed))))
}

// Audit writes a table of changes.
func Audit(w io.Writer, out terminal.Output, all []admin.AuditEntry) {
	if len(all) == 0 {
		fmt.Fprintln(w, "nothing has been changed since the server started")
		return
	}
	rows := [][]string{{"when", "who", "from", "action", policyHead, keyHead, "detail", "result", "why"}}
	for i := range all {
		a := &all[i]
		row := []string{table.Time(a.Time), a.Who, a.From, a.Action, a.Policy, a.Key, a.Detail, a.Result, a.Reason}
		for i := range row {
			if row[i] == "" {
				row[i] = "-"
			}
		}
		rows = append(rows, row)
	}
	table.Write(w, out, rows, 0)
}
