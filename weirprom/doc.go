// Package weirprom shows the metrics of weir to Prometheus, by its client for Go.
//
// Each function New... answers a [Collector], which is registered once and asked at every scrape. It takes what answers the
// counts, a method of the limiter, and costs the limiter nothing between scrapes:
//
//	registry.MustRegister(
//		weirprom.NewEngine(engine.Report),
//		weirprom.NewKeyed("per-client", clients.Stats),
//	)
//
// Limiters of one kind are told apart by the first argument, which is a label of all of their metrics. There is one engine in
// most programs; several are told apart by [prometheus.WrapRegistererWith].
//
// A key is never a label, and labels that come from a configuration, policies and rules, are bounded: see [MaxNames]. All
// names begin with weir_, and follow the conventions of Prometheus: counters end in _total, times are in seconds. Counters
// only grow as long as the process lives, except where a policy or a rule is removed or summed up under [Other].
package weirprom
