package checkapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/weirhq/weir/policy"
)

// TestDenied: a request that a rule denies gets 403 with the name of the rule, in every way to ask for a decision, and nothing is charged.
// A check that names its policy asks no rule.
func TestDenied(t *testing.T) {
	h, _ := newConfigured(t, `version: 1
policies:
  default: {limit: 10/day, key: client}
rules:
  - {name: all, limits: default}
  - {name: no deletes, match: {method: DELETE}, deny: true}
`, policy.EngineOptions{})
	d := openDocument(t, h)
	const (
		denied = `{"method":"DELETE","path":"/","client":"192.0.2.1"}`
		probe  = `{"method":"DELETE","path":"/","client":"192.0.2.1","cost":0}`
		other  = `{"method":"GET","path":"/","client":"192.0.2.1"}`
		want   = `{"allowed":false,"reason":"denied","policy":null,"limit":null,"remaining":null,"retry_after":null,"reset_after":0,` +
			`"exempt":false,"denied_by":"no deletes","binding":null,"decisions":[]`
		untouched = `{"allowed":true,"reason":"none","policy":"default","limit":10,"remaining":10,`
	)
	for _, c := range []struct {
		path, body, want string
		status           int
	}{
		{"/v1/decide", denied, want + "}", 403},
		{"/v1/decide", probe, want + "}", 403},
		{"/v1/reserve", `{"request":` + denied + `}`, want + "}", 403},
		{"/v1/batch", `{"checks":[{"request":` + denied + `}]}`, `"results":[` + want + `}]`, 403},
		{"/v1/batch", `{"atomic":true,"checks":[{"request":` + other + `},{"request":` + denied + `}]}`, `"results":[` + untouched, 403},
		{"/v1/batch", `{"atomic":true,"checks":[{"request":` + denied + `},{"request":` + other + `}]}`, `"results":[` + want + `},` + untouched, 403},
		{"/v1/check", `{"key":"192.0.2.1"}`, `"remaining":9,`, 200},
	} {
		r := send(h, http.MethodPost, c.path, "application/json", c.body)
		if r.Code != c.status || !strings.Contains(r.Body.String(), c.want) {
			t.Errorf("%s of %s: %d %s, want %s", c.path, c.body, r.Code, r.Body, c.want)
		}
		if c.status == http.StatusForbidden && (r.Header().Get("Retry-After") != "" || r.Header().Get("Ratelimit") != "") {
			t.Errorf("%s of %s: %v", c.path, c.body, r.Header())
		}
		if err := d.answered(http.MethodPost, c.path, r); err != nil {
			t.Errorf("%s of %s: %v", c.path, c.body, err)
		}
	}
	r := send(h, http.MethodPost, "/v1/explain", "application/json", denied)
	if text := r.Body.String(); r.Code != 200 || !strings.Contains(text, `"denied":"no deletes"`) || !strings.Contains(text, `"deny":true`) {
		t.Errorf("%d %s", r.Code, text)
	}
	if err := d.answered(http.MethodPost, "/v1/explain", r); err != nil {
		t.Error(err)
	}
}
