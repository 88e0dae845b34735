package rlsapi_test

import (
	"log/slog"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlsapi"
	"github.com/weirhq/weir/policy"
)

// TestHitsToldWhenAStreamIsDoneBind: Envoy asks with a look, and tells the hits when the stream has ended. Each stream costs 600 of
// 1000: the third look is refused.
func TestHitsToldWhenAStreamIsDoneBind(t *testing.T) {
	rls := []string{"rls"}
	set := &policy.Set{
		Policies: []policy.Policy{windowed("tokens", 1000, policy.AttributeText("user"))},
		Rules: []policy.Rule{
			{
				Name: "ask", Match: policy.Match{Protocols: rls, Paths: []string{"/user"}},
				Limits: []policy.Use{{Policy: "tokens", Cost: policy.FixedNumber(0)}},
			},
			{
				Name: "spent", Match: policy.Match{Protocols: rls, Paths: []string{"/user/done"}},
				Limits: []policy.Use{{Policy: "tokens"}}, Afterwards: true,
			},
		},
	}
	_, conn := serve(t, rlsapi.Options{Limits: limitsOf(t, set), Logger: slog.New(slog.DiscardHandler)})
	served := 0
	for range 10 {
		if ask(t, conn, request("edge", []string{"user", "ann"})).GetOverallCode() != ratelimitv3.RateLimitResponse_OK {
			continue
		}
		served++
		done := request("edge", []string{"user", "ann", "done", "yes"})
		done.HitsAddend = 600
		ask(t, conn, done) // nothing listens to the answer
	}
	if served != 2 {
		t.Errorf("%d streams of 600 hits were served with 1000, want 2", served)
	}
	if ask(t, conn, request("edge", []string{"user", "ben"})).GetOverallCode() != ratelimitv3.RateLimitResponse_OK {
		t.Error("another user is refused")
	}
}
