package policy_test

import (
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

var (
	alice = netip.MustParseAddr("192.0.2.1")
	bob   = netip.MustParseAddr("192.0.2.2")
)

// newTiers answers tiers with a clock that stands still until the test moves it.
func newTiers(t *testing.T, o policy.TiersOptions) (*policy.Tiers, *weir.ManualClock) {
	t.Helper()
	clock := new(weir.ManualClock)
	o.Clock = clock
	tiers, err := policy.NewTiers(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tiers.Close() })
	return tiers, clock
}

// burstOf is how many requests are allowed at once.
func burstOf(tiers *policy.Tiers, a *policy.Attribute) (n int) {
	for tiers.Check(a, 1, alice).Allowed {
		n++
	}
	return n
}

func TestTiersRoundUp(t *testing.T) {
	tiers, _ := newTiers(t, policy.TiersOptions{})
	for _, c := range []struct {
		rps, burst, wantRPS float64
		wantBurst           int
	}{
		{1, 1, 1, 1},
		{5, 2.5, 8, 4},
		{200, 100, 128, 64},
		{1e-9, 1e-9, 1, 1},
		{1.0000001, 1.0000001, 2, 2},
		{2, 2, 2, 2},
		{127.9, 63.9, 128, 64},
		{128, 64, 128, 64},
		{128.1, 64.1, 128, 64},
		{math.MaxFloat64, math.Inf(1), 128, 64},
		{math.Inf(1), 3, 128, 4},
	} {
		tier, err := tiers.Tier(&policy.Attribute{RPS: c.rps, Burst: c.burst})
		rps, burst, ok := tier.Limits()
		if err != nil || !ok || rps != c.wantRPS || burst != c.wantBurst {
			t.Errorf("(%v, %v): %v, burst %v, %v, %v; want %v, %v", c.rps, c.burst, rps, burst, ok, err, c.wantRPS, c.wantBurst)
		}
		op := rand.Uint64()
		d := tiers.Check(&policy.Attribute{RPS: c.rps, Burst: c.burst}, op, alice)
		if want := tier.String(); !d.Allowed || d.Policy != want || d.Limit != int64(c.wantBurst) {
			t.Errorf("(%v, %v): %+v, want the policy %q", c.rps, c.burst, d, want)
		}
	}
}

func TestTiersWithoutATierBelowTheirFirst(t *testing.T) {
	tiers, _ := newTiers(t, policy.TiersOptions{RPS: []float64{0.5, 10}, Burst: []int{4, 5}})
	tier, err := tiers.Tier(&policy.Attribute{RPS: 0.1, Burst: 0.1})
	if err != nil || tier.String() != "0.5/s burst 4" {
		t.Errorf("%v, %v", tier, err)
	}
}

func TestTiersNotANumberIsRefused(t *testing.T) {
	tiers, _ := newTiers(t, policy.TiersOptions{})
	for _, c := range []struct {
		a    policy.Attribute
		want string
	}{
		{policy.Attribute{RPS: math.NaN(), Burst: 1}, "weir: Attribute.RPS is NaN: must be a number"},
		{policy.Attribute{RPS: 1, Burst: math.NaN()}, "weir: Attribute.Burst is NaN: must be a number"},
		{policy.Attribute{RPS: -1, Burst: math.NaN()}, "weir: Attribute.Burst is NaN: must be a number"},
		{policy.Attribute{RPS: math.NaN(), Burst: math.NaN()}, "weir: Attribute.RPS is NaN: must be a number"},
	} {
		tier, err := tiers.Tier(&c.a)
		if err == nil || err.Error() != c.want {
			t.Errorf("%v: error %v, want %s", c.a, err, c.want)
		}
		for _, d := range []weir.Decision{tiers.Check(&c.a, 1, alice), tier.Check(1, alice)} {
			if d.Allowed || d.Reason != weir.ReasonInvalid || d.RetryAfter != weir.Never {
				t.Errorf("%v: %+v", c.a, d)
			}
		}
	}
	if r := tiers.Report(); r.Active != 0 || r.Checks != 0 {
		t.Errorf("%+v", r)
	}
}

