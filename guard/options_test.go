package guard_test

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/manualclock"
)

const longestOption = math.MaxInt32 * time.Second

func TestGuardDefaults(t *testing.T) {
	want := guard.Options{
		CapacityTokens: 12, RefillTokensPerSecond: 6, HardLockout: 0, StaleEntry: 300 * time.Second,
		CleanupInterval: 120 * time.Second, TokenScale: 1000, ShardCount: 32, SoftViolationWindow: 5 * time.Second,
		MaxSoftViolations: 3, CooldownReset: 10 * time.Second, MaxTrackedEndpoints: 10_000, InitialTokens: -1,
		MaxEvictionCapacity: 4096, MinReportCapacity: 256,
		LockoutFactor: 1, MaxLockout: 24 * time.Hour, IPv4Prefix: 32, IPv6Prefix: 64,
	}
	if got := guard.DefaultOptions(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestGuardOptionRanges has the ends of the range of every option, and what lies just outside of them.
func TestGuardOptionRanges(t *testing.T) {
	type change = func(o *guard.Options)
	whole := func(field func(o *guard.Options) *int) func(v int) change {
		return func(v int) change { return func(o *guard.Options) { *field(o) = v } }
	}
	span := func(field func(o *guard.Options) *time.Duration) func(v time.Duration) change {
		return func(v time.Duration) change { return func(o *guard.Options) { *field(o) = v } }
	}
	rate := func(v float64) change { return func(o *guard.Options) { o.RefillTokensPerSecond = v } }
	scaledRate := func(v float64, scale int) change {
		return func(o *guard.Options) { o.RefillTokensPerSecond, o.TokenScale = v, scale }
	}
	capacityAt := func(v int, r float64) change {
		return func(o *guard.Options) { o.CapacityTokens, o.RefillTokensPerSecond = v, r }
	}
	escalating := func(lockout, most time.Duration) change {
		return func(o *guard.Options) { o.LockoutFactor, o.HardLockout, o.MaxLockout = 2, lockout, most }
	}
	capacity := whole(func(o *guard.Options) *int { return &o.CapacityTokens })
	scale := whole(func(o *guard.Options) *int { return &o.TokenScale })
	shards := whole(func(o *guard.Options) *int { return &o.ShardCount })
	violations := whole(func(o *guard.Options) *int { return &o.MaxSoftViolations })
	tracked := whole(func(o *guard.Options) *int { return &o.MaxTrackedEndpoints })
	initial := whole(func(o *guard.Options) *int { return &o.InitialTokens })
	eviction := whole(func(o *guard.Options) *int { return &o.MaxEvictionCapacity })
	report := whole(func(o *guard.Options) *int { return &o.MinReportCapacity })
	factor := whole(func(o *guard.Options) *int { return &o.LockoutFactor })
	prefix4 := whole(func(o *guard.Options) *int { return &o.IPv4Prefix })
	prefix6 := whole(func(o *guard.Options) *int { return &o.IPv6Prefix })
	lockout := span(func(o *guard.Options) *time.Duration { return &o.HardLockout })
	stale := span(func(o *guard.Options) *time.Duration { return &o.StaleEntry })
	cleanup := span(func(o *guard.Options) *time.Duration { return &o.CleanupInterval })
	window := span(func(o *guard.Options) *time.Duration { return &o.SoftViolationWindow })
	cooldown := span(func(o *guard.Options) *time.Duration { return &o.CooldownReset })

	const seconds = " must be from 1s to 596523h14m7s"
	for _, c := range []struct {
		name    string
		option  string
		accept  []change
		refuse  []change
		message string // of the first one that is refused
	}{
		{
			"capacity", "CapacityTokens",
			[]change{capacity(1), capacityAt(math.MaxInt32, 10)},
			[]change{capacity(0), capacity(-1)},
			"0: must be from 1 to 2147483647",
		},
		{
			"capacity that takes too long to come back", "CapacityTokens",
			[]change{capacityAt(1_581_120, 0.001)},
			[]change{capacityAt(1_581_121, 0.001), capacityAt(math.MaxInt32, 1)},
			"1581121: must be small enough to be regained at RefillTokensPerSecond within 439200h (18300 days)",
		},
		{
			"rate", "RefillTokensPerSecond",
			[]change{rate(0.001), rate(1e9), scaledRate(1e9, 1_000_000), scaledRate(1e9, 1)},
			[]change{
				rate(0.0009999), rate(0), rate(-1), rate(math.NaN()), rate(math.Inf(1)), rate(math.Inf(-1)), rate(1.0000001e9),
				rate(math.MaxFloat64),
			},
			"0.0009999: must be from 0.001 to 1000000000",
		},
		{
			"rate that rounds to nothing", "RefillTokensPerSecond",
			[]change{scaledRate(0.5, 1), scaledRate(0.001, 500)},
			[]change{scaledRate(0.49, 1), scaledRate(0.001, 499)},
			"0.49: must be at least half of 1 / TokenScale, here 0.5",
		},
		{"lockout", "HardLockout", []change{lockout(0), lockout(1), lockout(longestOption)}, []change{lockout(-1), lockout(longestOption + 1)}, "-1ns: must be from 0s to 596523h14m7s"},
		{"stale", "StaleEntry", []change{stale(time.Second), stale(longestOption)}, []change{stale(time.Second - 1), stale(0), stale(-time.Second), stale(longestOption + 1)}, "999.999999ms:" + seconds},
		{"cleanup", "CleanupInterval", []change{cleanup(time.Second), cleanup(longestOption)}, []change{cleanup(0), cleanup(time.Second - 1), cleanup(longestOption + 1)}, "0s:" + seconds},
		{"scale", "TokenScale", []change{scale(1), scale(1_000_000)}, []change{scale(0), scale(-1), scale(1_000_001)}, "0: must be from 1 to 1000000"},
		{
			"shards", "ShardCount",
			[]change{shards(1), shards(2), shards(1024), shards(1 << 30)},
			[]change{shards(3), shards(0), shards(-1), shards(-32), shards(31), shards(math.MinInt), shards(math.MaxInt32)},
			"3: must be a power of two from 1 to 1073741824",
		},
		{"window", "SoftViolationWindow", []change{window(time.Second), window(longestOption)}, []change{window(0), window(time.Second - 1), window(longestOption + 1)}, "0s:" + seconds},
		{"violations", "MaxSoftViolations", []change{violations(1), violations(math.MaxInt32)}, []change{violations(0), violations(-1)}, "0: must be from 1 to 2147483647"},
		{"cooldown", "CooldownReset", []change{cooldown(time.Second), cooldown(longestOption)}, []change{cooldown(0), cooldown(time.Second - 1), cooldown(longestOption + 1)}, "0s:" + seconds},
		{"tracked", "MaxTrackedEndpoints", []change{tracked(0), tracked(1), tracked(math.MaxInt32)}, []change{tracked(-1)}, "-1: must be from 0 to 2147483647"},
		{"initial", "InitialTokens", []change{initial(math.MinInt), initial(-1), initial(0), initial(12)}, []change{initial(13)}, "13: must be at most CapacityTokens, here 12, or below 0 for as many"},
		{"eviction", "MaxEvictionCapacity", []change{eviction(64), eviction(65536)}, []change{eviction(63), eviction(65537)}, "63: must be from 64 to 65536"},
		{"report", "MinReportCapacity", []change{report(64), report(8192)}, []change{report(63), report(8193)}, "63: must be from 64 to 8192"},
		{"factor", "LockoutFactor", []change{factor(1), factor(1000)}, []change{factor(0), factor(-1), factor(1001)}, "0: must be from 1 to 1000"},
		{
			"longest lockout", "MaxLockout",
			[]change{
				escalating(time.Hour, time.Hour), escalating(0, 0), escalating(0, longestOption), lockout(48 * time.Hour),
				func(o *guard.Options) { o.MaxLockout = -1 }, // which means nothing
			},
			[]change{escalating(time.Hour, time.Hour-1), escalating(0, -1), escalating(0, longestOption+1)},
			"59m59.999999999s: must be from HardLockout, here 1h0m0s, to 596523h14m7s",
		},
		{"IPv4 prefix", "IPv4Prefix", []change{prefix4(1), prefix4(32)}, []change{prefix4(0), prefix4(-1), prefix4(33)}, "0: must be from 1 to 32"},
		{"IPv6 prefix", "IPv6Prefix", []change{prefix6(1), prefix6(128)}, []change{prefix6(0), prefix6(-1), prefix6(129)}, "0: must be from 1 to 128"},
	} {
		t.Run(c.name, func(t *testing.T) {
			build := func(f change) (*guard.Guard, error) {
				o := guard.DefaultOptions()
				o.Clock = manualclock.New(0)
				f(&o)
				return guard.New(o)
			}
			for i, f := range c.accept {
				g, err := build(f)
				if err != nil {
					t.Errorf("accepted value %d: %v", i, err)
					continue
				}
				_, _ = g.Check("192.0.2.1")
				_ = g.Close()
			}
			for i, f := range c.refuse {
				_, err := build(f)
				option, ok := errors.AsType[*weir.OptionError](err)
				if !ok || option.Option != "guard.Options."+c.option {
					t.Errorf("refused value %d: %v", i, err)
				} else if want := "weir: guard.Options." + c.option + " is " + c.message; i == 0 && err.Error() != want {
					t.Errorf("%q, want %q", err, want)
				}
			}
		})
	}
}

// TestGuardOptionsThatAreLeftOut are not replaced by defaults.
func TestGuardOptionsThatAreLeftOut(t *testing.T) {
	_, err := guard.New(guard.Options{})
	if err == nil || !strings.HasPrefix(err.Error(), "weir: guard.Options.CapacityTokens is 0:") {
		t.Error(err)
	}
}

// TestGuardValuesThatDoNotFit32Bits are refused where an int has 64.
func TestGuardValuesThatDoNotFit32Bits(t *testing.T) {
	if strconv.IntSize == 32 {
		return // such values cannot be written
	}
	large := int64(math.MaxInt32) + 1
	for name, change := range map[string]func(o *guard.Options){
		"CapacityTokens":      func(o *guard.Options) { o.CapacityTokens = int(large) },
		"MaxSoftViolations":   func(o *guard.Options) { o.MaxSoftViolations = int(large) },
		"MaxTrackedEndpoints": func(o *guard.Options) { o.MaxTrackedEndpoints = int(large) },
		"ShardCount":          func(o *guard.Options) { o.ShardCount = int(large) },
	} {
		o := guard.DefaultOptions()
		change(&o)
		if _, err := guard.New(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGuardRateIsRoundedToTheScale has a scale of one unit for a token.
func TestGuardRateIsRoundedToTheScale(t *testing.T) {
	for _, c := range []struct {
		rate  float64
		scale int
		want  float64
	}{{6, 1000, 6}, {6.4, 1, 6}, {6.5, 1, 7}, {0.0014, 1000, 0.001}, {1.0 / 3, 1_000_000, 0.333333}, {5e8, 1000, 5e8}, {1e9, 1, 1e9}} {
		g, clock := on(t, func(o *guard.Options) {
			o.CapacityTokens, o.InitialTokens, o.RefillTokensPerSecond, o.TokenScale = 1, 0, c.rate, c.scale
		})
		if got := g.Stats().RefillPerSecond; got != c.want {
			t.Errorf("%v at scale %d is kept as %v, want %v", c.rate, c.scale, got, c.want)
		}
		d := check(t, g, "192.0.2.1")
		if want := time.Duration(math.Ceil(1e9 / c.want)); d.RetryAfter < want-1 || d.RetryAfter > want+1 {
			t.Errorf("%v at scale %d: %+v, want %v", c.rate, c.scale, d, want)
		}
		clock.Advance(d.RetryAfter)
		if d := check(t, g, "192.0.2.1"); !d.Allowed {
			t.Errorf("%+v", d)
		}
	}
}
