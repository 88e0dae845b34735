package tiers_test

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
	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/tiers"
)

var (
	alice = netip.MustParseAddr("192.0.2.1")
	bob   = netip.MustParseAddr("192.0.2.2")
)

// newTiers returns tiers with a clock that stands still until the test moves it.
func newTiers(t *testing.T, o tiers.Options) (*tiers.Tiers, *manualclock.Clock) {
	t.Helper()
	clock := new(manualclock.Clock)
	o.Clock = clock
	ts, err := tiers.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ts.Close() })
	return ts, clock
}

// burstOf is how many requests are allowed at once.
func burstOf(ts *tiers.Tiers, a *tiers.Attribute) (n int) {
	for ts.Check(a, 1, alice).Allowed {
		n++
	}
	return n
}

func TestTiersRoundUp(t *testing.T) {
	ts, _ := newTiers(t, tiers.Options{})
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
		tier, err := ts.Tier(&tiers.Attribute{RPS: c.rps, Burst: c.burst})
		rps, burst, ok := tier.Limits()
		if err != nil || !ok || rps != c.wantRPS || burst != c.wantBurst {
			t.Errorf("(%v, %v): %v, burst %v, %v, %v; want %v, %v", c.rps, c.burst, rps, burst, ok, err, c.wantRPS, c.wantBurst)
		}
		op := rand.Uint64()
		d := ts.Check(&tiers.Attribute{RPS: c.rps, Burst: c.burst}, op, alice)
		if want := tier.String(); !d.Allowed || d.Policy != want || d.Limit != int64(c.wantBurst) {
			t.Errorf("(%v, %v): %+v, want the policy %q", c.rps, c.burst, d, want)
		}
	}
}

func TestTiersWithoutATierBelowTheirFirst(t *testing.T) {
	ts, _ := newTiers(t, tiers.Options{RPS: []float64{0.5, 10}, Burst: []int{4, 5}})
	tier, err := ts.Tier(&tiers.Attribute{RPS: 0.1, Burst: 0.1})
	if err != nil || tier.String() != "0.5/s burst 4" {
		t.Errorf("%v, %v", tier, err)
	}
}

func TestTiersNotANumberIsRefused(t *testing.T) {
	ts, _ := newTiers(t, tiers.Options{})
	for _, c := range []struct {
		a    tiers.Attribute
		want string
	}{
		{tiers.Attribute{RPS: math.NaN(), Burst: 1}, "weir: tiers.Attribute.RPS is NaN: must be a number"},
		{tiers.Attribute{RPS: 1, Burst: math.NaN()}, "weir: tiers.Attribute.Burst is NaN: must be a number"},
		{tiers.Attribute{RPS: -1, Burst: math.NaN()}, "weir: tiers.Attribute.Burst is NaN: must be a number"},
		{tiers.Attribute{RPS: math.NaN(), Burst: math.NaN()}, "weir: tiers.Attribute.RPS is NaN: must be a number"},
	} {
		tier, err := ts.Tier(&c.a)
		if err == nil || err.Error() != c.want {
			t.Errorf("%v: error %v, want %s", c.a, err, c.want)
		}
		for _, d := range []weir.Decision{ts.Check(&c.a, 1, alice), tier.Check(1, alice)} {
			if d.Allowed || d.Reason != weir.ReasonInvalid || d.RetryAfter != weir.Never {
				t.Errorf("%v: %+v", c.a, d)
			}
		}
	}
	if r := ts.Report(); r.Active != 0 || r.Checks != 0 {
		t.Errorf("%+v", r)
	}
}

// wantUnlimited checks the row of those who have no limit.
func wantUnlimited(t *testing.T, a *tiers.Attribute) {
	t.Helper()
	ts, _ := newTiers(t, tiers.Options{})
	tier, err := ts.Tier(a)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		for _, d := range []weir.Decision{
			ts.Check(a, 1, alice), tier.Check(1, alice), ts.Check(a, 1, netip.Addr{}), tiers.Tier{}.Check(1, alice),
		} {
			if !d.Allowed || d.Reason != weir.ReasonNone || d.RetryAfter != 0 || guard.Credit(d) != 65535 {
				t.Fatalf("%+v", d)
			}
		}
	}
	if _, _, ok := tier.Limits(); ok || tier.String() != "unlimited" || ts.Report().Active != 0 {
		t.Errorf("%v, %+v", tier, ts.Report())
	}
}

func TestTiersNoAttributeAllows(t *testing.T) { wantUnlimited(t, nil) }

func TestTiersNoRateAllows(t *testing.T) {
	for _, rps := range []float64{0, -0.5, -128, math.Inf(-1), math.Copysign(0, -1)} {
		wantUnlimited(t, &tiers.Attribute{RPS: rps, Burst: 1})
		wantUnlimited(t, &tiers.Attribute{RPS: rps, Burst: 0})
	}
}

