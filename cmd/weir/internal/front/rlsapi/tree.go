package rlsapi

import (
	"context"

	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
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
	c.matched = c.matches[:n]
	for i := range c.matched {
		d := &c.q.descriptors[i]
		hits := uint64(c.q.hitsOf(d))
		tree.Match(&c.matched[i], c.q.domain, c.q.entriesOf(d), d.overriding(), hits)
	}
	ratelimitconfig.Replace(c.matched)
	for i := range c.matched {
		m, d, r := &c.matched[i], &c.q.descriptors[i], &c.descriptors[i]
		if m.Outcome != ratelimitconfig.Limited {
			c.asked = append(c.asked, asked{})
			continue
		}
		attributes := r.Attributes // to be used again
		live.CheckRequest(ctx, r, m.Limit.PolicyBytes, m.Key, m.Cost)
		r.Attributes = attributes
		if m.Overrides {
			live.BringLimit(r, m.Brought)
		}
		c.asked = append(c.asked, c.groupOf(d, m).add(r))
	}
}

// groupOf is the group that a descriptor belongs to.
func (c *call) groupOf(d *descriptor, m *ratelimitconfig.Match) *group {
	switch {
	case d.negative && c.q.hitsOf(d) > 0:
		return &c.refunded
	case m.Limit.Quota:
		return &c.apart
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
var unitsOfOverrides = [mostUnit + 1]ratelimitconfig.Unit{
	ratelimitconfig.UnitUnknown, ratelimitconfig.Second, ratelimitconfig.Minute, ratelimitconfig.Hour, ratelimitconfig.Day,
	ratelimitconfig.Month, ratelimitconfig.Year,
}

// unitsTold are the units of a status for those of the configuration.
var unitsTold = [...]int32{
	ratelimitconfig.UnitUnknown: unitUnknown, ratelimitconfig.Second: unitSecond, ratelimitconfig.Minute: unitMinute,
	ratelimitconfig.Hour: unitHour, ratelimitconfig.Day: unitDay, ratelimitconfig.Week: unitWeek,
	ratelimitconfig.Month: unitMonth, ratelimitconfig.Year: unitYear,
}

// tellMatch tells what the configuration says of a limit.
func (c *call) tellMatch(ctx context.Context, m *ratelimitconfig.Match, t *told) {
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
	if m.Limit.RequestsPerUnit == 0 {
		t.remaining = 0 // it is counted as if there were one
	}
	if m.Limit.Shadow && !m.Overrides {
		c.tellShadow(ctx, m, t)
	}
}

// tellShadow tells what is left of a limit that refuses nobody.
func (c *call) tellShadow(ctx context.Context, m *ratelimitconfig.Match, t *told) {
	v := &c.looked
	if !c.service.o.Limits.Engine().PeekKey(ctx, m.Limit.Policy, string(m.Key), 0, v) || len(v.Parts) == 0 {
		return
	}
	d := v.Decision()
	t.limited, t.remaining, t.reset = true, d.Remaining, d.ResetAfter
}
