package metrics

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// family is a metric of the server itself.
type family struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
	each       func(n *snapshot, emit emitter)
}

// emitter takes a value, with one value for each label.
type emitter func(value float64, labels ...string)

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// server is the collector of what the server tells of itself.
type server struct {
	families     []family
	descriptions []*prometheus.Desc
	now          func() *snapshot
}

func newServer(families []family, now func() *snapshot) *server {
	s := &server{families: families, now: now}
	for i := range families {
		f := &families[i]
		s.descriptions = append(s.descriptions, prometheus.NewDesc(f.name, f.help, f.labels, nil))
	}
	return s
}

// Describe implements [prometheus.Collector].
func (s *server) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range s.descriptions {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (s *server) Collect(ch chan<- prometheus.Metric) {
	n := s.now()
	for i := range s.families {
		f := &s.families[i]
		f.each(n, func(v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(s.descriptions[i], f.kind, v, labels...)
		})
	}
}

// buildInfo tells which program it is.
func buildInfo(_ *snapshot, emit emitter) {
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	emit(1, version(), revision, runtime.Version())
}

// version is that of the program.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// ofServer are the metrics that every server has.
var ofServer = []family{
	{
		name: "weir_build_info", kind: gauge, labels: []string{"version", "revision", "go_version"},
		help: "1, with the version of the program.",
		each: buildInfo,
	},
	{
		name: "weir_config_reloads_total", kind: counter, labels: []string{result},
		help: "Reloads of the configuration: loaded or refused.",
		each: func(n *snapshot, emit emitter) {
			emit(float64(n.limits.Reloads), "loaded")
			emit(float64(n.limits.Refused), "refused")
		},
	},
	{
		name: "weir_check_rejected_total", kind: counter,
		help: "Invalid requests of the JSON API.",
		each: func(n *snapshot, emit emitter) { emit(float64(n.rejected)) },
	},
	{
		name: "weir_check_reservations", help: "Open reservations of the JSON API and of RESP.", kind: gauge,
		each: func(n *snapshot, emit emitter) { emit(float64(n.reservations)) },
	},
	{
		name: "weir_admin_requests_total", kind: counter, labels: []string{result},
		help: "Requests of the admin API: authorized, unauthorized (without a valid token or certificate), or limited (too " +
			"many).",
		each: func(n *snapshot, emit emitter) {
			emit(float64(n.admin.Requests), "authorized")
			emit(float64(n.admin.Unauthorized), "unauthorized")
			emit(float64(n.admin.Limited), "limited")
		},
	},
	{
		name: "weir_admin_changes_total", help: "Changes by the admin API.", kind: counter,
		each: func(n *snapshot, emit emitter) { emit(float64(n.admin.Changes)) },
	},
	{
		name: "weir_admin_event_streams", help: "Open streams of events of the admin API.", kind: gauge,
		each: func(n *snapshot, emit emitter) { emit(float64(n.admin.Streams)) },
	},
	{
		name: "weir_audit_log_errors_total", kind: counter,
		help: "Failed tries to write to the audit log.",
		each: func(n *snapshot, emit emitter) { emit(float64(n.admin.AuditErrors)) },
	},
	{
		name: "weir_audit_log_failing", kind: gauge,
		help: "1 if the last try to write to the audit log failed: nothing can be changed then.",
		each: func(n *snapshot, emit emitter) { emit(truth(n.admin.AuditFailing)) },
	},
	{
		name: "weir_refusals_total", kind: counter, labels: []string{result},
		help: "Refusals: noted, which can be looked up by ID, or missed because there were too many.",
		each: func(n *snapshot, emit emitter) {
			emit(float64(n.noted), "noted")
			emit(float64(n.missed), "missed")
		},
	},
	{
		name: "weir_certificate_expiry_timestamp_seconds", kind: gauge,
		help: "When the certificate of the fronts expires, if they have one.",
		each: func(n *snapshot, emit emitter) {
			if !n.certificateEnd.IsZero() {
				emit(float64(n.certificateEnd.Unix()))
			}
		},
	},
}

// ofStore is what the server tells of its store besides what that tells itself, and ofCluster the same of a cluster.
var (
	ofStore = []family{{
		name: "weir_store_reached", help: "1 if the store could be reached since the start.", kind: gauge,
		each: func(n *snapshot, emit emitter) { emit(truth(n.store.Reached)) },
	}}
	ofCluster = []family{{
		name: "weir_cluster_joined", help: "1 if the server has joined the cluster.", kind: gauge,
		each: func(n *snapshot, emit emitter) { emit(truth(n.cluster.Joined)) },
	}}
)

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
