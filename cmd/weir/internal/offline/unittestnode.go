package offline

import (
	"strings"
	"time"

	"github.com/weirhq/weir/config/yamlread"
)

// reader turns the nodes of a file into tests. It goes on after a mistake.
type reader struct{ *yamlread.Reader }

// mostAliased is how many nodes may be looked at again, as aliases lead to them.
const mostAliased = 1_000_000

// words are how a file of tests says what is wrong with its YAML.
var words = yamlread.Words{
	Found:    true,
	Single:   "is a single value",
	Mapping:  "write key: value below it",
	Unknown:  yamlread.OfKey{Message: "unknown key: {what} has no such key", Value: true},
	Twice:    yamlread.OfKey{Message: "stands here twice: first in line {first}", Path: true, Value: true},
	Merge:    "<< must be a mapping, or a list of mappings, that are merged into this one",
	MergeFix: "write <<: *name of an anchor &name",
	Empty:    "is an empty list", EmptyFix: itemFix,
	Second: "remove the line ---",
}

const itemFix = "begin each item with - in a line of its own"

// items reads a list.
func (r *reader) items(v yamlread.Value, what string) []yamlread.Value {
	items, _ := r.List(v.Itself(), "a list of "+what, itemFix)
	return items
}

// text reads a text that is not empty. A number is taken as it is written.
func (r *reader) text(v yamlread.Value, must string) string {
	s, ok := r.Scalar(v, must, "write "+must)
	if ok && s.Text == "" {
		r.Wrong(v, "is empty: must be "+must, "write "+must)
	}
	return s.Text
}

// pairs reads a mapping from texts to texts. A number is taken as it is written.
func (r *reader) pairs(v yamlread.Value, what string) map[string]string {
	o, ok := r.Mapping(v, what, "")
	if !ok {
		return nil
	}
	pairs := make(map[string]string, len(o.Keys))
	for _, key := range o.Keys {
		if s, ok := r.Scalar(o.Fields[key], "text", `write a value, "" for an empty one`); ok {
			pairs[key] = s.Text
		}
	}
	return pairs
}

// time reads when a test begins.
func (r *reader) time(v yamlread.Value) time.Time {
	const must, fix = "a time with its zone, from 1970 to 2099", "write 2026-01-01T00:00:00Z, for instance"
	s, ok := r.Scalar(v, must, fix)
	if !ok {
		return begins
	}
	t, err := time.Parse(time.RFC3339Nano, s.Text)
	if err != nil || t.Year() < 1970 || t.Year() >= 2100 {
		r.Wrong(v, "must be "+must, fix)
		return begins
	}
	return t
}

// duration reads how long to wait.
func (r *reader) duration(v yamlread.Value) time.Duration {
	const must, fix = "a duration such as 500ms, 90s, 1h30m or 30d, up to 3660d", "write 30s, for instance"
	s, ok := r.Scalar(v, must, fix)
	if !ok {
		return 0
	}
	d, ok := yamlread.ParseDuration(s.Text)
	if !ok || d > longestWait {
		r.Wrong(v, "must be "+must, fix)
		return 0
	}
	return d
}

// number reads a whole number.
func (r *reader) number(v yamlread.Value, lowest, highest int64) (int64, bool) {
	return r.Number(v, lowest, highest, "a whole number")
}

// listed is "a, b", or "none".
func listed(words []string) string {
	if len(words) == 0 {
		return none
	}
	return strings.Join(words, ", ")
}
