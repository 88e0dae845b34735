package operator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// TestRefusal has of each limit its own numbers, rule and key.
func TestRefusal(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := operator.Refusal{
		ID: "0123456789abcdef", Time: at, Protocol: "http", Method: "POST", Host: "shop.example", Path: "/login", Client: "192.0.2.1",
		Reason: "limited", RetryAfter: 90, Version: 7, Binding: 1, Limits: []operator.RefusedLimit{
			{
				Policy: "per-client", Holds: "10/s", Rule: "everybody", Source: "weir.yaml:9:5", Key: "192.0.2.1", Cost: 1, Allowed: true, Max: 10,
				Remaining: 8, ResetAfter: 0.2,
			},
			{
				Policy: "login", Limit: "1h", Holds: "5/h", Rule: "sign-in", Source: "weir.yaml:21:5", Key: "ann", Cost: 2, Reason: "limited",
				Max: 5, Remaining: 1, RetryAfter: 90, ResetAfter: 3600,
			},
			{Policy: "tenant", Holds: "100 per month", Key: "acme", Cost: 1, Allowed: true, Max: 100, Unasked: true},
		},
	}
	var text strings.Builder
	operator.WriteRefusal(&text, terminal.Output{}, &r, at.Add(time.Minute))
	const want = `refused 2026-01-02 03:04:05 UTC (1 minute ago): POST shop.example/login from 192.0.2.1 by http
  limited, retry after 1 minute 30 seconds; refusal 0123456789abcdef, configuration 7
  limit per-client: 10/s
    key "192.0.2.1", by rule everybody (weir.yaml:9:5)
    8 of 10 remaining, all are back in 0.2 s; costs 1: allows it
  limit login/1h: 5/h (decides)
    key "ann", by rule sign-in (weir.yaml:21:5)
    1 of 5 remaining, all are back in 1 hour; costs 2: refuses it: limited, retry after 1 minute 30 seconds
  limit tenant: 100 per month
    key "acme"
    costs 1: was not asked, as another limit refuses it
`
	if got := text.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if b := operator.Binding(&r); b != &r.Limits[1] {
		t.Errorf("%+v binds", b)
	}
	for _, none := range []int{-1, 3} {
		r.Binding = none
		if b := operator.Binding(&r); b != nil {
			t.Errorf("%d: %+v binds", none, b)
		}
	}
}
