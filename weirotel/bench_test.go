package weirotel_test

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/weirotel"
)

// What a decision and its end cost an engine, apart from reading the clock: with the SDK, and with no provider.
func BenchmarkObserver(b *testing.B) {
	for name, o := range map[string]weirotel.Options{
		"provider=none": {}, "provider=sdk": {MeterProvider: metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))},
	} {
		b.Run(name, func(b *testing.B) {
			i, err := weirotel.New(o)
			if err != nil {
				b.Fatal(err)
			}
			v := verdict("p", weir.Decision{Allowed: true})
			requests := []*policy.Request{{}}
			b.ReportAllocs()
			for b.Loop() {
				i.Decided(b.Context(), requests, v, time.Microsecond)
				i.Settled(v, time.Microsecond)
			}
		})
	}
}
