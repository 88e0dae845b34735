package metrics_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/cmd/weir/internal/metrics"
	"github.com/weirhq/weir/policy"
)

// Whatever fronts tell of themselves is there: a name that they do not use would have no value.
func TestMetricsOfServer(t *testing.T) {
	l := limits(t, policy.EngineOptions{})
	var v policy.Verdict
	for range 3 {
		l.Engine().Take(&policy.Request{}, &v)
		v.Release()
	}
	m := start(t, everything(t, l))
	got := series(gather(t, m))
	for name, want := range map[string]float64{
		"weir_requests_total{result=allowed}":                                  2,
		"weir_requests_total{result=refused}":                                  1,
		"weir_policy_requests_total{policy=login,result=refused}":              1,
		"weir_policy_differences_total{difference=newly_refused,policy=login}": 1,
		"weir_rule_matched_total{rule=a rule}":                                 3,
		"weir_rules{}":                                                         1,
		"weir_config_version{}":                                                1,
		"weir_config_last_attempt_successful{}":                                1,
		"weir_config_reloads_total{result=loaded}":                             0,
		"weir_config_reloads_total{result=refused}":                            0,
		"weir_check_rejected_total{}":                                          4,
		"weir_check_reservations{}":                                            0,
		"weir_admin_requests_total{result=authorized}":                         5,
		"weir_admin_requests_total{result=unauthorized}":                       6,
		"weir_admin_requests_total{result=limited}":                            7,
		"weir_admin_changes_total{}":                                           8,
		"weir_audit_log_errors_total{}":                                        9,
		"weir_audit_log_failing{}":                                             1,
		"weir_admin_event_streams{}":                                           10,
		"weir_refusals_total{result=noted}":                                    11,
		"weir_refusals_total{result=missed}":                                   12,
		"weir_certificate_expiry_timestamp_seconds{certificate=fronts}":        2_000_000_000,
		"weir_certificate_expiry_timestamp_seconds{certificate=peers}":         2_100_000_000,
		"weir_store_reached{}":                                                 1,
		"weir_store_available{store=redis://127.0.0.1:6379}":                   1,
		"weir_cluster_joined{}":                                                1,
		"weir_cluster_owns{cluster=etcd at 127.0.0.1:2379}":                    0,
		"weir_front_connections{front=http}":                                   3,
		"weir_front_connections{front=resp}":                                   0,
		"weir_front_connections{front=grpc}":                                   0,
		"weir_front_connections{front=proxy}":                                  0,
		"weir_front_connections{front=admin}":                                  15,
		"weir_front_connections_evicted_total{front=http}":                     13,
		"weir_front_connections_evicted_total{front=admin}":                    16,
		"weir_front_connections_evicted_total{front=resp}":                     0,
		"weir_front_connections_evicted_total{front=grpc}":                     0,
		"weir_front_connections_evicted_total{front=proxy}":                    0,
		"weir_front_connections_refused_total{front=http}":                     14,
		"weir_front_connections_refused_total{front=admin}":                    17,
		"weir_front_connections_refused_total{front=resp}":                     0,
		"weir_front_connections_refused_total{front=grpc}":                     0,
		"weir_front_connections_refused_total{front=proxy}":                    0,
		"weir_front_requests_refused_total{front=http}":                        18,
		"weir_front_requests_refused_total{front=admin}":                       19,
		"weir_front_requests_refused_total{front=proxy}":                       0,
		"weir_resp_connections_total{}":                                        0,
		"weir_resp_commands_total{}":                                           0,
		"weir_resp_protocol_errors_total{}":                                    0,
		"weir_resp_timeouts_total{}":                                           0,
		"weir_resp_wrong_passwords_total{}":                                    0,
		"weir_resp_throttle_requests_total{result=allowed}":                    0,
		"weir_resp_throttle_requests_total{result=refused}":                    0,
		"weir_resp_throttle_keys{}":                                            0,
		"weir_resp_throttle_max_keys{}":                                        100,
		"weir_grpc_calls_total{method=should_rate_limit,result=ok}":            0,
		"weir_grpc_calls_total{method=should_rate_limit,result=over_limit}":    0,
		"weir_grpc_calls_total{method=check_rate_limit,result=failed}":         0,
		"weir_grpc_calls_total{method=report,result=ok}":                       0,
		"weir_grpc_connections_cut_off_total{}":                                0,
		"weir_grpc_arriving_bytes{}":                                           0,
		"weir_rlqs_streams{}":                                                  0,
		"weir_rlqs_buckets{}":                                                  0,
		"weir_rlqs_reports_total{}":                                            0,
		"weir_rlqs_protocol_errors_total{}":                                    0,
		"weir_forward_auth_requests_total{result=allowed}":                     0,
		"weir_forward_auth_requests_total{result=refused}":                     0,
		"weir_forward_auth_requests_total{result=rejected}":                    0,
		"weir_proxy_requests_total{result=allowed}":                            0,
		"weir_proxy_requests_total{result=refused}":                            0,
		"weir_proxy_requests_total{result=over_concurrency}":                   0,
		"weir_proxy_requests_total{result=rejected}":                           0,
		"weir_proxy_upstream_errors_total{}":                                   0,
		"weir_proxy_aborted_total{}":                                           0,
		"weir_proxy_in_flight{}":                                               0,
		"weir_proxy_upgraded{}":                                                0,
		"weir_proxy_waiting{}":                                                 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (%t), not %v", name, v, ok, want)
		}
	}
	for name := range gather(t, m) {
		if strings.HasPrefix(name, "weir_") && !strings.Contains(name, "build_info") && !isThere(got, name) {
			t.Errorf("%s has no value", name)
		}
	}
	for _, name := range []string{"go_goroutines{}", "process_open_fds{}", "process_cpu_seconds_total{}"} {
		if got[name] == 0 {
			t.Errorf("%s is missing", name)
		}
	}
}

