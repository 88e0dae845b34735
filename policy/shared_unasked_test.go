package policy_test

import (
	"testing"
	"testing/synctest"

	"github.com/weirhq/weir/policy"
)

// TestSharedFleetTellsWhatWasNotAsked has a limit that a node decides on from memory refuse a request: the others in the store are
// not asked, and said to be so. When the store refuses, all have answered.
func TestSharedFleetTellsWhatWasNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory(t, nil)
		e := node(t, s, &policy.Set{
			Policies: []policy.Policy{
				{Name: "optimistic", Limits: one(perHour(20)), Consistency: policy.ConsistencyOptimistic},
				{Name: "leased", Limits: one(perHour(1000)), Consistency: policy.ConsistencyLeased},
				{Name: "coherent", Limits: one(perHour(30)), Consistency: policy.ConsistencyCoherent},
			},
			Rules: []policy.Rule{
				{Name: "some", Match: policy.Match{Paths: []string{"/some"}}, Limits: uses("coherent", "leased")},
				{Name: "all", Match: policy.Match{Paths: []string{"/all"}}, Limits: uses("optimistic", "leased", "coherent")},
			},
		}, nil)
		var v policy.Verdict
		ask := func(path string, want int, unasked ...bool) {
			t.Helper()
			granted := 0
			for {
				if e.Take(&policy.Request{Path: path}, &v); !v.Allowed {
					break
				}
				v.Release()
				granted++
			}
			if granted != want {
				t.Errorf("%d of %d granted", granted, want)
			}
			for i := range v.Parts {
				if p := &v.Parts[i]; p.Unasked != unasked[i] || p.Unasked && (!p.Decision.Allowed || p.Decision.Remaining != 0) {
					t.Errorf("%s: %+v", path, p)
				}
			}
		}
		ask("/all", 20, false, true, true)
		ask("/some", 10, false, false)
	})
}
