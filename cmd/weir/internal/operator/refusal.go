package operator

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/internal/inwords"
)

// Refusals are the last refusals, the last first.
type Refusals struct {
	// Refusals are those that were asked for, of those that are kept: at most 4096 of the last ones.
	Refusals []Refusal `json:"refusals"`
	// Oldest is when the oldest one that is kept was, the zero time if none is.
	Oldest time.Time `json:"oldest"`
	// Kept counts those that were noted since the start, Missed those that were not, as there were too many at a time.
	Kept   uint64 `json:"kept"`
	Missed uint64 `json:"missed"`
}

// Refusal is a request that was refused, with the numbers of that moment.
type Refusal struct {
	// ID is what the client was told in the field Weir-Refusal.
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
	// Request is the request as far as it is known, the first one if there were several.
	Protocol string `json:"protocol,omitempty"`
	Method   string `json:"method,omitempty"`
	Host     string `json:"host,omitempty"`
	Path     string `json:"path,omitempty"`
	Client   string `json:"client,omitempty"`
	// Limits are those that held for it, Binding the place of the one that binds, -1 if none does.
	Limits  []RefusedLimit `json:"limits"`
	Binding int            `json:"binding"`
	// Reason and RetryAfter are those of the verdict.
	Reason     string  `json:"reason"`
	RetryAfter float64 `json:"retry_after"`
	// DeniedBy is the name of the rule that denies the request, "" if none does, and Source where that stands.
	DeniedBy string `json:"denied_by,omitempty"`
	Source   string `json:"source,omitempty"`
	// Version is that of the configuration that was in force.
	Version uint64 `json:"version"`
}

// RefusedLimit is a limit that held for a refused request.
type RefusedLimit struct {
	Policy     string  `json:"policy"`
	Limit      string  `json:"limit"`
	Holds      string  `json:"holds"`
	Rule       string  `json:"rule,omitempty"`
	Source     string  `json:"source,omitempty"` // where the rule stands, or the policy if there is no rule
	Key        string  `json:"key"`
	Cost       int64   `json:"cost"`
	Allowed    bool    `json:"allowed"`
	Reason     string  `json:"reason"`
	Max        int64   `json:"max"` // how many permits there are at most
	Remaining  int64   `json:"remaining"`
	RetryAfter float64 `json:"retry_after"`
	ResetAfter float64 `json:"reset_after"`
	// Unasked is true if the store of the limit was not asked, as another limit has refused: what remains is not known.
	Unasked bool `json:"unasked,omitempty"`
}

// AuditEntry is a change that a caller has made, or has tried to make.
type AuditEntry struct {
	Time time.Time `json:"time"`
	// Who is the name of the token or of the certificate, or "local" if none is needed; From is the address.
	Who    string `json:"who"`
	From   string `json:"from"`
	Action string `json:"action"` // "unlock", "override", "restore", "reset", "reload", "quota-adjust", "memberremove", ...
	Policy string `json:"policy,omitempty"`
	Key    string `json:"key,omitempty"`
	Detail string `json:"detail,omitempty"` // such as "100/s, burst 200 for 10m0s"
	Reason string `json:"reason,omitempty"`
	// Result is "ok", or what was wrong.
	Result string `json:"result"`
}

// WriteRefusal writes why a request was refused, with the numbers of that moment; now tells how long ago it was.
func WriteRefusal(w io.Writer, out terminal.Output, r *Refusal, now time.Time) {
	what := RequestLine(r)
	if what != "" {
		what = ": " + what
	}
	fmt.Fprintf(w, "%s %s%s%s\n", out.Red("refused"), Time(r.Time), ago(r.Time, now), what)
	why := retryText(r.Reason, r.RetryAfter, r.Time)
	if r.DeniedBy != "" {
		where := ""
		if r.Source != "" {
			where = out.Dim(" (" + terminal.Printable(r.Source) + ")")
		}
		why = "denied by rule " + terminal.Printable(r.DeniedBy) + where + ", and it never can pass"
	}
	fmt.Fprintf(w, "  %s; refusal %s, configuration %d\n", why, terminal.Printable(r.ID), r.Version)
	for i := range r.Limits {
		writeRefusedLimit(w, out, &r.Limits[i], i == r.Binding, "  ", r.Time)
	}
}

