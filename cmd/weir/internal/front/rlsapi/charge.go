package rlsapi

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir"
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

// report charges what a request has cost, whether there is so much or not.
func (c *call) report(ctx context.Context) error {
	// Hits of none charge nothing.
	g := &c.charged
	if len(c.apart.requests) > 0 {
		c.ask(ctx, &c.apart)
	}
	if err := c.refund(ctx); err != nil || len(g.requests) == 0 {
		return err
	}
	engine, v := c.service.o.Limits.Engine(), &g.verdict
	engine.TakeAll(ctx, g.requests, v)
	v.Release()
	if err := failure(v); err != nil || v.Allowed {
		return err
	}
	return c.overdraw(ctx)
}

// overdraw charges what is there, and the rest as a debt: a permit is reserved, which costs in the end what the request has cost.
func (c *call) overdraw(ctx context.Context) error {
	g := &c.charged
	engine, v := c.service.o.Limits.Engine(), &g.verdict
	costs := make([]int64, len(g.requests))
	for i, r := range g.requests {
		costs[i], r.Cost = r.Cost, 1
	}
	engine.ReserveAll(ctx, g.requests, v)
	if v.Allowed {
		v.Commit(func(p *policy.Part) int64 { return costs[p.Request] })
	}
	if err := failure(v); err != nil {
		return err
	}
	if v.Decision().Reason == weir.ReasonUnavailable {
		return status.Error(codes.Unavailable, "weir: the limits cannot be charged at the moment")
	}
	return nil
}
