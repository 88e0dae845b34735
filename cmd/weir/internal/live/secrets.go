package live

import (
	"maps"
	"slices"
	"strings"

	"github.com/weirhq/weir/policy"
)

// redactor puts the names of variables of the environment in the place of their values.
type redactor struct {
	values map[string]string // by value
	inside *strings.Replacer // for values that are long enough to be looked for within a text
}

// shortest is how long a value must be to be looked for within a text. A shorter one is replaced only where it is all there is:
// "1" is in every other number.
const shortest = 4

// newRedactor knows secrets, and those that were secrets before.
func newRedactor(secrets map[string]string, before *redactor) *redactor {
	r := &redactor{values: map[string]string{}}
	if before != nil {
		maps.Copy(r.values, before.values)
	}
	for name, value := range secrets {
		if value != "" {
			r.values[value] = "${" + name + "}"
		}
	}
	// Of two values that begin alike the longer one counts.
	all := slices.SortedFunc(maps.Keys(r.values), func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, value := range all {
		if len(value) >= shortest {
			pairs = append(pairs, value, r.values[value])
		}
	}
	r.inside = strings.NewReplacer(pairs...)
	return r
}

// clean is text without secrets.
func (r *redactor) clean(text string) string {
	if len(r.values) == 0 {
		return text
	}
	if name, ok := r.values[text]; ok {
		return name
	}
	return r.inside.Replace(text)
}

// Clean is text without what came from the environment.
func (l *Limits) Clean(text string) string { return l.secrets.Load().clean(text) }

// clean is an explanation without secrets.
func (l *Limits) clean(e policy.Explanation) policy.Explanation {
	secrets := l.secrets.Load()
	for i := range e.Rules {
		e.Rules[i].Condition = secrets.clean(e.Rules[i].Condition)
	}
	for i := range e.Limits {
		limit := &e.Limits[i]
		for _, text := range []*string{&limit.Holds, &limit.Key, &limit.KeyFrom, &limit.Failure, &limit.Would} {
			*text = secrets.clean(*text)
		}
	}
	return e
}
