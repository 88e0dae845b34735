//go:build !race

package rlsapi

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/commonratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

const formTree = `
domain: edge
descriptors:
  - {key: k0, rate_limit: {unit: second, requests_per_unit: 30, name: users}, metadata: {tier: gold}}
  - {key: k1, rate_limit: {unit: year, requests_per_unit: 1000}}
  - {key: k2, rate_limit: {unlimited: true}}
  - {key: k3, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: k4, rate_limit: {unit: year, requests_per_unit: 0}}
  - {key: k5, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 10}}
`

// TestFormsAreReplies compares replies that are made by forms with those that are encoded, over random histories.
func TestFormsAreReplies(t *testing.T) {
	config, err := ratelimitconfig.Parse([]ratelimitconfig.File{{Name: "edge.yaml", Data: []byte(formTree)}}, ratelimitconfig.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tree := func() *ratelimitconfig.Config { return config }
	for name, o := range map[string]Options{
		"all": {}, "named": {Fields: ratelimitfields.RateLimit11}, "brief": {Fields: ratelimitfields.NoFields, NoMetadata: true},
		"metadata": {Fields: ratelimitfields.NoFields}, "legacy": {LimitFields: []string{"a", "b", "c"}, Fields: ratelimitfields.NoFields},
		"x": {Fields: ratelimitfields.XRateLimit}, "tree": {Tree: tree, Fields: ratelimitfields.NoFields}, "tree, all": {Tree: tree},
	} {
		t.Run(name, func(t *testing.T) {
			set := formSet()
			if o.Tree != nil {
				set = &policy.Set{Policies: config.Policies}
			}
			clock := manualclock.New(1)
			services := [2]*service{}
			for i := range services {
				one := o
				if one.Limits, err = live.Fixed(set, policy.EngineOptions{Clock: clock}, slog.New(slog.DiscardHandler)); err != nil {
					t.Fatal(err)
				}
				one.Logger = slog.New(slog.DiscardHandler)
				services[i] = newService(one)
			}
			services[1].formed = false
			if made := compareForms(t, services, clock); made == 0 && services[0].formed {
				t.Error("no reply was made by a form")
			}
		})
	}
}

// compareForms asks two services the same, and returns how many forms were found in the calls of the first.
func compareForms(t *testing.T, services [2]*service, clock *manualclock.Clock) (made int) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		r := &ratelimitv3.RateLimitRequest{Domain: "edge", HitsAddend: uint32(random.IntN(3))}
		for range 1 + random.IntN(3)*random.IntN(3) {
			d := &commonratelimitv3.RateLimitDescriptor{Entries: []*commonratelimitv3.RateLimitDescriptor_Entry{
				{Key: "k" + strconv.Itoa(min(random.IntN(6), random.IntN(8))), Value: strconv.Itoa(random.IntN(3))},
			}}
			switch random.IntN(30) {
			case 0:
				d.Entries = append(d.Entries, &commonratelimitv3.RateLimitDescriptor_Entry{Key: "k1", Value: "1"})
			case 1:
				d.Entries[0].Key = "free"
			case 2:
				d.HitsAddend = wrapperspb.UInt64(uint64(random.IntN(20)))
			}
			r.Descriptors = append(r.Descriptors, d)
		}
		wire := marshal(t, r)
		method := min(random.IntN(len(methodNames)), random.IntN(len(methodNames)))
		prefix := []byte("before")
		var replies [2]string
		second := time.Now().Unix()
		for i, s := range services {
			reply, err := s.Answer(t.Context(), method, wire, nil, prefix)
			replies[i] = fmt.Sprintf("%x %v", reply, err)
		}
		// Where a limit is 0, until when it is so is told by the clock of the machine, in seconds.
		if replies[0] != replies[1] && time.Now().Unix() == second {
			t.Fatalf("%v\n%s\n%s", r, replies[0], replies[1])
		}
		c := services[0].calls.get() // now and then it is another one
		for i := range c.forms.known {
			if c.forms.known[i].reply != nil {
				made++
			}
		}
		services[0].calls.put(c)
		clock.Advance(time.Duration(random.ExpFloat64() * float64(time.Second) / 2))
	}
	return made
}
