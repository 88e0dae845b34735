package rlsapi

import (
	"context"

	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/policy"
)

// quotaOf is the group of a descriptor that is a quota, nil for others, and what the configuration says of it.
func (c *call) quotaOf(i int) (*group, *ratelimitconfig.Match) {
	m := &c.matched[i]
	if m.Outcome != ratelimitconfig.Limited || !m.Limit.Quota || c.asked[i].group == &c.refunded {
		return nil, nil
	}
	return c.asked[i].group, m
}

// askQuotas asks for each quota apart. A request is refused if it is over all of its quotas; then what its other limits have
// reserved is given back. What a request takes of a quota that it is over is what is left. If c.over is set, it only looks.
func (c *call) askQuotas(ctx context.Context) error {
	if len(c.quotas) == 0 {
		return nil
	}
	if c.over {
		return c.lookAtQuotas(ctx)
	}
	err := c.takeQuotas(ctx)
	c.over = c.over || c.reached()
	if g := &c.charged; len(g.requests) > 0 {
		if err == nil && !c.over {
			g.verdict.Release()
		} else {
			g.verdict.Cancel()
			c.service.o.Limits.Engine().PeekAll(ctx, g.requests, &g.verdict)
		}
	}
	return err
}

func (c *call) takeQuotas(ctx context.Context) error {
	engine := c.service.o.Limits.Engine()
	for i := range c.matched {
		g, m := c.quotaOf(i)
		if g == nil {
			continue
		}
		hits := c.q.hitsOf(&c.q.descriptors[i])
		if g.looked = hits == 0; g.looked {
			engine.PeekAll(ctx, g.requests, &g.verdict)
		} else {
			engine.ReserveAll(ctx, g.requests, &g.verdict) // one more than the hits
			g.verdict.Commit(func(*policy.Part) int64 { return hits })
		}
		if err := failure(&g.verdict); err != nil {
			return err
		}
		if hits > 0 && !g.verdict.Allowed {
			spendOne(ctx, engine, &c.looked, m, hits)
		}
	}
	return nil
}

// lookAtQuotas asks for each quota, and charges nothing.
func (c *call) lookAtQuotas(ctx context.Context) error {
	for _, g := range c.quotas {
		g.looked = true
		c.service.o.Limits.Engine().PeekAll(ctx, g.requests, &g.verdict)
		if err := failure(&g.verdict); err != nil {
			return err
		}
	}
	c.over = c.over || c.reached()
	return nil
}

// reached reports whether the request is over all of its quotas.
func (c *call) reached() bool {
	for _, g := range c.quotas {
		if g.verdict.Allowed {
			return false
		}
	}
	return len(c.quotas) > 0 && c.passed == 0
}
