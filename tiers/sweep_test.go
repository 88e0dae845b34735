package tiers_test

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/tiers"
)

// wideTiers have 72 pairs, so that 64 policies do not suffice.
func wideTiers() tiers.Options {
	return tiers.Options{RPS: []float64{1, 2, 3, 4, 5, 6, 7, 8, 9}, Burst: []int{1, 2, 3, 4, 5, 6, 7, 8}}
}

func attribute(rps, burst int) *tiers.Attribute {
	return &tiers.Attribute{RPS: float64(rps), Burst: float64(burst)}
}

func TestTiersAtMost64Policies(t *testing.T) {
	ts, _ := newTiers(t, wideTiers())
	for rps := 1; rps <= 8; rps++ {
		for burst := 1; burst <= 8; burst++ {
			if d := ts.Check(attribute(rps, burst), 1, alice); d.Limit != int64(burst) {
				t.Errorf("%d/s burst %d: %+v", rps, burst, d)
			}
		}
	}
	if r := ts.Report(); r.Active != 64 || r.MaxPolicies != 64 {
		t.Fatalf("%+v", r)
	}
	for burst := 1; burst <= 8; burst++ {
		for range 3 {
			d := ts.Check(attribute(9, burst), 2, alice)
			if want := "8/s burst " + string(rune('0'+burst)); d.Policy != want {
				t.Errorf("9/s burst %d is served by %q, want %q", burst, d.Policy, want)
			}
		}
	}
	if r := ts.Report(); r.Active != 64 || r.Policies[0].Shared != 1 || r.Checks != 64+24 {
		t.Errorf("%+v", r)
	}
}

func TestTiersReuseClosestNotLooser(t *testing.T) {
	type pair struct{ rps, burst int }
	for _, c := range []struct {
		name string
		have []pair
		ask  pair
		want string
	}{
		{"the nearest of the stricter", []pair{{1, 1}, {4, 4}, {2, 8}}, pair{8, 8}, "2/s burst 8"},
		{"stricter before looser, however near", []pair{{1, 1}, {8, 16}}, pair{8, 8}, "1/s burst 1"},
		{"looser in one is looser", []pair{{1, 1}, {4, 16}, {16, 4}}, pair{8, 8}, "1/s burst 1"},
		{"of the equally near, the lower RPS", []pair{{8, 4}, {4, 8}}, pair{8, 8}, "4/s burst 8"},
		{"none is stricter: the closest of all", []pair{{64, 8}, {16, 16}, {32, 4}}, pair{2, 2}, "16/s burst 16"},
		{"none is stricter, equally near: the lower RPS", []pair{{8, 2}, {4, 6}, {2, 8}}, pair{2, 2}, "2/s burst 8"},
		{"equally near, one dominates: the stricter", []pair{{8, 1}, {1, 8}}, pair{4, 4}, "1/s burst 8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 2 {
				ts, _ := newTiers(t, tiers.Options{
					RPS: []float64{1, 2, 4, 8, 16, 32, 64}, Burst: []int{1, 2, 4, 6, 8, 16}, MaxPolicies: len(c.have),
				})
				for _, p := range c.have {
					ts.Check(attribute(p.rps, p.burst), 1, alice)
				}
				if d := ts.Check(attribute(c.ask.rps, c.ask.burst), 1, alice); d.Policy != c.want {
					t.Errorf("%q, want %q", d.Policy, c.want)
				}
				for i, j := 0, len(c.have)-1; i < j; i, j = i+1, j-1 { // the order in which they were made must not matter
					c.have[i], c.have[j] = c.have[j], c.have[i]
				}
			}
		})
	}
}

func TestTiersUnusedAreSweptEvery1024Checks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts, clock := newTiers(t, tiers.Options{})
		ts.Check(attribute(1, 1), 1, alice) // the first check
		clock.Advance(1)
		ts.Check(attribute(2, 2), 1, alice) // the second
		clock.Advance(1800 * time.Second)
		for range 1021 {
			ts.Check(attribute(4, 4), 1, alice)
		}
		synctest.Wait()
		if r := ts.Report(); r.Active != 3 || r.Checks != 1023 {
			t.Fatalf("after 1023 checks: %+v", r)
		}
		ts.Check(attribute(4, 4), 1, alice)
		synctest.Wait()
		r := ts.Report()
		if r.Active != 2 || r.Policies[0].RPS != 4 || r.Policies[1].RPS != 2 { // which was unused for 1800 s, and not longer
			t.Fatalf("after 1024 checks: %+v", r)
		}
		clock.Advance(1)
		if n := ts.Sweep(); n != 1 {
			t.Errorf("%d were swept", n)
		}
		clock.Advance(1800 * time.Second)
		for range 1024 {
			ts.Check(attribute(8, 8), 1, alice)
		}
		synctest.Wait()
		if r := ts.Report(); r.Active != 1 || r.Policies[0].RPS != 8 || r.Checks != 2048 {
			t.Errorf("after 2048 checks: %+v", r)
		}
	})
}

