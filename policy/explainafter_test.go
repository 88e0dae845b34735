package policy_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// TestExplainedAfterIsWhatRemains: what an explanation tells to remain after the request is what remains before the next one, of
// limits that are enforced, in shadow, tagged with and candidates, whichever of them refuses, and whether it is charged afterwards.
func TestExplainedAfterIsWhatRemains(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(3, seed))
		limit := func() weir.Limit { return perHour(1 + r.Int64N(12)) }
		set := &policy.Set{Rules: []policy.Rule{
			{Name: "all", Limits: uses("a", "b", "at once", "shadow", "tag")},
			{Name: "spent", Match: policy.Match{Methods: []string{"POST"}}, Afterwards: true},
		}}
		for _, name := range []string{"a", "b", "shadow", "tag"} {
			p := policy.Policy{Name: name, Limits: []policy.Limit{{Name: "x", Limit: limit()}, {Name: "y", Limit: limit()}}}
			p.Mode = map[string]policy.Mode{"shadow": policy.ModeShadow, "tag": policy.ModeTag}[name]
			if p.Mode == policy.ModeEnforce && r.IntN(2) == 0 {
				p.Candidate = []policy.Limit{{Name: "x", Limit: limit()}, {Name: "y", Limit: limit()}}
			}
			if p.Mode == policy.ModeEnforce && r.IntN(3) == 0 {
				p.Lockout = &policy.Lockout{Refusals: 2, Within: time.Minute, For: time.Minute}
			}
			set.Policies = append(set.Policies, p)
		}
		set.Policies = append(set.Policies, policy.Policy{Name: "at once", Limits: one(weir.AtOnce(1 + r.Int64N(30)))})
		e := engine(t, set, func(o *policy.EngineOptions) { o.Clock = manualclock.New(0) })
		for step := range 8 {
			request := policy.Request{Method: []string{"GET", "GET", "POST"}[r.IntN(3)], Cost: 1 + r.Int64N(4)}
			told := e.Explain(&request)
			var v policy.Verdict
			e.Take(&request, &v)
			if v.Allowed != told.Allowed {
				t.Fatalf("seed %d, step %d: allowed %v, told %v", seed, step, v.Allowed, told.Allowed)
			}
			for i, now := range e.Explain(&request).Limits {
				if l := &told.Limits[i]; l.After != now.Before {
					t.Errorf("seed %d, step %d: %s %s/%s: %d before and %d after, but %d remain: %+v", seed, step, l.Role, l.Policy, l.Limit,
						l.Before, l.After, now.Before, told)
				}
			}
		}
		if t.Failed() {
			return
		}
	}
}
