package rlsapi

import (
	"context"

	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/policy"
)

// configured is the configuration that is in force, nil if rules decide.
func (s *service) configured() *ratelimitconfig.Config {
	if s.o.Tree == nil {
		return nil
	}
	return s.o.Tree()
}

// prepareTree makes checks of the policies that the configuration has for the descriptors.
func (c *call) prepareTree(ctx context.Context, tree *ratelimitconfig.Config) {
	n := len(c.q.descriptors)
	for len(c.matches) < n {
		c.matches = append(c.matches, ratelimitconfig.Match{})
	}
	for len(c.named) < n {
		c.named = append(c.named, policy.Named{})
	}
	c.matched = c.matches[:n]
	for i := range c.matched {
		d := &c.q.descriptors[i]
		hits := uint64(c.q.hitsOf(d))
		tree.Match(&c.matched[i], c.q.domain, c.q.entriesOf(d), d.overriding(), hits)
	}
	ratelimitconfig.Replace(c.matched)
	for i := range c.matched {
		m, d, r := &c.matched[i], &c.q.descriptors[i], &c.descriptors[i]
		limited := m.Outcome == ratelimitconfig.Limited
		if limited && m.Limit.ShadowQuota || !limited && m.Outcome != ratelimitconfig.Unlimited && tree.Quotas() {
			c.passed++
		}
		if !limited {
			c.asked = append(c.asked, asked{})
			continue
		}
		c.shadowed = c.shadowed || m.Limit.Shadow && m.Cost > 1
		cost := m.Cost
		if m.Limit.Quota && cost > 0 {
			cost++ // see [ratelimitconfig.Limit]
		}
		attributes := r.Attributes // to be used again
		if k := &c.known[i]; k.path != "" {
			clear(attributes)
			*k = known{}
		}
		name(ctx, r, &c.named[i], c.q.domain, m, cost)
		r.Attributes = attributes
		c.asked = append(c.asked, c.groupOf(d, m).add(r))
	}
}

// name makes r a request for permits of the policy of a descriptor. n is its memory. Protocol and host are for lists of refusals.
func name(ctx context.Context, r *policy.Request, n *policy.Named, domain string, m *ratelimitconfig.Match, cost int64) {
	*n = policy.Named{Policy: m.Limit.PolicyBytes, Key: m.Key, Cost: cost}
	if m.Overrides {
		n.Limit = m.Brought
	}
	*r = policy.Request{Named: n, Protocol: protocol, Host: domain, Context: ctx}
}

// groupOf is the group that a descriptor belongs to.
func (c *call) groupOf(d *descriptor, m *ratelimitconfig.Match) *group {
	switch {
	case d.negative && c.q.hitsOf(d) > 0:
		return &c.refunded
	case m.Limit.Quota:
		return c.newQuota()
	}
	return &c.charged
}

// overriding is the limit that a descriptor brings.
func (d *descriptor) overriding() ratelimitconfig.Override {
	if !d.override {
		return ratelimitconfig.Override{}
	}
	return ratelimitconfig.Override{RequestsPerUnit: d.requests, Unit: unitsOfOverrides[d.unit], UnitMultiplier: d.multiplier}
}

// unitsOfOverrides are the units of type.v3.RateLimitUnit.
var unitsOfOverrides = [maxUnit + 1]ratelimitconfig.Unit{
	ratelimitconfig.UnitUnknown, ratelimitconfig.Second, ratelimitconfig.Minute, ratelimitconfig.Hour, ratelimitconfig.Day,
	ratelimitconfig.Month, ratelimitconfig.Year,
}

// unitsTold are the units of a status for those of the configuration.
var unitsTold = [...]int32{
	ratelimitconfig.UnitUnknown: unitUnknown, ratelimitconfig.Second: unitSecond, ratelimitconfig.Minute: unitMinute,
	ratelimitconfig.Hour: unitHour, ratelimitconfig.Day: unitDay, ratelimitconfig.Week: unitWeek,
	ratelimitconfig.Month: unitMonth, ratelimitconfig.Year: unitYear,
}

// tellMatch tells what the configuration says of a limit. Looked says that nothing was taken of it.
func (c *call) tellMatch(ctx context.Context, m *ratelimitconfig.Match, looked bool, t *told) {
	switch m.Outcome {
	case ratelimitconfig.Unlimited:
		t.unlimited = true
		return
	case ratelimitconfig.Limited:
	case ratelimitconfig.None, ratelimitconfig.Replaced:
		return
	}
	t.limit = currentLimit{
		requests: int64(m.Limit.RequestsPerUnit), unit: unitsTold[m.Limit.Unit],
		multiplier: max(int64(m.Limit.UnitMultiplier), 1), name: m.Limit.Name,
	}
	if m.Limit.Shadow {
		c.tellShadow(ctx, m, t)
	}
	switch {
	case m.Limit.RequestsPerUnit == 0, t.over:
		t.remaining = 0 // what is there is too little, or counted as if it were one more
	case m.Limit.Quota && looked:
		t.remaining-- // otherwise it was asked for
	}
}

// tellShadow sets what remains of a limit that is not enforced.
func (c *call) tellShadow(ctx context.Context, m *ratelimitconfig.Match, t *told) {
	if l := explained(c.service.o.Limits.Engine(), checkOf(ctx, m, 0)); l != nil {
		t.limited, t.remaining, t.reset = true, l.Decision.Remaining, c.service.resetOf(l.Applied, &l.Decision)
	}
}