// TestTiersGoroutinesEndWithClose would fail if a goroutine were left in its bubble.
func TestTiersGoroutinesEndWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ts, err := tiers.New(tiers.Options{SweepEvery: 1, Unused: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			ts.Check(attribute(1+i%8, 1), 1, alice)
			time.Sleep(10 * time.Second)
		}
		ts.Check(attribute(1, 1), 1, alice)
		if n := ts.Report().Active; n == 0 || n == 4 {
			t.Errorf("%d active: want that some were swept away", n)
		}
		ts.Close()
	})
}

func TestTiersLockoutSurvivesSweep(t *testing.T) {
	o := guard.DefaultOptions()
	o.HardLockout, o.MaxSoftViolations = 2*time.Hour, 1
	ts, clock := newTiers(t, tiers.Options{Guard: &o})
	a := attribute(1, 1)
	ts.Check(a, 1, alice)
	if d := ts.Check(a, 1, alice); d.Reason != weir.ReasonHardLockout || d.RetryAfter != 2*time.Hour {
		t.Fatalf("%+v", d)
	}
	clock.Advance(2*time.Hour - 1)
	ts.Sweep()
	if d := ts.Check(a, 1, alice); d.Reason != weir.ReasonHardLockout || d.RetryAfter != time.Millisecond {
		t.Fatalf("%+v", d)
	}
	clock.Advance(2*time.Hour + 10*time.Second) // CooldownReset
	if n := ts.Sweep(); n != 0 {
		t.Errorf("%d swept", n)
	}
	clock.Advance(1)
	if n := ts.Sweep(); n != 1 {
		t.Errorf("%d swept", n)
	}
}

// TestTiersLongestLockoutSurvivesSweep keeps a limiter for as long as its longest lockout could last, and its cooldown.
func TestTiersLongestLockoutSurvivesSweep(t *testing.T) {
	o := guard.DefaultOptions()
	o.HardLockout, o.LockoutFactor, o.MaxLockout, o.MaxSoftViolations = time.Hour, 2, 4*time.Hour, 1
	ts, clock := newTiers(t, tiers.Options{Guard: &o})
	a := attribute(1, 1)
	for _, want := range []time.Duration{time.Hour, 2 * time.Hour, 4 * time.Hour, 4 * time.Hour} {
		ts.Check(a, 1, alice)
		if d := ts.Check(a, 1, alice); d.Reason != weir.ReasonHardLockout || d.RetryAfter != want {
			t.Fatalf("%+v, want %v", d, want)
		}
		clock.Advance(want)
		ts.Sweep()
	}
	clock.Advance(10 * time.Second)
	if n := ts.Sweep(); n != 0 {
		t.Errorf("%d swept", n)
	}
	clock.Advance(1)
	if n := ts.Sweep(); n != 1 {
		t.Errorf("%d swept", n)
	}
}

// TestTiersSlowBucketSurvivesSweep has a tier that takes longer than Unused to fill.
func TestTiersSlowBucketSurvivesSweep(t *testing.T) {
	ts, clock := newTiers(t, tiers.Options{RPS: []float64{0.001}, Burst: []int{4}})
	if n := burstOf(ts, attribute(1, 1)); n != 4 {
		t.Fatal(n)
	}
	clock.Advance(1801 * time.Second)
	if n := ts.Sweep(); n != 0 {
		t.Errorf("%d swept", n)
	}
	if n := burstOf(ts, attribute(1, 1)); n != 1 {
		t.Errorf("%d tokens after 1801 s at 0.001/s", n)
	}
}

