// Package metrics exports the metrics and traces of a server: on a page in the formats of Prometheus, and to a collector of
// OpenTelemetry.
package metrics

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/weirhq/weir/durable"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/weirprom"
)

// Options configure [Metrics].
type Options struct {
	// OTLP says where metrics and spans are sent to.
	OTLP OTLP
	// Hash makes of a key what spans have of it with --otlp-keys hashed, as [policy.RefusalLog.Hash] does. Required then.
	Hash func(key string) string
	// Logger logs that metrics could not be read or sent. Default: nil, silent.
	Logger *slog.Logger
}

// Metrics are the metrics of a server. All methods are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	log      *slog.Logger
	export   *export // nil if nothing is sent

	gathering sync.Mutex
	sources   *Sources // nil before Start
	latest    atomic.Pointer[snapshot]
}

const (
	// scrapes is how many requests for metrics are answered at a time.
	scrapes = 4
	// patience is how long one may take.
	patience = 10 * time.Second
)

// New makes them. The error says what is wrong with the options. Nothing is sent before Start.
func New(o Options) (*Metrics, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Metrics{registry: prometheus.NewRegistry(), log: o.Logger}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if o.OTLP.Endpoint == "" {
		return m, nil
	}
	var err error
	m.export, err = newExport(o)
	return m, err
}

// Observer is what the engine of the server needs as its Observer: nil if nothing is sent to a collector of OpenTelemetry,
// which is all that needs one.
func (m *Metrics) Observer() policy.Observer { //nolint:ireturn // it may be none
	if m.export == nil {
		return nil
	}
	return m.export.observer
}

// Start begins to measure, and to send metrics if a collector was named. It is called once, when the limits are there.
func (m *Metrics) Start(s Sources) error {
	first := s.read()
	m.latest.Store(first)
	all := []prometheus.Collector{
		newServer(slices.Concat(ofServer, ofFronts), m.latest.Load),
		weirprom.NewEngine(func() policy.Report { return m.latest.Load().limits.Report }),
	}
	if first.store.Store != "" {
		all = append(all, newServer(ofStore, m.latest.Load),
			weirprom.NewFleet(first.store.Store, func() store.FleetStats { return m.latest.Load().store.FleetStats }))
	}
	if first.cluster.Cluster != "" {
		all = append(all, newServer(ofCluster, m.latest.Load),
			weirprom.NewNode(first.cluster.Cluster, func() durable.NodeStats { return m.latest.Load().cluster.NodeStats }))
	}
	for _, c := range all {
		if err := m.registry.Register(c); err != nil {
			return err
		}
	}
	m.gathering.Lock()
	m.sources = &s
	m.gathering.Unlock()
	if m.export == nil {
		return nil
	}
	return m.export.start(&s, first)
}

// Gather implements [prometheus.Gatherer]: all metrics, as they are at one moment.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) {
	m.gathering.Lock()
	defer m.gathering.Unlock()
	if m.sources != nil {
		m.latest.Store(m.sources.read())
	}
	return m.registry.Gather()
}

// Handler answers with the metrics in the format of Prometheus that the request asks for. It does not look at who asks. What
// cannot be read is left out and logged.
func (m *Metrics) Handler() http.Handler {
	h := promhttp.HandlerFor(m, promhttp.HandlerOpts{
		ErrorLog: errorLog{m.log}, ErrorHandling: promhttp.ContinueOnError, Registry: m.registry,
		MaxRequestsInFlight: scrapes, CoalesceGather: true, Timeout: patience, EnableOpenMetrics: true,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "metrics are read by GET", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		h.ServeHTTP(w, r)
	})
}

// errorLog is how the handler of metrics logs.
type errorLog struct{ log *slog.Logger }

// Println implements [promhttp.Logger].
func (l errorLog) Println(v ...any) {
	for _, one := range v {
		if err, ok := one.(error); ok {
			l.log.Warn("some metrics could not be read", "error", err.Error())
		}
	}
}

// Traced puts the trace that requests belong to into their contexts, as their traceparent says it; it is next itself if no
// spans are sent.
func (m *Metrics) Traced(next http.Handler) http.Handler {
	if m.export == nil {
		return next
	}
	return m.export.traced(next)
}

// Close sends what was not sent yet, as far as it can until ctx ends, and ends sending. The error says what could not be
// sent. Closing twice is harmless.
func (m *Metrics) Close(ctx context.Context) error {
	if m.export == nil {
		return nil
	}
	return m.export.close(ctx)
}

var errNoHash = errors.New("weir: metrics: Hash is nil: required with keys of hashes")
