package operator

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/policy"
)

// Described is a request to be explained. All but the path may be missing.
type Described struct {
	Protocol   string              `json:"protocol,omitempty"`
	Method     string              `json:"method,omitempty"`
	Host       string              `json:"host,omitempty"`
	Path       string              `json:"path"`
	Query      string              `json:"query,omitempty"`
	Route      string              `json:"route,omitempty"`
	Headers    map[string][]string `json:"headers,omitempty"`
	Client     string              `json:"client,omitempty"`
	Attributes map[string]string   `json:"attributes,omitempty"`
	// Cost is the number of permits where the configuration does not say so. Default: 1.
	Cost int64 `json:"cost,omitempty"`
}

// ExplanationJSON is an explanation with all durations in seconds: -1 stands for never.
type ExplanationJSON struct {
	Allowed    bool                   `json:"allowed"`
	Exempt     bool                   `json:"exempt"`
	Reason     weir.Reason            `json:"reason"`
	RetryAfter float64                `json:"retry_after"`
	Binding    *int                   `json:"binding"`
	Denied     string                 `json:"denied,omitempty"`
	Paths      []string               `json:"paths,omitempty"`
	Rules      []policy.ExplainedRule `json:"rules"`
	Limits     []ExplainedLimitJSON   `json:"limits"`
}

// ExplainedLimitJSON is a limit as seen by one request: see [policy.ExplainedLimit].
type ExplainedLimitJSON struct {
	Policy     string      `json:"policy"`
	Limit      string      `json:"limit"`
	Rule       string      `json:"rule"`
	Tier       string      `json:"tier,omitempty"`
	Role       string      `json:"role"`
	Holds      string      `json:"holds"`
	Key        string      `json:"key"` // as the admin API spells it
	KeyFrom    string      `json:"key_from,omitempty"`
	Cost       int64       `json:"cost"`
	Failure    string      `json:"failure,omitempty"`
	Before     int64       `json:"before"`
	After      int64       `json:"after"`
	Allowed    bool        `json:"allowed"`
	Reason     weir.Reason `json:"reason"`
	RetryAfter float64     `json:"retry_after"`
	ResetAfter float64     `json:"reset_after"`
	Would      string      `json:"would"`
}

// ExplanationOf returns the form of e for JSON.
func ExplanationOf(e *policy.Explanation) *ExplanationJSON {
	j := &ExplanationJSON{
		Allowed: e.Allowed, Exempt: e.Exempt, Reason: e.Reason, RetryAfter: SecondsOf(e.RetryAfter),
		Denied: e.Denied, Paths: e.Paths, Rules: e.Rules, Limits: []ExplainedLimitJSON{},
	}
	if j.Rules == nil {
		j.Rules = []policy.ExplainedRule{}
	}
	if e.Binding >= 0 {
		j.Binding = &e.Binding
	}
	for i := range e.Limits {
		l := &e.Limits[i]
		j.Limits = append(j.Limits, ExplainedLimitJSON{
			l.Policy, l.Limit, l.Rule, l.Tier, l.Role, l.Holds, SpellKey(l.Key), l.KeyFrom, l.Cost, l.Failure,
			l.Before, l.After,
			l.Decision.Allowed, l.Decision.Reason, SecondsOf(l.Decision.RetryAfter), SecondsOf(l.Decision.ResetAfter), l.Would,
		})
	}
	return j
}

// SecondsOf is a duration as the API tells it: -1 for never.
func SecondsOf(d time.Duration) float64 {
	if d == weir.Never {
		return -1
	}
	return d.Seconds()
}

// WriteExplanation writes what is decided and why: the rules that match, the limits with their states, and with all the rules
// that do not match as well. Each line begins with indent. now is the time of the explanation, zero if it is not known.
func WriteExplanation(w io.Writer, out terminal.Output, e *ExplanationJSON, indent string, all bool, now time.Time) {
	p := explanationWriter{w, out, indent, now}
	p.linef("%s", p.verdict(e))
	p.paths(e)
	p.rules(e, all)
	for i := range e.Limits {
		p.limit(&e.Limits[i], e.Binding != nil && i == *e.Binding)
	}
}

type explanationWriter struct {
	w      io.Writer
	out    terminal.Output
	indent string
	now    time.Time
}

func (p explanationWriter) linef(format string, args ...any) {
	fmt.Fprintf(p.w, "%s%s\n", p.indent, fmt.Sprintf(format, args...))
}

