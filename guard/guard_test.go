package guard_test

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/manualclock"
)

const ms = time.Millisecond

// on is a guard on a clock of its own, with the defaults except for what change changes.
func on(t testing.TB, change func(o *guard.Options)) (*guard.Guard, *manualclock.Clock) {
	t.Helper()
	clock := manualclock.New(1e9)
	o := guard.DefaultOptions()
	o.Clock = clock
	if change != nil {
		change(&o)
	}
	g, err := guard.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g, clock
}

func check(t testing.TB, g *guard.Guard, endpoint string) weir.Decision {
	t.Helper()
	d, err := g.Check(endpoint)
	if err != nil {
		t.Fatalf("Check(%q): %v", endpoint, err)
	}
	return d
}

// says checks the endpoint once and compares what a caller acts on.
func says(t testing.TB, g *guard.Guard, endpoint string, reason weir.Reason, retry time.Duration) {
	t.Helper()
	d := check(t, g, endpoint)
	if d.Reason != reason || d.Allowed != (reason == weir.ReasonNone) || d.RetryAfter != retry {
		t.Fatalf("Check(%q) = %+v, want %v, retry after %v", endpoint, d, reason, retry)
	}
}

// drain takes n tokens of an endpoint.
func drain(t testing.TB, g *guard.Guard, endpoint string, n int) {
	t.Helper()
	for i := range n {
		if d := check(t, g, endpoint); !d.Allowed {
			t.Fatalf("token %d of %d: %+v", i+1, n, d)
		}
	}
}

