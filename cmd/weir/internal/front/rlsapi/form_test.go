package rlsapi

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/commonratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
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
