package weirotel

import (
	"fmt"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirhq/weir"
)

// Options configure [Instruments].
type Options struct {
	// MeterProvider makes the instruments. Default: the global one, also if it is set later.
	MeterProvider metric.MeterProvider
	// TracerProvider makes the spans. Default: the global one, also if it is set later.
	TracerProvider trace.TracerProvider
	// Spans is for which decisions there are spans. Default: SpansOfSampled.
	Spans Spans
	// Hash makes the attribute of a span from a key: see [policy.RefusalLog.Hash]. It is called for each span of a decision that
	// a limit has made, by several goroutines at a time. Default: nil, spans have nothing of keys.
	Hash func(key string) string
}

// Spans is for which decisions there are spans.
type Spans uint8

const (
	// SpansOfSampled makes one if the request belongs to a trace that is sampled: the span in its context, of this process or of
	// another one.
	SpansOfSampled Spans = iota
	// SpansAll makes one for every decision that the sampler of the TracerProvider wants.
	SpansAll
	// SpansNone makes none.
	SpansNone

	spans
)

var spansNames = [spans]string{"sampled", "all", "none"}

// String is "sampled", "all" or "none".
func (s Spans) String() string {
	if s < spans {
		return spansNames[s]
	}
	return fmt.Sprintf("Spans(%d)", uint8(s))
}

func (o *Options) check() error {
	if o.Spans >= spans {
		return &weir.OptionError{
			Option: "Options.Spans", Value: o.Spans.String(), Accepted: "SpansOfSampled, SpansAll or SpansNone",
		}
	}
	return nil
}
