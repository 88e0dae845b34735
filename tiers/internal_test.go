package tiers

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/guard"
	"github.com/weirhq/weir/manualclock"
)

var home = netip.MustParseAddr("192.0.2.1")

func newTestTiers(t *testing.T, o Options) (*Tiers, *manualclock.Clock) {
	t.Helper()
	clock := new(manualclock.Clock)
	o.Clock = clock
	tiers, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tiers.Close() })
	return tiers, clock
}

// modelClosest is the rule in the words of its definition: first the one that is not looser, then the distance, then the order.
func modelClosest(have []pair, want pair) pair {
	pool := slices.DeleteFunc(slices.Clone(have), func(p pair) bool { return p.rps > want.rps || p.burst > want.burst })
	if len(pool) == 0 {
		pool = have
	}
	least := math.Inf(1)
	distance := func(p pair) float64 { return math.Abs(want.rps-p.rps) + math.Abs(float64(want.burst)-float64(p.burst)) }
	for _, p := range pool {
		least = min(least, distance(p))
	}
	var near []pair
	for _, p := range pool {
		if distance(p) == least {
			near = append(near, p)
		}
	}
	best := near[0]
	for _, p := range near {
		if p.rps < best.rps || p.rps == best.rps && p.burst < best.burst {
			best = p
		}
	}
	return best
}

// TestClosestEqualsModel asks Tiers that are full, with random tiers, limiters and orders, which limiter serves each pair.
func TestClosestEqualsModel(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	stricter, looser := 0, 0
	for range 300 {
		o := Options{MaxPolicies: 1 + random.IntN(12)}
		for rps := 0.0; len(o.RPS) < 1+random.IntN(8); o.RPS = append(o.RPS, rps) {
			rps += []float64{0.5, 1, 1, 3}[random.IntN(4)]
		}
		for burst := 0; len(o.Burst) < 1+random.IntN(8); o.Burst = append(o.Burst, burst) {
			burst += 1 + random.IntN(4)
		}
		tiers, _ := newTestTiers(t, o)
		var have []pair
		for _, i := range random.Perm(len(o.RPS) * len(o.Burst)) {
			want := pair{o.RPS[i/len(o.Burst)], o.Burst[i%len(o.Burst)]}
			d := tiers.Check(&Attribute{want.rps, float64(want.burst)}, 1, home)
			serves := want
			if len(have) < o.MaxPolicies {
				have = append(have, want)
			} else if serves = modelClosest(have, want); serves.rps > want.rps || serves.burst > want.burst {
				looser++
			} else {
				stricter++
			}
			if d.Policy != serves.String() {
				t.Fatalf("%v is served by %q, want %v of %v", want, d.Policy, serves, have)
			}
		}
		if r := tiers.Report(); r.Active != len(have) {
			t.Fatalf("%d active, want %d", r.Active, len(have))
		}
		tiers.Close()
	}
	if stricter < 100 || looser < 100 {
		t.Errorf("%d served by stricter ones, %d by looser ones: too few", stricter, looser)
	}
}

// bound is the entry that serves an attribute.
func bound(t *testing.T, tiers *Tiers, a *Attribute) *entry {
	t.Helper()
	b := tiers.slots[tiers.place(a)-firstPair].Load()
	if b == nil {
		t.Fatal("no limiter serves it")
	}
	return b.entry
}

func TestTiersDisposedEntryIsSoftThrottle(t *testing.T) {
	tiers, _ := newTestTiers(t, Options{})
	a := &Attribute{1, 1}
	tiers.Check(a, 1, home)
	e := bound(t, tiers, a)
	if !e.retireIfIdle() {
		t.Fatal("a caller uses it")
	}
	for range 5 {
		d := tiers.Check(a, 1, home)
		want := weir.Decision{Reason: weir.ReasonSoftThrottle, RetryAfter: 1000 * time.Millisecond}
		if d != want || guard.Credit(d) != 0 {
			t.Errorf("%+v", d)
		}
	}
	if n := e.users.Load(); n != retired {
		t.Errorf("users are %#x", n)
	}
}

