package checkapi_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// TestQuotasOfAnyKey: the quota of a key that is no text is looked at and adjusted by the spelling that the admin API has for it,
// and by no other.
func TestQuotasOfAnyKey(t *testing.T) {
	h := newFronts(t).durable
	adjust := func(key string, status int) string {
		t.Helper()
		body := `{"policy":"tenant","key":"` + key + `","permits":-5,"by":"ops","reason":"test"}`
		r := send(h, "POST", "/v1/quota/adjust", "application/json", body)
		if r.Code != status {
			t.Errorf("%q: %d %s", key, r.Code, r.Body)
		}
		return r.Body.String()
	}
	if got := adjust(`caf\\xe9`, 200); !strings.Contains(got, `"key":"caf\\xe9"`) {
		t.Error(got)
	}
	adjust("caf\xe9", 400) // JSON would make another key of it
	for key, remain := range map[string]string{
		"caf\xe9": `"remaining":995`, `caf\xe9`: `"remaining":995`, `caf\\xe9`: `"remaining":1000`, "caf\ufffd": `"remaining":1000`,
	} {
		r := send(h, "GET", "/v1/quota?policy=tenant&key="+url.QueryEscape(key), "", "")
		if r.Code != 200 || !strings.Contains(r.Body.String(), remain) {
			t.Errorf("%q: %d %s", key, r.Code, r.Body)
		}
	}
	r := send(h, "GET", "/v1/quota/adjustments?policy=tenant&key="+url.QueryEscape(`caf\xe9`), "", "")
	if got := r.Body.String(); r.Code != 200 || strings.Count(got, `"key":"caf\\xe9"`) != 2 {
		t.Errorf("%d %s", r.Code, got)
	}
}

// TestStatusSpellsKeys: the keys that differ under a candidate are spelled as the admin API does it.
func TestStatusSpellsKeys(t *testing.T) {
	hourly := func(n int64) []policy.Limit { return []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(n), 0)}} }
	h := newFixed(t, manualclock.New(0), policy.Policy{
		Name: "api", Key: policy.NamedKey(), MaxKeys: 10, Limits: hourly(2), Candidate: hourly(1),
	})
	for range 2 {
		check(h, `{"policy":"api","key":"caf\\xe9"}`)
	}
	if got := send(h, "GET", "/v1/status", "", "").Body.String(); !strings.Contains(got, `"key":"caf\\\\xe9"`) {
		t.Error(got)
	}
}

// TestQuotasOfLongKeys: the quota of a key that is counted under its hash is that of the requests that name it.
func TestQuotasOfLongKeys(t *testing.T) {
	h := newFronts(t).durable
	for n, length := range []int{129, 300, 1024} {
		key := strings.Repeat("k", length)
		if r := send(h, "POST", "/v1/check", "application/json", `{"policy":"tenant","key":"`+key+`","cost":7}`); r.Code != 200 {
			t.Errorf("%d: %d %s", length, r.Code, r.Body)
		}
		body := `{"policy":"tenant","key":"` + key + `","permits":-5,"by":"ops","reason":"test"}`
		if r := send(h, "POST", "/v1/quota/adjust", "application/json", body); r.Code != 200 {
			t.Errorf("%d: %d %s", length, r.Code, r.Body)
		}
		r := send(h, "GET", "/v1/quota?policy=tenant&key="+key, "", "")
		if r.Code != 200 || !strings.Contains(r.Body.String(), `"remaining":988`) {
			t.Errorf("%d, %d bytes: %d %s", n, length, r.Code, r.Body)
		}
		r = send(h, "GET", "/v1/quota/adjustments?policy=tenant&key="+key, "", "")
		if got := r.Body.String(); r.Code != 200 || strings.Count(got, `"permits":-5`) != 1 {
			t.Errorf("%d: %d %s", length, r.Code, got)
		}
	}
}
