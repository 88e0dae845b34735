package weirotel

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// trace makes a span of a decision.
func (i *Instruments) trace(ctx context.Context, requests []*policy.Request, v *policy.Verdict, r result, took time.Duration) {
	if i.spans == SpansNone || (i.spans == SpansOfSampled && !trace.SpanContextFromContext(ctx).IsSampled()) {
		return
	}
	now := time.Now()
	_, span := i.tracer.Start(ctx, "rate_limit", trace.WithTimestamp(now.Add(-took)))
	if span.IsRecording() {
		span.SetAttributes(i.attributes(requests, v, r)...)
		if r == refused+result(weir.ReasonUnavailable) {
			span.SetStatus(codes.Error, "the decision could not be told")
		}
	}
	span.End(trace.WithTimestamp(now))
}

// attributes are what a span has.
func (i *Instruments) attributes(requests []*policy.Request, v *policy.Verdict, r result) []attribute.KeyValue {
	all := append(make([]attribute.KeyValue, 0, 14), r.attributes()...)
	if len(requests) > 1 {
		all = append(all, attribute.Int("weir.rate_limiting.requests", len(requests)))
	}
	if v.RefusalID != 0 {
		all = append(all, attribute.String("weir.rate_limiting.refusal_id", fmt.Sprintf("%016x", v.RefusalID)))
	}
	p, ok := v.BindingPart()
	if !ok {
		return all
	}
	d := p.Decision
	all = append(all,
		policyKey.String(p.Policy.Name),
		attribute.String("weir.rate_limiting.limit", d.Policy),
		attribute.Int64("weir.rate_limiting.cost", p.Cost),
		attribute.Int64("weir.rate_limiting.permits", d.Limit),
		attribute.Int64("weir.rate_limiting.remaining", d.Remaining),
	)
	if p.Rule != nil {
		all = append(all, ruleKey.String(p.Rule.Name))
	}
	if !v.Allowed && d.RetryAfter != weir.Never {
		all = append(all, attribute.Float64("weir.rate_limiting.retry_after", d.RetryAfter.Seconds()))
	}
	if i.hash != nil {
		all = append(all, attribute.String("weir.rate_limiting.key_hash", i.hash(string(p.Key))))
	}
	return all
}