func (p explanationWriter) verdict(e *ExplanationJSON) string {
	switch {
	case e.Denied != "":
		return p.out.Red("denied") + " by rule " + escaped(e.Denied) + ": it never can pass"
	case e.Exempt:
		return p.out.Bold("exempt") + ": a rule exempts it from all limits"
	case e.Allowed && len(e.Limits) == 0:
		return p.out.Bold("allowed") + ": no limit applies to it"
	case e.Allowed:
		return p.out.Bold("allowed") + boundBy(e)
	default:
		return p.out.Red("refused") + boundBy(e) + ": " + p.refusal(e.Reason, e.RetryAfter)
	}
}

// paths tells the ways to read the path, if there are several.
func (p explanationWriter) paths(e *ExplanationJSON) {
	if len(e.Paths) == 0 {
		return
	}
	paths := make([]string, len(e.Paths))
	for i, path := range e.Paths {
		paths[i] = escaped(path)
	}
	p.linef("servers read the path in %d ways, all of which count: %s", len(paths), strings.Join(paths, ", "))
}

func boundBy(e *ExplanationJSON) string {
	if e.Binding == nil || *e.Binding < 0 || *e.Binding >= len(e.Limits) {
		return ""
	}
	return ", bound by " + explainedName(&e.Limits[*e.Binding])
}

func (p explanationWriter) refusal(reason weir.Reason, retry float64) string {
	text := reason.String() + ", "
	switch {
	case retry < 0:
		return text + "and it never can pass"
	case retry == 0:
		return text + "and when it can pass is not known"
	default:
		return text + "retry after " + in(retry, p.now)
	}
}

func (p explanationWriter) rules(e *ExplanationJSON, all bool) {
	others := 0
	for _, r := range e.Rules {
		where := ""
		if r.Source != "" {
			where = p.out.Dim(" (" + r.Source + ")")
		}
		switch {
		case r.Matched:
			p.linef("rule %s%s: matches%s", escaped(r.Name), where, explainedEffect(&r))
		case all:
			p.linef("rule %s%s: no match: %s", escaped(r.Name), where, escaped(r.Condition))
		default:
			others++
		}
	}
	if others > 0 {
		p.linef("%s not match", terminal.Plural(others, "other rule does", "other rules do"))
	}
}

// explainedEffect is what a rule does that matches, beside applying limits.
func explainedEffect(r *policy.ExplainedRule) string {
	switch {
	case r.Deny && r.Shadow:
		return ", and would deny it, but is in shadow"
	case r.Deny:
		return ", and denies it"
	case r.Afterwards:
		return ", and is charged afterwards"
	}
	return ""
}

// explainedName is "policy/limit", or the policy alone if its limit has no name.
func explainedName(l *ExplainedLimitJSON) string {
	if l.Limit == "" {
		return escaped(l.Policy)
	}
	return escaped(l.Policy) + "/" + escaped(l.Limit)
}

func (p explanationWriter) limit(l *ExplainedLimitJSON, binds bool) {
	text := fmt.Sprintf("limit %s: %s", p.out.Bold(explainedName(l)), l.Holds)
	if l.Role != "" && l.Role != "enforce" {
		text += ", " + l.Role
	}
	if l.Tier != "" {
		text += ", tier " + escaped(l.Tier)
	}
	if binds {
		text += p.out.Dim(" (decides)")
	}
	p.linef("%s", text)
	inner := explanationWriter{p.w, p.out, p.indent + "  ", p.now}
	from := ""
	if l.KeyFrom != "" {
		from = " from " + escaped(l.KeyFrom)
	}
	if l.KeyFrom == "" && l.Key == "" {
		inner.linef("one state for all requests, by rule %s", escaped(l.Rule))
	} else {
		inner.linef("key %s%s, by rule %s", explainedKey(l.Key), from, escaped(l.Rule))
	}
	if l.Failure != "" {
		inner.linef("%s", p.out.Red("cannot be evaluated: "+escaped(l.Failure)))
	}
	answer := "allows it"
	if !l.Allowed {
		answer = p.out.Red("refuses it") + ": " + p.refusal(l.Reason, l.RetryAfter)
	}
	inner.linef("%d remaining before, %d after; costs %d: %s", l.Before, l.After, l.Cost, answer)
	if l.Would != "" {
		inner.linef("would allow: %s", escaped(l.Would))
	}
}

// explainedKey is a key in quotes, as it can be named, or with escapes if there are quotes in it.
func explainedKey(spelled string) string {
	if !strings.Contains(spelled, `"`) {
		return `"` + spelled + `"`
	}
	return strconv.Quote(KeyOf(spelled))
}

// escaped is s with escapes for what does not print.
func escaped(s string) string {
	for _, r := range s {
		if !strconv.IsPrint(r) {
			quoted := strconv.Quote(s)
			return quoted[1 : len(quoted)-1]
		}
	}
	return s
}
