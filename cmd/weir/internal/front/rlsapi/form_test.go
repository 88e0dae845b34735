package rlsapi

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/commonratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/ratelimitfields"
)

func TestDigits(t *testing.T) {
	all := []uint64{1, 9, 10, math.MaxInt64}
	for n := uint64(1); n < math.MaxInt64/10; n *= 10 {
		all = append(all, n-1, n, n+1, 3*n)
	}
	for n := range uint64(63) {
		all = append(all, 1<<n-1, 1<<n, 1<<n+1)
	}
	for _, n := range all {
		if n == 0 {
			continue
		}
		text := strconv.FormatUint(n, 10)
		b := make([]byte, digits(n))
		if putDigits(b, n); string(b) != text {
			t.Errorf("%d has %d digits: %s", n, digits(n), b)
		}
		b = make([]byte, wire(n))
		if putVarint(b, n); !bytes.Equal(b, protowire.AppendVarint(nil, n)) {
			t.Errorf("%d is %x on the wire", n, b)
		}
	}
}

// formSet has limits whose numbers have all lengths, under names that look like what stands around them in a field.
func formSet() *policy.Set {
	set := &policy.Set{}
	for i, l := range []weir.Limit{
		weir.TokenBucket(weir.PerSecond(3), 12), weir.TokenBucket(weir.Per(2_000_000_000, time.Hour), 0),
		weir.FixedWindow(weir.Rate{Permits: 150, Period: 12 * time.Minute}), weir.SlidingCounter(weir.PerMinute(101)),
		weir.TokenBucket(weir.Per(300_000_000_000, time.Hour), 0), weir.AtOnce(5),
	} {
		name := []string{"plain", "a;r=11;t=4", "t=1", "long-" + string(bytes.Repeat([]byte{'x'}, 90)), `"`, "at-once"}[i]
		key := policy.AttributeText("k" + strconv.Itoa(i))
		set.Policies = append(set.Policies, policy.Policy{Name: name, Key: key, Limits: []policy.Limit{{Limit: l}}})
		set.Rules = append(set.Rules, policy.Rule{
			Name: "rule " + name, Match: policy.Match{Paths: []string{"/k" + strconv.Itoa(i)}},
			Limits: []policy.Use{{Policy: name}},
		})
	}
	set.Rules = append(set.Rules, policy.Rule{
		Name: "both", Match: policy.Match{Paths: []string{"/k0/k1"}}, Limits: []policy.Use{{Policy: "plain"}, {Policy: "t=1"}},
	}, policy.Rule{Name: "free", Match: policy.Match{Paths: []string{"/free"}}, Exempt: true})
	return set
}

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
		for i, s := range services {
			reply, err := s.Answer(t.Context(), method, wire, nil, prefix)
			replies[i] = fmt.Sprintf("%x %v", reply, err)
		}
		if replies[0] != replies[1] {
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

// TestNamesOutliveTheirRequests: what is kept of an allowed request shares no memory with it, as the next request has that memory.
func TestNamesOutliveTheirRequests(t *testing.T) {
	limits, err := live.Fixed(formSet(), policy.EngineOptions{Clock: manualclock.New(1)}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := newService(Options{Limits: limits, Logger: slog.New(slog.DiscardHandler)})
	const keys = 20 // of 100, one finds no place among the names in 2 % of all processes: places are divided by hash
	value := func(i int) string { return fmt.Sprintf("client-%04d", i) }
	filled := 0
	for range 3 { // a form is there from the third reply on
		for i := range keys {
			wire := marshal(t, &ratelimitv3.RateLimitRequest{
				Domain: "edge",
				Descriptors: []*commonratelimitv3.RateLimitDescriptor{{
					Entries: []*commonratelimitv3.RateLimitDescriptor_Entry{{Key: "k0", Value: value(i)}},
				}},
			})
			if _, err = s.Answer(t.Context(), 0, wire, nil, nil); err != nil {
				t.Fatal(err)
			}
			c := s.calls.get() // now and then it is another one
			for j := range c.forms.known {
				if c.forms.known[j].reply != nil {
					filled++
				}
			}
			s.calls.put(c)
		}
	}
	if filled == 0 {
		t.Fatal("no reply was made by a form, so that no memory was used again")
	}
	top, err := limits.Engine().Top(t.Context(), "plain", 2*keys)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for i := range top {
		if top[i].Named {
			names[top[i].Key] = true
		}
	}
	for i := range keys {
		if !names[value(i)] {
			t.Errorf("%s is not among the %d keys that are known by name", value(i), len(names))
		}
	}
	if len(names) != keys {
		t.Errorf("%d names of %d keys", len(names), keys)
	}
}
