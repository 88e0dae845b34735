package weirprom_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/weirprom"
)

// A scrape of an engine with so many policies, report included.
func BenchmarkScrape(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000, 5000} {
		b.Run(fmt.Sprint("policies=", n), func(b *testing.B) {
			set := &policy.Set{}
			for i := range n {
				set.Policies = append(set.Policies, policy.Policy{
					Name: fmt.Sprint("policy-", i), Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), 2)}}, MaxKeys: 100,
				})
			}
			engine, err := policy.NewEngine(set, policy.EngineOptions{})
			if err != nil {
				b.Fatal(err)
			}
			r := prometheus.NewRegistry()
			r.MustRegister(weirprom.NewEngine(engine.Report))
			for b.Loop() {
				if _, err := r.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
