package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	metricsdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	tracesdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/remote"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/weirotel"
)

// export sends metrics and spans to a collector. It has the providers as interfaces: with their types, whatever imports this
// package would compile the generic code of the SDK once more.
type export struct {
	observer *weirotel.Instruments
	metrics  interface { // nil if it could not be made
		metric.MeterProvider
		Shutdown(ctx context.Context) error
	}
	spans interface { // nil if there are none
		trace.TracerProvider
		Shutdown(ctx context.Context) error
	}
	ended sync.Once
	err   error
}

// newExport makes it. Metrics are collected from now on, so they are sent even if Start is never called.
func newExport(o Options) (*export, error) {
	hash := o.Hash
	switch {
	case o.OTLP.Keys != keysHashed:
		hash = nil
	case hash == nil:
		return nil, errNoHash
	}
	base, err := url.Parse(o.OTLP.Endpoint)
	if err != nil {
		return nil, flags.Inputf("weir: --otlp-endpoint: %s", err)
	}
	// What is sent is told of the program, besides what OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say, which go before.
	about, err := resource.New(context.Background(), resource.WithAttributes(attribute.String("service.name", "weir"),
		attribute.String("service.version", flags.Version())), resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithFromEnv())
	if err != nil && about == nil {
		return nil, fmt.Errorf("weir: --otlp-endpoint: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { // of this process, which is the server
		if errors.Is(err, context.Canceled) {
			return // a collection that was under way when sending ended
		}
		o.Logger.Warn("OpenTelemetry: something cannot be measured or sent", "error", err.Error())
	}))
	e := &export{}
	if opened := errors.Join(e.openMetrics(base, about, o), e.openSpans(base, about, o)); opened != nil {
		return nil, errors.Join(opened, e.close(context.Background()))
	}
	instruments := weirotel.Options{
		MeterProvider: e.metrics, Spans: weirotel.SpansNone, Hash: hash,
	}
	if e.spans != nil {
		instruments.TracerProvider, instruments.Spans = e.spans, weirotel.SpansOfSampled
		if o.OTLP.Traces == tracesAll {
			instruments.Spans = weirotel.SpansAll
		}
	}
	if e.observer, err = weirotel.New(instruments); err != nil {
		return nil, errors.Join(err, e.close(context.Background()))
	}
	return e, nil
}

// under is a path below that of the endpoint.
func under(base *url.URL, path string) string {
	u := *base
	u.Path = strings.TrimSuffix(u.Path, "/") + path
	return u.String()
}

func (e *export) openMetrics(base *url.URL, about *resource.Resource, o Options) error {
	to, err := otlpmetrichttp.New(context.Background(), otlpmetrichttp.WithEndpointURL(under(base, "/v1/metrics")))
	if err != nil {
		return flags.Inputf("weir: --otlp-endpoint: %s", err)
	}
	every := o.OTLP.Interval
	if every == 0 {
		every = usualInterval
	}
	reader := metricsdk.NewPeriodicReader(telling{to, newTeller(o.Logger, "metrics")}, metricsdk.WithInterval(every))
	e.metrics = metricsdk.NewMeterProvider(metricsdk.WithResource(about), metricsdk.WithReader(reader))
	return nil
}

func (e *export) openSpans(base *url.URL, about *resource.Resource, o Options) error {
	if o.OTLP.Traces == tracesOff {
		return nil
	}
	to, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(under(base, "/v1/traces")))
	if err != nil {
		return flags.Inputf("weir: --otlp-endpoint: %s", err)
	}
	e.spans = tracesdk.NewTracerProvider(tracesdk.WithResource(about),
		tracesdk.WithBatcher(tellingSpans{to, newTeller(o.Logger, "spans")}))
	return nil
}

// start has the limits, and the store if there is one, observed. The engine does not know of a file that could not be read.
func (e *export) start(s *Sources, first *snapshot) error {
	if err := e.observer.Watch(func() policy.Report { return s.Limits.Status().Report }); err != nil {
		return err
	}
	if first.store.Store == "" {
		return nil
	}
	return e.observer.WatchFleet(func() store.FleetStats {
		now, _ := s.Status()["store"].(remote.FleetStatus)
		return now.FleetStats
	})
}

// traced puts the trace of a request into its context.
func (e *export) traced(next http.Handler) http.Handler {
	if e.spans == nil {
		return next
	}
	from := propagation.TraceContext{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Traceparent") == "" {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r.WithContext(from.Extract(r.Context(), propagation.HeaderCarrier(r.Header))))
	})
}

func (e *export) close(ctx context.Context) error {
	e.ended.Do(func() {
		var errs [2]error
		if e.spans != nil {
			errs[0] = e.spans.Shutdown(ctx)
		}
		if e.metrics != nil {
			errs[1] = e.metrics.Shutdown(ctx)
		}
		if err := errors.Join(errs[:]...); err != nil {
			e.err = fmt.Errorf("weir: --otlp-endpoint: the rest could not be sent: %w", err)
		}
	})
	return e.err
}

// teller logs that something cannot be sent: when it begins, and when it has ended.
type teller struct {
	log   *slog.Logger
	what  string
	lock  sync.Mutex
	since time.Time // zero if it works
}

func newTeller(log *slog.Logger, what string) *teller { return &teller{log: log, what: what} }

// tell takes what came of sending.
func (t *teller) tell(err error) {
	if errors.Is(err, context.Canceled) {
		return // sending has ended meanwhile, and what was left is sent once more
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	switch {
	case err != nil && t.since.IsZero():
		t.since = time.Now()
		t.log.Warn("the collector of --otlp-endpoint does not take what it is sent", "what", t.what, "error", err.Error())
	case err == nil && !t.since.IsZero():
		t.log.Info("the collector of --otlp-endpoint takes what it is sent again", "what", t.what,
			"after", time.Since(t.since).Round(time.Millisecond).String())
		t.since = time.Time{}
	}
}

// telling is an exporter of metrics that reports whether it can send. The SDK would tell a handler of the whole process of each
// failure.
type telling struct {
	metricsdk.Exporter

	teller *teller
}

// Export implements [metricsdk.Exporter]. Failures are logged, and go no further.
func (t telling) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	t.teller.tell(t.Exporter.Export(ctx, m))
	return nil
}

// tellingSpans is the same of spans.
type tellingSpans struct {
	tracesdk.SpanExporter

	teller *teller
}

// ExportSpans implements [tracesdk.SpanExporter]. Failures are logged, and go no further.
func (t tellingSpans) ExportSpans(ctx context.Context, spans []tracesdk.ReadOnlySpan) error {
	t.teller.tell(t.SpanExporter.ExportSpans(ctx, spans))
	return nil
}
