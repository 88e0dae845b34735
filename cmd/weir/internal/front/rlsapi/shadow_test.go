package rlsapi_test

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/commonratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/typev3"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlsapi"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// TestShadowCountsHitsAsEnforced: several hits that a limit of shadow mode would refuse take what remains of it, as of one that is
// enforced; of a limit of 0 nothing remains. So it is in a call that another limit refuses, and of limits in a store.
func TestShadowCountsHitsAsEnforced(t *testing.T) {
	for _, consistency := range []policy.Consistency{policy.ConsistencyLocal, policy.ConsistencyCoherent} {
		config, err := ratelimitconfig.Parse([]ratelimitconfig.File{{Name: "edge.yaml", Data: []byte(`
domain: edge
descriptors:
  - {key: enforced, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: bucket, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 10, algorithm: token_bucket}}
  - {key: zero, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 0}}
  - {key: closed, rate_limit: {unit: year, requests_per_unit: 0}}
`)}}, ratelimitconfig.Options{Consistency: consistency})
		if err != nil {
			t.Fatal(err)
		}
		memory, err := store.NewMemory(store.MemoryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = memory.Close() })
		_, conn := serve(t, rlsapi.Options{
			Limits: limitsWith(t, &policy.Set{Policies: config.Policies}, policy.EngineOptions{Store: memory}),
			Tree:   func() *ratelimitconfig.Config { return config },
		})
		for i, step := range []struct {
			keys string
			hits uint32
			want string
		}{
			{"enforced", 8, "ok: ok/2"},
			{"enforced", 8, "over: over/0"},
			{"enforced", 1, "over: over/0"},
			{"shadow", 8, "ok: ok/2"},
			{"shadow", 8, "ok: ok/0"},
			{"shadow", 1, "ok: ok/0"},
			{"bucket", 8, "ok: ok/2"},
			{"bucket", 8, "ok: ok/0"},
			{"bucket", 1, "ok: ok/0"},
			{"shadow other", 20, "ok: ok/0"},
			{"zero", 2, "ok: ok/0"},
			{"zero", 1, "ok: ok/0"},
			{"shadow refused,closed", 8, "over: ok/2 over/0"},
			{"shadow refused,closed", 8, "over: ok/0 over/0"},
		} {
			r := request("edge")
			for descriptor := range strings.SplitSeq(step.keys, ",") {
				key, value, _ := strings.Cut(descriptor, " ")
				r.Descriptors = append(r.Descriptors, request("edge", []string{key, value}).GetDescriptors()...)
			}
			r.HitsAddend = step.hits
			if got := brief(ask(t, conn, r)); got != step.want {
				t.Errorf("%v, step %d: %s, %d hits: %s, want %s", consistency, i, step.keys, step.hits, got, step.want)
			}
		}
	}
}

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