func TestTiersEntryInUseIsNotSwept(t *testing.T) {
	tiers, clock := newTestTiers(t, Options{})
	a := &Attribute{1, 1}
	tiers.Check(a, 1, home)
	e := bound(t, tiers, a)
	if !e.enter() {
		t.Fatal("cannot be used")
	}
	clock.Advance(24 * time.Hour)
	if n := tiers.Sweep(); n != 0 || tiers.Report().Active != 1 {
		t.Errorf("%d swept while in use", n)
	}
	if d, err := e.guard.CheckOperation(1, home); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
	e.leave()
	if n := tiers.Sweep(); n != 1 || tiers.Report().Active != 0 {
		t.Errorf("%d swept", n)
	}
	if d, err := e.guard.CheckOperation(1, home); err != nil || d.Reason != weir.ReasonClosed {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestTiersCloseFinishesAnEntryInUse(t *testing.T) {
	tiers, _ := newTestTiers(t, Options{})
	a := &Attribute{1, 4}
	tiers.Check(a, 1, home)
	e := bound(t, tiers, a)
	for range 2 {
		if !e.enter() {
			t.Fatal("cannot be used")
		}
	}
	tiers.Close()
	tiers.Close()
	if e.enter() {
		t.Error("entered after Close")
	}
	for range 2 {
		if d, err := e.guard.CheckOperation(1, home); err != nil || !d.Allowed {
			t.Errorf("torn away: %+v, %v", d, err)
		}
		e.leave()
	}
	if d, err := e.guard.CheckOperation(1, home); err != nil || d.Reason != weir.ReasonClosed {
		t.Errorf("not disposed of by the last who left: %+v, %v", d, err)
	}
}

// panickyClock panics when it is told to.
type panickyClock struct {
	manualclock.Clock

	now func()
}

func (c *panickyClock) Now() int64 {
	c.now()
	return c.Clock.Now()
}

func TestTiersPanicLeavesTheEntry(t *testing.T) {
	clock := &panickyClock{now: func() {}}
	tiers, err := New(Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer tiers.Close()
	a := &Attribute{1, 1}
	tiers.Check(a, 1, home)
	e := bound(t, tiers, a)
	clock.now = func() { panic("no time") }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		tiers.Check(a, 1, home)
	}()
	clock.now = func() {}
	if n := e.users.Load(); n != 0 {
		t.Errorf("%d users are left", n)
	}
}

func FuzzTierRounding(f *testing.F) {
	for _, v := range []float64{0, -1, 1e-300, 0.999, 1, 2, 2.5, 64, 127.5, 128, 1e300, math.Inf(1), math.Inf(-1), math.NaN()} {
		f.Add(v, 1.0)
		f.Add(1.0, v)
		f.Add(v, v)
	}
	tiers, err := New(Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { tiers.Close() })
	f.Fuzz(func(t *testing.T, rps, burst float64) {
		tier, err := tiers.Tier(&Attribute{rps, burst})
		gotRPS, gotBurst, ok := tier.Limits()
		switch {
		case rps != rps || burst != burst:
			if err == nil || ok || tier.String() != "invalid" {
				t.Errorf("%v, %v: %v, %v", rps, burst, tier, err)
			}
			return
		case err != nil:
			t.Fatal(err)
		case rps <= 0:
			if ok || tier.String() != "unlimited" {
				t.Errorf("%v, %v: %v", rps, burst, tier)
			}
			return
		case burst <= 0:
			if ok || tier.String() != "forbidden" {
				t.Errorf("%v, %v: %v", rps, burst, tier)
			}
			return
		}
		// The tiers are powers of two: the least one that is not below, at most the top, at least 1.
		power := func(v, top float64) float64 {
			fraction, exponent := math.Frexp(min(v, top)) // v is fraction x 2^exponent, and the fraction at least 1/2
			if fraction == 0.5 {
				exponent--
			}
			return math.Ldexp(1, max(exponent, 0))
		}
		if wantRPS, wantBurst := power(rps, 128), power(burst, 64); !ok || gotRPS != wantRPS || float64(gotBurst) != wantBurst {
			t.Errorf("%v, %v: %v, want %v, %v", rps, burst, tier, wantRPS, wantBurst)
		}
		if again, err := tiers.Tier(&Attribute{gotRPS, float64(gotBurst)}); err != nil || again != tier {
			t.Errorf("%v is rounded to %v, %v", tier, again, err)
		}
	})
}
