package weirotel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	tracesdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/weirotel"
)

// recorder is an SDK that keeps what it is told.
type recorder struct {
	t       *testing.T
	reader  *metric.ManualReader
	spans   *tracetest.SpanRecorder
	tracers *tracesdk.TracerProvider
}

func record(t *testing.T, o weirotel.Options) (*weirotel.Instruments, *recorder) {
	t.Helper()
	r := &recorder{t: t, reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	// It takes every span, whatever the trace says: which are made is for the instruments to say.
	r.tracers = tracesdk.NewTracerProvider(tracesdk.WithSpanProcessor(r.spans), tracesdk.WithSampler(tracesdk.AlwaysSample()))
	o.MeterProvider, o.TracerProvider = metric.NewMeterProvider(metric.WithReader(r.reader)), r.tracers
	i, err := weirotel.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(i.Close(), i.Close()); err != nil {
			t.Error(err)
		}
	})
	return i, r
}

// values are those of all instruments by now: NAME{ATTRIBUTES} with a number, of a histogram how many values and their sum.
func (r *recorder) values() map[string]string {
	r.t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(r.t.Context(), &all); err != nil {
		r.t.Fatal(err)
	}
	values := map[string]string{}
	for _, s := range all.ScopeMetrics {
		if s.Scope.Name != "github.com/weirhq/weir/weirotel" {
			r.t.Errorf("the scope is %q", s.Scope.Name)
		}
		for _, m := range s.Metrics {
			if m.Description == "" || m.Unit == "" || !strings.HasPrefix(m.Name, "weir.rate_limiting.") {
				r.t.Errorf("%s: description %q, unit %q", m.Name, m.Description, m.Unit)
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					values[series(m.Name, p.Attributes)] = fmt.Sprint(p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					values[series(m.Name, p.Attributes)] = fmt.Sprintf("%d values, %g s", p.Count, p.Sum)
				}
			default:
				r.t.Errorf("%s has %T", m.Name, data)
			}
		}
	}
	return values
}

func series(name string, attributes attribute.Set) string {
	var all []string
	for _, a := range attributes.ToSlice() {
		all = append(all, short(string(a.Key))+"="+a.Value.String())
	}
	slices.Sort(all)
	return short(name) + "{" + strings.Join(all, ",") + "}"
}

// short is a name without the prefix that all have.
func short(name string) string {
	if short, ok := strings.CutPrefix(name, "weir.rate_limiting."); ok {
		return short
	}
	return "without prefix: " + name
}

func (r *recorder) compare(want map[string]string) {
	r.t.Helper()
	got := r.values()
	for name, value := range want {
		if got[name] != value {
			r.t.Errorf("%s is %q, not %q", name, got[name], value)
		}
	}
}

// verdict is one of a policy.
func verdict(name string, d weir.Decision) *policy.Verdict {
	p := &policy.Policy{Name: name}
	d.Policy = name
	return &policy.Verdict{
		Allowed: d.Allowed, Parts: []policy.Part{{Policy: p, Key: []byte("secret@example.com"), Cost: 2, Decision: d, Rule: &policy.Rule{Name: "a rule"}}},
	}
}

func TestRequestsLeasesAndTimes(t *testing.T) {
	i, r := record(t, weirotel.Options{})
	granted := verdict("p", weir.Decision{Allowed: true, Limit: 10, Remaining: 8})
	i.Decided(t.Context(), []*policy.Request{{}}, granted, time.Millisecond)
	i.Decided(t.Context(), nil, granted, time.Millisecond)
	i.Decided(t.Context(), []*policy.Request{{}, {}, {}}, verdict("p", weir.Decision{Reason: weir.ReasonLimited}), time.Second)
	i.Decided(t.Context(), nil, verdict("q", weir.Decision{Reason: weir.ReasonHardLockout}), time.Second)
	i.Decided(t.Context(), nil, verdict("q", weir.Decision{Reason: weir.ReasonCanceled}), time.Second)
	i.Decided(t.Context(), nil, &policy.Verdict{Allowed: true, Exempt: true, Binding: -1}, 0)
	i.Decided(t.Context(), nil, &policy.Verdict{Allowed: true, Binding: -1}, 0)
	i.Settled(granted, 2*time.Second)
	i.Settled(&policy.Verdict{Allowed: true, Binding: -1}, time.Second) // nothing was held
	r.compare(map[string]string{
		"requests{policy=p,result=acquired}":                    "2",
		"requests{policy=p,reason=limited,result=refused}":      "3",
		"requests{policy=q,reason=hard-lockout,result=refused}": "1",
		"requests{policy=q,result=request_canceled}":            "1",
		"requests{result=exempt}":                               "1",
		"requests{result=unlimited}":                            "1",
		"active_request_leases{policy=p}":                       "1",
		"request_lease.duration{policy=p}":                      "1 values, 2 s",
		"request.time_in_queue{policy=p,result=acquired}":       "2 values, 0.002 s",
		"request.time_in_queue{policy=p,result=refused}":        "1 values, 1 s",
	})
	for name := range r.values() {
		if strings.Contains(name, "secret") {
			t.Errorf("%s has a key", name)
		}
	}
}

