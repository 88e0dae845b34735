package metrics

import (
	"context"

	metricsdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	tracesdk "go.opentelemetry.io/otel/sdk/trace"
)

// telling is an exporter of metrics that reports whether it can send. The SDK would tell a handler of the whole process of each
// failure.
type telling struct {
	metricsdk.Exporter

	teller *teller
}

// Export implements [metricsdk.Exporter]. Failures are told, and go no further.
func (t telling) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	t.teller.tell(t.Exporter.Export(ctx, m))
	return nil
}

// tellingSpans is the same of spans.
type tellingSpans struct {
	tracesdk.SpanExporter

	teller *teller
}

// ExportSpans implements [tracesdk.SpanExporter]. Failures are told, and go no further.
func (t tellingSpans) ExportSpans(ctx context.Context, spans []tracesdk.ReadOnlySpan) error {
	t.teller.tell(t.SpanExporter.ExportSpans(ctx, spans))
	return nil
}
