package proxy_test

import (
	"net/http"
	"net/netip"
	"reflect"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/proxy"
	"github.com/weirhq/weir/policy"
)

// TestUpstreamIsTold which policies with mode: tag a request is over. What a client says about it is dropped, however it spells it,
// also if a proxy that is trusted hands it on.
func TestUpstreamIsTold(t *testing.T) {
	for _, trusted := range [][]netip.Prefix{nil, {netip.MustParsePrefix("127.0.0.1/32")}} {
		upstreamIsTold(t, trusted)
	}
}

func upstreamIsTold(t *testing.T, trusted []netip.Prefix) {
	t.Helper()
	e, err := policy.NewEngine(&policy.Set{
		Policies: []policy.Policy{{Name: `a "soft" limit`, Mode: policy.ModeTag, Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(1), 1)}}}},
		Rules:    []policy.Rule{{Name: "all", Limits: []policy.Use{{Policy: `a "soft" limit`}}}},
	}, policy.EngineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	url, requests := recorder(t)
	p := start(t, url, func(o *proxy.Options) { o.Engine, o.TrustedProxies = e, trusted })
	for _, want := range [][]string{nil, {`"a \"soft\" limit"`}} {
		conn, reader := p.raw(t, "GET / HTTP/1.1\r\nHost: x\r\nWeir-Over: \r\nWeir-Over: \"mine\r\nWeir_Over: \"mine\"\r\nConnection: Weir-Over\r\n\r\n")
		if a := read(t, reader); a.StatusCode != http.StatusOK || a.Header.Get("Weir-Over") != "" {
			t.Errorf("%d %v", a.StatusCode, a.Header)
		}
		_ = conn.Close()
		got := receive(t, requests, "the request")
		if !reflect.DeepEqual(got.Header["Weir-Over"], want) || got.Header["Weir_over"] != nil {
			t.Errorf("the upstream got %q, want %q", got.Header, want)
		}
	}
}