// TestBucketsAreOfSeconds: the shortest decision and the longest wait are told apart from others, in seconds.
func TestBucketsAreOfSeconds(t *testing.T) {
	i, r := record(t, weirotel.Options{})
	v := verdict("p", weir.Decision{Allowed: true})
	i.Decided(t.Context(), nil, v, time.Second)
	i.Settled(v, time.Second)
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	shortest := map[string]float64{"request.time_in_queue": 1e-6, "request_lease.duration": 1e-4}
	for _, m := range all.ScopeMetrics[0].Metrics {
		data, ok := m.Data.(metricdata.Histogram[float64])
		if !ok {
			continue
		}
		first := shortest[short(m.Name)]
		delete(shortest, short(m.Name))
		bounds := data.DataPoints[0].Bounds
		if last := bounds[len(bounds)-1]; bounds[0] != first || last < 30 || last > 600 || !slices.IsSorted(bounds) {
			t.Errorf("%s: %v", m.Name, bounds)
		}
	}
	if len(shortest) > 0 {
		t.Errorf("there are no histograms %v", shortest)
	}
}

// Every reason of a refusal has a name.
func TestReasons(t *testing.T) {
	i, r := record(t, weirotel.Options{})
	n := 0
	for reason := weir.ReasonLimited; !strings.HasPrefix(reason.String(), "Reason("); reason++ {
		i.Decided(t.Context(), nil, verdict("p", weir.Decision{Reason: reason}), 0)
		n++
	}
	got := 0
	for name, value := range r.values() {
		if strings.HasPrefix(name, "requests{") {
			got++
			if value != "1" || strings.Contains(name, "Reason(") {
				t.Errorf("%s is %s", name, value)
			}
		}
	}
	if got != n || n < 14 {
		t.Errorf("%d of %d reasons are told apart", got, n)
	}
}

func TestPoliciesAreBounded(t *testing.T) {
	i, r := record(t, weirotel.Options{})
	i.Decided(t.Context(), nil, verdict(weirotel.Other, weir.Decision{Allowed: true}), 0)
	for n := range weirotel.MaxNames + 7 {
		i.Decided(t.Context(), nil, verdict(fmt.Sprint("policy ", n), weir.Decision{Allowed: true}), 0)
	}
	got := r.values()
	if n := got["requests{policy=_other,result=acquired}"]; n != "8" {
		t.Errorf("%q requests of other policies, not 8", n)
	}
	if n := got["requests{policy=policy 499,result=acquired}"]; n != "1" {
		t.Errorf("%q requests of the last policy with a name", n)
	}
	if len(got) > 3*(weirotel.MaxNames+1) {
		t.Errorf("%d series", len(got))
	}
}

func TestObserverAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Log("the race detector allocates by itself: only that it works")
	}
	i, err := weirotel.New(weirotel.Options{}) // the global ones, which do nothing
	if err != nil {
		t.Fatal(err)
	}
	v := verdict("p", weir.Decision{Allowed: true})
	requests := []*policy.Request{{}}
	n := testing.AllocsPerRun(1000, func() {
		i.Decided(t.Context(), requests, v, time.Millisecond)
		i.Settled(v, time.Millisecond)
	})
	if n != 0 && !race.Enabled {
		t.Errorf("%g allocations for a decision", n)
	}
}

