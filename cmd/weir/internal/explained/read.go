package explained

import (
	"math"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/admin"
	"github.com/weirhq/weir/policy"
)

// Explanation is the inverse of [Of], as far as [Write] needs it.
func (j *JSON) Explanation() *policy.Explanation {
	e := &policy.Explanation{
		Allowed: j.Allowed, Exempt: j.Exempt, Reason: j.Reason, RetryAfter: duration(j.RetryAfter),
		Denied: j.Denied, Paths: j.Paths, Rules: j.Rules, Binding: -1,
	}
	if j.Binding != nil {
		e.Binding = *j.Binding
	}
	for i := range j.Limits {
		l := &j.Limits[i]
		e.Limits = append(e.Limits, policy.ExplainedLimit{
			Policy: l.Policy, Limit: l.Limit, Rule: l.Rule, Tier: l.Tier, Role: l.Role, Holds: l.Holds,
			Key: admin.KeyOf(l.Key), KeyFrom: l.KeyFrom, Cost: l.Cost, Failure: l.Failure,
			Before: l.Before, After: l.After, Would: l.Would,
			Decision: weir.Decision{
				Allowed: l.Allowed, Reason: l.Reason, RetryAfter: duration(l.RetryAfter), ResetAfter: duration(l.ResetAfter),
			},
		})
	}
	return e
}

func duration(seconds float64) time.Duration {
	if seconds < 0 || seconds >= math.MaxInt64/1e9 {
		return weir.Never
	}
	return time.Duration(math.Round(seconds * 1e9))
}
