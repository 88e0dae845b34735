package policytest

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// none is expected where no limit binds.
const none = "none"

// rules is the expectation for which a request must be explained.
const rules = "rules"

var expectKeys = []string{
	"allowed", "refused", "exempt", "policy", "key", "reason", "retry_after", "remaining", "limit", "rule", rules,
}

// expectations reads what is expected of the requests of a step.
func (r *reader) expectations(f field, s *step) []expectation {
	fields, ok := r.fields(f.value, f.path, "what is expected", expectKeys)
	if !ok {
		return nil
	}
	if len(fields) == 0 {
		r.wrong(f.value, f.path, "expects nothing", "add allowed: true, for instance")
	}
	var all []expectation
	for _, f := range fields {
		e := expectation{place: place{f.value.Line, f.value.Column}, field: f.key.Value, path: f.path}
		switch f.key.Value {
		case "allowed":
			r.allowed(f, s, &e)
		case "refused":
			r.howMany(f, s, &e, func(r *result) int64 { return r.requests - r.allowed })
		case "exempt":
			r.isExempt(f, &e)
		case "policy":
			r.policy(f, &e)
		case "key":
			r.key(f, &e)
		case "reason":
			r.reason(f, &e)
		case "retry_after":
			r.retryAfter(f, &e)
		case "remaining":
			r.permits(f, &e, func(d weir.Decision) int64 { return d.Remaining })
		case "limit":
			r.permits(f, &e, func(d weir.Decision) int64 { return d.Limit })
		case "rule", rules:
			r.matched(f, &e)
		}
		if e.check != nil {
			all = append(all, e)
		}
	}
	return all
}

// allowed is true for all, false for none, or how many.
func (r *reader) allowed(f field, s *step, e *expectation) {
	if f.value.Kind == yaml.ScalarNode && f.value.ShortTag() == "!!bool" {
		want := int64(0)
		if r.boolean(f) {
			want = s.times
		}
		r.exactly(want, s, e, func(r *result) int64 { return r.allowed })
		return
	}
	r.howMany(f, s, e, func(r *result) int64 { return r.allowed })
}

// howMany is a number of the requests of the step.
func (r *reader) howMany(f field, s *step, e *expectation, got func(*result) int64) {
	if f.value.Kind == yaml.ScalarNode && f.value.ShortTag() == "!!bool" {
		want := int64(0)
		if r.boolean(f) {
			want = s.times
		}
		r.exactly(want, s, e, got)
		return
	}
	if want, ok := r.number(f, 0, s.times); ok {
		r.exactly(want, s, e, got)
	}
}

func (r *reader) exactly(want int64, s *step, e *expectation, got func(*result) int64) {
	e.expected = of(want, s.times)
	e.check = func(r *result) (string, bool) { return of(got(r), r.requests), got(r) == want }
}

func (r *reader) isExempt(f field, e *expectation) {
	want := r.boolean(f)
	e.expected = strconv.FormatBool(want)
	e.check = func(r *result) (string, bool) {
		got := r.exempt == r.requests
		return strconv.FormatBool(got), got == want && (got || r.exempt == 0)
	}
}

// policy is that of the limit that binds the last request, with the name of the limit or without. "none" is for no limit.
func (r *reader) policy(f field, e *expectation) {
	want, ok := r.text(f, "the name of a policy, or none")
	if !ok {
		return
	}
	e.expected = want
	if want != none {
		e.policy, _, _ = strings.Cut(want, "/")
	}
	e.check = func(r *result) (string, bool) {
		got := r.last.limit
		if got == "" {
			got = none
		}
		return got, want == got || want == r.last.policy || want == r.last.full && want != ""
	}
}

func (r *reader) key(f field, e *expectation) {
	if f.value.Kind != yaml.ScalarNode || isNull(f.value) {
		r.wrong(f.value, f.path, kind(f.value)+": must be the key of the limit that decides", `write "192.0.2.1", for instance`)
		return
	}
	want := f.value.Value
	e.expected = strconv.Quote(want)
	e.check = func(r *result) (string, bool) { return strconv.Quote(r.last.key), r.last.key == want }
}

// reason is that of the last request.
func (r *reader) reason(f field, e *expectation) {
	text, ok := r.text(f, "a reason, such as limited")
	if !ok {
		return
	}
	var want weir.Reason
	if want.UnmarshalText([]byte(text)) != nil {
		names := reasons()
		fix := "accepted are " + listed(names)
		if nearest, ok := flags.Nearest(text, names); ok {
			fix = "did you mean " + strconv.Quote(nearest) + "?"
		}
		r.wrong(f.value, f.path, "is not a reason", fix)
		return
	}
	e.expected = want.String()
	e.check = func(r *result) (string, bool) {
		got := r.last.decision.Reason
		return got.String(), got == want
	}
}

// reasons are the names of all reasons.
func reasons() []string {
	var names []string
	for reason := weir.ReasonNone; ; reason++ {
		name := reason.String()
		if new(weir.Reason).UnmarshalText([]byte(name)) != nil {
			return names
		}
		names = append(names, name)
	}
}

// retryAfter is that of the last request, rounded up to milliseconds, or never.
func (r *reader) retryAfter(f field, e *expectation) {
	want := weir.Never
	if f.value.Kind != yaml.ScalarNode || f.value.Value != "never" {
		before := len(r.mistakes)
		if want = r.duration(f); len(r.mistakes) > before {
			return
		}
	}
	e.expected = written(want)
	e.check = func(r *result) (string, bool) {
		got := r.last.decision.RetryAfter
		same := got == want || got != weir.Never && want != weir.Never && milliseconds(got) == milliseconds(want)
		return written(got), same
	}
}

// written is d as a file has it, in milliseconds, rounded up.
func written(d time.Duration) string {
	if d == weir.Never {
		return "never"
	}
	return flags.Short(time.Duration(milliseconds(d)) * time.Millisecond)
}

// milliseconds is d in milliseconds, rounded up.
func milliseconds(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

func (r *reader) permits(f field, e *expectation, of func(weir.Decision) int64) {
	want, ok := r.number(f, 0, algo.MaxPermits)
	if !ok {
		return
	}
	e.expected = count(want)
	e.check = func(r *result) (string, bool) {
		if r.last.limit == "" {
			return "no limit", false
		}
		got := of(r.last.decision)
		return count(got), got == want
	}
}

// matched are the rules that match the last request, in their order: all of them.
func (r *reader) matched(f field, e *expectation) {
	want := []string{}
	nodes := []*yaml.Node{f.value}
	if f.value.Kind == yaml.SequenceNode {
		nodes = f.value.Content
	}
	for _, n := range nodes {
		n = resolve(n)
		if name, ok := r.text(field{f.key, n, f.path}, "the name of a rule"); ok {
			want = append(want, name)
		}
	}
	e.field, e.rules = rules, want
	e.expected = listed(want)
	e.check = func(r *result) (string, bool) { return listed(r.matched), slices.Equal(r.matched, want) }
}
