package weirprom_test

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/weirprom"
)

func ExampleNewKeyed() {
	clients, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerHour(1), 1), weir.KeyedOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	registry := prometheus.NewRegistry() // promhttp.HandlerFor answers with what it has
	registry.MustRegister(weirprom.NewKeyed("per-client", clients.Stats))

	clients.Allow("192.0.2.1")
	clients.Allow("192.0.2.1")

	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range families {
		if f.GetName() == "weir_keyed_requests_total" {
			for _, m := range f.GetMetric() {
				fmt.Println(m.GetLabel()[1].GetValue(), m.GetCounter().GetValue())
			}
		}
	}
	// Output:
	// allowed 1
	// refused 1
}