// TestTiersServedByAnotherMoveWhenQuiet: with room, a tier gets a limiter of its own, but not while it has anything to forget.
func TestTiersServedByAnotherMoveWhenQuiet(t *testing.T) {
	ts, clock := newTiers(t, tiers.Options{MaxPolicies: 2})
	served := func() string { return ts.Check(attribute(8, 1), 1, alice).Policy }
	ts.Check(attribute(1, 1), 1, alice)
	ts.Check(attribute(2, 1), 1, alice)
	if p := served(); p != "2/s burst 1" {
		t.Fatal(p)
	}
	for range 181 { // busy
		clock.Advance(10 * time.Second)
		served()
		ts.Sweep()
	}
	if r := ts.Report(); r.Active != 1 || served() != "2/s burst 1" {
		t.Fatalf("%+v", r)
	}
	clock.Advance(10*time.Second + 1)
	ts.Check(attribute(2, 1), 1, alice)
	ts.Sweep()
	if p := served(); p != "8/s burst 1" {
		t.Error(p)
	}
	if r := ts.Report(); r.Active != 2 || r.Policies[1].Shared != 0 {
		t.Errorf("%+v", r)
	}
}

func TestCheckAllocatesNothing(t *testing.T) {
	for _, o := range []tiers.Options{{}, {SweepEvery: 1}} {
		ts, err := tiers.New(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ts.Close() })
		a := &tiers.Attribute{RPS: 100, Burst: 50}
		tier, err := ts.Tier(a)
		if err != nil {
			t.Fatal(err)
		}
		six := netip.MustParseAddr("2001:db8::1")
		for range 100 {
			ts.Check(a, 1, alice)
		}
		for name, f := range map[string]func(){
			"Check":         func() { ts.Check(a, 1, alice) },
			"Check of IPv6": func() { ts.Check(a, 1, six) },
			"Tier.Check":    func() { tier.Check(1, alice) },
			"CheckEndpoint": func() { ts.CheckEndpoint(a, 1, "192.0.2.7:80") },
			"no attribute":  func() { ts.Check(nil, 1, alice) },
			"no address":    func() { ts.Check(a, 1, netip.Addr{}) },
		} {
			if n := testing.AllocsPerRun(5000, f); n > 0 {
				t.Errorf("%s: %v allocations, SweepEvery %d", name, n, o.SweepEvery)
			}
		}
	}
}

// TestTiersContention asks limiters that are being swept away all the time: no call is refused by a closed one.
func TestTiersContention(t *testing.T) {
	clock := new(manualclock.Clock)
	ts, err := tiers.New(tiers.Options{MaxPolicies: 4, SweepEvery: 3, Unused: time.Second, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	var (
		callers sync.WaitGroup
		swept   atomic.Int64
		counts  [16]atomic.Int64
	)
	for seed := range 4 {
		callers.Go(func() {
			random := rand.New(rand.NewPCG(uint64(seed), 0))
			for range 4000 {
				d := ts.Check(attribute(1<<random.IntN(4), 1<<random.IntN(3)), random.Uint64N(8), alice)
				counts[d.Reason].Add(1)
				switch random.IntN(16) {
				case 0:
					clock.Advance(time.Duration(random.Int64N(int64(90 * time.Second))))
				case 1:
					swept.Add(int64(ts.Sweep()))
				case 2:
					ts.Report()
				}
			}
		})
	}
	callers.Wait()
	ts.Close()
	for reason := range counts {
		switch r := weir.Reason(reason); r {
		case weir.ReasonNone, weir.ReasonSoftThrottle, weir.ReasonHardLockout:
		default:
			if n := counts[reason].Load(); n > 0 {
				t.Errorf("%d answers are %v", n, r)
			}
		}
	}
	if counts[weir.ReasonNone].Load() == 0 || swept.Load() == 0 {
		t.Errorf("%d allowed, %d swept by hand", counts[weir.ReasonNone].Load(), swept.Load())
	}
}

// TestTiersCloseContention closes while callers ask.
func TestTiersCloseContention(t *testing.T) {
	for range 20 {
		ts, err := tiers.New(tiers.Options{SweepEvery: 2, MaxPolicies: 2})
		if err != nil {
			t.Fatal(err)
		}
		var callers sync.WaitGroup
		for i := range 4 {
			callers.Go(func() {
				for d := (weir.Decision{}); d.Reason != weir.ReasonClosed; {
					if d = ts.Check(attribute(1<<i, 1), 1, alice); d.Reason == weir.ReasonTrackingCap {
						t.Errorf("%+v", d)
					}
				}
			})
		}
		callers.Go(func() { ts.Close() })
		callers.Go(func() { ts.Close() })
		callers.Wait()
		if r := ts.Report(); r.Active != 0 {
			t.Errorf("%+v", r)
		}
	}
}
