package rlsapi_test

import (
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/commonratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/typev3"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlsapi"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/policy"
)

// TestShadowCountsEveryLimit: with --ratelimit-shadow a limit that a descriptor brings, and those of a configuration of so many limits
// that they share policies, are counted and told as others are, and refuse nothing.
func TestShadowCountsEveryLimit(t *testing.T) {
	for _, policies := range []int{0, 1} {
		config, err := ratelimitconfig.Parse([]ratelimitconfig.File{{Name: "edge.yaml", Data: []byte(tree)}}, ratelimitconfig.Options{
			Shadow: true, Policies: policies,
		})
		if err != nil {
			t.Fatal(err)
		}
		_, conn := serve(t, rlsapi.Options{
			Limits: limitsOf(t, &policy.Set{Policies: config.Policies}), Tree: func() *ratelimitconfig.Config { return config },
		})
		brought := request("edge", []string{"user", "u"})
		brought.Descriptors[0].Limit = &commonratelimitv3.RateLimitDescriptor_RateLimitOverride{
			RequestsPerUnit: 2, Unit: typev3.RateLimitUnit_MONTH,
		}
		for _, r := range []*ratelimitv3.RateLimitRequest{brought, request("edge", []string{"user", "v"})} {
			limit := uint32(3)
			if r == brought {
				limit = 2
			}
			for i := range int(limit) + 2 {
				got := ask(t, conn, r)
				s := got.GetStatuses()[0]
				if want := uint32(max(int(limit)-1-i, 0)); got.GetOverallCode() != ok || s.GetLimitRemaining() != want ||
					s.GetCurrentLimit().GetRequestsPerUnit() != limit || s.GetDurationUntilReset() == nil {
					t.Errorf("policies %d: call %d of %d: %v, want %d left", policies, i, limit, got, want)
				}
			}
		}
	}
}
