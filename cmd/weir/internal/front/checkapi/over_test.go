package checkapi_test

import (
	"net/http"
	"strings"
	"testing"

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
