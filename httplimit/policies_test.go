package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/ratelimitfields"
)

func TestChainTellsAllPoliciesAndTheLimitThatBinds(t *testing.T) {
	inner, err := weir.NewChain(bucket(t, weir.TokenBucket(weir.Rate{}, 0), weir.Options{Name: "burst"}))
	if err != nil {
		t.Fatal(err)
	}
	window, err := weir.New(weir.FixedWindow(weir.PerDay(3)), weir.Options{
		Name: "daily", Clock: manualclock.New(0),
	})
	if err != nil {
		t.Fatal(err)
	}
	chain, err := weir.NewChain(slots(t, 9, weir.Options{Name: "slots"}), inner, window)
	if err != nil {
		t.Fatal(err)
	}
	handler := limit(t, httplimit.Options{Limiter: chain})(ok)
	all := `"slots";q=9;qu="concurrent-requests", "burst";q=20;w=2, "daily";q=3;w=86400`
	for i, want := range []string{`"daily";r=2;t=86400`, `"daily";r=1;t=86400`, `"daily";r=0;t=86400`, `"daily";r=0;t=86400`} {
		resp := get(handler)
		if got := resp.header.Get("Ratelimit"); got != want || resp.header.Get("Ratelimit-Policy") != all {
			t.Errorf("%v, want %s and %s", resp.header, want, all)
		}
		if refused := resp.status == http.StatusTooManyRequests; refused != (i == 3) {
			t.Errorf("request %d: status %d", i+1, resp.status)
		}
		if i < 3 {
			continue
		}
		if resp.header.Get("Retry-After") != "86400" || !strings.Contains(resp.body, `"violated-policies":["daily"]`) {
			t.Errorf("refused: %v", resp.header)
		}
	}
}

func TestPoliciesOption(t *testing.T) {
	handler := limit(t, httplimit.Options{
		Limiter: bucket(t, weir.TokenBucket(weir.Rate{}, 0), weir.Options{}),
		Policies: []ratelimitfields.Policy{
			{Name: "upload", Quota: 1000, Window: time.Minute, Unit: ratelimitfields.ContentBytes},
		},
	})(ok)
	expect(t, get(handler).header, map[string]string{
		"Ratelimit": `"upload";r=19;t=1`, "Ratelimit-Policy": `"upload";q=1000;qu="content-bytes";w=60`,
	})
}

func TestALimiterWithoutQuota(t *testing.T) {
	keyed := &recordingKeyed{}
	expect(t, get(limit(t, httplimit.Options{Keyed: keyed})(ok)).header, map[string]string{
		"Ratelimit": `"recording";r=8`, "Ratelimit-Policy": `"recording";q=9`,
	})
}

// TestAPolicyThatWasNotThereAtTheStart is about limiters of other origin whose decisions name a policy that the options do not
// have.
func TestAPolicyThatWasNotThereAtTheStart(t *testing.T) {
	keyed := &fixedKeyed{weir.Decision{Allowed: true, Limit: 7, Remaining: 6, Policy: "new"}}
	handler := limit(t, httplimit.Options{Keyed: keyed, Policies: []ratelimitfields.Policy{{Name: "a"}, {Name: "b"}}})(ok)
	expect(t, get(handler).header, map[string]string{"Ratelimit": `"new";r=6`, "Ratelimit-Policy": `"new";q=7`})

	keyed.decision.Policy = "a\r\nSet-Cookie: x"
	expect(t, get(handler).header, map[string]string{"Ratelimit": `"a";r=6`, "Ratelimit-Policy": `"a";q=0, "b";q=0`})
}

// TestHeaderInjection tries everything that a client or a configuration can put into a field.
func TestHeaderInjection(t *testing.T) {
	const evil = "x\r\nSet-Cookie: admin=1\r\n\r\n<script>"
	if _, err := httplimit.New(httplimit.Options{Limiter: bucket(t, weir.TokenBucket(weir.Rate{}, 0), weir.Options{Name: evil})}); err == nil {
		t.Error("a limiter with that name is accepted")
	}
	if _, err := httplimit.New(httplimit.Options{
		Limiter: bucket(t, weir.TokenBucket(weir.Rate{}, 0), weir.Options{}), Policies: []ratelimitfields.Policy{{Name: evil}},
	}); err == nil {
		t.Error("a policy with that name is accepted")
	}
	handler := limit(t, httplimit.Options{
		Keyed: perClient(t, 1), Key: constant(evil),
		PartitionKey: func(_ *http.Request, key string) []byte { return []byte(key) },
	})(ok)
	server := httptest.NewServer(handler)
	defer server.Close()
	for _, status := range []int{200, 429} {
		resp := fetch(t, server, http.MethodGet)
		if resp.status != status || len(resp.header["Set-Cookie"]) > 0 || strings.Contains(resp.body, "script") {
			t.Errorf("status %d, %v", resp.status, resp.header)
		}
		for name, values := range resp.header {
			for _, v := range values {
				if strings.ContainsAny(v, "\r\n\x00") || strings.Contains(v, "admin") {
					t.Errorf("%s: %q", name, v)
				}
			}
		}
	}
}