func isThere(series map[string]float64, name string) bool {
	for s := range series {
		if strings.HasPrefix(s, name+"{") {
			return true
		}
	}
	return false
}

// A server that has only the limits has the metrics of those, and no store that would never answer.
func TestMetricsOfLimitsAlone(t *testing.T) {
	got := series(gather(t, start(t, metrics.Sources{Limits: limits(t, policy.EngineOptions{})})))
	for name := range got {
		for _, other := range []string{"weir_store", "weir_cluster", "weir_resp", "weir_grpc", "weir_rlqs", "weir_forward", "weir_certificate"} {
			if strings.HasPrefix(name, other) {
				t.Errorf("there is a %s", name)
			}
		}
	}
	if _, ok := got["weir_requests_total{result=allowed}"]; !ok {
		t.Error("there is no weir_requests_total")
	}
}

func TestConventionsOfServer(t *testing.T) {
	problems, err := testutil.GatherAndLint(start(t, everything(t, limits(t, policy.EngineOptions{}))))
	fatal(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestHandler(t *testing.T) {
	m := start(t, everything(t, limits(t, policy.EngineOptions{})))
	h := m.Handler()
	for _, c := range []struct{ accept, contentType, has string }{
		{"", "text/plain; version=0.0.4", "weir_requests_total{result=\"allowed\"} 0\n"},
		{"application/openmetrics-text; version=1.0.0", "application/openmetrics-text; version=1.0.0", "# EOF\n"},
		{"application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited", "application/vnd.google.protobuf", "weir_requests_total"},
	} {
		w := ask(t, h, http.MethodGet, c.accept)
		if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), c.contentType) || !strings.Contains(w.Body.String(), c.has) {
			t.Errorf("%q: %d %s", c.accept, w.Code, w.Header())
		}
		if w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%q: it may be cached", c.accept)
		}
	}
	if w := ask(t, h, http.MethodPost, ""); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %s", w.Code, w.Header())
	}
	if w := ask(t, h, http.MethodGet, ""); !strings.Contains(w.Body.String(), "promhttp_metric_handler_errors_total{cause=\"gathering\"} 0") {
		t.Error("some metrics could not be gathered")
	}
}

// Before the limits are there, there are those of Go.
func TestHandlerBeforeStart(t *testing.T) {
	m, err := metrics.New(metrics.Options{})
	fatal(t, err)
	w := ask(t, m.Handler(), http.MethodGet, "")
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "go_goroutines") || strings.Contains(w.Body.String(), "weir_") {
		t.Errorf("%d", w.Code)
	}
	if m.Observer() != nil {
		t.Error("there is an observer that is not needed")
	}
	next := http.NotFoundHandler()
	if ask(t, m.Traced(next), http.MethodGet, "").Code != http.StatusNotFound {
		t.Error("requests do not come through")
	}
}

// Several may ask while requests are decided, and no count goes back.
func TestHandlerContention(t *testing.T) {
	l := limits(t, policy.EngineOptions{})
	m := start(t, everything(t, l))
	h := m.Handler()
	end := make(chan struct{})
	var deciding, asking sync.WaitGroup
	deciding.Go(func() {
		var v policy.Verdict
		for {
			select {
			case <-end:
				return
			default:
				l.Engine().Take(&policy.Request{}, &v)
				v.Release()
			}
		}
	})
	for range 3 {
		asking.Go(func() {
			last := 0.0
			for range 6 {
				if w := ask(t, h, http.MethodGet, ""); w.Code != http.StatusOK {
					t.Errorf("%d", w.Code)
				}
				families, err := m.Gather()
				if err != nil {
					t.Error(err)
					return
				}
				for _, f := range families {
					if f.GetName() == "weir_policy_requests_total" {
						now := f.GetMetric()[1].GetCounter().GetValue()
						if now < last {
							t.Errorf("%v after %v", now, last)
						}
						last = now
					}
				}
			}
		})
	}
	asking.Wait()
	close(end)
	deciding.Wait()
}
