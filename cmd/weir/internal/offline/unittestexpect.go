package offline

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/config/yamlread"
	"github.com/weirhq/weir/internal/inwords"
)

// none is expected where no limit binds.
const none = "none"

// rules is the expectation for which a request must be explained.
const rules = "rules"

// expecting is what is read of an expectation.
type expecting struct {
	*expectation

	step *step
}

var expectTable = yamlread.NewTable(yamlread.Kind{What: "what is expected"}, []yamlread.Key[*reader, *expecting]{
	{Name: "allowed", Read: func(r *reader, v yamlread.Value, to *expecting) {
		r.howMany(v, to, func(r *result) int64 { return r.allowed })
	}},
	{Name: "refused", Read: func(r *reader, v yamlread.Value, to *expecting) {
		r.howMany(v, to, func(r *result) int64 { return r.requests - r.allowed })
	}},
	{Name: "exempt", Read: func(r *reader, v yamlread.Value, to *expecting) {
		want := r.Boolean(v)
		to.expected = strconv.FormatBool(want)
		to.check = func(r *result) (string, bool) {
			got := r.exempt == r.requests
			return strconv.FormatBool(got), got == want && (got || r.exempt == 0)
		}
	}},
	{Name: "policy", Read: (*reader).policy},
	{Name: "key", Read: func(r *reader, v yamlread.Value, to *expecting) {
		s, ok := r.Scalar(v, "the key of the limit that decides", `write "192.0.2.1", for instance`)
		if !ok {
			return
		}
		to.expected = strconv.Quote(s.Text)
		to.check = func(r *result) (string, bool) { return strconv.Quote(r.last.key), r.last.key == s.Text }
	}},
	{Name: "reason", Read: (*reader).reason},
	{Name: "retry_after", Read: (*reader).retryAfter},
	{Name: "remaining", Read: func(r *reader, v yamlread.Value, to *expecting) {
		r.permits(v, to, func(d weir.Decision) int64 { return d.Remaining })
	}},
	{Name: "limit", Read: func(r *reader, v yamlread.Value, to *expecting) {
		r.permits(v, to, func(d weir.Decision) int64 { return d.Limit })
	}},
	{Name: "over", Read: (*reader).over},
	{Name: "rule", Read: (*reader).matched},
	{Name: rules, Read: (*reader).matched},
}...)

// expectations reads what is expected of the requests of a step.
func (r *reader) expectations(v yamlread.Value, s *step) []expectation {
	o, ok := r.Object(v, expectTable.Kind)
	if !ok {
		return nil
	}
	if len(o.Keys) == 0 {
		r.Wrong(v, "expects nothing", "add allowed: true, for instance")
	}
	var all []expectation
	for _, key := range o.Keys {
		e := expectation{place: o.Fields[key], field: key}
		expectTable.Read(r, key, o.Fields[key], &expecting{&e, s})
		if e.check != nil {
			all = append(all, e)
		}
	}
	return all
}

// howMany is true for all requests of the step, false for none, or how many.
func (r *reader) howMany(v yamlread.Value, to *expecting, got func(*result) int64) {
	times := to.step.times
	want := int64(0)
	if v.IsBool() || v.IsScalar() && yamlread.BooleanMeant(v.Node.Value) != "" {
		if r.Boolean(v) {
			want = times
		}
	} else if n, ok := r.number(v, 0, times); ok {
		want = n
	} else {
		return
	}
	to.expected = of(want, times)
	to.check = func(r *result) (string, bool) { return of(got(r), r.requests), got(r) == want }
}

// of is "3 of 5".
func of(n, all int64) string { return fmt.Sprintf("%d of %d", n, all) }

// policy is that of the limit that binds the last request, with the name of the limit or without. "none" is for no limit.
func (r *reader) policy(v yamlread.Value, to *expecting) {
	want := r.text(v, "the name of a policy, or none")
	if want == "" {
		return
	}
	to.expected = want
	if want != none {
		name, _, _ := strings.Cut(want, "/")
		to.policies = []string{name}
	}
	to.check = func(r *result) (string, bool) {
		got := r.last.limit
		if got == "" {
			got = none
		}
		return got, want == got || want == r.last.policy || want == r.last.full
	}
}

// reason is that of the last request.
func (r *reader) reason(v yamlread.Value, to *expecting) {
	text := r.text(v, "a reason, such as limited")
	if text == "" {
		return
	}
	var want weir.Reason
	if want.UnmarshalText([]byte(text)) != nil {
		r.Wrong(v, "is not a reason", yamlread.Meant(text, reasons(), "accepted are "+listed(reasons())))
		return
	}
	to.expected = want.String()
	to.check = func(r *result) (string, bool) {
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
func (r *reader) retryAfter(v yamlread.Value, to *expecting) {
	want := weir.Never
	if !v.IsScalar() || v.Node.Value != "never" {
		before := r.Mistakes.Count()
		if want = r.duration(v); r.Mistakes.Count() > before {
			return
		}
	}
	to.expected = written(want)
	to.check = func(r *result) (string, bool) {
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
	return inwords.Short(time.Duration(milliseconds(d)) * time.Millisecond)
}

// milliseconds is d in milliseconds, rounded up.
func milliseconds(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// permits is a number of permits of the limit that decides.
func (r *reader) permits(v yamlread.Value, to *expecting, of func(weir.Decision) int64) {
	want, ok := r.number(v, 0, algo.MaxPermits)
	if !ok {
		return
	}
	to.expected = strconv.FormatInt(want, 10)
	to.check = func(r *result) (string, bool) {
		if r.last.limit == "" {
			return "no limit", false
		}
		got := of(r.last.decision)
		return strconv.FormatInt(got, 10), got == want
	}
}

// matched are the rules that match the last request, in their order: all of them.
func (r *reader) matched(v yamlread.Value, to *expecting) {
	want := r.names(v, "rule")
	to.field, to.rules = rules, want
	to.expected = listed(want)
	to.check = func(r *result) (string, bool) { return listed(r.matched), slices.Equal(r.matched, want) }
}

// over are the policies in mode tag that the last request is over, in their order: all of them.
func (r *reader) over(v yamlread.Value, to *expecting) {
	want := r.names(v, "policy")
	to.policies = want
	to.expected = listed(want)
	to.check = func(r *result) (string, bool) { return listed(r.last.over), slices.Equal(r.last.over, want) }
}

// names reads one name, or a list of them, which may be empty.
func (r *reader) names(v yamlread.Value, of string) []string {
	items := []yamlread.Value{v}
	if v.IsList() {
		items = items[:0]
		if len(v.Node.Content) > 0 {
			items = r.items(v, "names, each of a "+of)
		}
	}
	names := make([]string, 0, len(items))
	for _, item := range items {
		if name := r.text(item, "the name of a "+of); name != "" {
			names = append(names, name)
		}
	}
	return names
}
