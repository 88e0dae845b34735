package metrics_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/weirhq/weir/policy"
)

// shown are the metrics that each panel of the dashboard shows, so that none shows those of another by mistake.
var shown = map[string]string{
	"Requests":                        "weir_requests_total",
	"Refused":                         "weir_requests_total",
	"Decision, p99":                   "weir_decision_duration_seconds_bucket",
	"Waited for":                      "weir_policy_queued_permits",
	"Locked out":                      "weir_policy_locked_keys",
	"Overridden":                      "weir_policy_overridden_keys",
	"Configuration":                   "weir_config_last_attempt_successful",
	"Servers":                         "up",
	"Requests by what became of them": "weir_requests_total",
	"Refused part, by policy":         "weir_policy_requests_total",
	"Refused, by policy":              "weir_policy_requests_total",
	"Allowed, by policy":              "weir_policy_requests_total",
	"Policies now": "weir_policy_requests_total weir_policy_keys weir_policy_queued_permits " +
		"weir_policy_locked_keys weir_policy_overridden_keys",
	"Decisions, by how long they took":         "weir_decision_duration_seconds_bucket",
	"Quantiles of decisions":                   "weir_decision_duration_seconds_bucket",
	"Permits that are waited for":              "weir_policy_queued_permits",
	"Keys that are locked out":                 "weir_policy_locked_keys",
	"Refusals of keys that are locked out":     "weir_policy_locked_out_total",
	"How full tables are":                      "weir_policy_keys weir_policy_max_keys",
	"Requests that met a full table":           "weir_policy_table_full_total weir_policy_untracked_total",
	"What cannot be told":                      "weir_rule_failed_total weir_policy_failed_total",
	"Rules that match":                         "weir_rule_matched_total",
	"What candidates and shadows would change": "weir_policy_differences_total weir_policy_compared_total",
	"Connections":                              "weir_front_connections",
	"RESP": "weir_resp_commands_total weir_resp_protocol_errors_total weir_resp_timeouts_total " +
		"weir_resp_wrong_passwords_total",
	"gRPC":                               "weir_grpc_calls_total",
	"Servers that ask before they serve": "weir_forward_auth_requests_total",
	"Refused or rejected by fronts":      "weir_front_connections_refused_total weir_front_requests_refused_total weir_check_rejected_total",
	"Admin API":                          "weir_admin_requests_total weir_admin_changes_total",
	"Store":                              "weir_store_available",
	"Replicas":                           "weir_store_replicas",
	"Calls of the store":                 "weir_store_calls_total",
	"Decided without the store":          "weir_store_fallback_decisions_total",
	"Owner":                              "weir_cluster_owner_known",
	"Epoch":                              "weir_cluster_epoch",
	"Owner: requests":                    "weir_cluster_requests_total",
	"Owner: writes and waiting":          "weir_cluster_writes_total weir_cluster_waiting_requests",
	"CPU":                                "process_cpu_seconds_total",
	"Memory":                             "process_resident_memory_bytes",
	"Goroutines":                         "go_goroutines",
	"Open files":                         "process_open_fds",
	"Configurations":                     "weir_config_reloads_total",
	"Versions":                           "weir_build_info",
}

var (
	inBraces = regexp.MustCompile(`\{[^}]*\}`)
	selected = regexp.MustCompile(`([a-z_]+)\{([^}]*)\}`)
	equal    = regexp.MustCompile(`([a-z_]+)="([^"$]*)"`)
	name     = regexp.MustCompile(`[a-z_:][a-z0-9_:]*`)
	// rated is what stands before counters, and before nothing else.
	rated = regexp.MustCompile(`\b(rate|irate|increase)\(\s*$`)
	// chosen are labels whose values are those of a configuration or of a deployment.
	chosen = []string{"policy", "rule", "store", "cluster", "job", "instance"}
)

