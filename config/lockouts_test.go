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
		fmt.Fprintf(&got, "%d in %vs: %s\n", r.Requests, r.Within, r)
		if strings.Contains(fmt.Sprintf("%+v", r), "908") {
			t.Errorf("%+v shows what came from the environment", r)
		}
	}
	golden(t, "testdata/lockouts.txt", got.String())
}

// TestLockoutRatesAreRight floods the limits with virtual time: at the rate that is told a key is locked out, and a little below
// it is not.
func TestLockoutRatesAreRight(t *testing.T) {
	for _, limits := range []string{
		"{rate: 10/s, burst: 50}", "{rate: 10/s, burst: 1}", "{rate: 1/h, burst: 3}", "{rate: 5/min}", "{rate: 7/s, burst: 7}",
		"{algorithm: fixed-window, rate: 5/min}", "{algorithm: fixed-window, rate: 100/10s}", "{algorithm: fixed-window, rate: 30/h}",
		"{algorithm: sliding-window, rate: 5/15m}", "{algorithm: sliding-window, rate: 20/10s}",
		"{algorithm: sliding-counter, rate: 20/10s}", "{algorithm: sliding-counter, rate: 100/min}",
		"{rate: 100/s}, {algorithm: fixed-window, rate: 100/min}",
		"{algorithm: calendar-window, permits: 50, every: hour}",
	} {
		for _, lockout := range []string{
			"refusals: 20, within: 1m", "refusals: 1, within: 1m", "refusals: 10, within: 15m", "refusals: 3, within: 5s",
			"refusals: 200, within: 1m", "refusals: 20, within: 1m, in_a_row: true", "refusals: 3, within: 5s, in_a_row: true",
		} {
			f, err := config.Parse("f", []byte("version: 1\npolicies:\n  p: {limits: ["+limits+"], lockout: {"+lockout+", for: 1h}}\n"+
				"rules: [{name: all, limits: p}]\n"), config.Options{})
			if err != nil {
				t.Fatal(err)
			}
			r := f.LockoutRates()[0]
			within := time.Duration(r.Within * float64(time.Second))
			// A bucket of one permit loses what comes while it is full, and a sliding counter estimates: both refuse more. Of the
			// refusals between two permits there is sometimes one more.
			above, below := r.Requests+r.Requests/16+2, r.Requests-r.Requests/10-3
			if o := f.Set.Policies[0].Lockout; o.InARow {
				below = below * int64(o.Refusals) / int64(o.Refusals+1)
			}
			if !lockedOut(t, f.Set, above, within) {
				t.Errorf("%s, %s: not locked out by %d within %v, where %d do: %s", limits, lockout, above, within, r.Requests, r.Text)
			}
			if loses := strings.Contains(limits, "burst: 1}") || strings.Contains(limits, "counter"); loses {
				continue
			}
			if below > 0 && lockedOut(t, f.Set, below, within) {
				t.Errorf("%s, %s: locked out by %d within %v, where %d do: %s", limits, lockout, below, within, r.Requests, r.Text)
			}
		}
	}
}

// lockedOut reports whether so many requests within a time, evenly spaced and for long, lead to a lockout.
func lockedOut(t *testing.T, set *policy.Set, n int64, within time.Duration) bool {
	t.Helper()
	clock := manualclock.New(0)
	e, err := policy.NewEngine(set, policy.EngineOptions{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var v policy.Verdict
	for i := range max(20*n, 3000) {
		if clock.Set(int64(float64(i) * float64(within) / float64(n))); clock.Now() > int64(4*time.Hour) && i > 20*n {
			break
		}
		e.Take(&policy.Request{}, &v)
		reason := v.Decision().Reason
		v.Release()
		if reason == weir.ReasonHardLockout {
			return true
		}
	}
	return false
}
