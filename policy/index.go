package policy

import (
	"errors"
)

// index finds the rules whose Match holds for a request. It does not change.
type index struct {
	matchers []matcher // by the number of the rule
}

// newIndex answers the index of rules, or all that is wrong with their Match.
func newIndex(rules []Rule) (*index, error) {
	x := &index{matchers: make([]matcher, len(rules))}
	var errs []error
	for i := range rules {
		var wrong []error
		x.matchers[i], wrong = newMatcher(&rules[i])
		errs = append(errs, wrong...)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return x, nil
}

// match appends the numbers of the rules whose Match holds for r to found, in ascending order.
func (x *index) match(r *Request, found []int32) []int32 {
	for i := range x.matchers {
		if x.matchers[i].holds(r, 0) {
			found = append(found, int32(i))
		}
	}
	return found
}

// bind makes r.PathValue answer the wildcards of the first pattern of the rule that the path of r matches.
func (x *index) bind(r *Request, rule int32) {
	for _, p := range x.matchers[rule].paths {
		if p.matches(r.matchPath()) {
			r.bind(p)
			return
		}
	}
	r.bind(nil)
}
