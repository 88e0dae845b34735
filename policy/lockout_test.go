//go:build !race

package policy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// lockoutEngine has one policy with a lockout, and virtual time.
func lockoutEngine(t *testing.T, limit weir.Limit, lockout policy.Lockout) (*policy.Engine, *manualclock.Clock) {
	t.Helper()
	clock := manualclock.New(1)
	return engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "p", Limits: one(limit), Lockout: &lockout}},
		Rules:    []policy.Rule{{Name: "all", Limits: uses("p")}},
	}, func(o *policy.EngineOptions) { o.Clock = clock }), clock
}

// TestSteadyFloodIsLockedOut sends 30 requests a second to a limit of 10 a second: 2 of 3 are refused, and one in between is
// always allowed. Only refusals in a row are cleared by that.
func TestSteadyFloodIsLockedOut(t *testing.T) {
	for _, inARow := range []bool{false, true} {
		t.Run(fmt.Sprintf("in a row %v", inARow), func(t *testing.T) {
			e, clock := lockoutEngine(t, weir.TokenBucket(weir.PerSecond(10), 50),
				policy.Lockout{Refusals: 20, Within: time.Minute, For: 15 * time.Minute, InARow: inARow})
			refusals, locked := 0, 0
			for range 30 * 25 {
				if d := take(e, policy.Request{}).Decision(); d.Reason == weir.ReasonHardLockout {
					locked++
				} else if !d.Allowed {
					refusals++
				}
				clock.Advance(time.Second / 30)
			}
			if inARow && (locked != 0 || refusals < 400) {
				t.Errorf("%d refusals, %d of them by a lockout: none are in a row", refusals, locked)
			}
			if !inARow && (refusals != 19 || locked < 600) {
				t.Errorf("%d refusals before the lockout, which refused %d: the 20th of a minute locks out", refusals, locked)
			}
		})
	}
}

// TestRetryAfterOutlastsALockout: a client that comes back when it was told to is allowed, also where its limit takes longer than
// the lockout.
func TestRetryAfterOutlastsALockout(t *testing.T) {
	for _, c := range []struct {
		limit weir.Limit
		want  time.Duration
	}{
		{perHour(1), time.Hour},
		{weir.FixedWindow(weir.PerMinute(1)), time.Minute},
		{weir.TokenBucket(weir.PerSecond(1), 1), 30 * time.Second},
	} {
		e, clock := lockoutEngine(t, c.limit, policy.Lockout{Refusals: 2, Within: time.Minute, For: 30 * time.Second})
		take(e, policy.Request{})
		take(e, policy.Request{})
		for range 4 { // the first one locks it out
			if d := take(e, policy.Request{}).Decision(); d.Reason != weir.ReasonHardLockout || d.RetryAfter != c.want {
				t.Errorf("%v: %v, retry after %v, want %v", c.limit, d.Reason, d.RetryAfter, c.want)
			}
			v := new(policy.Verdict)
			e.Peek(&policy.Request{}, v)
			if d := v.Decision(); d.Reason != weir.ReasonHardLockout || d.RetryAfter != c.want {
				t.Errorf("%v: a probe has %v, retry after %v, want %v", c.limit, d.Reason, d.RetryAfter, c.want)
			}
			clock.Advance(time.Second)
			c.want -= time.Second
		}
		clock.Advance(c.want)
		if d := take(e, policy.Request{}).Decision(); !d.Allowed {
			t.Errorf("%v: %+v, when it was told to come back", c.limit, d)
		}
	}
}

// TestLockoutAndLimitAreToldApart: an explanation tells when the lockout ends, and when the limit allows the request if that is later.
func TestLockoutAndLimitAreToldApart(t *testing.T) {
	clock := manualclock.New(0)
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{
			Name: "p", Limits: one(perHour(5)), Lockout: &policy.Lockout{Refusals: 2, Within: time.Hour, For: 90 * time.Minute},
		}},
		Rules: []policy.Rule{{Name: "all", Limits: uses("p")}},
	}, func(o *policy.EngineOptions) { o.Clock = clock })
	check := func(cost int64, want string) {
		t.Helper()
		if x := e.Explain(&policy.Request{Cost: cost}); x.Limits[0].Would != want {
			t.Errorf("cost %d: %q, want %q", cost, x.Limits[0].Would, want)
		}
	}
	take(e, policy.Request{Cost: 5})
	take(e, policy.Request{})
	check(1, "nothing once this one has begun a lockout of 1 hour 30 minutes")
	check(3, "nothing once this one has begun a lockout of 1 hour 30 minutes, and this one in 3 hours")
	take(e, policy.Request{})
	clock.Advance(30 * time.Minute)
	check(1, "nothing before the lockout ends in 1 hour")
	check(3, "nothing before the lockout ends in 1 hour, and this one in 2 hours 30 minutes")
	check(6, "nothing before the lockout ends in 1 hour, and this one never")
}

