package policytest

import (
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/policy"
)

// checkNames returns mistakes for policies and rules that tests expect and the configuration does not have: a test that expects
// one of them could never pass.
func (s *suite) checkNames(set *policy.Set) error {
	policies, ruleNames := make([]string, 0, len(set.Policies)), make([]string, 0, len(set.Rules))
	for i := range set.Policies {
		policies = append(policies, set.Policies[i].Name)
	}
	for i := range set.Rules {
		ruleNames = append(ruleNames, set.Rules[i].Name)
	}
	var all []config.Mistake
	check := func(e *expectation, what, name string, known []string) {
		if slices.Contains(known, name) {
			return
		}
		fix := "it has none"
		if len(known) > 0 {
			fix = "it has " + strings.Join(known[:min(len(known), 10)], ", ")
		}
		if nearest, ok := flags.Nearest(name, known); ok {
			fix = "did you mean " + strconv.Quote(nearest) + "?"
		}
		all = append(all, config.Mistake{
			File: s.name, Line: e.place.line, Column: e.place.column, Path: e.path, Value: name,
			Message: "the configuration has no such " + what, Fix: fix,
		})
	}
	for _, t := range s.tests {
		for _, one := range t.steps {
			for i := range one.expect {
				e := &one.expect[i]
				if e.policy != "" {
					check(e, "policy", e.policy, policies)
				}
				for _, name := range e.rules {
					check(e, "rule", name, ruleNames)
				}
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &config.Errors{File: s.name, Mistakes: all}
}