func ago(t, now time.Time) string {
	if d := now.Sub(t); !now.IsZero() && d >= 0 {
		return " (" + inwords.Duration(d.Truncate(time.Second)) + " ago)"
	}
	return ""
}

// RequestLine is the request that was refused in words, "" if it is not known.
func RequestLine(r *Refusal) string {
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
	return terminal.Printable(strings.TrimSpace(text))
}

// LimitName is "policy/limit", or the policy alone if its limit has no name.
func LimitName(l *RefusedLimit) string {
	if l.Limit == "" {
		return terminal.Printable(l.Policy)
	}
	return terminal.Printable(l.Policy + "/" + l.Limit)
}

// DeniedBy is the rule that denies a request, in words.
func DeniedBy(r *Refusal) string { return "denied by " + terminal.Printable(r.DeniedBy) }

// writeRefusedLimit writes a limit that held for a request which was refused at a time, each line after indent.
func writeRefusedLimit(w io.Writer, out terminal.Output, l *RefusedLimit, binds bool, indent string, at time.Time) {
	mark := ""
	if binds {
		mark = out.Dim(" (decides)")
	}
	fmt.Fprintf(w, "%s%s: %s%s\n", indent, out.Bold("limit "+LimitName(l)), terminal.Printable(l.Holds), mark)
	rule := ""
	if l.Rule != "" {
		rule = ", by rule " + terminal.Printable(l.Rule)
	}
	if l.Source != "" {
		rule += out.Dim(" (" + terminal.Printable(l.Source) + ")")
	}
	key := "no key: one state for all such requests"
	if l.Key != "" {
		key = "key " + quoted(l.Key)
	}
	fmt.Fprintf(w, "%s  %s%s\n", indent, key, rule)
	if l.Unasked {
		fmt.Fprintf(w, "%s  costs %s: was not asked, as another limit refuses it\n", indent, terminal.Number(l.Cost))
		return
	}
	answer := "allows it"
	if !l.Allowed {
		answer = out.Red("refuses it") + ": " + retryText(l.Reason, l.RetryAfter, at)
	}
	back := ""
	if l.ResetAfter != 0 {
		back = ", all are back in " + in(l.ResetAfter, at)
	}
	fmt.Fprintf(w, "%s  %s of %s remaining%s; costs %s: %s\n", indent, terminal.Number(l.Remaining), terminal.Number(l.Max), back,
		terminal.Number(l.Cost), answer)
}

// Binding is the limit that binds, nil if none does.
func Binding(r *Refusal) *RefusedLimit {
	if r.Binding < 0 || r.Binding >= len(r.Limits) {
		return nil
	}
	return &r.Limits[r.Binding]
}

// writeRefusals writes a table of refusals, and of which they are.
func writeRefusals(w io.Writer, out terminal.Output, all *Refusals) {
	refusals.write(w, out, &all.Refusals)
	since := ""
	if !all.Oldest.IsZero() {
		since = ", the oldest that is kept is of " + Time(all.Oldest)
	}
	fmt.Fprintf(w, "%s\n", out.Dim(fmt.Sprintf("%s were noted since the start%s; %s were too many at a time to be noted",
		terminal.Number(all.Kept), since, terminal.Number(all.Missed))))
}

var refusals = list[Refusal]{
	none:    "none of the refusals that are kept is of these",
	head:    []string{"retry after", "reason", whenHead, "refusal", limitWord, keyWord, "request"},
	numbers: 1,
	row: func(r *Refusal) []string {
		row := []string{Seconds(r.RetryAfter), r.Reason, Time(r.Time), r.ID, "-", "-", RequestLine(r)}
		if l := Binding(r); l != nil {
			row[4], row[5] = LimitName(l), ShownKey(l.Key)
		} else if r.DeniedBy != "" {
			row[4] = DeniedBy(r)
		}
		return row
	},
}

// audit is a table of changes.
var audit = list[AuditEntry]{
	none: "nothing has been changed since the server started",
	head: []string{whenHead, "who", "from", "action", policyWord, keyWord, "detail", "result", "why"},
	row: func(a *AuditEntry) []string {
		row := []string{Time(a.Time), a.Who, a.From, a.Action, a.Policy, a.Key, a.Detail, a.Result, a.Reason}
		for i := range row {
			row[i] = cmp.Or(row[i], "-")
		}
		return row
	},
}
