package metrics_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/metrics"
	"github.com/weirhq/weir/cmd/weir/internal/remote"
	"github.com/weirhq/weir/policy"
)

// collector takes what is sent by OTLP. The messages have their texts as they are.
type collector struct {
	*httptest.Server

	status atomic.Int64
	lock   sync.Mutex
	got    map[string][]byte // by path
}

func collect(t *testing.T) *collector {
	t.Helper()
	patiently(t)
	c := &collector{got: map[string][]byte{}}
	c.status.Store(http.StatusOK)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil { // metrics end, and cut off what they are sending
			return
		}
		c.lock.Lock()
		c.got[r.URL.Path] = append(c.got[r.URL.Path], body...)
		c.lock.Unlock()
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.WriteHeader(int(c.status.Load()))
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) has(path, text string) bool {
	c.lock.Lock()
	defer c.lock.Unlock()
	return bytes.Contains(c.got[path], []byte(text))
}

// patiently has what is sent taken as long as it takes, on a machine that stands still too. The time is in milliseconds.
func patiently(t *testing.T) {
	t.Helper()
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_METRIC_EXPORT_TIMEOUT", "OTEL_BSP_EXPORT_TIMEOUT"} {
		t.Setenv(name, "3600000")
	}
}

// sending are metrics that are sent to a collector.
func sending(t *testing.T, o metrics.Options) *metrics.Metrics {
	t.Helper()
	m, err := metrics.New(o)
	fatal(t, err)
	l := limits(t, policy.EngineOptions{Observer: m.Observer()})
	fatal(t, m.Start(metrics.Sources{
		Limits: l, Status: func() map[string]any { return map[string]any{"store": remote.FleetStatus{Store: "redis://a"}} },
	}))
	return m
}

// decide asks the engine as a request with a trace would.
func decide(t *testing.T, m *metrics.Metrics, traceparent string) {
	t.Helper()
	h := m.Traced(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		p := &policy.Policy{Name: "login"}
		v := &policy.Verdict{Allowed: true, Parts: []policy.Part{{Policy: p, Key: []byte("secret@example.com")}}}
		v.Parts[0].Decision.Allowed = true
		m.Observer().Decided(r.Context(), nil, v, time.Millisecond)
		m.Observer().Settled(v, time.Millisecond)
	}))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	if traceparent != "" {
		r.Header.Set("Traceparent", traceparent)
	}
	h.ServeHTTP(httptest.NewRecorder(), r)
}

