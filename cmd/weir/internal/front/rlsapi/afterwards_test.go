package rlsapi_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/front/rlsapi"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
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

// TestHitsOfAConfigurationBind: with a configuration of envoyproxy/ratelimit, each stream costs 600 of 1000 an hour, which is told when
// it has ended: the third look is refused, however hits are counted and told, also where another limit of the call refuses them.
func TestHitsOfAConfigurationBind(t *testing.T) {
	for name, c := range map[string]struct {
		limit string
		back  time.Duration // when a look is allowed again
	}{
		"fixed window":             {"{unit: hour, requests_per_unit: 1000}", time.Hour},
		"window of several units":  {"{unit: hour, unit_multiplier: 2, requests_per_unit: 1000}", 2 * time.Hour},
		"token bucket":             {"{unit: hour, requests_per_unit: 1000, algorithm: token_bucket}", 201 * time.Hour / 1000},
		"sliding window":           {"{unit: hour, requests_per_unit: 1000, algorithm: sliding_window}", time.Hour},
		"sliding counter":          {"{unit: hour, requests_per_unit: 1000, algorithm: sliding_counter}", 0},
		"shared fixed window":      {"{unit: hour, requests_per_unit: 1000, consistency: coherent}", time.Hour},
		"shared token bucket":      {"{unit: hour, requests_per_unit: 1000, algorithm: token_bucket, consistency: coherent}", 201 * time.Hour / 1000},
		"leased token bucket":      {"{unit: hour, requests_per_unit: 1000, algorithm: token_bucket, consistency: leased}", 201 * time.Hour / 1000},
		"optimistic fixed window":  {"{unit: hour, requests_per_unit: 1000, consistency: optimistic}", time.Hour},
		"optimistic token bucket":  {"{unit: hour, requests_per_unit: 1000, algorithm: token_bucket, consistency: optimistic}", 201 * time.Hour / 1000},
		"leased window of several": {"{unit: hour, unit_multiplier: 2, requests_per_unit: 1000, consistency: leased}", 2 * time.Hour},
	} {
		for _, own := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, %v", name, own), func(t *testing.T) {
				config, err := ratelimitconfig.Parse([]ratelimitconfig.File{{Name: "edge.yaml", Data: []byte(
					"domain: edge\ndescriptors:\n  - {key: user, rate_limit: " + c.limit + "}\n  - {key: tenant, rate_limit: " + c.limit + "}\n",
				)}}, ratelimitconfig.Options{})
				if err != nil {
					t.Fatal(err)
				}
				clock := manualclock.New(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
				memory, err := store.NewMemory(store.MemoryOptions{Clock: clock})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = memory.Close() })
				_, conn := serve(t, rlsapi.Options{
					Limits: limitsWith(t, &policy.Set{Policies: config.Policies}, policy.EngineOptions{Clock: clock, Store: memory}),
					Tree:   func() *ratelimitconfig.Config { return config },
				})
				send := func(n uint64, pairs ...[]string) ratelimitv3.RateLimitResponse_Code {
					r := request("edge", pairs...)
					for _, d := range r.GetDescriptors() {
						if own || n == 0 { // without hits of its own, none is one
							d.HitsAddend = wrapperspb.UInt64(n)
						}
					}
					r.HitsAddend = uint32(n)
					return ask(t, conn, r).GetOverallCode()
				}
				ann, acme := []string{"user", "ann"}, []string{"tenant", "acme"}
				served := 0
				for range 10 {
					if send(0, ann) == ok {
						served++
						send(600, ann)
					}
				}
				if served != 2 {
					t.Errorf("%d streams of 600 hits were served with 1000, want 2", served)
				}
				if c.back > 0 {
					clock.Advance(c.back - 1)
					if send(0, ann) == ok {
						t.Errorf("a look is allowed before %v", c.back)
					}
					clock.Advance(1)
					if send(0, ann) != ok {
						t.Errorf("a look is refused after %v", c.back)
					}
				}
				if send(0, []string{"user", "ben"}) != ok {
					t.Error("another user is refused")
				}
				send(1000, ann)
				for range 2 { // all of which ann's limit refuses
					if send(600, ann, acme) == ok {
						t.Error("600 of 0 are granted")
					}
				}
				if send(0, acme) == ok {
					t.Error("hits are not counted by a limit as another one has refused them")
				}
			})
		}
	}
}