func TestTiersNoBurstIsHardLockout(t *testing.T) {
	ts, clock := newTiers(t, tiers.Options{})
	for _, burst := range []float64{0, -1, math.Inf(-1)} {
		tier, err := ts.Tier(&tiers.Attribute{RPS: 1, Burst: burst})
		if err != nil || tier.String() != "forbidden" {
			t.Errorf("%v, %v", tier, err)
		}
		for range 3 {
			d := tier.Check(1, alice)
			if d.Allowed || d.Reason != weir.ReasonHardLockout || d.RetryAfter != weir.Never || guard.Credit(d) != 0 {
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
	ts, _ := newTiers(t, tiers.Options{})
	a := &tiers.Attribute{RPS: 1, Burst: 1}
	for range 100 { // and never anything else
		for _, d := range []weir.Decision{
			ts.Check(a, 1, netip.Addr{}), ts.CheckEndpoint(a, 1, ""), ts.CheckEndpoint(a, 1, "localhost:80"),
		} {
			if d.Allowed || d.Reason != weir.ReasonSoftThrottle || d.RetryAfter != 1000*time.Millisecond || guard.Credit(d) != 0 {
				t.Fatalf("%+v", d)
			}
		}
	}
	if r := ts.Report(); r.Active != 0 {
		t.Errorf("a missing endpoint made a limiter: %+v", r)
	}
}

// TestTiersOtherwiseTheBucketDecides holds the answers to those of a guard alone, over a random history.
func TestTiersOtherwiseTheBucketDecides(t *testing.T) {
	o := guard.DefaultOptions()
	o.HardLockout = 3 * time.Second
	ts, clock := newTiers(t, tiers.Options{Name: "game", Guard: &o})
	o.Name, o.CapacityTokens, o.RefillTokensPerSecond, o.Clock = "game 8/s burst 4", 4, 8, clock
	g, err := guard.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	random := rand.New(rand.NewPCG(1, 2))
	seen := map[weir.Reason]int{}
	for range 20_000 {
		clock.Advance(time.Duration(random.Int64N(int64(30 * time.Millisecond))))
		op, addr := random.Uint64N(2), []netip.Addr{alice, bob}[random.IntN(2)]
		got := ts.Check(&tiers.Attribute{RPS: 5, Burst: 2.5}, op, addr)
		want, err := g.CheckOperation(op, addr)
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
	ts, _ := newTiers(t, tiers.Options{})
	a, b, other := &tiers.Attribute{RPS: 5, Burst: 3}, &tiers.Attribute{RPS: 7.5, Burst: 4}, &tiers.Attribute{RPS: 5, Burst: 5}
	first, err1 := ts.Tier(a)
	second, err2 := ts.Tier(b)
	if err1 != nil || err2 != nil || first != second {
		t.Fatalf("%v, %v, %v, %v", first, second, err1, err2)
	}
	if n := burstOf(ts, a); n != 4 {
		t.Errorf("%d", n)
	}
	if ts.Check(b, 1, alice).Allowed {
		t.Error("the same tier had another bucket")
	}
	if n := burstOf(ts, other); n != 8 || ts.Report().Active != 2 {
		t.Errorf("another tier shared the bucket: %d allowed, %d active", n, ts.Report().Active)
	}
}

func TestTiersSubjectIsOpcodeAndAddress(t *testing.T) {
	ts, _ := newTiers(t, tiers.Options{})
	a := &tiers.Attribute{RPS: 1, Burst: 2}
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
		if d := ts.CheckEndpoint(a, c.op, c.endpoint); d.Allowed != c.want {
			t.Errorf("%d %s: %+v", c.op, c.endpoint, d)
		}
	}
}

func TestTiersClosed(t *testing.T) {
	ts, _ := newTiers(t, tiers.Options{Name: "game"})
	a := &tiers.Attribute{RPS: 1, Burst: 1}
	ts.Check(a, 1, alice)
	for range 2 {
		if err := ts.Close(); err != nil {
			t.Error(err)
		}
		for _, a := range []*tiers.Attribute{nil, a, {RPS: -1}, {RPS: 1}, {RPS: math.NaN()}, {RPS: 100, Burst: 100}} {
			want := weir.Decision{Reason: weir.ReasonClosed, Policy: "game"}
			if d := ts.Check(a, 1, alice); d != want || !d.Reason.Hard() {
				t.Errorf("%v: %+v", a, d)
			}
		}
		if r := ts.Report(); r.Active != 0 || ts.Sweep() != 0 {
			t.Errorf("%+v", r)
		}
	}
}

func TestTiersOptions(t *testing.T) {
	g := func(change func(*guard.Options)) *guard.Options {
		o := guard.DefaultOptions()
		change(&o)
		return &o
	}
	many := make([]float64, 65)
	for i := range many {
		many[i] = float64(i + 1)
	}
	for _, c := range []struct {
		o    tiers.Options
		want string
	}{
		{tiers.Options{RPS: []float64{}}, "tiers.Options.RPS is 0 tiers: must be 1 to 64 tiers"},
		{tiers.Options{RPS: many}, "tiers.Options.RPS is 65 tiers: must be 1 to 64 tiers"},
		{tiers.Options{RPS: []float64{0}}, "tiers.Options.RPS[0] is 0: must be from 0.001 to 1e+09"},
		{tiers.Options{RPS: []float64{1, math.NaN()}}, "tiers.Options.RPS[1] is NaN: must be from 0.001 to 1e+09"},
		{tiers.Options{RPS: []float64{1, math.Inf(1)}}, "tiers.Options.RPS[1] is +Inf: must be from 0.001 to 1e+09"},
		{tiers.Options{RPS: []float64{1, 1e9 + 1}}, "tiers.Options.RPS[1] is 1.000000001e+09: must be from 0.001 to 1e+09"},
		{tiers.Options{RPS: []float64{1, 3, 2}}, "tiers.Options.RPS[2] is 2: must be more than the tier before it, 3"},
		{tiers.Options{RPS: []float64{1, 1}}, "tiers.Options.RPS[1] is 1: must be more than the tier before it, 1"},
		{tiers.Options{Burst: []int{}}, "tiers.Options.Burst is 0 tiers: must be 1 to 64 tiers"},
		{tiers.Options{Burst: []int{0, 1}}, "tiers.Options.Burst[0] is 0: must be from 1 to 2147483647"},
		{tiers.Options{Burst: []int{4, 2}}, "tiers.Options.Burst[1] is 2: must be more than the tier before it, 4"},
		{tiers.Options{MaxPolicies: -1}, "tiers.Options.MaxPolicies is -1: must be from 1 to 64"},
		{tiers.Options{MaxPolicies: 65}, "tiers.Options.MaxPolicies is 65: must be from 1 to 64"},
		{tiers.Options{SweepEvery: -5}, "tiers.Options.SweepEvery is -5: must be from 1 to 2147483647"},
		{tiers.Options{Unused: time.Second - 1}, "tiers.Options.Unused is 999.999999ms: must be from 1s to 596523h14m7s"},
		{tiers.Options{Unused: math.MaxInt64}, "must be from 1s to 596523h14m7s"},
		{
			tiers.Options{Guard: &guard.Options{}},
			"tiers.Options.Guard for the tier 1/s burst 1: weir: guard.Options.LockoutFactor is 0",
		},
		{
			tiers.Options{Guard: g(func(o *guard.Options) { o.HardLockout = -1 })},
			"tiers.Options.Guard for the tier 1/s burst 1: weir: guard.Options.HardLockout is -1ns",
		},
		{
			tiers.Options{RPS: []float64{0.001, 1}, Burst: []int{1, math.MaxInt32}},
			"tiers.Options.Guard for the tier 0.001/s burst 2147483647: weir: guard.Options.CapacityTokens is 2147483647",
		},
		{
			tiers.Options{RPS: []float64{0.4}, Guard: g(func(o *guard.Options) { o.TokenScale = 1 })},
			"tiers.Options.Guard for the tier 0.4/s burst 1: weir: guard.Options.RefillTokensPerSecond is 0.4",
		},
	} {
		ts, err := tiers.New(c.o)
		var option *weir.OptionError
		if ts != nil || !errors.As(err, &option) || !strings.HasPrefix(err.Error(), "weir: ") ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, %v, want %s", ts, err, c.want)
		}
	}
}

func TestTiersInitialTokensAreAtMostTheBurst(t *testing.T) {
	o := guard.DefaultOptions()
	o.CapacityTokens, o.InitialTokens = 100, 3
	ts, _ := newTiers(t, tiers.Options{Guard: &o})
	for want, burst := range map[int]float64{1: 1, 2: 2, 3: 64} {
		if n := burstOf(ts, &tiers.Attribute{RPS: 1, Burst: burst}); n != want {
			t.Errorf("a burst of %v begins with %d tokens, want %d", burst, n, want)
		}
	}
}

func TestTiersLog(t *testing.T) {
	var text strings.Builder
	ts, clock := newTiers(t, tiers.Options{
		MaxPolicies: 1,
		Logger:      slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	for range 3 {
		ts.Check(&tiers.Attribute{RPS: 4, Burst: 2}, 1, alice)
		ts.Check(&tiers.Attribute{RPS: 8, Burst: 2}, 1, alice)
	}
	clock.Advance(2 * time.Hour)
	ts.Sweep()
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