// wantUnlimited checks the row of those who have no limit.
func wantUnlimited(t *testing.T, a *policy.Attribute) {
	t.Helper()
	tiers, _ := newTiers(t, policy.TiersOptions{})
	tier, err := tiers.Tier(a)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		for _, d := range []weir.Decision{
			tiers.Check(a, 1, alice), tier.Check(1, alice), tiers.Check(a, 1, netip.Addr{}), policy.Tier{}.Check(1, alice),
		} {
			if !d.Allowed || d.Reason != weir.ReasonNone || d.RetryAfter != 0 || d.Credit() != 65535 {
				t.Fatalf("%+v", d)
			}
		}
	}
	if _, _, ok := tier.Limits(); ok || tier.String() != "unlimited" || tiers.Report().Active != 0 {
		t.Errorf("%v, %+v", tier, tiers.Report())
	}
}

func TestTiersNoAttributeAllows(t *testing.T) { wantUnlimited(t, nil) }

func TestTiersNoRateAllows(t *testing.T) {
	for _, rps := range []float64{0, -0.5, -128, math.Inf(-1), math.Copysign(0, -1)} {
		wantUnlimited(t, &policy.Attribute{RPS: rps, Burst: 1})
		wantUnlimited(t, &policy.Attribute{RPS: rps, Burst: 0})
	}
}

func TestTiersNoBurstIsHardLockout(t *testing.T) {
	tiers, clock := newTiers(t, policy.TiersOptions{})
	for _, burst := range []float64{0, -1, math.Inf(-1)} {
		tier, err := tiers.Tier(&policy.Attribute{RPS: 1, Burst: burst})
		if err != nil || tier.String() != "forbidden" {
			t.Errorf("%v, %v", tier, err)
		}
		for range 3 {
			d := tier.Check(1, alice)
			if d.Allowed || d.Reason != weir.ReasonHardLockout || d.RetryAfter != weir.Never || d.Credit() != 0 {
				t.Errorf("%+v", d)
			}
			clock.Advance(time.Hour)
		}
		if d := tier.Check(1, netip.Addr{}); d.Reason != weir.ReasonHardLockout {
			t.Errorf("without an address: %+v", d)
		}
	}
}

func TestTiersMissingEndpointIsSoftThrottle(t *testing.T) {
	tiers, _ := newTiers(t, policy.TiersOptions{})
	a := &policy.Attribute{RPS: 1, Burst: 1}
	for range 100 { // and never anything else
		for _, d := range []weir.Decision{
			tiers.Check(a, 1, netip.Addr{}), tiers.CheckEndpoint(a, 1, ""), tiers.CheckEndpoint(a, 1, "localhost:80"),
		} {
			if d.Allowed || d.Reason != weir.ReasonSoftThrottle || d.RetryAfter != 1000*time.Millisecond || d.Credit() != 0 {
				t.Fatalf("%+v", d)
			}
		}
	}
	if r := tiers.Report(); r.Active != 0 {
		t.Errorf("a missing endpoint made a limiter: %+v", r)
	}
}

// TestTiersOtherwiseTheBucketDecides holds the answers to those of a guard alone, over a random history.
func TestTiersOtherwiseTheBucketDecides(t *testing.T) {
	o := weir.DefaultGuardOptions()
	o.HardLockout = 3 * time.Second
	tiers, clock := newTiers(t, policy.TiersOptions{Name: "game", Guard: &o})
	o.Name, o.CapacityTokens, o.RefillTokensPerSecond, o.Clock = "game 8/s burst 4", 4, 8, clock
	guard, err := weir.NewGuard(o)
	if err != nil {
		t.Fatal(err)
	}
	defer guard.Close()
	random := rand.New(rand.NewPCG(1, 2))
	seen := map[weir.Reason]int{}
	for range 20_000 {
		clock.Advance(time.Duration(random.Int64N(int64(30 * time.Millisecond))))
		op, addr := random.Uint64N(2), []netip.Addr{alice, bob}[random.IntN(2)]
		got := tiers.Check(&policy.Attribute{RPS: 5, Burst: 2.5}, op, addr)
		want, err := guard.CheckOperation(op, addr)
		if err != nil || got != want {
			t.Fatalf("%+v, want %+v, %v", got, want, err)
		}
		seen[got.Reason]++
	}
	for _, r := range []weir.Reason{weir.ReasonNone, weir.ReasonSoftThrottle, weir.ReasonHardLockout} {
		if seen[r] < 100 {
			t.Errorf("%v came only %d times", r, seen[r])
		}
	}
}