// TestLockoutsAgreeWithAListOfRefusals asks at random times, and keeps a list of all refusals beside it. Peek and Explain
// foresee each lockout.
func TestLockoutsAgreeWithAListOfRefusals(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 7))
		o := policy.Lockout{
			Refusals: 1 + random.IntN(33), Within: time.Duration(1+random.IntN(5000)) * time.Millisecond,
			For: time.Duration(1+random.IntN(3000)) * time.Millisecond, InARow: seed%3 == 0,
		}
		e, clock := lockoutEngine(t, weir.TokenBucket(weir.PerSecond(10), 2), o)
		var (
			now, until time.Duration
			times      []time.Duration
		)
		for i := range 600 {
			step := time.Duration(random.IntN(2*int(o.Within/time.Millisecond)/o.Refusals+2)) * time.Millisecond
			now += step
			clock.Advance(step)
			var peeked policy.Verdict
			e.Peek(&policy.Request{}, &peeked)
			d := take(e, policy.Request{}).Decision()
			if p := peeked.Decision(); p.Reason != d.Reason || p.RetryAfter != d.RetryAfter {
				t.Fatalf("seed %d, request %d: %+v, and foreseen was %+v", seed, i, d, p)
			}
			switch {
			case now < until:
				if d.Reason != weir.ReasonHardLockout || d.RetryAfter != until-now {
					t.Fatalf("seed %d, request %d: %+v in a lockout of another %v", seed, i, d, until-now)
				}
				continue
			case d.Allowed:
				if o.InARow {
					times = nil
				}
				continue
			}
			times = append(slices.DeleteFunc(times, func(at time.Duration) bool { return now-at > o.Within }), now)
			if want := len(times) >= o.Refusals; want != (d.Reason == weir.ReasonHardLockout) {
				t.Fatalf("seed %d, request %d: %+v with %d of %d refusals within %v", seed, i, d, len(times), o.Refusals, o.Within)
			}
			if len(times) >= o.Refusals {
				until, times = now+o.For, nil
			}
		}
	}
}

// TestReloadedLockoutHoldsAtOnce lowers Refusals, and lengthens Within, while refusals are counted.
func TestReloadedLockoutHoldsAtOnce(t *testing.T) {
	clock := manualclock.New(1)
	set := func(o policy.Lockout) *policy.Set {
		return &policy.Set{
			Policies: []policy.Policy{{Name: "p", Limits: one(perHour(1)), Lockout: &o}},
			Rules:    []policy.Rule{{Name: "all", Limits: uses("p")}},
		}
	}
	e := engine(t, set(policy.Lockout{Refusals: 100, Within: time.Minute, For: time.Hour}),
		func(o *policy.EngineOptions) { o.Clock = clock })
	for range 51 {
		take(e, policy.Request{})
	}
	for _, refusals := range []int{60, 40_000, 52} {
		if _, err := e.Load(set(policy.Lockout{Refusals: refusals, Within: time.Hour, For: time.Hour})); err != nil {
			t.Fatal(err)
		}
	}
	clock.Advance(50 * time.Minute)
	for i, want := range []weir.Reason{weir.ReasonLimited, weir.ReasonHardLockout} {
		if d := take(e, policy.Request{}).Decision(); d.Reason != want {
			t.Errorf("refusal %d: %+v, want %v", 51+i, d, want)
		}
	}
}

func BenchmarkLockout(b *testing.B) {
	for _, c := range []struct {
		name  string
		limit weir.Limit
	}{
		{"allowed", weir.TokenBucket(weir.PerSecond(1_000_000_000), 1_000_000_000)},
		{"refused", weir.TokenBucket(weir.Rate{Permits: 1, Period: 24 * time.Hour}, 1)},
	} {
		b.Run(c.name, func(b *testing.B) {
			e := engine(b, &policy.Set{
				Policies: []policy.Policy{{
					Name: "p", Limits: one(c.limit), Key: policy.MethodText(),
					Lockout: &policy.Lockout{Refusals: 65535, Within: time.Millisecond, For: time.Millisecond},
				}},
				Rules: []policy.Rule{{Name: "all", Limits: uses("p")}},
			}, func(o *policy.EngineOptions) { o.Clock = nil })
			var v policy.Verdict
			put, get := policy.Request{Method: "PUT"}, policy.Request{Method: "GET"}
			e.Take(&put, &v)
			v.Release()
			b.ReportAllocs()
			for b.Loop() {
				e.Take(&get, &v)
				v.Release()
			}
		})
	}
}

// TestStepsOfTheClock sets the clock of an engine while a key is locked out, and another one has an override: back, both last as long as
// they were to last; forward, they end, and the limit is granted once.
func TestStepsOfTheClock(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		clock := manualclock.New(int64(24 * time.Hour))
		limit := weir.TokenBucket(weir.PerSecond(1), 5)
		e := engine(t, &policy.Set{
			Policies: []policy.Policy{{
				Name: "p", Limits: one(limit), Lockout: &policy.Lockout{Refusals: 1, Within: time.Minute, For: time.Minute},
			}},
		}, func(o *policy.EngineOptions) { o.Clock = clock })
		allowed := func(key string, times int) (n int) {
			for range times {
				if take(e, *named(t.Context(), "p", key, 1)).Decision().Allowed {
					n++
				}
			}
			return n
		}
		if n := allowed("locked", 10); n != 5 {
			t.Fatalf("%d were allowed before the lockout", n)
		}
		if err := e.Override(&policy.Override{Policy: "p", Key: "free", Unlimited: true, For: time.Minute}); err != nil {
			t.Fatal(err)
		}
		clock.Advance(by)
		if by < 0 {
			if n := allowed("locked", 10); n != 0 {
				t.Errorf("%v: %d were allowed in the lockout", by, n)
			}
			clock.Advance(59 * time.Second)
			if n := allowed("free", 10); n != 10 {
				t.Errorf("%v: the override has ended early", by)
			}
			clock.Advance(time.Second)
		}
		for _, key := range []string{"locked", "free"} {
			if n := allowed(key, 10); n != 5 {
				t.Errorf("%v: %s: %d were allowed, want the limit once", by, key, n)
			}
		}
	}
}