// misasked is what is wrong with a query of metrics that exist: a value of a label that they never have, a counter as it is, or
// the rate of what goes up and down.
func misasked(all map[string]*dto.MetricFamily, query string) (problems []string) {
	for _, s := range selected.FindAllStringSubmatch(query, -1) {
		f := all[s[1]]
		for _, m := range equal.FindAllStringSubmatch(s[2], -1) {
			if f != nil && !slices.Contains(chosen, m[1]) && !slices.ContainsFunc(f.GetMetric(), func(one *dto.Metric) bool {
				return slices.ContainsFunc(one.GetLabel(), func(l *dto.LabelPair) bool {
					return l.GetName() == m[1] && l.GetValue() == m[2]
				})
			}) {
				problems = append(problems, s[1]+" never has "+m[0])
			}
		}
	}
	query = inBraces.ReplaceAllString(query, "")
	for _, at := range name.FindAllStringIndex(query, -1) {
		metric := query[at[0]:at[1]]
		f := all[strings.TrimSuffix(metric, "_bucket")]
		if f == nil {
			continue
		}
		counts := f.GetType() == dto.MetricType_COUNTER || f.GetType() == dto.MetricType_HISTOGRAM
		switch is := rated.MatchString(query[:at[0]]); {
		case counts && !is:
			problems = append(problems, metric+" counts, and is asked for as it is")
		case !counts && is:
			problems = append(problems, metric+" goes up and down, and has no rate")
		}
	}
	return problems
}

// TestQueriesAskRightly: queries of the dashboard and of the alerts ask for values that labels have, and for rates of counters; and
// each panel shows the metrics that it is about, in their unit.
func TestQueriesAskRightly(t *testing.T) {
	all := gather(t, start(t, everything(t, limits(t, policy.EngineOptions{}))))
	for _, r := range rules(t) {
		for _, p := range misasked(all, r.Expr) {
			t.Errorf("%s%s: %s", r.Alert, r.Record, p)
		}
	}
	text, err := os.ReadFile(filepath.Join(deploy, "grafana", "weir.json"))
	fatal(t, err)
	var board struct {
		Panels []panel `json:"panels"`
	}
	fatal(t, json.Unmarshal(text, &board))
	seen := 0
	for _, p := range board.Panels {
		if len(p.Targets) == 0 {
			continue
		}
		seen++
		want, unit := strings.Fields(shown[p.Title]), p.Field.Defaults.Unit
		var got []string
		for _, q := range p.Targets {
			for _, problem := range misasked(all, q.Expr) {
				t.Errorf("%s: %s", p.Title, problem)
			}
			expr := grouping.ReplaceAllString(inBraces.ReplaceAllString(q.Expr, ""), "")
			for _, metric := range name.FindAllString(expr, -1) {
				known := all[strings.TrimSuffix(metric, "_bucket")] != nil || metric == "up"
				if known && !slices.Contains(got, metric) {
					got = append(got, metric)
				}
			}
			switch {
			case p.Type == "table", p.Type == "heatmap":
			case strings.Contains(expr, "histogram_quantile(") != (unit == "s"),
				strings.Contains(expr, "_bytes") != (unit == "bytes"), strings.Contains(expr, " / ") != (unit == "percentunit"):
				t.Errorf("%s: %s is in %s", p.Title, expr, unit)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s shows %q, want %q", p.Title, got, want)
		}
	}
	if seen != len(shown) {
		t.Errorf("%d panels, want %d", seen, len(shown))
	}
}

// The check finds what is wrong.
func TestQueriesThatAskWrongly(t *testing.T) {
	all := gather(t, start(t, everything(t, limits(t, policy.EngineOptions{}))))
	for query, want := range map[string]string{
		`increase(weir_requests_total{result="refused"}[5m]) > 0 unless weir_policy_info{mode="shadow"}`: "",

		`rate(weir_requests_total{result="rejected", job="x"}[5m])`: `weir_requests_total never has result="rejected"`,
		`sum(weir_policy_requests_total{policy="any"})`:             "weir_policy_requests_total counts, and is asked for as it is",
		`rate(weir_policy_keys[5m])`:                                "weir_policy_keys goes up and down, and has no rate",
		`sum by (le) (weir_decision_duration_seconds_bucket)`:       "weir_decision_duration_seconds_bucket counts, and is asked for as it is",
	} {
		if got := strings.Join(misasked(all, query), "; "); got != want {
			t.Errorf("%s: %q, not %q", query, got, want)
		}
	}
}