func TestTiersEqualTiersShareOneLimiter(t *testing.T) {
	tiers, _ := newTiers(t, policy.TiersOptions{})
	a, b, other := &policy.Attribute{RPS: 5, Burst: 3}, &policy.Attribute{RPS: 7.5, Burst: 4}, &policy.Attribute{RPS: 5, Burst: 5}
	first, err1 := tiers.Tier(a)
	second, err2 := tiers.Tier(b)
	if err1 != nil || err2 != nil || first != second {
		t.Fatalf("%v, %v, %v, %v", first, second, err1, err2)
	}
	if n := burstOf(tiers, a); n != 4 {
		t.Errorf("%d", n)
	}
	if tiers.Check(b, 1, alice).Allowed {
		t.Error("the same tier had another bucket")
	}
	if n := burstOf(tiers, other); n != 8 || tiers.Report().Active != 2 {
		t.Errorf("another tier shared the bucket: %d allowed, %d active", n, tiers.Report().Active)
	}
}

func TestTiersSubjectIsOpcodeAndAddress(t *testing.T) {
	tiers, _ := newTiers(t, policy.TiersOptions{})
	a := &policy.Attribute{RPS: 1, Burst: 2}
	for _, c := range []struct {
		op       uint64
		endpoint string
		want     bool
	}{
		{1, "192.0.2.1:1000", true},
		{1, "192.0.2.1:1001", true},
		{1, "192.0.2.1:1002", false},
		{1, "[::ffff:192.0.2.1]:1003", false},
		{2, "192.0.2.1:1002", true},
		{1, "192.0.2.2:1000", true},
		{1, "[2001:db8::1]:1000", true},
		{1, "[2001:db8::2]:2000", true},
		{1, "[2001:db8::3]:3000", false}, // the same /64
		{1, "[2001:db8:0:1::3]:3000", true},
	} {
		if d := tiers.CheckEndpoint(a, c.op, c.endpoint); d.Allowed != c.want {
			t.Errorf("%d %s: %+v", c.op, c.endpoint, d)
		}
	}
}

func TestTiersClosed(t *testing.T) {
	tiers, _ := newTiers(t, policy.TiersOptions{Name: "game"})
	a := &policy.Attribute{RPS: 1, Burst: 1}
	tiers.Check(a, 1, alice)
	for range 2 {
		if err := tiers.Close(); err != nil {
			t.Error(err)
		}
		for _, a := range []*policy.Attribute{nil, a, {RPS: -1}, {RPS: 1}, {RPS: math.NaN()}, {RPS: 100, Burst: 100}} {
			want := weir.Decision{Reason: weir.ReasonClosed, Policy: "game"}
			if d := tiers.Check(a, 1, alice); d != want || !d.Reason.Hard() {
				t.Errorf("%v: %+v", a, d)
			}
		}
		if r := tiers.Report(); r.Active != 0 || tiers.Sweep() != 0 {
			t.Errorf("%+v", r)
		}
	}
}

