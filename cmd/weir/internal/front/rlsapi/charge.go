package rlsapi

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/policy"
)

// refund gives back the hits of descriptors that say so, unless the request is over a limit. It looks at them in any case.
func (c *call) refund(ctx context.Context) error {
	g := &c.refunded
	if len(g.requests) == 0 {
		return nil
	}
	engine := c.service.o.Limits.Engine()
	engine.PeekAll(ctx, g.requests, &g.verdict)
	if c.over {
		return nil
	}
	v := &g.verdict
	for i := range v.Parts {
		p := &v.Parts[i]
		if p.Policy.Consistency.Shared() || p.Policy.Durability != policy.DurabilityMemory {
			return status.Errorf(codes.Unimplemented,
				"weir: is_negative_hits: policy %q is not of one process: nothing can be given back", p.Policy.Name)
		}
	}
	for i := range v.Parts {
		p := &v.Parts[i]
		if l := engine.Limiter(p.Policy.Name, p.Policy.Limits[p.Limit].Name); l != nil {
			l.Refund(string(p.Key), p.Cost)
		}
	}
	engine.PeekAll(ctx, g.requests, v)
	return nil
}

// report charges what a request has cost, whether there is so much or not. Its answer is that it was charged.
func (c *call) report(ctx context.Context) error {
	c.reported = true
	if len(c.apart.requests) > 0 {
		c.ask(ctx, &c.apart)
	}
	g := &c.charged
	if err := c.refund(ctx); err != nil || len(g.requests) == 0 {
		return err
	}
	c.ask(ctx, g)
	v := &g.verdict
	if err := failure(v); err != nil || v.Allowed {
		return err
	}
	if v.Decision().Reason == weir.ReasonUnavailable {
		return status.Error(codes.Unavailable, "weir: the limits cannot be charged at the moment")
	}
	c.charging = c.charging[:0]
	for i := range c.asked {
		if c.asked[i].group == g {
			c.charging = append(c.charging, i)
		}
	}
	c.beyond(ctx, func(_ *policy.Part, cost int64) int64 { return cost })
	return nil
}

// drain takes what is left for descriptors with hits of their own that were refused, as envoyproxy/ratelimit counts those
// who are refused as well. By such hits a proxy tells the cost of a request when it has been served: if nothing were taken,
// whoever spends more than what is left each time would never be refused.
func (c *call) drain(ctx context.Context) {
	c.charging = c.charging[:0]
	v := &c.charged.verdict
	for i, a := range c.asked {
		m, d := c.matchOf(i), &c.q.descriptors[i]
		if a.group != &c.charged || m == nil || !d.own || d.hits < 2 || m.Limit.RequestsPerUnit == 0 {
			continue
		}
		if answer, _ := v.Answer(a.place); answer.Reason == weir.ReasonLimited || answer.Reason == weir.ReasonNever {
			c.charging = append(c.charging, i)
		}
	}
	if len(c.charging) > 0 {
		c.beyond(ctx, func(p *policy.Part, cost int64) int64 { return min(cost, p.Decision.Remaining+1) })
	}
}

// beyond charges descriptors that were refused, namely those of c.charging: of each a permit is reserved, which costs in the
// end what costs says. Where nothing is left, nothing is charged.
func (c *call) beyond(ctx context.Context, costs func(p *policy.Part, cost int64) int64) {
	engine, v := c.service.o.Limits.Engine(), &c.looked
	for _, i := range c.charging {
		r := *c.asked[i].group.requests[c.asked[i].place]
		cost := c.q.hitsOf(&c.q.descriptors[i])
		if m := c.matchOf(i); m != nil {
			live.CheckRequest(ctx, &r, m.Limit.PolicyBytes, m.Key, 1)
			if m.Overrides {
				live.BringLimit(&r, m.Brought)
			}
		} else {
			r.Cost = 1
		}
		engine.ReserveAll(ctx, []*policy.Request{&r}, v)
		if v.Allowed {
			v.Commit(func(p *policy.Part) int64 { return costs(p, cost) })
		}
	}
	engine.PeekAll(ctx, c.charged.requests, &c.looked)
	for i := range c.looked.Parts {
		if i < len(c.charged.verdict.Parts) {
			c.charged.verdict.Parts[i].Decision.Remaining = c.looked.Parts[i].Decision.Remaining
		}
	}
}

// matchOf is what the configuration says of a descriptor, nil if rules decide.
func (c *call) matchOf(i int) *ratelimitconfig.Match {
	if i < len(c.matched) {
		return &c.matched[i]
	}
	return nil
}
