package rlsapi_test

import (
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlsapi"
	"github.com/weirhq/weir/policy"
)

// TestServiceIsToldWhatItIsOver: the proxy is told to add the policies with mode: tag to the request, and not to the response, each
// once. A request that another limit refuses has no tag. So it is whether or not replies of this form have come before.
func TestServiceIsToldWhatItIsOver(t *testing.T) {
	hourly := func(name string, mode policy.Mode, n int64) policy.Policy {
		return policy.Policy{Name: name, Mode: mode, Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(n), n)}}}
	}
	set := &policy.Set{
		Policies: []policy.Policy{hourly("soft", policy.ModeTag, 20), hourly("hard", policy.ModeEnforce, 30)},
		Rules:    []policy.Rule{{Name: "all", Limits: []policy.Use{{Policy: "soft"}, {Policy: "hard"}}}},
	}
	for _, descriptors := range [][][]string{{{"a", "b"}}, {{"a", "b"}, {"c", "d"}}} {
		_, conn := serve(t, rlsapi.Options{Limits: limitsOf(t, set)})
		for i := 1; i <= 40; i++ {
			taken := i * len(descriptors)
			r := ask(t, conn, request("d", descriptors...))
			var want string
			if taken > 20 && taken <= 30 {
				want = `weir-over: "soft"`
			}
			var got string
			if added := r.GetRequestHeadersToAdd(); len(added) == 1 {
				got = added[0].GetKey() + ": " + added[0].GetValue()
			} else if len(added) > 1 {
				t.Fatal(added)
			}
			over := r.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT
			if got != want || over != (taken > 30) {
				t.Errorf("%d descriptors, request %d: %v, %q, want %q", len(descriptors), i, r.GetOverallCode(), got, want)
			}
			for _, h := range r.GetResponseHeadersToAdd() {
				if h.GetKey() == "weir-over" {
					t.Errorf("the client is told: %v", h)
				}
			}
		}
	}
}

// TestLooksTellTheService: hits of 0, by which a proxy asks before it knows the cost, add the field once nothing is left. Hits that
// are given back add none.
func TestLooksTellTheService(t *testing.T) {
	_, conn := serve(t, rlsapi.Options{Limits: limitsOf(t, &policy.Set{
		Policies: []policy.Policy{{Name: "soft", Mode: policy.ModeTag, Limits: []policy.Limit{{Limit: weir.TokenBucket(weir.PerHour(5), 5)}}}},
		Rules:    []policy.Rule{{Name: "all", Limits: []policy.Use{{Policy: "soft"}}}},
	})})
	for i, c := range []struct {
		hits   uint64
		refund bool
		over   bool
	}{{0, false, false}, {5, false, false}, {0, false, true}, {3, true, false}} {
		r := request("d", []string{"a", "b"})
		r.Descriptors[0].HitsAddend, r.Descriptors[0].IsNegativeHits = wrapperspb.UInt64(c.hits), c.refund
		if got := ask(t, conn, r); got.GetOverallCode() != ok || len(got.GetRequestHeadersToAdd()) == 1 != c.over {
			t.Errorf("call %d: %v", i, got)
		}
	}
}