func TestTiersOptions(t *testing.T) {
	guard := func(change func(*weir.GuardOptions)) *weir.GuardOptions {
		o := weir.DefaultGuardOptions()
		change(&o)
		return &o
	}
	many := make([]float64, 65)
	for i := range many {
		many[i] = float64(i + 1)
	}
	for _, c := range []struct {
		o    policy.TiersOptions
		want string
	}{
		{policy.TiersOptions{RPS: []float64{}}, "TiersOptions.RPS is 0 tiers: must be 1 to 64 tiers"},
		{policy.TiersOptions{RPS: many}, "TiersOptions.RPS is 65 tiers: must be 1 to 64 tiers"},
		{policy.TiersOptions{RPS: []float64{0}}, "TiersOptions.RPS[0] is 0: must be from 0.001 to 1e+09"},
		{policy.TiersOptions{RPS: []float64{1, math.NaN()}}, "TiersOptions.RPS[1] is NaN: must be from 0.001 to 1e+09"},
		{policy.TiersOptions{RPS: []float64{1, math.Inf(1)}}, "TiersOptions.RPS[1] is +Inf: must be from 0.001 to 1e+09"},
		{policy.TiersOptions{RPS: []float64{1, 1e9 + 1}}, "TiersOptions.RPS[1] is 1.000000001e+09: must be from 0.001 to 1e+09"},
		{policy.TiersOptions{RPS: []float64{1, 3, 2}}, "TiersOptions.RPS[2] is 2: must be more than the tier before it, 3"},
		{policy.TiersOptions{RPS: []float64{1, 1}}, "TiersOptions.RPS[1] is 1: must be more than the tier before it, 1"},
		{policy.TiersOptions{Burst: []int{}}, "TiersOptions.Burst is 0 tiers: must be 1 to 64 tiers"},
		{policy.TiersOptions{Burst: []int{0, 1}}, "TiersOptions.Burst[0] is 0: must be from 1 to 2147483647"},
		{policy.TiersOptions{Burst: []int{4, 2}}, "TiersOptions.Burst[1] is 2: must be more than the tier before it, 4"},
		{policy.TiersOptions{MaxPolicies: -1}, "TiersOptions.MaxPolicies is -1: must be from 1 to 64"},
		{policy.TiersOptions{MaxPolicies: 65}, "TiersOptions.MaxPolicies is 65: must be from 1 to 64"},
		{policy.TiersOptions{SweepEvery: -5}, "TiersOptions.SweepEvery is -5: must be from 1 to 2147483647"},
		{policy.TiersOptions{Unused: time.Second - 1}, "TiersOptions.Unused is 999.999999ms: must be from 1s to 596523h14m7s"},
		{policy.TiersOptions{Unused: math.MaxInt64}, "must be from 1s to 596523h14m7s"},
		{
			policy.TiersOptions{Guard: &weir.GuardOptions{}},
			"TiersOptions.Guard for the tier 1/s burst 1: weir: GuardOptions.LockoutFactor is 0",
		},
		{
			policy.TiersOptions{Guard: guard(func(o *weir.GuardOptions) { o.HardLockout = -1 })},
			"TiersOptions.Guard for the tier 1/s burst 1: weir: GuardOptions.HardLockout is -1ns",
		},
		{
			policy.TiersOptions{RPS: []float64{0.001, 1}, Burst: []int{1, math.MaxInt32}},
			"TiersOptions.Guard for the tier 0.001/s burst 2147483647: weir: GuardOptions.CapacityTokens is 2147483647",
		},
		{
			policy.TiersOptions{RPS: []float64{0.4}, Guard: guard(func(o *weir.GuardOptions) { o.TokenScale = 1 })},
			"TiersOptions.Guard for the tier 0.4/s burst 1: weir: GuardOptions.RefillTokensPerSecond is 0.4",
		},
	} {
		tiers, err := policy.NewTiers(c.o)
		var option *weir.OptionError
		if tiers != nil || !errors.As(err, &option) || !strings.HasPrefix(err.Error(), "weir: ") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, %v, want %s", tiers, err, c.want)
		}
	}
}

func TestTiersInitialTokensAreAtMostTheBurst(t *testing.T) {
	o := weir.DefaultGuardOptions()
	o.CapacityTokens, o.InitialTokens = 100, 3
	tiers, _ := newTiers(t, policy.TiersOptions{Guard: &o})
	for want, burst := range map[int]float64{1: 1, 2: 2, 3: 64} {
		if n := burstOf(tiers, &policy.Attribute{RPS: 1, Burst: burst}); n != want {
			t.Errorf("a burst of %v begins with %d tokens, want %d", burst, n, want)
		}
	}
}

func TestTiersLog(t *testing.T) {
	var text strings.Builder
	tiers, clock := newTiers(t, policy.TiersOptions{
		MaxPolicies: 1,
		Logger:      slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	for range 3 {
		tiers.Check(&policy.Attribute{RPS: 4, Burst: 2}, 1, alice)
		tiers.Check(&policy.Attribute{RPS: 8, Burst: 2}, 1, alice)
	}
	clock.Advance(2 * time.Hour)
	tiers.Sweep()
	for line, want := range map[string]int{
		`level=DEBUG msg="policy limiter made" policy="4/s burst 2"`:                                         1,
		`level=WARN msg="too many policies: one is served by another" policy="8/s burst 2" by="4/s burst 2"`: 1,
		`level=DEBUG msg="policy limiter swept away" policy="4/s burst 2"`:                                   1,
	} {
		if got := strings.Count(text.String(), line); got != want {
			t.Errorf("%d of %s in\n%s", got, line, text.String())
		}
	}
}
