package metrics_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/attribute"
	metricsdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/dispatch"
	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/overload"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
	"github.com/weirhq/weir/tiers"
	"github.com/weirhq/weir/weirotel"
	"github.com/weirhq/weir/weirprom"
)

var write = flag.Bool("write", false, "write docs/metrics.md instead of comparing it")

const documented = "../../../../docs/metrics.md"

// ofLibrary are the metrics that programs have which use the library.
func ofLibrary(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(
		weirprom.NewLimiter("l", func() weir.Stats { return weir.Stats{Limit: 1} }),
		weirprom.NewKeyed("k", func() weir.Stats { return weir.Stats{} }),
		weirprom.NewGuard("g", func() guard.Stats { return guard.Stats{} }),
		weirprom.NewShedder("s", func() overload.ShedderStats {
			return overload.ShedderStats{Priorities: make([]overload.PriorityStats, 1), Readings: make([]overload.PressureReading, 1)}
		}),
		weirprom.NewGate("h", func() httplimit.GateStats { return httplimit.GateStats{} }),
		weirprom.NewTiers("t", func() tiers.Report { return tiers.Report{} }),
		weirprom.NewDispatcher("d", func() dispatch.Stats { return dispatch.Stats{} }),
	)
	families, err := r.Gather()
	fatal(t, err)
	all := map[string]*dto.MetricFamily{}
	for _, f := range families {
		all[f.GetName()] = f
	}
	return all
}

// prometheusTables are the metrics for Prometheus, by the names of their tables.
func prometheusTables(t *testing.T) map[string]string {
	t.Helper()
	tables := map[string]string{}
	add := func(families map[string]*dto.MetricFamily, tableOf func(name string) string) {
		for _, name := range slices.Sorted(maps.Keys(families)) {
			table := tableOf(name)
			if table == "" {
				continue
			}
			f := families[name]
			labels := map[string]bool{}
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					labels["`"+l.GetName()+"`"] = true
				}
			}
			tables[table] += fmt.Sprintf("| %#q | %s | %s | %s |\n", name, strings.ToLower(f.GetType().String()),
				strings.Join(slices.Sorted(maps.Keys(labels)), ", "), f.GetHelp())
		}
	}
	begins := func(name string, all ...string) bool {
		return slices.ContainsFunc(all, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	}
	add(gather(t, start(t, everything(t, limits(t, policy.EngineOptions{})))), func(name string) string {
		switch {
		case !begins(name, "weir_"):
			return ""
		case begins(name, "weir_store_"):
			return "store"
		case begins(name, "weir_cluster_"):
			return "cluster"
		case begins(name, "weir_front_", "weir_resp_", "weir_grpc_", "weir_rlqs_", "weir_forward_", "weir_proxy_", "weir_check_", "weir_certificate_"):
			return "fronts"
		case begins(name, "weir_admin_", "weir_audit_", "weir_refusals_", "weir_build_", "weir_config_reloads_"):
			return "server"
		default:
			return "engine"
		}
	})
	add(ofLibrary(t), func(string) string { return "library" })
	for name, rows := range tables {
		tables[name] = "| metric | type | labels | what |\n|---|---|---|---|\n" + rows
	}
	return tables
}

// openTelemetryTable has the instruments.
func openTelemetryTable(t *testing.T) string {
	t.Helper()
	reader := metricsdk.NewManualReader()
	i, err := weirotel.New(weirotel.Options{MeterProvider: metricsdk.NewMeterProvider(metricsdk.WithReader(reader))})
	fatal(t, err)
	p := &policy.Policy{Name: "p"}
	granted := &policy.Verdict{Allowed: true, Parts: []policy.Part{{Policy: p, Decision: weir.Decision{Allowed: true}}}}
	i.Decided(t.Context(), nil, granted, time.Second)
	i.Settled(granted, time.Second)
	i.Decided(t.Context(), nil, &policy.Verdict{Parts: []policy.Part{{Policy: p, Decision: weir.Decision{Reason: weir.ReasonLimited}}}}, time.Second)
	report := policy.Report{Policies: make([]policy.PolicyReport, 1), Rules: make([]policy.RuleReport, 1)}
	fatal(t, i.Watch(func() policy.Report { return report }))
	fatal(t, i.WatchFleet(func() store.FleetStats { return store.FleetStats{} }))
	var all metricdata.ResourceMetrics
	fatal(t, reader.Collect(t.Context(), &all))
	var rows []string
	for _, m := range all.ScopeMetrics[0].Metrics {
		kind, attributes := "", map[string]bool{}
		note := func(set attribute.Set) {
			for _, a := range set.ToSlice() {
				short, ok := strings.CutPrefix(string(a.Key), "weir.rate_limiting.")
				if !ok {
					t.Errorf("%s has the attribute %s", m.Name, a.Key)
				}
				attributes["`"+short+"`"] = true
			}
		}
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			kind = map[bool]string{true: "counter", false: "up-down counter"}[data.IsMonotonic]
			for _, p := range data.DataPoints {
				note(p.Attributes)
			}
		case metricdata.Histogram[float64]:
			kind = "histogram"
			for _, p := range data.DataPoints {
				note(p.Attributes)
			}
		default:
			t.Errorf("%s has %T", m.Name, data)
		}
		rows = append(rows, fmt.Sprintf("| %#q | %s | %#q | %s | %s |\n", m.Name, kind, m.Unit,
			strings.Join(slices.Sorted(maps.Keys(attributes)), ", "), m.Description))
	}
	slices.Sort(rows)
	return "| instrument | kind | unit | attributes | what |\n|---|---|---|---|---|\n" + strings.Join(rows, "")
}

// TestDocs compares the tables of docs/metrics.md with the metrics that there are. -write writes them.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile(documented)
	fatal(t, err)
	tables := prometheusTables(t)
	tables["opentelemetry"] = openTelemetryTable(t)
	text := string(page)
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		begin, end := "<!-- "+name+": written by go test ./internal/metrics -run TestDocs -write -->\n", "<!-- end -->\n"
		before, rest, ok := strings.Cut(text, begin)
		_, after, ended := strings.Cut(rest, end)
		if !ok || !ended {
			t.Fatalf("docs/metrics.md has no place %q", begin)
		}
		text = before + begin + "\n" + tables[name] + "\n" + end + after
	}
	if *write {
		fatal(t, os.WriteFile(documented, []byte(text), 0o600))
		return
	}
	if text != string(page) {
		t.Error("the tables of docs/metrics.md are not those of the metrics: in cmd/weir run go test ./internal/metrics -run TestDocs -args -write")
	}
}
