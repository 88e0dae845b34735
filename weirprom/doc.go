// Package weirprom shows the metrics of weir to Prometheus, by its client for Go.
//
// Each function New... returns a [Collector], which is registered once and asked at every scrape. It takes the method of the
// limiter that returns the counts, and costs the limiter nothing between scrapes:
//
//	registry.MustRegister(
//		weirprom.NewEngine(engine.Report),
//		weirprom.NewKeyed("per-client", clients.Stats),
//	)
//
// A nil function panics at once. The first argument is a label of all metrics of a limiter, and differs for limiters of one kind.
// There is one engine in most programs; for several use [prometheus.WrapRegistererWith].
//
// A key is never a label. Labels that come from a configuration, policies and rules, are bounded: see [MaxNames]. All names begin
// with weir_, and follow the conventions of Prometheus: counters end in _total, times are in seconds. Counters only grow as long
// as the process lives, except where a policy or a rule is removed or summed up under [Other].
package weirprom
