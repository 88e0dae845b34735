package metrics

import (
	"errors"
	"net/url"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// OTLP says where metrics and spans are sent to by the protocol of OpenTelemetry. The zero value sends nothing. What the
// flags do not say is that of the environment variables of OpenTelemetry, such as OTEL_EXPORTER_OTLP_HEADERS and
// OTEL_RESOURCE_ATTRIBUTES.
type OTLP struct {
	// Endpoint is the URL of a collector that speaks OTLP over HTTP, such as http://127.0.0.1:4318, with the path before
	// /v1/metrics and /v1/traces. Default: "", nothing is sent.
	Endpoint string
	// Interval is how long it is from one sending of metrics to the next one: from 1 s to 1 h. Default: 15 s.
	Interval time.Duration
	// Traces says for which decisions there are spans: off, none; parent, those whose request says by its traceparent that it is
	// sampled; all. Default: parent.
	Traces string
	// Keys says how spans have keys: none, or hashed. Default: none.
	Keys string
}

const (
	usualInterval    = 15 * time.Second
	shortestInterval = time.Second
	longestInterval  = time.Hour
)

// The values of --otlp-traces and --otlp-keys.
const (
	tracesOff    = "off"
	tracesParent = "parent"
	tracesAll    = "all"
	keysNone     = "none"
	keysHashed   = "hashed"
)

// Register sets o to the defaults and adds the flags to fs, which write to o.
func (o *OTLP) Register(fs *pflag.FlagSet) {
	*o = OTLP{Interval: usualInterval, Traces: tracesParent, Keys: keysNone}
	fs.Var(flags.TextOf("URL", &o.Endpoint, endpoint), "otlp-endpoint",
		"URL of a collector of OpenTelemetry that gets metrics and spans,\nsuch as http://127.0.0.1:4318 (default: none)")
	fs.Var(flags.Duration(&o.Interval, shortestInterval, longestInterval), "otlp-interval",
		"how often metrics are sent to --otlp-endpoint, from 1s to 1h")
	fs.Var(flags.OneOf(&o.Traces, tracesOff, tracesParent, tracesAll), "otlp-traces",
		"decisions of which spans are sent to --otlp-endpoint: parent are those\nof requests whose traceparent is sampled")
	fs.Var(flags.OneOf(&o.Keys, keysNone, keysHashed), "otlp-keys", "how spans have keys")
}

// Check finds flags that do not go together.
func (o *OTLP) Check(fs *pflag.FlagSet) error {
	if o.Endpoint != "" {
		return nil
	}
	return flags.Alone(fs, "needs --otlp-endpoint", "otlp-interval", "otlp-traces", "otlp-keys")
}

// endpoint is the URL of a collector.
func endpoint(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("must be http://HOST:PORT or https://HOST:PORT, with a path or without")
	}
	return text, nil
}