func TestSpans(t *testing.T) {
	hash := func(key string) string { return fmt.Sprint("hash of ", len(key)) }
	refusal := verdict("p", weir.Decision{Reason: weir.ReasonLimited, Limit: 10, RetryAfter: 1500 * time.Millisecond})
	refusal.RefusalID = 77
	away := verdict("p", weir.Decision{Reason: weir.ReasonUnavailable, RetryAfter: weir.Never})
	named := verdict("p", weir.Decision{Reason: weir.ReasonUnavailable, RetryAfter: weir.Never})
	named.Parts[0].Rule = nil
	remote := func(ctx context.Context, flags trace.TraceFlags) context.Context {
		return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: flags,
		}))
	}
	for what, c := range map[string]struct {
		spans   weirotel.Spans
		verdict *policy.Verdict
		context func(context.Context) context.Context
		hash    func(string) string
		want    string // "" for no span
	}{
		"no trace":      {verdict: refusal},
		"not sampled":   {verdict: refusal, context: func(ctx context.Context) context.Context { return remote(ctx, 0) }},
		"no context":    {verdict: refusal, context: func(context.Context) context.Context { return nil }},
		"none":          {spans: weirotel.SpansNone, verdict: refusal, context: func(ctx context.Context) context.Context { return remote(ctx, trace.FlagsSampled) }},
		"a sampled one": {verdict: refusal, context: func(ctx context.Context) context.Context { return remote(ctx, trace.FlagsSampled) }, want: "cost=2 limit=p permits=10 policy=p reason=limited refusal_id=000000000000004d remaining=0 result=refused retry_after=1.5 rule=a rule"},
		"all, hashed":   {spans: weirotel.SpansAll, verdict: refusal, hash: hash, want: "cost=2 key_hash=hash of 18 limit=p permits=10 policy=p reason=limited refusal_id=000000000000004d remaining=0 result=refused retry_after=1.5 rule=a rule"},
		"a store":       {spans: weirotel.SpansAll, verdict: away, want: "cost=2 limit=p permits=0 policy=p reason=unavailable remaining=0 result=refused rule=a rule, Error"},
		"named":         {spans: weirotel.SpansAll, verdict: named, want: "cost=2 limit=p permits=0 policy=p reason=unavailable remaining=0 result=refused, Error"},
		"no limit":      {spans: weirotel.SpansAll, verdict: &policy.Verdict{Allowed: true, Binding: -1}, want: "result=unlimited"},
	} {
		t.Run(what, func(t *testing.T) {
			i, r := record(t, weirotel.Options{Spans: c.spans, Hash: c.hash})
			ctx := t.Context()
			if c.context != nil {
				ctx = c.context(ctx)
			}
			i.Decided(ctx, nil, c.verdict, 20*time.Millisecond)
			ended := r.spans.Ended()
			if c.want == "" {
				if len(ended) != 0 {
					t.Fatalf("%d spans", len(ended))
				}
				return
			}
			if len(ended) != 1 {
				t.Fatalf("%d spans", len(ended))
			}
			s := ended[0]
			var all []string
			for _, a := range s.Attributes() {
				all = append(all, short(string(a.Key))+"="+a.Value.String())
			}
			slices.Sort(all)
			got := strings.Join(all, " ")
			if code := s.Status().Code.String(); code != "Unset" {
				got += ", " + code
			}
			if got != c.want {
				t.Errorf("%s\nnot %s", got, c.want)
			}
			if took := s.EndTime().Sub(s.StartTime()); took != 20*time.Millisecond || s.Name() != "rate_limit" {
				t.Errorf("%q took %v", s.Name(), took)
			}
			if parent := trace.SpanContextFromContext(ctx); s.Parent().SpanID() != parent.SpanID() {
				t.Errorf("the parent is %v, not %v", s.Parent().SpanID(), parent.SpanID())
			}
		})
	}
}

