package metrics

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
)

// family is a metric of the server itself.
type family struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
	each       func(n *snapshot, emit emitter)
}

// single is a metric without labels.
func single(name string, kind prometheus.ValueType, help string, value func(n *snapshot) float64) family {
	return family{name: name, kind: kind, help: help, each: func(n *snapshot, emit emitter) { emit(value(n)) }}
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
	emit(1, flags.Version(), revision, runtime.Version())
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
	single("weir_check_rejected_total", counter, "Invalid requests of the JSON API.",
		func(n *snapshot) float64 { return float64(n.rejected) }),
	single("weir_check_reservations", gauge, "Open reservations of the JSON API and of RESP.",
		func(n *snapshot) float64 { return float64(n.reservations) }),
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
	single("weir_admin_changes_total", counter,
		"Changes that the audit log has, those that failed or found nothing to change included.",
		func(n *snapshot) float64 { return float64(n.admin.Changes) }),
	single("weir_admin_event_streams", gauge, "Open streams of events of the admin API.",
		func(n *snapshot) float64 { return float64(n.admin.Streams) }),
	single("weir_audit_log_errors_total", counter, "Failed tries to write to the audit log.",
		func(n *snapshot) float64 { return float64(n.admin.AuditErrors) }),
	single("weir_audit_log_failing", gauge, "1 if the last try to write to the audit log failed: nothing can be changed then.",
		func(n *snapshot) float64 { return truth(n.admin.AuditFailing) }),
	{
		name: "weir_refusals_total", kind: counter, labels: []string{result},
		help: "Refusals: noted, which can be looked up by ID, or missed because there were too many.",
		each: func(n *snapshot, emit emitter) {
			emit(float64(n.noted), "noted")
			emit(float64(n.missed), "missed")
		},
	},
	{
		name: "weir_certificate_expiry_timestamp_seconds", kind: gauge, labels: []string{"certificate"},
		help: "When a certificate expires: that of the fronts, or that of the cluster for its peers or for etcd.",
		each: func(n *snapshot, emit emitter) {
			if !n.certificateEnd.IsZero() {
				emit(float64(n.certificateEnd.Unix()), "fronts")
			}
			for to, end := range n.cluster.Certificates {
				emit(float64(end.Unix()), to)
			}
		},
	},
}

// ofStore is what the server tells of its store besides what that tells itself, and ofCluster the same of a cluster.
var (
	ofStore = []family{single("weir_store_reached", gauge, "1 if the store could be reached since the start.",
		func(n *snapshot) float64 { return truth(n.store.Reached) })}
	ofCluster = []family{single("weir_cluster_joined", gauge, "1 if the server has joined the cluster.",
		func(n *snapshot) float64 { return truth(n.cluster.Joined) })}
)

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
