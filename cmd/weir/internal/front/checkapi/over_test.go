package checkapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// TestOver: every way to ask for a decision names the policies with mode: tag that a request is over.
func TestOver(t *testing.T) {
	const (
		request = `{"method":"GET","path":"/","client":"192.0.2.1"}`
		told    = `,"over":["soft","soft too"]`
	)
	for _, c := range []struct{ path, body, over string }{
		{"/v1/decide", request, `"decisions":[]` + told + "}"},
		{"/v1/check", `{"policy":"soft","key":"192.0.2.1"}`, `"over":["soft"]}`},
		{"/v1/reserve", `{"request":` + request + `}`, told + `,"id":"`},
		{"/v1/batch", `{"checks":[{"request":` + request + `}]}`, `"results":[{"allowed":true,"reason":"none","policy":null,` +
			`"limit":null,"remaining":null,"retry_after":0,"reset_after":0,"exempt":false,"binding":null,"decisions":[]` + told + "}]"},
		{"/v1/batch", `{"atomic":true,"checks":[{"request":` + request + `}]}`, told + "}]"},
	} {
		h, _ := newConfigured(t, `version: 1
policies:
  soft: {limit: 1/day, key: client, mode: tag}
  soft too: {limit: 1/day, key: client, mode: tag}
rules:
  - {name: all, limits: [soft, soft too]}
`, policy.EngineOptions{})
		d := openDocument(t, h)
		for i := range 2 {
			r := send(h, http.MethodPost, c.path, "application/json", c.body)
			if text := r.Body.String(); r.Code != 200 || strings.Contains(text, "over") != (i > 0) || i > 0 && !strings.Contains(text, c.over) {
				t.Errorf("%s of %s, request %d: %d %s", c.path, c.body, i, r.Code, text)
			}
			if err := d.answered(http.MethodPost, c.path, r); err != nil {
				t.Errorf("%s of %s: %v", c.path, c.body, err)
			}
		}
	}
}

// TestOverByCostsToldLater: a look tells what a request is over, and costs use the limit up that are told afterwards or by a commit.
func TestOverByCostsToldLater(t *testing.T) {
	const key = `{"policy":"soft","key":"k",`
	for name, tell := range map[string]func(h http.Handler) *httptest.ResponseRecorder{
		"afterwards": func(h http.Handler) *httptest.ResponseRecorder {
			return check(h, key+`"cost":13,"charge":"afterwards"}`)
		},
		"commit": func(h http.Handler) *httptest.ResponseRecorder {
			return post(h, "/v1/commit", `{"id":"%s","cost":13}`, reserved(t, h, key+`"cost":2}`))
		},
	} {
		clock := manualclock.New(0)
		h, _ := newConfigured(t, "version: 1\npolicies: {soft: {limit: 10/h, key: client, mode: tag}}\nrules: []\n",
			policy.EngineOptions{Clock: clock})
		look := func(when string, over bool) {
			t.Helper()
			r := check(h, key+`"cost":0}`)
			if got := strings.Contains(r.Body.String(), `,"over":["soft"]}`); r.Code != http.StatusOK || got != over {
				t.Errorf("%s: a look %s: %d %s", name, when, r.Code, r.Body)
			}
		}
		if r := post(h, "/v1/cancel", `{"id":"%s"}`, reserved(t, h, key+`"cost":10}`)); r.Code != http.StatusOK {
			t.Errorf("%s: %d %s", name, r.Code, r.Body)
		}
		look("at first", false)
		if r := tell(h); r.Code != http.StatusOK {
			t.Errorf("%s: %d %s", name, r.Code, r.Body)
		}
		look("once it is used up", true)
		clock.Advance(4*time.Hour/10 - 1) // 3 are owed
		look("in debt", true)
		clock.Advance(1)
		look("out of debt", false)
	}
}