func TestGuardStep1Closed(t *testing.T) {
	g, clock := on(t, func(o *guard.Options) { o.Name = "door" })
	drain(t, g, "192.0.2.1", 12)
	for range 2 {
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	want := weir.Decision{Reason: weir.ReasonClosed, Limit: 12, Policy: "door"}
	for name, ask := range map[string]func() (weir.Decision, error){
		"known":       func() (weir.Decision, error) { return g.Check("192.0.2.1") },
		"new":         func() (weir.Decision, error) { return g.Check("192.0.2.2") },
		"no endpoint": func() (weir.Decision, error) { return g.Check("") }, // being closed comes first
		"address":     func() (weir.Decision, error) { return g.CheckAddr(netip.Addr{}) },
		"operation":   func() (weir.Decision, error) { return g.CheckOperation(1, netip.Addr{}) },
		"peek":        func() (weir.Decision, error) { return g.Peek("") },
	} {
		if d, err := ask(); d != want || err != nil || !d.Reason.Hard() {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	if st := g.Stats(); st.TrackedEndpoints != 1 || st.Allowed != 12 || st.SoftThrottled+st.LockedOut != 0 {
		t.Errorf("%+v", st)
	}
	clock.Advance(24 * time.Hour)
	if st := g.Stats(); st.Cleanups != 0 {
		t.Errorf("a closed guard cleans up: %+v", st)
	}
}

func TestGuardStep2NoEndpoint(t *testing.T) {
	g, _ := on(t, nil)
	for name, ask := range map[string]func() (weir.Decision, error){
		"empty":          func() (weir.Decision, error) { return g.Check("") },
		"zero address":   func() (weir.Decision, error) { return g.CheckAddr(netip.Addr{}) },
		"zero operation": func() (weir.Decision, error) { return g.CheckOperation(7, netip.Addr{}) },
		"peek":           func() (weir.Decision, error) { return g.Peek("") },
		"peek operation": func() (weir.Decision, error) { return g.PeekOperation(7, netip.Addr{}) },
	} {
		d, err := ask()
		if !errors.Is(err, guard.ErrNoEndpoint) || d.Allowed || d.Reason != weir.ReasonInvalid {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	if err := guard.ErrNoEndpoint.Error(); err != "weir: no endpoint" {
		t.Error(err)
	}
	if g.Unblock("") || g.Reset("") || g.ResetOperation(1, netip.Addr{}) || g.UnblockOperation(1, netip.Addr{}) {
		t.Error("an endpoint that is none was tracked")
	}
	if st := g.Stats(); st.TrackedEndpoints != 0 {
		t.Errorf("%+v", st)
	}
}

// TestGuardStep3TrackingCap fills a guard with endpoints that cannot be forgotten.
func TestGuardStep3TrackingCap(t *testing.T) {
	for _, c := range []struct {
		lockout, retry time.Duration
	}{
		{10 * time.Second, 10 * time.Second}, // retry is the lockout
		{1500 * time.Microsecond, 2 * ms},    // rounded up
		{0, 1666666667},                      // or the wait until a slot can free: one endpoint lacks 10 tokens of 6/s
	} {
		t.Run(c.lockout.String(), func(t *testing.T) {
			g, clock := on(t, func(o *guard.Options) { o.MaxTrackedEndpoints, o.HardLockout = 3, c.lockout })
			for i := range 3 {
				drain(t, g, address6(i).String(), 12-i)
			}
			for i := 3; i < 100; i++ {
				d, err := g.CheckAddr(address6(i))
				if d.Reason != weir.ReasonTrackingCap || !d.Reason.Hard() || d.Allowed || err != nil || d.RetryAfter != c.retry {
					t.Fatalf("%+v, %v, want to retry after %v", d, err, c.retry)
				}
			}
			// Nothing is stored, and no tracked endpoint is forgotten.
			if st := g.Stats(); st.TrackedEndpoints != 3 || st.TrackingCapped != 97 || st.LockedOut != 0 {
				t.Errorf("%+v", st)
			}
			for i := range 3 {
				if d, _ := g.Peek(address6(i).String()); d.Allowed != (i > 0) {
					t.Errorf("endpoint %d: %+v", i, d)
				}
			}
			if c.lockout > 0 {
				return
			}
			// The retry is neither too late nor too early.
			clock.Advance(c.retry - 1)
			if d, _ := g.CheckAddr(address6(500)); d.Reason != weir.ReasonTrackingCap || d.RetryAfter > ms {
				t.Errorf("%+v", d)
			}
			clock.Advance(1)
			if d, _ := g.CheckAddr(address6(500)); !d.Allowed {
				t.Errorf("%+v", d)
			}
		})
	}
}

// TestGuardFullTableForgetsFirst has newcomers take the places of endpoints that gain nothing by being forgotten.
func TestGuardFullTableForgetsFirst(t *testing.T) {
	for _, shards := range []int{1, 4, 32} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			const most = 600
			g, clock := on(t, func(o *guard.Options) { o.MaxTrackedEndpoints, o.ShardCount = most, shards })
			for i := range most {
				n := 1
				if i%2 == 0 {
					n = 12
				}
				drain(t, g, address6(i).String(), n)
			}
			clock.Advance(time.Second / 2) // half of them are full again
			for i := range most / 2 {
				if d, _ := g.CheckAddr(address6(most + i)); !d.Allowed {
					t.Fatalf("newcomer %d: %+v, %+v", i, d, g.Stats())
				}
			}
			if d, _ := g.CheckAddr(address6(5000)); d.Reason != weir.ReasonTrackingCap {
				t.Errorf("%+v", d)
			}
			for i := 0; i < most; i += 2 {
				if d, _ := g.Peek(address6(i).String()); d.Remaining != 3 {
					t.Fatalf("endpoint %d is forgotten: %+v", i, d)
				}
			}
			if st := g.Stats(); st.TrackedEndpoints != most {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestGuardStep4SeenWhileBlocked has a cleanup look at two endpoints after their lockouts, one of which kept coming.
func TestGuardStep4SeenWhileBlocked(t *testing.T) {
	g, clock := on(t, func(o *guard.Options) {
		o.CapacityTokens, o.MaxSoftViolations, o.HardLockout, o.StaleEntry = 1, 1, 10*time.Second, 5*time.Second
		o.CleanupInterval = 1e6 * time.Second
	})
	for _, endpoint := range []string{"192.0.2.1", "192.0.2.2"} {
		drain(t, g, endpoint, 1)
		says(t, g, endpoint, weir.ReasonHardLockout, 10*time.Second)
	}
	clock.Advance(9 * time.Second)
	says(t, g, "192.0.2.1", weir.ReasonHardLockout, time.Second)
	clock.Advance(3 * time.Second)
	if c := g.Cleanup(); c.Stale != 1 || c.Tracked != 1 {
		t.Errorf("%+v", c)
	}
	if !g.Reset("192.0.2.1") || g.Reset("192.0.2.2") {
		t.Error("the wrong one was forgotten")
	}
}

func TestGuardStep5Blocked(t *testing.T) {
	g, clock := on(t, func(o *guard.Options) {
		o.CapacityTokens, o.MaxSoftViolations, o.HardLockout = 3, 1, 2*time.Second+500*time.Microsecond
	})
	drain(t, g, "192.0.2.1", 3)
	says(t, g, "192.0.2.1", weir.ReasonHardLockout, 2001*ms) // rounded up to a millisecond
	clock.Advance(1)
	says(t, g, "192.0.2.1", weir.ReasonHardLockout, 2001*ms)
	clock.Advance(499_999)
	says(t, g, "192.0.2.1", weir.ReasonHardLockout, 2*time.Second)
	clock.Advance(2*time.Second - 1)
	d := check(t, g, "192.0.2.1")
	if want := (weir.Decision{Reason: weir.ReasonHardLockout, Limit: 3, RetryAfter: ms, ResetAfter: 1}); d != want {
		t.Fatalf("%+v, want %+v", d, want)
	}
	clock.Advance(1) // blocked until now is not blocked
	// Tokens have come back during the lockout.
	drain(t, g, "192.0.2.1", 3)
	if st := g.Stats(); st.LockedOut != 4 || st.Lockouts != 1 || st.SoftThrottled != 0 || st.Allowed != 6 {
		t.Errorf("%+v", st)
	}
}

// TestGuardStep6PollingLosesNothing polls every 50 us for 1 s at 6 tokens a second.
func TestGuardStep6PollingLosesNothing(t *testing.T) {
	for _, scale := range []int{1, 1000, 1_000_000} {
		g, clock := on(t, func(o *guard.Options) { o.TokenScale = scale })
		drain(t, g, "192.0.2.1", 12)
		granted := 0
		for range 20_000 {
			clock.Advance(50 * time.Microsecond)
			if check(t, g, "192.0.2.1").Allowed {
				granted++
			}
		}
		if granted != 6 {
			t.Errorf("scale %d: %d tokens in a second, want 6", scale, granted)
		}
	}
}

func TestGuardStep7TakesOneToken(t *testing.T) {
	g, clock := on(t, func(o *guard.Options) { o.Name = "door" })
	for i := range int64(12) {
		d := check(t, g, "192.0.2.1")
		want := weir.Decision{
			Allowed: true, Limit: 12, Remaining: 11 - i, Policy: "door",
			ResetAfter: time.Duration((1e9*(i+1) + 5) / 6),
		}
		if d != want || guard.Credit(d) != uint16(11-i) {
			t.Fatalf("%+v, want %+v", d, want)
		}
	}
	says(t, g, "192.0.2.1", weir.ReasonSoftThrottle, 166666667)
	clock.Advance(166666666) // one unit of a token is missing
	says(t, g, "192.0.2.1", weir.ReasonSoftThrottle, 1)
	clock.Advance(1)
	says(t, g, "192.0.2.1", weir.ReasonNone, 0)
}

// TestGuardCreditIsHeldAt16Bits has more tokens than a wire format of 16 bits can tell.
func TestGuardCreditIsHeldAt16Bits(t *testing.T) {
	g, _ := on(t, func(o *guard.Options) { o.CapacityTokens = 70_000 })
	if d := check(t, g, "192.0.2.1"); d.Remaining != 69_999 || guard.Credit(d) != 65535 {
		t.Errorf("%+v", d)
	}
}

// TestGuardStep7AllowedForgetsViolations has a token come between violations.
func TestGuardStep7AllowedForgetsViolations(t *testing.T) {
	g, clock := on(t, func(o *guard.Options) { o.CapacityTokens, o.HardLockout = 1, time.Minute })
	drain(t, g, "192.0.2.1", 1)
	for range 10 {
		says(t, g, "192.0.2.1", weir.ReasonSoftThrottle, 166666667)
		says(t, g, "192.0.2.1", weir.ReasonSoftThrottle, 166666667)
		clock.Advance(166666667)
		says(t, g, "192.0.2.1", weir.ReasonNone, 0)
	}
	says(t, g, "192.0.2.1", weir.ReasonSoftThrottle, 166666667)
	says(t, g, "192.0.2.1", weir.ReasonSoftThrottle, 166666667)
	says(t, g, "192.0.2.1", weir.ReasonHardLockout, time.Minute)
}

// slowGuard is a guard of empty buckets that get a token in a thousand seconds, so that all that comes is a violation.
func slowGuard(o *guard.Options) {
	o.InitialTokens, o.RefillTokensPerSecond, o.HardLockout = 0, 0.001, time.Minute
}

func TestGuardStep8RetryIsTheMissingPartOverTheRate(t *testing.T) {
	g, clock := on(t, slowGuard)
	says(t, g, "192.0.2.1", weir.ReasonSoftThrottle, 1000*time.Second)
	clock.Advance(400*time.Second + 1)
	says(t, g, "192.0.2.1", weir.ReasonSoftThrottle, 600*time.Second-1)
}

// TestGuardStep8ViolationWindow has the third violation come at the edge of the window after the second, which is counted from
// the second one and not from the first.
func TestGuardStep8ViolationWindow(t *testing.T) {
	for _, c := range []struct {
		wait time.Duration
		want weir.Reason
	}{
		{5*time.Second - 1, weir.ReasonHardLockout},
		{5 * time.Second, weir.ReasonHardLockout}, // exactly at the window still counts
		{5*time.Second + 1, weir.ReasonSoftThrottle},
	} {
		g, clock := on(t, slowGuard)
		check(t, g, "192.0.2.1")
		clock.Advance(5 * time.Second) // the window slides
		if d := check(t, g, "192.0.2.1"); d.Reason != weir.ReasonSoftThrottle {
			t.Fatalf("%+v", d)
		}
		clock.Advance(c.wait)
		if d := check(t, g, "192.0.2.1"); d.Reason != c.want {
			t.Errorf("after %v: %+v", c.wait, d)
		}
		if c.want != weir.ReasonSoftThrottle {
			continue
		}
		// Otherwise the count is 1 again.
		if d := check(t, g, "192.0.2.1"); d.Reason != weir.ReasonSoftThrottle {
			t.Errorf("second: %+v", d)
		}
		if d := check(t, g, "192.0.2.1"); d.Reason != weir.ReasonHardLockout {
			t.Errorf("third: %+v", d)
		}
	}
}

// TestGuardStep8LockoutBeginsANewCount looks at the violations after a lockout.
func TestGuardStep8LockoutBeginsANewCount(t *testing.T) {
	g, clock := on(t, func(o *guard.Options) {
		slowGuard(o)
		o.HardLockout = time.Second // shorter than the window
	})
	for range 5 {
		for range 2 {
			if d := check(t, g, "192.0.2.1"); d.Reason != weir.ReasonSoftThrottle {
				t.Fatalf("%+v", d)
			}
		}
		says(t, g, "192.0.2.1", weir.ReasonHardLockout, time.Second)
		clock.Advance(time.Second)
	}
	if st := g.Stats(); st.Lockouts != 5 || st.LockedOut != 5 || st.SoftThrottled != 10 {
		t.Errorf("%+v", st)
	}
}

func TestGuardFirstRefusalLocksOut(t *testing.T) {
	g, _ := on(t, func(o *guard.Options) { o.MaxSoftViolations, o.HardLockout = 1, time.Hour })
	drain(t, g, "192.0.2.1", 12)
	says(t, g, "192.0.2.1", weir.ReasonHardLockout, time.Hour)
	if st := g.Stats(); st.SoftThrottled != 0 || st.Lockouts != 1 {
		t.Errorf("%+v", st)
	}
}

// TestGuardZeroLockout has lockouts that are over at once: the client is told when it has a token.
func TestGuardZeroLockout(t *testing.T) {
	g, clock := on(t, nil)
	drain(t, g, "192.0.2.1", 12)
	for range 4 {
		says(t, g, "192.0.2.1", weir.ReasonSoftThrottle, 166666667)
		says(t, g, "192.0.2.1", weir.ReasonSoftThrottle, 166666667)
		says(t, g, "192.0.2.1", weir.ReasonHardLockout, 166666667)
	}
	clock.Advance(166666667)
	says(t, g, "192.0.2.1", weir.ReasonNone, 0)
}

// TestGuardCooldownForgetsViolations has a cooldown that is shorter than the window.
func TestGuardCooldownForgetsViolations(t *testing.T) {
	for _, c := range []struct {
		wait time.Duration
		want weir.Reason
	}{
		{2*time.Second - 1, weir.ReasonHardLockout},
		{2 * time.Second, weir.ReasonSoftThrottle}, // for that long is enough
	} {
		g, clock := on(t, func(o *guard.Options) {
			slowGuard(o)
			o.CooldownReset = 2 * time.Second
		})
		check(t, g, "192.0.2.1")
		check(t, g, "192.0.2.1")
		clock.Advance(c.wait)
		if d := check(t, g, "192.0.2.1"); d.Reason != c.want {
			t.Errorf("after %v: %+v", c.wait, d)
		}
	}
}

// TestGuardLockoutsEscalate has lockouts of 1, 3, 9 and at most 20 seconds, until the endpoint has cooled down.
func TestGuardLockoutsEscalate(t *testing.T) {
	g, clock := on(t, func(o *guard.Options) {
		slowGuard(o)
		o.MaxSoftViolations, o.HardLockout, o.LockoutFactor, o.MaxLockout = 1, time.Second, 3, 20*time.Second
	})
	const cooldown = 10 * time.Second
	for _, seconds := range []int64{1, 3, 9, 20, 20, 20} {
		want := time.Duration(seconds * 1e9)
		says(t, g, "192.0.2.1", weir.ReasonHardLockout, want)
		clock.Advance(want + cooldown - 1) // the lockout itself is no time without violations
	}
	if r := g.Report(); len(r.Top) != 1 || r.Top[0].Lockouts != 6 || r.Lockouts != 6 {
		t.Errorf("%+v", r)
	}
	clock.Advance(1)
	says(t, g, "192.0.2.1", weir.ReasonHardLockout, time.Second)
}

// TestGuardLockoutsDoNotEscalateByDefault locks the same endpoint out again and again.
func TestGuardLockoutsDoNotEscalateByDefault(t *testing.T) {
	g, clock := on(t, func(o *guard.Options) {
		slowGuard(o)
		o.MaxSoftViolations = 1
	})
	for range 15 {
		says(t, g, "192.0.2.1", weir.ReasonHardLockout, time.Minute)
		clock.Advance(time.Minute)
	}
}

// TestGuardEscalationEnds has the largest numbers that options can have.
func TestGuardEscalationEnds(t *testing.T) {
	const longest = math.MaxInt32 * time.Second
	g, clock := on(t, func(o *guard.Options) {
		slowGuard(o)
		o.MaxSoftViolations, o.LockoutFactor, o.MaxLockout, o.CooldownReset = 1, 1000, longest, longest
		o.CleanupInterval = longest
		o.StaleEntry = longest
	})
	last := time.Duration(0)
	for range 8 {
		d := check(t, g, "192.0.2.1")
		for d.Allowed { // what came back during the last one
			d = check(t, g, "192.0.2.1")
		}
		if d.Reason != weir.ReasonHardLockout || d.RetryAfter < last || d.RetryAfter > longest {
			t.Fatalf("%+v after %v", d, last)
		}
		last = d.RetryAfter
		if last == longest {
			break
		}
		clock.Advance(last)
	}
	if last != longest {
		t.Errorf("the longest lockout is %v", last)
	}
}

func TestGuardInitialTokens(t *testing.T) {
	for _, c := range []struct{ initial, want int }{{-1, 12}, {-1000, 12}, {0, 0}, {1, 1}, {5, 5}, {12, 12}} {
		g, clock := on(t, func(o *guard.Options) { o.InitialTokens = c.initial })
		if d, _ := g.Peek("192.0.2.1"); d.Remaining != int64(c.want) {
			t.Errorf("initial %d: a new endpoint has %+v", c.initial, d)
		}
		drain(t, g, "192.0.2.1", c.want)
		says(t, g, "192.0.2.1", weir.ReasonSoftThrottle, 166666667)
		clock.Advance(time.Minute)
		drain(t, g, "192.0.2.1", 12)
	}
}

// TestGuardWithoutInitialTokensServesWhoComesBack has tokens that take longer than StaleEntry to come, and newcomers that want the
// place of an endpoint which waits for one.
func TestGuardWithoutInitialTokensServesWhoComesBack(t *testing.T) {
	g, clock := on(t, func(o *guard.Options) {
		o.CapacityTokens, o.InitialTokens, o.RefillTokensPerSecond, o.MaxTrackedEndpoints = 1, 0, 0.001, 1
	})
	says(t, g, "192.0.2.1", weir.ReasonSoftThrottle, 1000*time.Second)
	clock.Advance(1999 * time.Second)
	g.Cleanup()
	says(t, g, "192.0.2.2", weir.ReasonTrackingCap, time.Second)
	says(t, g, "192.0.2.1", weir.ReasonNone, 0)
	clock.Advance(2000 * time.Second)
	says(t, g, "192.0.2.2", weir.ReasonSoftThrottle, 1000*time.Second)
}

// TestGuardPeekChangesNothing peeks before each check.
func TestGuardPeekChangesNothing(t *testing.T) {
	g, clock := on(t, func(o *guard.Options) { o.CapacityTokens, o.HardLockout = 3, time.Second })
	for i := range 200 {
		var peeked weir.Decision
		for range 5 {
			peeked, _ = g.Peek("192.0.2.1")
		}
		d := check(t, g, "192.0.2.1")
		if i == 0 && peeked.ResetAfter != 0 {
			t.Errorf("nothing was taken yet, and all is back in %v", peeked.ResetAfter)
		}
		if d.Allowed { // one of six in a second
			d.Remaining++
			if token := d.ResetAfter - peeked.ResetAfter; token < time.Second/6 || token > time.Second/6+1 {
				t.Errorf("step %d: peeked %+v, got %+v", i, peeked, d)
			}
			d.ResetAfter = peeked.ResetAfter
		}
		if d != peeked {
			t.Fatalf("step %d: peeked %+v, got %+v", i, peeked, d)
		}
		clock.Advance(time.Duration(i%7) * 20 * ms)
	}
	if st := g.Stats(); st.Allowed+st.SoftThrottled+st.LockedOut != 200 || st.TrackedEndpoints != 1 {
		t.Errorf("%+v", st)
	}
}

func TestGuardUnblockAndReset(t *testing.T) {
	lock := func(g *guard.Guard, endpoint string) {
		drain(t, g, endpoint, 12)
		check(t, g, endpoint)
		check(t, g, endpoint)
		says(t, g, endpoint, weir.ReasonHardLockout, time.Hour)
	}
	g, clock := on(t, func(o *guard.Options) { o.HardLockout = time.Hour })
	lock(g, "192.0.2.1:80")
	if g.Unblock("192.0.2.2") || !g.Unblock("192.0.2.1:99") || g.Unblock("192.0.2.1") {
		t.Error("what Unblock answers")
	}
	// The tokens stay as they are, the violations do not.
	for range 2 {
		says(t, g, "192.0.2.1", weir.ReasonSoftThrottle, 166666667)
	}
	says(t, g, "192.0.2.1", weir.ReasonHardLockout, time.Hour)
	if !g.Reset("192.0.2.1:1") || g.Reset("192.0.2.1") {
		t.Error("what Reset answers")
	}
	lock(g, "192.0.2.1")
	clock.Advance(time.Hour)
	if g.Unblock("192.0.2.1") {
		t.Error("a lockout that is over was ended")
	}

	a := netip.MustParseAddr("192.0.2.9")
	g, _ = on(t, func(o *guard.Options) { o.CapacityTokens, o.MaxSoftViolations, o.HardLockout = 1, 1, time.Hour })
	_, _ = g.CheckOperation(4, a)
	_, _ = g.CheckOperation(4, a)
	if d, _ := g.PeekOperation(4, a); d.Reason != weir.ReasonHardLockout {
		t.Errorf("%+v", d)
	}
	if g.UnblockOperation(5, a) || g.Unblock("192.0.2.9") || !g.UnblockOperation(4, a) || !g.ResetOperation(4, a) {
		t.Error("operations")
	}
	if d, _ := g.CheckOperation(4, a); !d.Allowed {
		t.Errorf("%+v", d)
	}
}

// TestGuardUnblockedEndpointMakesRoom has a full guard learn that an endpoint can be forgotten earlier than it knew.
func TestGuardUnblockedEndpointMakesRoom(t *testing.T) {
	g, clock := on(t, func(o *guard.Options) {
		o.MaxTrackedEndpoints, o.MaxSoftViolations, o.HardLockout = 1, 1, time.Hour
	})
	drain(t, g, "192.0.2.1", 12)
	says(t, g, "192.0.2.1", weir.ReasonHardLockout, time.Hour)
	clock.Advance(time.Minute)
	for range 3 {
		says(t, g, "192.0.2.2", weir.ReasonTrackingCap, time.Hour)
	}
	g.Unblock("192.0.2.1")
	says(t, g, "192.0.2.2", weir.ReasonNone, 0)
}

// TestGuardForgivenEndpointMakesRoom has a full guard learn that the violations of an endpoint do not count any more.
func TestGuardForgivenEndpointMakesRoom(t *testing.T) {
	g, clock := on(t, func(o *guard.Options) {
		o.MaxTrackedEndpoints, o.CapacityTokens, o.SoftViolationWindow, o.CooldownReset = 1, 1, time.Minute, time.Hour
	})
	drain(t, g, "192.0.2.1", 1)
	says(t, g, "192.0.2.1", weir.ReasonSoftThrottle, 166666667)
	clock.Advance(time.Second)
	says(t, g, "192.0.2.2", weir.ReasonTrackingCap, 59*time.Second+1)
	drain(t, g, "192.0.2.1", 1)
	clock.Advance(166666667)
	says(t, g, "192.0.2.2", weir.ReasonNone, 0)
}

// TestGuardOnAClockThatGoesBack neither loses nor gains tokens, and keeps a lockout.
func TestGuardOnAClockThatGoesBack(t *testing.T) {
	for _, jump := range []time.Duration{1, time.Second, time.Hour, 30 * 365 * day} {
		g, clock := on(t, func(o *guard.Options) { o.MaxSoftViolations, o.HardLockout = 1, 10*time.Second })
		drain(t, g, "192.0.2.1", 12)
		says(t, g, "192.0.2.1", weir.ReasonHardLockout, 10*time.Second)
		drain(t, g, "192.0.2.2", 12)
		clock.Advance(-jump)
		says(t, g, "192.0.2.1", weir.ReasonHardLockout, 10*time.Second)
		clock.Advance(time.Second)
		drain(t, g, "192.0.2.2", 6)
		says(t, g, "192.0.2.1", weir.ReasonHardLockout, 9*time.Second)
	}
}

// TestGuardOfAProgramIsUsedInBubbles is TestLimiterOfAProgramIsUsedInBubbles: a lockout is as long as ever in a bubble, whose time
// is another.
func TestGuardOfAProgramIsUsedInBubbles(t *testing.T) {
	o := guard.DefaultOptions()
	o.CapacityTokens, o.MaxSoftViolations, o.HardLockout, o.MaxTrackedEndpoints = 2, 1, time.Hour, 1
	o.RefillTokensPerSecond = 0.001 // none comes back in a test in real time
	g, err := guard.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for range 4 {
		check(t, g, "192.0.2.1")
	}
	synctest.Test(t, func(t *testing.T) {
		d := check(t, g, "192.0.2.1")
		if d.Reason != weir.ReasonHardLockout || d.RetryAfter > time.Hour || d.RetryAfter < time.Hour-time.Minute {
			t.Errorf("%+v", d)
		}
		says(t, g, "192.0.2.2", weir.ReasonTrackingCap, time.Hour)
		time.Sleep(d.RetryAfter)
		drain(t, g, "192.0.2.1", 2)
		time.Sleep(time.Hour)
		drain(t, g, "192.0.2.2", 1) // which has found the place of the other one
	})
	if d := check(t, g, "192.0.2.2"); !d.Allowed {
		t.Errorf("%+v", d)
	}
}