func TestWatch(t *testing.T) {
	i, r := record(t, weirotel.Options{})
	report := policy.Report{Version: 3, LastError: "no", Rules: []policy.RuleReport{{Name: "r", Matched: 5, Failed: 1}}, Policies: []policy.PolicyReport{
		{Name: "p", Allowed: 10, Refused: 4, LockedOut: 3, Failed: 2, Unavailable: 1, Untracked: 8, Full: 9, Keys: 7, MaxKeys: 100, Queued: 6, Waiters: 4, Locked: 5, Overridden: 2},
	}}
	for n := range weirotel.MaxNames + 4 {
		report.Policies = append(report.Policies, policy.PolicyReport{Name: fmt.Sprint(n), Allowed: 2})
		report.Rules = append(report.Rules, policy.RuleReport{Name: fmt.Sprint(n), Matched: 3})
	}
	if err := i.Watch(func() policy.Report { return report }); err != nil {
		t.Fatal(err)
	}
	fleet := store.FleetStats{Replicas: 3}
	fleet.Breaker.Asked, fleet.Breaker.Failed, fleet.Breaker.FastFailed, fleet.Breaker.Opened = 10, 4, 2, 1
	fleet.Fallback.Open, fleet.Fallback.Closed, fleet.Fallback.LocalAllowed, fleet.Fallback.LocalRefused = 1, 2, 3, 4
	if err := i.WatchFleet(func() store.FleetStats { return fleet }); err != nil {
		t.Fatal(err)
	}
	r.compare(map[string]string{
		"policy.requests{policy=p,result=acquired}":      "10",
		"policy.requests{policy=p,result=refused}":       "4",
		"policy.requests{policy=_other,result=acquired}": "10", // 5 policies of 2 each
		"policy.locked_out{policy=p}":                    "3",
		"policy.failed{policy=p}":                        "2",
		"policy.unavailable{policy=p}":                   "1",
		"policy.untracked{policy=p}":                     "8",
		"policy.table_full{policy=p}":                    "9",
		"policy.keys{policy=p}":                          "7",
		"policy.max_keys{policy=p}":                      "100",
		"queued_requests{policy=p}":                      "4",
		"policy.queued_permits{policy=p}":                "6",
		"policy.locked_keys{policy=p}":                   "5",
		"policy.overridden_keys{policy=p}":               "2",
		"rule.matched{rule=r}":                           "5",
		"rule.failed{rule=r}":                            "1",
		"rule.matched{rule=_other}":                      "15",
		"config.version{}":                               "3",
		"config.refused{}":                               "1",
		"store.available{}":                              "1",
		"store.outages{}":                                "1",
		"store.calls{}":                                  "10",
		"store.failures{result=failed}":                  "4",
		"store.failures{result=fast_failed}":             "2",
		"store.fallback.decisions{result=closed}":        "2",
		"store.fallback.decisions{result=open}":          "1",
		"store.fallback.decisions{result=local_allowed}": "3",
		"store.fallback.decisions{result=local_refused}": "4",
		"store.replicas{}":                               "3",
	})
	if err := i.Close(); err != nil {
		t.Fatal(err)
	}
	if got := r.values(); len(got) != 0 {
		t.Errorf("observed after Close: %v", got)
	}
}

// TestOthersOnlyGrow: a reload that makes the last policy or rule the first one takes nothing from the others.
func TestOthersOnlyGrow(t *testing.T) {
	i, r := record(t, weirotel.Options{})
	var report policy.Report
	for n := range weirotel.MaxNames + 2 {
		report.Policies = append(report.Policies, policy.PolicyReport{Name: fmt.Sprint(n), Allowed: 2})
		report.Rules = append(report.Rules, policy.RuleReport{Name: fmt.Sprint(n), Matched: 3})
	}
	if err := i.Watch(func() policy.Report { return report }); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"policy.requests{policy=_other,result=acquired}": "4", "rule.matched{rule=_other}": "6"}
	r.compare(want)
	slices.Reverse(report.Policies)
	slices.Reverse(report.Rules)
	r.compare(want)
	report.Policies, report.Rules = report.Policies[1:], report.Rules[1:]
	r.compare(want)
}

func TestOptions(t *testing.T) {
	_, err := weirotel.New(weirotel.Options{Spans: 3})
	var wrong *weir.OptionError
	if !errors.As(err, &wrong) || err.Error() != "weir: Options.Spans is Spans(3): must be SpansOfSampled, SpansAll or SpansNone" {
		t.Errorf("%v", err)
	}
}

// TestNothingToWatch: a nil function is an error at once, where the first collection would have panicked.
func TestNothingToWatch(t *testing.T) {
	i, err := weirotel.New(weirotel.Options{MeterProvider: noop.NewMeterProvider()})
	if err != nil {
		t.Fatal(err)
	}
	for want, err := range map[string]error{"report": i.Watch(nil), "stats": i.WatchFleet(nil)} {
		if wrong, ok := errors.AsType[*weir.OptionError](err); !ok || wrong.Option != want {
			t.Errorf("%s: %v", want, err)
		}
	}
}
