package weirotel_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/weirotel"
)

func ExampleNew() {
	reader := metric.NewManualReader() // a program has one that sends
	instruments, err := weirotel.New(weirotel.Options{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		fmt.Println(err)
		return
	}
	engine, err := policy.NewEngine(&policy.Set{
		Policies: []policy.Policy{{Name: "login", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), 1)}}}},
		Rules:    []policy.Rule{{Name: "everybody", Limits: []policy.Use{{Policy: "login"}}}},
	}, policy.EngineOptions{Observer: instruments})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := instruments.Watch(engine.Report); err != nil {
		fmt.Println(err)
		return
	}

	for range 3 {
		var v policy.Verdict
		engine.Take(&policy.Request{}, &v)
		v.Release()
	}

	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name != "weir.rate_limiting.policy.requests" && m.Name != "weir.rate_limiting.active_request_leases" {
			continue
		}
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
			for _, p := range sum.DataPoints {
				result, _ := p.Attributes.Value("weir.rate_limiting.result")
				fmt.Println(m.Name, result.AsString(), p.Value)
			}
		}
	}
	// Unordered output:
	// weir.rate_limiting.active_request_leases  0
	// weir.rate_limiting.policy.requests acquired 1
	// weir.rate_limiting.policy.requests refused 2
}
