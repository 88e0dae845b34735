package fold_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirhq/weir/internal/fold"
	"github.com/weirhq/weir/policy"
)

func counted(name string, granted, newlyRefused uint64) policy.PolicyReport {
	return policy.PolicyReport{
		Name: name, Allowed: granted, Keys: 2, Difference: &policy.Difference{NewlyRefused: newlyRefused},
	}
}

// TestOthersCountWhatIsNew walks through reloads that move policies between those that stay and the others.
func TestOthersCountWhatIsNew(t *testing.T) {
	f := fold.NewReports(2, "_other")
	for _, step := range []struct {
		why      string
		policies []policy.PolicyReport
		others   int64 // how many there are
		granted  uint64
		refused  uint64
	}{
		{"none", []policy.PolicyReport{counted("a", 10, 1), counted("b", 20, 2)}, 0, 0, 0},
		{"some", []policy.PolicyReport{counted("a", 11, 1), counted("b", 20, 2), counted("c", 5, 3), counted("d", 7, 4)}, 2, 12, 7},
		{
			"they count on",
			[]policy.PolicyReport{counted("a", 12, 1), counted("b", 21, 2), counted("c", 6, 3), counted("d", 7, 5)},
			2, 13, 8,
		},
		{"a is moved to the others", []policy.PolicyReport{counted("c", 8, 3), counted("b", 21, 2), counted("d", 7, 5), counted("a", 15, 2)}, 2, 16, 9},
		{"and back, and d is gone", []policy.PolicyReport{counted("a", 17, 2), counted("b", 21, 2), counted("c", 9, 3)}, 1, 17, 9},
		{"c is gone", []policy.PolicyReport{counted("a", 17, 2), counted("b", 21, 2)}, 0, 0, 0},
		{"c begins anew", []policy.PolicyReport{counted("a", 17, 2), counted("b", 21, 2), counted("c", 1, 1)}, 1, 18, 10},
		{"and anew at once", []policy.PolicyReport{counted("a", 17, 2), counted("b", 21, 2), counted("c", 0, 0)}, 1, 18, 10},
		{"a policy with the name of the others", []policy.PolicyReport{counted("_other", 3, 0), counted("a", 18, 2)}, 1, 21, 10},
	} {
		r, policies, rules := f.Fold(func() policy.Report { return policy.Report{Policies: step.policies} })
		if policies != len(step.policies) || rules != 0 {
			t.Errorf("%s: %d policies, %d rules", step.why, policies, rules)
		}
		if step.others == 0 {
			if len(r.Policies) != 2 {
				t.Errorf("%s: %v", step.why, r.Policies)
			}
			continue
		}
		o := r.Policies[len(r.Policies)-1]
		if o.Name != "_other" || o.Keys != 2*step.others || o.Allowed != step.granted || o.Difference.NewlyRefused != step.refused {
			t.Errorf("%s: %s has %d keys, %d granted, %d newly refused; not %d, %d, %d", step.why, o.Name, o.Keys, o.Allowed,
				o.Difference.NewlyRefused, 2*step.others, step.granted, step.refused)
		}
	}
}

// TestOthersOnlyGrowContention: an older report is never folded after a newer one, which would take it for a policy that
// begins anew.
func TestOthersOnlyGrowContention(t *testing.T) {
	const each, readers = 2000, 4
	f := fold.NewReports(0, "_other")
	var counted atomic.Uint64
	read := func() policy.Report {
		return policy.Report{Rules: []policy.RuleReport{{Name: "r", Matched: counted.Add(1)}}}
	}
	var wait sync.WaitGroup
	for range readers {
		wait.Go(func() {
			var seen []uint64
			for range each {
				r, _, _ := f.Fold(read)
				seen = append(seen, r.Rules[0].Matched)
			}
			if !slices.IsSorted(seen) {
				t.Error("the counts of the others went back")
			}
		})
	}
	wait.Wait()
	if r, _, _ := f.Fold(read); r.Rules[0].Matched != each*readers+1 {
		t.Errorf("%d are counted, not %d", r.Rules[0].Matched, each*readers+1)
	}
}
