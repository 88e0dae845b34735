// Package weirotel shows the metrics and traces of weir to OpenTelemetry, by its API. The program chooses the SDK, and where it
// sends them.
//
//	instruments, err := weirotel.New(weirotel.Options{})
//	engine, err := policy.NewEngine(set, policy.EngineOptions{Observer: instruments})
//	err = instruments.Watch(engine.Report)
//
// # Names
//
// There is no semantic convention for rate limiting yet. The names are those that the middleware of ASP.NET Core publishes under
// aspnetcore.rate_limiting, with the prefix weir.rate_limiting: see docs/metrics.md. A key is never an attribute of a metric.
// Attributes that come from a configuration are bounded: see [MaxNames].
//
// # Spans
//
// A decision of an engine is a span of kind internal named "rate_limit", with its beginning and end, if the request belongs to a
// trace that is sampled: see [Spans]. A refusal is no error; a decision that a store failed to make is one. The ID of a refusal
// has 16 hexadecimal digits, as in the responses of weir serve.
//
// # Cost
//
// An engine with an Observer reads the clock twice more for each decision. What is recorded then costs what the SDK takes for one
// counter and one histogram, and allocates nothing here as long as there is no span. Watch costs nothing between two collections.
package weirotel
