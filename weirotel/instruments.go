package weirotel

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// scope is the name under which instruments and spans are made.
const scope = "github.com/weirhq/weir/weirotel"

// Instruments record what engines decide: they are their [policy.Observer], and watch their reports. All methods are safe for
// concurrent use. The zero Instruments is not usable: call [New].
type Instruments struct {
	spans  Spans
	hash   func(string) string
	tracer trace.Tracer
	meter  metric.Meter
	sets   *sets

	requests    metric.Int64Counter
	leases      metric.Int64UpDownCounter
	held, taken metric.Float64Histogram

	lock    sync.Mutex
	watched []metric.Registration
}

var _ policy.Observer = (*Instruments)(nil)

// bounds are the upper ends of the buckets of durations, in seconds: a decision in memory takes less than a microsecond, one of a
// store a millisecond, and queues are as long as their policies say.
var (
	takenBounds = []float64{
		0.000_001, 0.000_005, 0.000_025, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
		1, 2.5, 5, 10, 30,
	}
	heldBounds = []float64{0.000_1, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}
)

// New makes instruments. The error is an *[weir.OptionError], or that of the MeterProvider.
func New(o Options) (*Instruments, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	i := &Instruments{
		spans: o.Spans, hash: o.Hash, sets: newSets(),
		tracer: o.TracerProvider.Tracer(scope), meter: o.MeterProvider.Meter(scope),
	}
	var errs [4]error
	i.requests, errs[0] = i.meter.Int64Counter("weir.rate_limiting.requests", metric.WithUnit("{request}"),
		metric.WithDescription("Decisions, by the policy whose limit decides and by their result."))
	i.leases, errs[1] = i.meter.Int64UpDownCounter("weir.rate_limiting.active_request_leases", metric.WithUnit("{request}"),
		metric.WithDescription("Requests that were allowed and have not ended."))
	i.held, errs[2] = i.meter.Float64Histogram("weir.rate_limiting.request_lease.duration", metric.WithUnit("s"),
		metric.WithDescription("How long allowed requests took until they ended."),
		metric.WithExplicitBucketBoundaries(heldBounds...))
	i.taken, errs[3] = i.meter.Float64Histogram("weir.rate_limiting.request.time_in_queue", metric.WithUnit("s"),
		metric.WithDescription("How long requests took until they were decided, in queues and for stores."),
		metric.WithExplicitBucketBoundaries(takenBounds...))
	return i, errors.Join(errs[:]...)
}

// Decided implements [policy.Observer]: it counts and times the decision, and makes a span of it.
//
//nolint:contextcheck // there is one of its own only where the caller has none
func (i *Instruments) Decided(ctx context.Context, requests []*policy.Request, v *policy.Verdict, took time.Duration) {
	if ctx == nil {
		ctx = context.Background()
	}
	r := resultOf(v)
	set := i.sets.of(policyOf(v))
	i.requests.Add(ctx, int64(max(len(requests), 1)), set.counted[r]...)
	i.taken.Record(ctx, took.Seconds(), set.timed[r]...)
	if r == acquired {
		i.leases.Add(ctx, 1, set.held...)
	}
	i.trace(ctx, requests, v, r, took)
}

// Settled implements [policy.Observer]: the request has ended.
func (i *Instruments) Settled(v *policy.Verdict, held time.Duration) {
	if resultOf(v) != acquired {
		return // nothing was held for it
	}
	set := i.sets.of(policyOf(v))
	i.leases.Add(context.Background(), -1, set.held...)
	i.held.Record(context.Background(), held.Seconds(), set.heldTimed...)
}

// Close ends what Watch and WatchFleet have begun. What is decided is recorded as before. Closing twice is harmless.
func (i *Instruments) Close() error {
	i.lock.Lock()
	defer i.lock.Unlock()
	errs := make([]error, len(i.watched))
	for at, w := range i.watched {
		errs[at] = w.Unregister()
	}
	i.watched = nil
	return errors.Join(errs...)
}

// policyOf is the name of the policy whose limit decides, "" if none does.
func policyOf(v *policy.Verdict) string {
	p, ok := v.BindingPart()
	if !ok {
		return ""
	}
	return p.Policy.Name
}

// resultOf is what became of a request.
func resultOf(v *policy.Verdict) result {
	switch {
	case v.Exempt:
		return exempt
	case v.Allowed && v.Binding < 0:
		return unlimited
	case v.Allowed:
		return acquired
	}
	switch reason := v.Decision().Reason; {
	case reason == weir.ReasonCanceled || reason == weir.ReasonNone:
		return canceled
	case int(reason) < int(results-refused):
		return refused + result(reason)
	default:
		return refused
	}
}
