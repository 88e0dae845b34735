//go:build !race

package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/config"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// TestLockoutRates says of each policy from which rate on a key is locked out.
func TestLockoutRates(t *testing.T) {
	const text = `version: 1
store: {url: redis://h}
policies:
  none: {limit: 1/s}
  shadow: {limit: 1/s, mode: shadow, lockout: {refusals: 20, within: 1m, for: 15m}}
  flood: {limit: 10/s, burst: 50, lockout: {refusals: 20, within: 1m, for: 15m}}
  row: {limit: 10/s, burst: 50, lockout: {refusals: 20, within: 1m, for: 15m, in_a_row: true}}
  slow: {limit: 1/h, lockout: {refusals: 3, within: 1m, for: 1h}}
  login: {limits: [{algorithm: sliding-window, rate: 5/15m}], lockout: {refusals: 10, within: 15m, for: 1h}}
  month: {limits: [{rate: 100/s}, {algorithm: calendar-window, permits: 1000, every: month}], lockout: {refusals: 5, within: 1h, for: 1d}, cost: 1}
  out: {limits: [{algorithm: concurrency, permits: 5}], lockout: {refusals: 1, within: 1m, for: 15m}}
  hidden: {limit: "${RATE}", lockout: {refusals: 5, within: 1m, for: "${FOR}"}}
  unseen: {limit: 1/s, lockout: {refusals: 5, within: "${WITHIN}", for: 5m}}
  tiers: {limit: 1/s, lockout: {refusals: 60, within: 1m, for: 5m}, tiers: {by: request.method, GET: {limit: 9/s}}, keys: {acme: {limit: 5/s}}}
  shared: {limit: 1/s, consistency: leased, lockout: {refusals: 6, within: 1m, for: 5m}}
`
	env := map[string]string{"RATE": "9081/s", "FOR": "9082s", "WITHIN": "9083s"}
	f, err := config.Parse("f", []byte(text), config.Options{Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }})
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, r := range f.LockoutRates() {
		fmt.Fprintf(&got, "%.4f per second, in %vs: %s\n", r.Rate, r.Within, r)
		if strings.Contains(fmt.Sprintf("%+v", r), "908") {
			t.Errorf("%+v shows what came from the environment", r)
		}
	}
	golden(t, "testdata/lockouts.txt", got.String())
}

// TestLockoutRateOfTheRarestPermit: a rate is told, however long it is until the second permit, and how short refusals count.
func TestLockoutRateOfTheRarestPermit(t *testing.T) {
	f, err := config.Parse("f", []byte("version: 1\npolicies:\n  p: {limit: 1/3660d, lockout: {refusals: 65535, within: 2ms, for: 1h}}\n"+
		"rules: [{name: all, limits: p}]\n"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r := f.LockoutRates()[0]; r.Rate < 32_767_000 || r.Rate > 32_768_000 {
		t.Errorf("%+v", r)
	}
}

// TestLockoutRatesAreRight floods the limits with virtual time: at the rate that is told a key is locked out, and a little below
// it is not.
func TestLockoutRatesAreRight(t *testing.T) {
	for _, limits := range []string{
		"{rate: 10/s, burst: 50}", "{rate: 10/s, burst: 1}", "{rate: 1/h, burst: 3}", "{rate: 10/24h}", "{rate: 3/min, burst: 1}", "{rate: 5/min}", "{rate: 7/s, burst: 7}",
		"{algorithm: fixed-window, rate: 5/min}", "{algorithm: fixed-window, rate: 100/10s}", "{algorithm: fixed-window, rate: 30/h}",
		"{algorithm: sliding-window, rate: 5/15m}", "{algorithm: sliding-window, rate: 20/10s}",
		"{algorithm: sliding-counter, rate: 20/10s}", "{algorithm: sliding-counter, rate: 100/min}",
		"{rate: 100/s}, {algorithm: fixed-window, rate: 100/min}",
		"{algorithm: calendar-window, permits: 50, every: hour}",
	} {
		for _, lockout := range []string{
			"refusals: 20, within: 1m", "refusals: 1, within: 10m", "refusals: 3, within: 10m", "refusals: 10, within: 15m", "refusals: 3, within: 5s",
			"refusals: 200, within: 1m", "refusals: 20, within: 1m, in_a_row: true", "refusals: 3, within: 5s, in_a_row: true",
		} {
			f, err := config.Parse("f", []byte("version: 1\npolicies:\n  p: {limits: ["+limits+"], lockout: {"+lockout+", for: 1h}}\n"+
				"rules: [{name: all, limits: p}]\n"), config.Options{})
			if err != nil {
				t.Fatal(err)
			}
			r := f.LockoutRates()[0]
			// Of more than 33 refusals up to one in 16 are not seen, and a sliding counter estimates.
			below, above := r.Rate*0.99, r.Rate*1.01
			if f.Set.Policies[0].Lockout.Refusals > 33 {
				above += r.Rate / 16
			}
			if strings.Contains(limits, "counter") {
				below, above = below*0.8, above*1.1
			}
			if !lockedOut(t, f.Set, above) {
				t.Errorf("%s, %s: not locked out by %g per second: %s", limits, lockout, above, r.Text)
			}
			if lockedOut(t, f.Set, below) {
				t.Errorf("%s, %s: locked out by %g per second: %s", limits, lockout, below, r.Text)
			}
		}
	}
}

// lockedOut reports whether so many requests per second, evenly spaced and for long, lead to a lockout.
func lockedOut(t *testing.T, set *policy.Set, rate float64) bool {
	t.Helper()
	clock := manualclock.New(0)
	e, err := policy.NewEngine(set, policy.EngineOptions{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	limit := set.Policies[0].Limits[len(set.Policies[0].Limits)-1].Limit
	period := limit.Rate().Period
	if limit.Algorithm() == weir.AlgorithmCalendarWindow {
		period = time.Hour
	}
	var v policy.Verdict
	// The burst is used up, and the requests come at each place of the periods.
	for i := range 3000 + 50*limit.Permits() + min(int64(100*rate*period.Seconds()), 100_000) {
		clock.Set(int64(float64(i) / rate * 1e9))
		e.Take(&policy.Request{}, &v)
		reason := v.Decision().Reason
		v.Release()
		if reason == weir.ReasonHardLockout {
			return true
		}
	}
	return false
}
