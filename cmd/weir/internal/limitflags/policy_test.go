package limitflags

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// TestTextEqualsKey: a policy counts under the same keys as the limit that it is made of.
func TestTextEqualsKey(t *testing.T) {
	client := netip.MustParseAddr("2001:db8::17:5")
	r := httptest.NewRequestWithContext(t.Context(), "POST", "https://Api.Example.com:8443/a//b%2Cc?x=1", http.NoBody)
	r.Header.Set("X-Plan", `gold, and \ more`)
	of := &policy.Request{Method: r.Method, Host: r.Host, Path: r.URL.Path, Query: r.URL.RawQuery, Header: r.Header, Client: client}
	for _, by := range []string{"none", "client.ip", "client.net", "client.net:16/48", "header:X-Plan", "path", "method", "host", "client.ip,path,header:X-Plan"} {
		key, err := ParseKey(by)
		if err != nil {
			t.Fatal(err)
		}
		text, err := key.Text()
		if err != nil {
			t.Fatal(err)
		}
		got, err := text.AppendTo(nil, of)
		if want := key.FromRequest(r, client); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", by, got, err, want)
		}
	}
}

func TestSet(t *testing.T) {
	l := Limit{Rate: weir.PerSecond(3), Burst: 7, By: Client(), MaxKeys: 100}
	set, err := l.Set("limit")
	if err != nil {
		t.Fatal(err)
	}
	if err = set.Check(); err != nil {
		t.Error(err)
	}
	engine, err := policy.NewEngine(set, policy.EngineOptions{Clock: &manualclock.Clock{}})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	var v policy.Verdict
	for i := range 8 {
		engine.Take(&policy.Request{Client: netip.MustParseAddr("192.0.2.1")}, &v)
		if v.Allowed != (i < 7) {
			t.Errorf("request %d: %t", i, v.Allowed)
		}
		v.Release()
	}
}
