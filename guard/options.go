package guard

import (
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

// Options configure a [Guard]. Begin with [DefaultOptions] and change what differs: a field of 0 has no default, so a
// HardLockout, InitialTokens or MaxTrackedEndpoints of 0 is just that.
type Options struct {
	// Name is the Policy of the decisions. Default: "".
	Name string
	// CapacityTokens is how many tokens an endpoint can save, and so how many requests it can make at once: from 1 to 2147483647.
	// An empty bucket must be full again within 18300 days. Default: 12.
	CapacityTokens int
	// RefillTokensPerSecond is how fast tokens come back: from 0.001 to 10^9, and at least 1 when multiplied by
	// TokenScale and rounded. Default: 6.
	RefillTokensPerSecond float64
	// HardLockout is for how long an endpoint is locked out that has reached MaxSoftViolations: from 0 to 2147483647 s. A lockout
	// of 0 is over at once: the refusal has ReasonHardLockout, and the endpoint may come back when it has a token. Default: 0.
	HardLockout time.Duration
	// LockoutFactor is by how much each further lockout of the same endpoint is longer than the one before: from 1, all are
	// equally long, to 1000. An endpoint that has cooled down begins anew (see CooldownReset). Default: 1.
	LockoutFactor int
	// MaxLockout is the max length of a lockout when LockoutFactor is above 1: from HardLockout to 2147483647 s. It means nothing
	// when LockoutFactor is 1. Default: 24 h.
	MaxLockout time.Duration
	// StaleEntry is for how long an endpoint must not have been seen before a cleanup may forget it: from 1 s to
	// 2147483647 s. Default: 300 s.
	StaleEntry time.Duration
	// CleanupInterval is the time between two cleanups: from 1 s to 2147483647 s. Default: 120 s.
	CleanupInterval time.Duration
	// TokenScale is how many parts of a token are counted, from 1 to 1000000: RefillTokensPerSecond is rounded to a multiple of 1
	// / TokenScale. Time and balance are exact whatever it is. Default: 1000.
	TokenScale int
	// ShardCount is how many locks the endpoints are spread over: a power of two from 1 to 2^30. No more are made than
	// are of use: one for every 16 of MaxTrackedEndpoints, and 65536. Default: 32.
	ShardCount int
	// SoftViolationWindow is how soon after the last violation another one must come to add to its count: from 1 s to 2147483647
	// s. It still adds when it comes exactly then; one that comes later begins a new count. Default: 5 s.
	SoftViolationWindow time.Duration
	// MaxSoftViolations is the number of violations at which the endpoint is locked out: from 1, the first one locks it out,
	// to 2147483647. A violation is a request without a token; one that is allowed begins a new count. Default: 3.
	MaxSoftViolations int
	// CooldownReset is how long an endpoint must be without a violation until its violations and lockouts are forgotten: from 1 s
	// to 2147483647 s. The time of a lockout does not count. Default: 10 s.
	CooldownReset time.Duration
	// MaxTrackedEndpoints is how many endpoints are tracked at a time, up to 2147483647; 0 means no bound. It should not be 0
	// where clients can choose the endpoint they come from. See [Guard.SetMaxTrackedEndpoints]. Default: 10000.
	MaxTrackedEndpoints int
	// InitialTokens is what a new endpoint has: from 0, nothing, to CapacityTokens, or below 0 for CapacityTokens.
	// Default: -1.
	InitialTokens int
	// MaxEvictionCapacity is the most endpoints that one cleanup forgets: from 64 to 65536. Default: 4096.
	MaxEvictionCapacity int
	// MinReportCapacity is how many names of endpoints are kept for the report, at least: from 64 to 8192. Those of the
	// endpoints that are refused most are kept, of at most 256 bytes each. Default: 256.
	MinReportCapacity int
	// IPv4Prefix is how many bits of an IPv4 address make the endpoint: from 1 to 32. Default: 32.
	IPv4Prefix int
	// IPv6Prefix is how many bits of an IPv6 address make the endpoint: from 1 to 128. A client that has a network of its own can
	// choose the other bits. Default: 64.
	IPv6Prefix int
	// Clock replaces the monotonic clock of the process. Default: nil.
	Clock weir.Clock
	// Logger logs what cleanups do, at level Debug. It logs at level Warn when new endpoints were refused since the last cleanup
	// because too many are tracked. Default: nil, nothing is logged.
	Logger *slog.Logger
}

// DefaultOptions returns the defaults of all options.
func DefaultOptions() Options {
	return Options{
		CapacityTokens: 12, RefillTokensPerSecond: 6, TokenScale: 1000, InitialTokens: -1,
		HardLockout: 0, LockoutFactor: 1, MaxLockout: 24 * time.Hour,
		SoftViolationWindow: 5 * time.Second, MaxSoftViolations: 3, CooldownReset: 10 * time.Second,
		StaleEntry: 300 * time.Second, CleanupInterval: 120 * time.Second,
		ShardCount: 32, MaxTrackedEndpoints: 10_000, MaxEvictionCapacity: 4096, MinReportCapacity: 256,
		IPv4Prefix: 32, IPv6Prefix: 64,
	}
}

const (
	maxDuration       = math.MaxInt32 * time.Second
	minRefill         = 0.001
	maxRefill         = 1e9
	endpointsPerShard = 16
	maxShards         = 1 << 16
)

// check returns the arithmetic of the options, or an error that names the first one that cannot be used.
func (o *Options) check() (algo.TokenBucket, error) {
	none := algo.TokenBucket{}
	for _, c := range []struct {
		name             string
		value, low, high int
	}{
		{"CapacityTokens", o.CapacityTokens, 1, math.MaxInt32},
		{"LockoutFactor", o.LockoutFactor, 1, 1000},
		{"TokenScale", o.TokenScale, 1, 1_000_000},
		{"MaxSoftViolations", o.MaxSoftViolations, 1, math.MaxInt32},
		{"MaxTrackedEndpoints", o.MaxTrackedEndpoints, 0, math.MaxInt32},
		{"MaxEvictionCapacity", o.MaxEvictionCapacity, 64, 65536},
		{"MinReportCapacity", o.MinReportCapacity, 64, 8192},
		{"IPv4Prefix", o.IPv4Prefix, 1, 32},
		{"IPv6Prefix", o.IPv6Prefix, 1, 128},
	} {
		if c.value < c.low || c.value > c.high {
			return none, optionError(c.name, strconv.Itoa(c.value), fmt.Sprintf("from %d to %d", c.low, c.high))
		}
	}
	for _, c := range []struct {
		name       string
		value, low time.Duration
	}{
		{"HardLockout", o.HardLockout, 0},
		{"StaleEntry", o.StaleEntry, time.Second},
		{"CleanupInterval", o.CleanupInterval, time.Second},
		{"SoftViolationWindow", o.SoftViolationWindow, time.Second},
		{"CooldownReset", o.CooldownReset, time.Second},
	} {
		if c.value < c.low || c.value > maxDuration {
			return none, optionError(c.name, c.value.String(), fmt.Sprintf("from %v to %v", c.low, maxDuration))
		}
	}
	if o.LockoutFactor > 1 && (o.MaxLockout < o.HardLockout || o.MaxLockout > maxDuration) {
		return none, optionError(
			"MaxLockout", o.MaxLockout.String(),
			fmt.Sprintf("from HardLockout, here %v, to %v", o.HardLockout, maxDuration),
		)
	}
	if o.ShardCount < 1 || o.ShardCount > 1<<30 || o.ShardCount&(o.ShardCount-1) != 0 {
		return none, optionError("ShardCount", strconv.Itoa(o.ShardCount), "a power of two from 1 to 1073741824")
	}
	if o.InitialTokens > o.CapacityTokens {
		return none, optionError(
			"InitialTokens", strconv.Itoa(o.InitialTokens),
			fmt.Sprintf("at most CapacityTokens, here %d, or below 0 for as many", o.CapacityTokens),
		)
	}
	return o.bucket()
}

// bucket is the arithmetic of an endpoint: units per TokenScale seconds are as many tokens as units per second are units.
func (o *Options) bucket() (algo.TokenBucket, error) {
	rate := func(accepted string) error {
		value := strconv.FormatFloat(o.RefillTokensPerSecond, 'g', -1, 64)
		return optionError("RefillTokensPerSecond", value, accepted)
	}
	if !(o.RefillTokensPerSecond >= minRefill && o.RefillTokensPerSecond <= maxRefill) { // not a number is neither
		return algo.TokenBucket{}, rate("from 0.001 to 1000000000")
	}
	units := int64(math.Round(o.RefillTokensPerSecond * float64(o.TokenScale)))
	if units == 0 {
		return algo.TokenBucket{}, rate(fmt.Sprintf("at least half of 1 / TokenScale, here %g", 0.5/float64(o.TokenScale)))
	}
	a, err := algo.NewTokenBucket(units, time.Duration(o.TokenScale)*time.Second, int64(o.CapacityTokens))
	if err != nil {
		// Only a bucket that takes too long to fill is left.
		return a, optionError(
			"CapacityTokens", strconv.Itoa(o.CapacityTokens),
			"small enough to be regained at RefillTokensPerSecond within 439200h (18300 days)",
		)
	}
	return a, nil
}

// shards is how many locks the table of the guard has.
func (o *Options) shards() int {
	most := maxShards
	if o.MaxTrackedEndpoints > 0 {
		most = min(most, max(o.MaxTrackedEndpoints/endpointsPerShard, 1))
	}
	shards := 1
	for shards*2 <= min(o.ShardCount, most) {
		shards *= 2
	}
	return shards
}

func optionError(option, value, accepted string) error {
	return &weir.OptionError{Option: "guard.Options." + option, Value: value, Accepted: accepted}
}
