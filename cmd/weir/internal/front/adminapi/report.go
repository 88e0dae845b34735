package adminapi

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
)

const topKeys = 20

// report serves GET admin.ReportPath.
func (h *Handler) report(q *call) (any, *answer.Problem) {
	name := q.values.Get(inPolicy)
	if set := h.o.Limits.Engine().Set(); name == "" && len(set.Policies) == 1 {
		name = set.Policies[0].Name
	}
	if p := h.policyNamed(name); p != nil {
		return nil, p
	}
	top, err := h.o.Limits.Engine().Top(q.r.Context(), name, topKeys)
	if err != nil {
		return nil, h.failed(err)
	}
	report := operator.Report{Time: time.Now().UTC(), Top: h.keysOf(top)}
	status := h.o.Limits.Status()
	for _, one := range h.policiesOf(&status) {
		if one.Name == name {
			report.Policy = one
		}
	}
	if strings.Contains(q.r.Header.Get("Accept"), "application/json") {
		return &report, nil
	}
	write(q.w, "text/plain; charset=utf-8", []byte(reportText(&report)))
	return nil, nil
}

// reportText is a report as text: a line for each option and count, and a table of the keys.
func reportText(r *operator.Report) string {
	var text strings.Builder
	p := &r.Policy
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	line := func(name string, value any) { fmt.Fprintf(w, "%s:\t%v\n", name, value) }
	line("Policy", p.Name)
	line("Time", r.Time.Format(time.RFC3339))
	line("Mode", p.Mode)
	for _, l := range p.Limits {
		line("Limit "+l.Name, l.Holds)
	}
	for _, l := range p.Candidate {
		line("Candidate "+l.Name, l.Holds)
	}
	key := p.Key
	if key == "" {
		key = "(none)"
	}
	line("Key", key)
	if p.Lockout != "" {
		line("Lockout", p.Lockout)
	}
	line("Fail", p.Fail)
	line("Keys", fmt.Sprintf("%d of %d", p.Keys, p.MaxKeys)) // of the limit whose table is nearest to being full
	line("Queued", p.Queued)
	line("Locked", p.Locked)
	line("Overridden", p.Overridden)
	line("Granted", p.Granted)
	line("Refused", p.Refused)
	line("LockedOut", p.LockedOut)
	line("Failed", p.Failed)
	line("Unavailable", p.Unavailable)
	line("Untracked", p.Untracked)
	line("Full", p.Full)
	line("Forgiven", p.Forgiven)
	_ = w.Flush() // a Builder takes all that is written to it
	fmt.Fprintf(&text, "\nTop %d keys by pressure:\n", topKeys)
	if len(r.Top) == 0 {
		return text.String() + "(none)\n"
	}
	w = tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "Key\tLimit\tLocked\tLockedSeconds\tRemaining\tOf\tRetrySeconds\tWaiters\tRefusals\tOverride")
	for i := range r.Top {
		reportKey(w, &r.Top[i])
	}
	_ = w.Flush()
	return text.String()
}

func reportKey(w *tabwriter.Writer, k *operator.Key) {
	name := strconv.Quote(k.Key)
	if !k.Named {
		name = "(unnamed) " + k.ID
	}
	yes := func(is bool) string {
		if is {
			return "yes"
		}
		return "no"
	}
	var l operator.KeyLimit
	if len(k.Limits) > 0 {
		l = k.Limits[0]
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%.3f\t%d\t%d\t%.3f\t%d\t%d\t%s\n", name, l.Name, yes(k.LockedFor > 0), k.LockedFor,
		l.Remaining, l.Limit, l.RetryAfter, l.Waiters, l.Refused, yes(k.Override != nil))
}
