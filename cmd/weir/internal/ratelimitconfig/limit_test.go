package ratelimitconfig_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/policy"
)

// TestAlgorithms: each unit, with the least and the most requests, can be counted by each algorithm, of a file and of an
// override, by each consistency.
func TestAlgorithms(t *testing.T) {
	for a := ratelimitconfig.FixedWindow; a <= ratelimitconfig.SlidingCounter; a++ {
		var text strings.Builder
		text.WriteString("domain: d\ndescriptors:\n")
		n := 0
		for u := ratelimitconfig.Second; u <= ratelimitconfig.Year; u++ {
			for _, requests := range []string{"0", "1", "4294967295", "1, unit_multiplier: 10", "4294967295, unit_multiplier: 10"} {
				for _, c := range []string{"local", "coherent", "leased", "optimistic"} {
					n++
					fmt.Fprintf(&text, "- {key: k%d, rate_limit: {unit: %v, requests_per_unit: %s, consistency: %s}}\n", n, u, requests, c)
				}
			}
		}
		for _, policies := range []int{1000, 20, 1} {
			c := parse(t, ratelimitconfig.Options{Algorithm: a, Policies: policies}, text.String()) // Set.Check accepts them
			for _, l := range c.Limits {
				if err := l.Counted.Check(); err != nil {
					t.Errorf("%v: %s: %v", a, l.Source, err)
				}
				var m ratelimitconfig.Match
				o := ratelimitconfig.Override{RequestsPerUnit: l.RequestsPerUnit, Unit: l.Unit, UnitMultiplier: l.UnitMultiplier}
				c.Match(&m, "d", entries("x=y"), o, 1)
				if m.Brought != l.Counted || m.Brought.Algorithm() != algorithmOf(c, m.Limit.Policy) {
					t.Errorf("%v: %+v brings %v to %s", a, o, m.Brought, m.Limit.Policy)
				}
			}
		}
		var read ratelimitconfig.Algorithm
		name, _ := a.MarshalText()
		if err := read.UnmarshalText([]byte(strings.ReplaceAll(string(name), "_", "-"))); err != nil || read != a {
			t.Errorf("%s: %v, %v", name, read, err)
		}
	}
	if err := new(ratelimitconfig.Algorithm).UnmarshalText([]byte("gcra")); err == nil {
		t.Error("gcra is read")
	}
	if text := fmt.Sprint(ratelimitconfig.Algorithm(9), ratelimitconfig.Unit(9), ratelimitconfig.UnitUnknown); text != "Algorithm(9) Unit(9) unknown" {
		t.Error(text)
	}
}

func algorithmOf(c *ratelimitconfig.Config, name string) weir.Algorithm {
	for _, p := range c.Policies {
		if p.Name == name {
			return p.Limits[0].Algorithm()
		}
	}
	return weir.AlgorithmConcurrency
}

// TestWhatLimitsTell: what does not change how a descriptor is counted is told nevertheless.
func TestWhatLimitsTell(t *testing.T) {
	c := parse(t, ratelimitconfig.Options{Consistency: policy.ConsistencyLeased, Fail: policy.FailOpen, MaxKeys: 500}, `
domain: d
descriptors:
  - key: a
    quota_mode: true
    detailed_metric: true
    value_to_metric: on
    metadata: {text: a, number: 1.5, whole: 3, flag: true, none: ~, list: [1, {x: y}], quoted: "5", date: 2026-01-02, nan: .nan}
    rate_limit: {name: n, unit: day, requests_per_unit: 9, replaces: [{name: m}]}
  - {key: b, value: c, rate_limit: {name: m, unit: second, requests_per_unit: 1, algorithm: token_bucket, consistency: local}}
  - {key: c, rate_limit: {unlimited: true, name: u}}
`)
	l := c.Limits[0]
	if !l.Quota || !l.DetailedMetric || !l.ValueToMetric || l.Shadow || l.Unlimited || l.Name != "n" || !reflect.DeepEqual(l.Replaces, []string{"m"}) ||
		l.Domain != "d" || l.Path != "d.a" || l.Source != "a.yaml:4:5" || string(l.PolicyBytes) != l.Policy {
		t.Errorf("%+v", l)
	}
	metadata := map[string]any{
		"text": "a", "number": 1.5, "whole": 3.0, "flag": true, "none": nil, "list": []any{1.0, map[string]any{"x": "y"}}, "quoted": "5",
		"date": "2026-01-02", "nan": ".nan",
	}
	if !reflect.DeepEqual(l.Metadata, metadata) {
		t.Errorf("%#v", l.Metadata)
	}
	if p := c.Policies[0]; p.Mode != policy.ModeEnforce || p.Consistency != policy.ConsistencyLeased || p.Fail != policy.FailOpen || p.MaxKeys != 500 {
		t.Errorf("%+v", p)
	}
	if p := c.Policies[1]; p.Consistency != policy.ConsistencyLocal || p.Key != nil || p.MaxKeys != 500 {
		t.Errorf("%+v", p)
	}
	if u := c.Limits[2]; !u.Unlimited || u.Policy != "" || u.Counted != (weir.Limit{}) || u.Name != "u" {
		t.Errorf("%+v", u)
	}
	shadow := parse(t, ratelimitconfig.Options{Shadow: true}, "domain: d\ndescriptors: [{key: a, quota_mode: true, "+limit+"}]")
	for _, p := range shadow.Policies {
		if p.Mode != policy.ModeShadow {
			t.Errorf("%s is enforced", p.Name)
		}
	}
	if l := shadow.Limits[0]; !l.Shadow || l.Quota {
		t.Errorf("%+v", l)
	}
}
