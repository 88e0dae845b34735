package guard_test

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/guard"
)

// TestGuardContention has 64 goroutines ask for one endpoint at once: it is allowed what it may have and no more, and gets all of
// it.
func TestGuardContention(t *testing.T) {
	const rate, burst = 100_000, 50
	o := guard.DefaultOptions()
	o.CapacityTokens, o.RefillTokensPerSecond, o.MaxSoftViolations = burst, rate, 1<<30
	g, err := guard.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	addr := netip.MustParseAddr("2001:db8::1")
	var granted atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for range 64 {
		all.Go(func() {
			for first := true; first || time.Since(start) < 300*ms; first = false {
				if d, _ := g.CheckAddr(addr); d.Allowed {
					granted.Add(1)
				}
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	if most := burst + int64(rate*took.Seconds()) + 1; granted.Load() > most {
		t.Errorf("%d tokens in %v, allowed are %d", granted.Load(), took, most)
	}
	if granted.Load() < burst {
		t.Errorf("%d tokens in %v", granted.Load(), took)
	}
	if st := g.Stats(); st.Allowed != granted.Load() {
		t.Errorf("%+v, want %d allowed", st, granted.Load())
	}
}

// TestGuardContentionAtTheCap has goroutines ask for many endpoints at a small guard, while others clean it up, report on it and
// end lockouts. The guard never tracks more than it may, and no endpoint gets more than it may.
func TestGuardContentionAtTheCap(t *testing.T) {
	const most, endpoints = 100, 300
	o := guard.DefaultOptions()
	o.MaxTrackedEndpoints, o.CapacityTokens, o.RefillTokensPerSecond, o.HardLockout = most, 3, 0.001, time.Hour
	g, err := guard.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	var granted [endpoints]atomic.Int64
	var done atomic.Bool
	var askers, others sync.WaitGroup
	for i := range 64 {
		askers.Go(func() {
			for j := range 500 {
				n := (i*31 + j*7) % endpoints
				if d, err := g.CheckAddr(address6(n)); err != nil {
					t.Error(err)
				} else if d.Allowed {
					granted[n].Add(1)
				}
			}
		})
	}
	for _, work := range []func(){
		func() { g.Cleanup() },
		func() {
			if r := g.Report(); len(r.Top) > 20 || r.String() == "" {
				t.Errorf("%+v", r)
			}
		},
		func() {
			if n := g.Stats().TrackedEndpoints; n > most+64 { // those that are just being refused are counted for a moment
				t.Errorf("%d endpoints are tracked", n)
			}
		},
		func() { g.Unblock(address6(0).String()) },
	} {
		others.Go(func() {
			for !done.Load() {
				work()
			}
		})
	}
	askers.Wait()
	done.Store(true)
	others.Wait()
	total := int64(0)
	for i := range granted {
		if n := granted[i].Load(); n > 3 {
			t.Errorf("endpoint %d was allowed %d times", i, n)
		}
		total += granted[i].Load()
	}
	if st := g.Stats(); st.TrackedEndpoints != most || st.Allowed != total || st.Allowed+st.SoftThrottled+st.LockedOut+st.TrackingCapped != 64*500 {
		t.Errorf("%+v", st)
	}
}

func TestGuardCheckAllocatesNothing(t *testing.T) {
	for _, c := range []struct {
		name    string
		lockout time.Duration
		reason  weir.Reason
	}{{"soft throttle", 0, weir.ReasonSoftThrottle}, {"locked out", time.Hour, weir.ReasonHardLockout}, {"allowed", 0, weir.ReasonNone}} {
		g, clock := on(t, func(o *guard.Options) {
			o.HardLockout, o.MaxSoftViolations, o.MaxTrackedEndpoints = c.lockout, 1<<30, 5
			if c.lockout > 0 {
				o.MaxSoftViolations = 1
			}
		})
		addr := netip.MustParseAddr("192.0.2.1")
		asks := map[string]func() (weir.Decision, error){
			"port":      func() (weir.Decision, error) { return g.Check("192.0.2.7:4711") },
			"IPv6":      func() (weir.Decision, error) { return g.Check("[2001:db8::1%eth0]:80") },
			"path":      func() (weir.Decision, error) { return g.Check("/run/server.sock") },
			"address":   func() (weir.Decision, error) { return g.CheckAddr(addr) },
			"operation": func() (weir.Decision, error) { return g.CheckOperation(7, addr) },
		}
		for name, ask := range asks {
			for range 20 {
				_, _ = ask()
			}
			var last weir.Decision
			if n := testing.AllocsPerRun(100, func() {
				if c.reason == weir.ReasonNone {
					clock.Advance(time.Second)
				}
				last, _ = ask()
			}); n != 0 || last.Reason != c.reason {
				t.Errorf("%s, %s: %v allocations, %+v", c.name, name, n, last)
			}
		}
		// Nor do endpoints that are turned away.
		if c.reason == weir.ReasonNone {
			continue
		}
		i := 0
		if n := testing.AllocsPerRun(1000, func() {
			i++
			if d, _ := g.CheckAddr(address6(i)); d.Reason != weir.ReasonTrackingCap {
				t.Errorf("%+v", d)
			}
		}); n != 0 {
			t.Errorf("%v allocations for an endpoint that is turned away", n)
		}
	}
}
