package ratelimitconfig_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/ratelimitconfig"
	"github.com/weirhq/weir/policy"
)

// TestCounters: each value that varies has a counter of its own, in each domain, unless a wildcard shares one.
func TestCounters(t *testing.T) {
	for _, o := range []ratelimitconfig.Options{
		{},
		{Policies: 10},
		{Policies: 1},
		{Consistency: policy.ConsistencyCoherent},
		{Consistency: policy.ConsistencyCoherent, Policies: 1},
	} {
		t.Run(fmt.Sprint(o.Consistency, o.Policies), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // so that no hour begins meanwhile
				testCounters(t, o)
			})
		})
	}
}

func testCounters(t *testing.T, o ratelimitconfig.Options) {
	t.Helper()
	s := serve(t, parse(t, o, `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: hour, requests_per_unit: 3}}
  - {key: file, value: "a/*", rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: file, value: "b/*", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: soft, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: never, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: never, value: soft, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: bucket, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: token_bucket, burst: 5}}
  - {key: sliding, rate_limit: {unit: hour, requests_per_unit: 3, algorithm: sliding-window}}
  - {key: several, rate_limit: {unit: hour, requests_per_unit: 3, unit_multiplier: 2}}
`, `
domain: e
descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 4}}]
`))
	for _, c := range []struct {
		domain, descriptor string
		want               int // of 8
	}{
		{"d", "user=anna", 3},
		{"d", "user=bert", 3},
		{"d", "user=anna", 0},
		{"e", "user=anna", 4},
		{"d", "file=a/1", 2},
		{"d", "file=a/2", 2},
		{"d", "file=b/1", 2},
		{"d", "file=b/2", 0},
		{"d", "soft=x", 8},
		{"d", "never=x", 0},
		{"d", "never=soft", 8},
		{"d", "free=x", 8},
		{"d", "bucket=x", 5},
		{"d", "sliding=x", 3},
		{"d", "several=x", 3},
		{"d", "nothing=x", 8},
		{"f", "user=anna", 8},
	} {
		if n := s.admits(t, c.domain, c.descriptor, 8); n != c.want {
			t.Errorf("%s: %s: %d of 8, want %d", c.domain, c.descriptor, n, c.want)
		}
	}
	none := ratelimitconfig.Override{}
	for _, c := range []struct {
		hits uint64
		want bool
	}{{0, true}, {2, true}, {2, false}, {0, true}, {1, true}, {0, false}, {1 << 63, false}} {
		if ok, _ := s.take(t, "d", "user=hits", c.hits, none); ok != c.want {
			t.Errorf("%d hits: %v", c.hits, ok)
		}
	}
}

// TestWindows: windows begin where those of envoyproxy/ratelimit do, those of a month and a year with the calendar.
func TestWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Virtual time begins at midnight of Saturday, 1 January 2000, UTC.
		time.Sleep(36*time.Hour + 90*time.Minute + 20*time.Second) // Sunday 13:30:20
		var text strings.Builder
		text.WriteString("domain: d\ndescriptors:\n")
		for _, unit := range []string{"second", "minute", "hour", "day", "week", "month", "year"} {
			fmt.Fprintf(&text, "  - {key: %s, rate_limit: {unit: %s, requests_per_unit: 1}}\n", unit, unit)
		}
		s := serve(t, parse(t, ratelimitconfig.Options{}, text.String()))
		for unit, want := range map[string]time.Duration{
			"minute": 40 * time.Second,
			"hour":   29*time.Minute + 40*time.Second,
			"day":    10*time.Hour + 29*time.Minute + 40*time.Second,
			"week":   3*24*time.Hour + 10*time.Hour + 29*time.Minute + 40*time.Second, // until Thursday
			"month":  29*24*time.Hour + 10*time.Hour + 29*time.Minute + 40*time.Second,
			"year":   364*24*time.Hour + 10*time.Hour + 29*time.Minute + 40*time.Second, // a leap year
		} {
			_, d := s.take(t, "d", unit+"=x", 1, ratelimitconfig.Override{})
			if ok, refused := s.take(t, "d", unit+"=x", 1, ratelimitconfig.Override{}); ok || d.ResetAfter != want || refused.RetryAfter != want {
				t.Errorf("%s: %v, resets after %v, retry after %v, want %v", unit, ok, d.ResetAfter, refused.RetryAfter, want)
			}
		}
		if n := s.admits(t, "d", "second=x", 3); n != 1 {
			t.Errorf("%d in a second", n)
		}
		time.Sleep(time.Second)
		if n := s.admits(t, "d", "second=x", 3); n != 1 {
			t.Errorf("%d in the next second", n)
		}
	})
}

// TestManyLimitsInOnePolicy: limits that share policies decide as those with policies of their own.
func TestManyLimitsInOnePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		text.WriteString("domain: d\ndescriptors:\n")
		for i, more := range []string{
			"", ", algorithm: token_bucket", ", algorithm: token_bucket, burst: 9", ", algorithm: sliding_window",
			", algorithm: sliding_counter", ", unit_multiplier: 3",
		} {
			for j, unit := range []string{"second", "minute", "hour"} {
				fmt.Fprintf(&text, "  - {key: k%d, value: v%d, rate_limit: {unit: %s, requests_per_unit: %d%s}}\n", i, j, unit, 3+j, more)
				fmt.Fprintf(&text, "  - {key: k%d, value: 'w%d*', rate_limit: {unit: %s, requests_per_unit: %d%s}}\n", i, j, unit, 2+j, more)
			}
		}
		var servers []*server
		for policies, want := range map[int]int{0: 38, 10: 7, 1: 7} {
			c := parse(t, ratelimitconfig.Options{Policies: policies}, text.String())
			if len(c.Policies) != want {
				t.Fatalf("%d policies, want %d", len(c.Policies), want)
			}
			servers = append(servers, serve(t, c))
		}
		random := rand.New(rand.NewPCG(1, 2))
		for range 4000 {
			descriptor := fmt.Sprintf("k%d=%s%d", random.IntN(6), []string{"v", "w"}[random.IntN(2)], random.IntN(3))
			hits := random.Uint64N(3)
			var first weir.Decision
			for i, s := range servers {
				_, d := s.take(t, "d", descriptor, hits, ratelimitconfig.Override{})
				d.Policy = ""
				if i == 0 {
					first = d
				} else if d != first {
					t.Fatalf("%s, %d hits: %+v, with policies of their own %+v", descriptor, hits, d, first)
				}
			}
			time.Sleep(time.Duration(random.Int64N(int64(10 * time.Second))))
		}
	})
}
