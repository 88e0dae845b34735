package metrics_test

import (
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/front/forwardauth"
	"github.com/weirhq/weir/cmd/weir/internal/front/holds"
	"github.com/weirhq/weir/cmd/weir/internal/front/respapi"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlqsapi"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlsapi"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/metrics"
	"github.com/weirhq/weir/cmd/weir/internal/proxy"
	"github.com/weirhq/weir/cmd/weir/internal/remote"
	"github.com/weirhq/weir/policy"
)

// limits are those of one policy with a candidate, and of one in shadow that no rule has.
func limits(t *testing.T, o policy.EngineOptions) *live.Limits {
	t.Helper()
	l, err := live.Fixed(&policy.Set{
		Policies: []policy.Policy{{
			Name: "login", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), 2)}},
			Candidate: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), 1)}},
		}, {
			Name: "trial", Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), 2)}}, Mode: policy.ModeShadow,
		}},
		Rules: []policy.Rule{{Name: "a rule", Limits: []policy.Use{{Policy: "login"}}}},
	}, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Engine().Close() }) // it is always nil
	return l
}

// everything is a server with all fronts, of which none listens, and the states of a store and of a cluster.
func everything(t *testing.T, l *live.Limits) metrics.Sources {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	held := holds.New(holds.Options{})
	t.Cleanup(held.Close)
	resp, err := respapi.New(respapi.Options{Limits: l, Holds: held, MaxConnections: 10, MaxKeys: 100, Logger: quiet})
	fatal(t, err)
	quotas := rlqsapi.New(rlqsapi.Options{Limits: l, Logger: quiet})
	t.Cleanup(quotas.Close)
	grpc, err := rlsapi.New(rlsapi.Options{Limits: l, Quotas: quotas, Logger: quiet})
	fatal(t, err)
	auth, err := forwardauth.New(forwardauth.Options{Decider: l.Engine(), Status: http.StatusTooManyRequests})
	fatal(t, err)
	to, err := proxy.ParseUpstream("http://127.0.0.1:1")
	fatal(t, err)
	passed, err := proxy.New(proxy.Options{Upstream: to, Engine: l.Engine(), Bound: front.NewBounded(1, 1, quiet), Logger: quiet})
	fatal(t, err)
	return metrics.Sources{
		Limits: l,
		Status: func() map[string]any {
			return map[string]any{
				"http": map[string]any{
					"connections": 3, "connections_evicted": int64(13), "connections_refused": int64(14), "requests_refused": int64(18),
				},
				"admin": map[string]any{
					"connections": 15, "connections_evicted": int64(16), "connections_refused": int64(17), "requests_refused": int64(19),
				},
				"resp": resp.Status(), "grpc": grpc.Status(), "rlqs": quotas.Status(), "forward_auth": auth.Counts(),
				"proxy": passed.Status(),
				"store": remote.FleetStatus{Store: "redis://127.0.0.1:6379", Reached: true},
				"cluster": remote.ClusterStatus{
					Cluster: "etcd at 127.0.0.1:2379", Joined: true,
					Certificates: map[string]time.Time{"peers": time.Unix(2_100_000_000, 0)},
				},
			}
		},
		Rejected: func() int64 { return 4 }, Reservations: held.Len,
		Admin: func() metrics.Admin {
			return metrics.Admin{Requests: 5, Unauthorized: 6, Limited: 7, Changes: 8, AuditErrors: 9, AuditFailing: true, Streams: 10}
		},
		Refusals: func() (noted, missed uint64) { return 11, 12 },
		TLS: &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Leaf: &x509.Certificate{NotAfter: time.Unix(2_000_000_000, 0)}}},
		},
	}
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start returns metrics that have begun.
func start(t *testing.T, s metrics.Sources) *metrics.Metrics {
	t.Helper()
	m, err := metrics.New(metrics.Options{})
	fatal(t, err)
	fatal(t, m.Start(s))
	t.Cleanup(func() {
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// gather are the metrics that begin with weir_, by name.
func gather(t *testing.T, m *metrics.Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := m.Gather()
	fatal(t, err)
	all := map[string]*dto.MetricFamily{}
	for _, f := range families {
		all[f.GetName()] = f
	}
	return all
}

// series are the values of metrics: NAME{LABELS}.
func series(families map[string]*dto.MetricFamily) map[string]float64 {
	all := map[string]float64{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			all[name+"{"+strings.Join(labels, ",")+"}"] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// ask asks a handler.
func ask(t *testing.T, h http.Handler, method, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/metrics", http.NoBody)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
