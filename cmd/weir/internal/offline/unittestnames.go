package offline

import (
	"slices"
	"strings"

	"github.com/weirhq/weir/config/yamlread"
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
	check := func(e *expectation, what, name string, known []string) {
		if slices.Contains(known, name) {
			return
		}
		fix := "it has none"
		if len(known) > 0 {
			fix = "it has " + strings.Join(known[:min(len(known), 10)], ", ")
		}
		s.file.WrongAs(e.place.Itself(), name, "the configuration has no such "+what, yamlread.Meant(name, known, fix))
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
	if errs := s.file.Errors(); errs != nil {
		return errs
	}
	return nil
}
