package policy_test

import (
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// TestStoreThatWasAskedAndFailedIsNotToldToBeUnasked: a limit that is let pass as the store has failed has been asked for, whatever
// the request costs, and also if another limit refuses.
func TestStoreThatWasAskedAndFailedIsNotToldToBeUnasked(t *testing.T) {
	clock := manualclock.New(1)
	o := newOwner(t, clock)
	policies := durably(
		policy.Policy{Name: "open", Limits: one(perHour(4)), Fail: policy.FailOpen}, policy.Policy{Name: "closed", Limits: one(perHour(9))},
	)
	e := ownedBy(t, o, nil, clock, &policy.Set{
		Policies: policies, Rules: []policy.Rule{{Name: "all", Limits: uses("open", "closed")}},
	})
	o.fail = func() error { return store.ErrUnavailable }
	for cost := int64(1); cost <= 4; cost++ {
		var v policy.Verdict
		if e.Take(&policy.Request{Cost: cost}, &v); v.Allowed || v.Decision().Reason != weir.ReasonUnavailable {
			t.Fatalf("%+v", v.Decision())
		}
		if p := v.Parts[0]; p.Unasked || p.Decision.Remaining != 4 {
			t.Errorf("cost %d: %+v, not asked: %v", cost, p.Decision, p.Unasked)
		}
	}
}
