package rlsapi

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir"
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
		if p.Policy.Consistency.Shared() {
			return status.Errorf(codes.Unimplemented,
				"weir: is_negative_hits: policy %q is shared by a store: nothing can be given back", p.Policy.Name)
		}
	}
	if err := engine.RefundDurable(ctx, v); err != nil {
		return status.Error(codes.Unavailable, "weir: the limits cannot be given hits back at the moment")
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
	engine := c.service.o.Limits.Engine()
	if g := &c.probed; len(g.requests) > 0 {
		engine.PeekAll(ctx, g.requests, &g.verdict)
	}
	for i := range c.matched {
		if g, m := c.quotaOf(i); g != nil {
			spendOne(ctx, engine, &c.looked, m, c.q.hitsOf(&c.q.descriptors[i]))
			g.looked = true
			engine.PeekAll(ctx, g.requests, &g.verdict)
		}
	}
	g := &c.charged
	if err := c.refund(ctx); err != nil || len(g.requests) == 0 {
		return err
	}
	engine.DebitAll(ctx, g.requests, &g.verdict)
	switch v := &g.verdict; {
	case v.Allowed:
	case v.Decision().Reason == weir.ReasonDenied:
		c.over = true
	default:
		if err := failure(v); err != nil {
			return err
		}
		return uncharged(v)
	}
	return nil
}

// uncharged is the error of a report that was not charged to all limits.
func uncharged(v *policy.Verdict) error {
	switch v.Decision().Reason { //nolint:exhaustive // all others are failures of a store
	case weir.ReasonInvalid:
		return invalid("the cost cannot be charged: its store accepts from 0 to 10^15")
	case weir.ReasonCanceled:
		return status.Error(codes.Canceled, "weir: the call was canceled")
	}
	return status.Error(codes.Unavailable, "weir: the limits cannot be charged at the moment")
}

// spend charges several hits of a refused call, to the limits that have refused it and to all others, as envoyproxy/ratelimit
// counts refused requests as well. By such hits a proxy tells the cost of a request when it has been served: if nothing were
// charged, requests that cost more than what is left would never be refused. A limit of shadow mode counts as an enforced one.
func (c *call) spend(ctx context.Context) {
	engine, v := c.service.o.Limits.Engine(), &c.charged.verdict
	spent := false
	for i, a := range c.asked {
		m, hits := c.matchOf(i), c.q.hitsOf(&c.q.descriptors[i])
		if m == nil || a.group == nil || hits < 2 || m.Limit.RequestsPerUnit == 0 {
			continue
		}
		switch {
		case !c.over:
			if m.Limit.Shadow && a.group == &c.charged && v.OverShadow(a.place) {
				spendOne(ctx, engine, &c.looked, m, hits)
			}
		case a.group == &c.charged && (v.Allowed || refusedByLimit(v.Decision())):
			spent = spendOne(ctx, engine, &c.looked, m, hits) || spent
		case m.Limit.Quota && a.group.looked:
			spendOne(ctx, engine, &c.looked, m, hits)
		}
	}
	if !spent {
		return
	}
	engine.PeekAll(ctx, c.charged.requests, &c.looked)
	for i := range min(len(v.Parts), len(c.looked.Parts)) {
		d, after := &v.Parts[i].Decision, &c.looked.Parts[i].Decision
		d.Remaining, d.ResetAfter = after.Remaining, after.ResetAfter
		if d.Reason == weir.ReasonLimited {
			d.RetryAfter = max(d.RetryAfter, after.RetryAfter)
		}
	}
}

// refusedByLimit reports whether a refusal says how many permits there are, and not that none could be told.
func refusedByLimit(d weir.Decision) bool {
	return d.Reason == weir.ReasonLimited || d.Reason == weir.ReasonNever
}

// spendOne charges hits that were refused to the limit of one descriptor, and reports whether it could. What is not there is
// owed, except by a window: the next one has all its permits.
func spendOne(ctx context.Context, engine *policy.Engine, v *policy.Verdict, m *ratelimitconfig.Match, hits int64) bool {
	switch m.Limit.Counted.Algorithm() { //nolint:exhaustive // all others are owed
	case weir.AlgorithmCalendarWindow, weir.AlgorithmFixedWindow:
		if hits = min(hits, leftOf(ctx, engine, v, m)); hits == 0 {
			return false
		}
	}
	one := [1]*policy.Request{checkOf(ctx, m, hits)}
	engine.DebitAll(ctx, one[:], v)
	return v.Allowed
}

// leftOf is what remains of the limit of a descriptor, 0 if that cannot be told.
func leftOf(ctx context.Context, engine *policy.Engine, v *policy.Verdict, m *ratelimitconfig.Match) int64 {
	if m.Limit.Shadow {
		if l := explained(engine, checkOf(ctx, m, 0)); l != nil {
			return l.Decision.Remaining
		}
		return 0
	}
	one := [1]*policy.Request{checkOf(ctx, m, 1)}
	if engine.PeekAll(ctx, one[:], v); !v.Allowed || len(v.Parts) == 0 {
		return 0
	}
	return v.Decision().Remaining
}

// explained is what a limit says that may be in shadow mode, nil if it cannot say.
func explained(engine *policy.Engine, check *policy.Request) *policy.ExplainedLimit {
	if x := engine.Explain(check); len(x.Limits) > 0 && x.Limits[0].Failure == "" {
		return &x.Limits[0]
	}
	return nil
}

// checkOf is a check of the policy of a descriptor with another cost.
func checkOf(ctx context.Context, m *ratelimitconfig.Match, cost int64) *policy.Request {
	r := new(policy.Request)
	name(ctx, r, new(policy.Named), "", m, cost)
	return r
}

// matchOf is what the configuration says of a descriptor, nil if rules decide.
func (c *call) matchOf(i int) *ratelimitconfig.Match {
	if i < len(c.matched) {
		return &c.matched[i]
	}
	return nil
}