const (
	sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

func TestOTLP(t *testing.T) {
	for what, c := range map[string]struct {
		traces, traceparent, keys string
		spans, hash               bool
	}{
		"off":              {traces: "off", traceparent: sampled},
		"no parent":        {traces: "parent"},
		"unsampled parent": {traces: "parent", traceparent: unsampled},
		"sampled parent":   {traces: "parent", traceparent: sampled, spans: true},
		"all":              {traces: "all", spans: true},
		"hashed":           {traces: "all", keys: "hashed", spans: true, hash: true},
		"wrong parent":     {traces: "parent", traceparent: "00-zz"},
	} {
		t.Run(what, func(t *testing.T) {
			to := collect(t)
			m := sending(t, metrics.Options{
				OTLP: metrics.OTLP{Endpoint: to.URL + "/base/", Interval: time.Hour, Traces: c.traces, Keys: c.keys},
				Hash: func(string) string { return "a-hash-of-it" },
			})
			decide(t, m, c.traceparent)
			fatal(t, m.Close(t.Context()))
			fatal(t, m.Close(t.Context()))
			const metricsAt, tracesAt = "/base/v1/metrics", "/base/v1/traces"
			for _, name := range []string{
				"weir.rate_limiting.requests", "weir.rate_limiting.request.time_in_queue", "weir.rate_limiting.active_request_leases",
				"weir.rate_limiting.policy.requests", "weir.rate_limiting.store.available", "service.name", "login",
			} {
				if !to.has(metricsAt, name) {
					t.Errorf("the metrics have no %s", name)
				}
			}
			for text, want := range map[string]bool{"rate_limit": c.spans, "a-hash-of-it": c.hash, "secret": false} {
				if to.has(tracesAt, text) != want {
					t.Errorf("the spans have %s: %t", text, !want)
				}
			}
			if to.has(metricsAt, "secret") || to.has(metricsAt, "a-hash-of-it") {
				t.Error("the metrics have a key")
			}
		})
	}
}

// TestOTLPTellsOfARefusedFile: a file with a mistake never comes to the engine.
func TestOTLPTellsOfARefusedFile(t *testing.T) {
	for want, mistake := range []error{nil, errors.New("a mistake")} {
		path, loads := filepath.Join(t.TempDir(), "weir.yaml"), 0
		fatal(t, os.WriteFile(path, nil, 0o600))
		to := collect(t)
		m, err := metrics.New(metrics.Options{OTLP: metrics.OTLP{Endpoint: to.URL, Interval: time.Hour}})
		fatal(t, err)
		l, err := live.Load(live.Options{
			Path: path, Logger: slog.New(slog.DiscardHandler),
			Parse: func(live.Files) (live.Parsed, error) {
				loads++
				if loads > 1 && mistake != nil {
					return live.Parsed{}, mistake
				}
				return live.Parsed{Set: &policy.Set{}}, nil
			},
		})
		fatal(t, err)
		t.Cleanup(func() { _ = l.Engine().Close() }) // it is always nil
		fatal(t, m.Start(metrics.Sources{Limits: l}))
		if _, err := l.Reload("test"); !errors.Is(err, mistake) {
			t.Error(err)
		}
		fatal(t, m.Close(t.Context()))
		if got, known := to.number("weir.rate_limiting.config.refused"); !known || int(got) != want {
			t.Errorf("%v: refused is %d (%t), not %d", mistake, got, known, want)
		}
	}
}

// number is the last value of a metric that is a whole number and has no attributes: what stands behind the tag of as_int, before
// the next metric.
func (c *collector) number(name string) (value uint64, known bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	_, behind, _ := bytes.Cut(c.got["/v1/metrics"], []byte(name))
	behind, _, _ = bytes.Cut(behind, []byte("weir.rate_limiting."))
	const tagOfInt = 6<<3 | 1 // field 6 of NumberDataPoint, of 64 bits
	at := bytes.LastIndexByte(behind[:max(len(behind)-8, 0)], tagOfInt)
	if at < 0 {
		return 0, false
	}
	return binary.LittleEndian.Uint64(behind[at+1:]), true
}

// logged keeps what is logged.
type logged struct {
	lock sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(text string) int {
	l.lock.Lock()
	defer l.lock.Unlock()
	return strings.Count(l.text.String(), text)
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); {
		if time.Now().After(deadline) {
			t.Fatal(what, ": not within 2 minutes")
		}
		<-time.After(5 * time.Millisecond)
	}
}

// A collector that takes nothing is told of once, and again when it does.
func TestOTLPRefused(t *testing.T) {
	to, log := collect(t), &logged{}
	to.status.Store(http.StatusBadRequest)
	m := sending(t, metrics.Options{
		OTLP: metrics.OTLP{Endpoint: to.URL, Interval: 20 * time.Millisecond, Traces: "off"}, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	eventually(t, "it is logged that nothing is taken", func() bool { return log.count("does not take what it is sent") == 1 })
	sent := func() int { to.lock.Lock(); defer to.lock.Unlock(); return len(to.got["/v1/metrics"]) }
	before := sent()
	eventually(t, "it is tried again", func() bool { return sent() > before })
	to.status.Store(http.StatusOK)
	eventually(t, "it is logged that it works", func() bool { return log.count("takes what it is sent again") == 1 })
	fatal(t, m.Close(t.Context()))
	if n := log.count("level=WARN"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, log.text.String())
	}
}

// A collector that does not answer does not hold up the end for longer than it may.
func TestOTLPCloseEnds(t *testing.T) {
	patiently(t) // so that nothing else ends what is sent
	end := make(chan struct{})
	to := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	defer to.Close()
	defer close(end)
	m := sending(t, metrics.Options{OTLP: metrics.OTLP{Endpoint: to.URL, Interval: time.Hour, Traces: "all"}})
	decide(t, m, sampled)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = m.Close(ctx) // what cannot be sent is logged
	}()
	select {
	case <-closed:
	case <-time.After(2 * time.Minute):
		t.Error("it goes on")
	}
}

func TestOTLPFlags(t *testing.T) {
	for line, want := range map[string]string{
		"":                                      "",
		"--otlp-endpoint=http://127.0.0.1:4318": "",
		"--otlp-endpoint=https://collector.example/otlp --otlp-interval=1m --otlp-traces=all --otlp-keys=hashed": "",
		"--otlp-endpoint=127.0.0.1:4318": "flag: must be http://HOST:PORT or https://HOST:PORT, with a path or without",
		"--otlp-endpoint=http://u:p@a":   "must be http://HOST:PORT",
		"--otlp-endpoint=http://a?x=1":   "must be http://HOST:PORT",
		"--otlp-endpoint=":               "must be http://HOST:PORT",
		"--otlp-interval=10ms":           "from 1s to 1h",
		"--otlp-interval=1m":             "--otlp-interval needs --otlp-endpoint",
		"--otlp-traces=all":              "--otlp-traces needs --otlp-endpoint",
		"--otlp-keys=hashed":             "--otlp-keys needs --otlp-endpoint",
		"--otlp-keys=plain":              "none or hashed",
		"--otlp-traces=some":             "off, parent or all",
	} {
		var o metrics.OTLP
		fs := pflag.NewFlagSet("weir", pflag.ContinueOnError)
		o.Register(fs)
		err := fs.Parse(strings.Fields(line))
		if err == nil {
			err = o.Check(fs)
		}
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, not %q", line, err, want)
		}
	}
	if _, err := metrics.New(metrics.Options{OTLP: metrics.OTLP{Endpoint: "http://127.0.0.1:1", Keys: "hashed"}}); err == nil {
		t.Error("hashes without a hash")
	}
}

// TestSpansOfChecks: the span of a check has its policy, and no rule, as none was written.
func TestSpansOfChecks(t *testing.T) {
	to := collect(t)
	m, err := metrics.New(metrics.Options{OTLP: metrics.OTLP{Endpoint: to.URL, Interval: time.Hour, Traces: "all"}})
	fatal(t, err)
	l := limits(t, policy.EngineOptions{Observer: m.Observer()})
	fatal(t, m.Start(metrics.Sources{Limits: l, Status: func() map[string]any { return nil }}))
	check := policy.Request{Named: &policy.Named{Policy: []byte("login"), Key: []byte("k"), Cost: 1}, Context: t.Context()}
	var v policy.Verdict
	l.Engine().DebitAll(t.Context(), []*policy.Request{&check}, &v)
	fatal(t, m.Close(t.Context()))
	for text, want := range map[string]bool{"login": true, "rate_limiting.rule": false} {
		if to.has("/v1/traces", text) != want {
			t.Errorf("the spans have %q: %t", text, !want)
		}
	}
}
