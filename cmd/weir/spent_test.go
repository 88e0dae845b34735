package main_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/commonratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
)

// TestSpentCostsBindOverRedis: each use costs 600 of 1000 permits an hour, which is told when it is over. Two are served, at whichever
// front they ask and however Redis is asked.
func TestSpentCostsBindOverRedis(t *testing.T) {
	redis := startRedis(t)
	dir := t.TempDir()
	config, tree := filepath.Join(dir, "weir.yaml"), filepath.Join(dir, "edge.yaml")
	var policies, descriptors strings.Builder
	consistencies := []string{"local", "coherent", "leased", "optimistic"}
	for _, c := range consistencies {
		fmt.Fprintf(&policies, "  %s: {limit: 1000/h, key: client, consistency: %s}\n", c, c)
		for _, algorithm := range []string{"fixed_window", "token_bucket"} {
			fmt.Fprintf(&descriptors, "  - {key: %s-%s, rate_limit: {unit: year, requests_per_unit: 1000, algorithm: %s, consistency: %s}}\n",
				c, algorithm, algorithm, c)
		}
	}
	writeConfig(t, config, patient(redis.url())+"policies:\n"+policies.String()+"rules: []\n")
	writeConfig(t, tree, "domain: edge\ndescriptors:\n"+descriptors.String())
	s := startFronts(t, nil, "--config", config, "--ratelimit-config", tree)
	client, envoy := s.redis(), ratelimitv3.NewRateLimitServiceClient(s.dial())
	check := func(body string) bool {
		code, text := s.post("/v1/check", body)
		if code != 200 && code != 429 {
			t.Errorf("%d %s", code, text)
		}
		return code == 200
	}
	take := func(args ...any) bool {
		reply, err := client.Do(t.Context(), append([]any{"WEIR.TAKE"}, args...)...).Result()
		if err != nil {
			t.Error(err)
		}
		return allowedBy(reply)
	}
	ask := func(key string, hits uint64) bool {
		answer, err := envoy.ShouldRateLimit(t.Context(), &ratelimitv3.RateLimitRequest{
			Domain: "edge", Descriptors: []*commonratelimitv3.RateLimitDescriptor{{
				Entries:    []*commonratelimitv3.RateLimitDescriptor_Entry{{Key: key, Value: "ann"}},
				HitsAddend: wrapperspb.UInt64(hits),
			}},
		})
		if err != nil {
			t.Error(err)
		}
		return answer.GetOverallCode() == ratelimitv3.RateLimitResponse_OK
	}
	for _, c := range consistencies {
		of := func(body string) string { return strings.ReplaceAll(body, "POLICY", c) }
		for front, way := range map[string]struct{ look, spend func() bool }{
			"check": {
				func() bool { return check(of(`{"policy":"POLICY","key":"http","cost":0}`)) },
				func() bool { return check(of(`{"policy":"POLICY","key":"http","cost":600,"charge":"afterwards"}`)) },
			},
			"TAKE": {
				func() bool { return take(c, "resp", 0) },
				func() bool { return take(c, "resp", 600, "CHARGE", "afterwards") },
			},
			"Envoy, fixed window": {
				func() bool { return ask(c+"-fixed_window", 0) }, func() bool { return ask(c+"-fixed_window", 600) },
			},
			"Envoy, token bucket": {
				func() bool { return ask(c+"-token_bucket", 0) }, func() bool { return ask(c+"-token_bucket", 600) },
			},
		} {
			served := 0
			for range 10 {
				if way.look() {
					served++
					way.spend()
				}
			}
			if served != 2 {
				t.Errorf("%s, %s: %d uses of 600 were served with 1000, want 2", c, front, served)
			}
		}
	}
}
