package policy_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// twoLimits are two limits.
func twoLimits(a, b string, l, m weir.Limit) func(*policy.Policy) {
	return func(p *policy.Policy) { p.Limits = []policy.Limit{{Name: a, Limit: l}, {Name: b, Limit: m}} }
}

func coherent(p *policy.Policy) { p.Consistency = policy.ConsistencyCoherent }

// TestOverrideSurvivesReloads as long as the policy has limits that it can hold for, with what is left of its time.
func TestOverrideSurvivesReloads(t *testing.T) {
	fixedWindow := weir.FixedWindow(weir.Rate{Permits: 10, Period: 24 * time.Hour})
	before := twoLimits("a", "b", perHour(10), perHour(20))
	for name, c := range map[string]struct {
		to   *policy.Set
		want string // the limits that hold, "" for those of the policy
	}{
		"the same":   {login(before), "a 1/h, burst 100; b 1/h, burst 200"},
		"rates":      {login(twoLimits("a", "b", perHour(3), perHour(4))), "a 1/h, burst 100; b 1/h, burst 200"},
		"names":      {login(twoLimits("c", "d", perHour(10), perHour(20))), "c 1/h, burst 100; d 1/h, burst 200"},
		"one name":   {login(twoLimits("a", "c", perHour(10), perHour(20))), "a 1/h, burst 100; c 1/h, burst 200"},
		"swapped":    {login(twoLimits("b", "a", perHour(20), perHour(10))), "b 1/h, burst 200; a 1/h, burst 100"},
		"shared":     {login(before, coherent), "a 1/h, burst 100; b 1/h, burst 200"},
		"algorithm":  {login(twoLimits("a", "b", perHour(10), fixedWindow)), ""},
		"fewer":      {login(), ""},
		"no policy":  {&policy.Set{}, ""},
		"other one":  {&policy.Set{Policies: []policy.Policy{{Name: "x", Limits: one(perHour(1))}}}, ""},
		"mode":       {login(before, func(p *policy.Policy) { p.Mode = policy.ModeShadow }), "a 1/h, burst 100; b 1/h, burst 200"},
		"table full": {login(twoLimits("a", "b", perHour(10), perHour(20)), func(p *policy.Policy) { p.MaxKeys = 1 }), "a 1/h, burst 100; b 1/h, burst 200"},
	} {
		t.Run(name, func(t *testing.T) {
			clock := manualclock.New(0)
			var log bytes.Buffer
			e := engine(t, login(before), manual(clock), func(o *policy.EngineOptions) {
				o.Store, o.Logger = memory(t, clock), slog.New(slog.NewTextHandler(&log, nil))
			})
			mustOverride(t, e, policy.Override{
				Policy: "login", Key: ann, For: 10 * time.Minute, Limits: []policy.Limit{{Limit: perHour(100)}, {Limit: perHour(200)}},
			})
			mustOverride(t, e, policy.Override{Policy: "login", Key: ben, For: 10 * time.Minute, Unlimited: true})
			clock.Advance(time.Minute)
			load(t, e, c.to)
			var limits []string
			all := e.Overrides()
			for i := range all {
				if all[i].For != 9*time.Minute || all[i].Unlimited != (all[i].Key == ben) {
					t.Errorf("%+v", all[i])
				}
				for _, l := range all[i].Limits {
					limits = append(limits, l.Name+" "+l.String())
				}
			}
			if got := strings.Join(limits, "; "); got != c.want {
				t.Errorf("in force: %q, want %q", got, c.want)
			}
			if ended := c.want == "" && len(c.to.Policies) > 0 && c.to.Policies[0].Name == "login"; ended != (log.Len() > 0) {
				t.Errorf("log: %s", log.String())
			}
			if c.want != "" {
				for i, l := range key(t, e, ann).Limits {
					if want := strings.Split(c.want, "; ")[i]; l.Limit+" "+l.Holds != want || fmt.Sprint(l.Decision.Limit) != want[len(want)-3:] {
						t.Errorf("%+v, want %q", l, want)
					}
				}
			}
			clock.Advance(9*time.Minute - 1)
			if n := len(e.Overrides()); n != len(all) {
				t.Errorf("%d are in force", n)
			}
			clock.Advance(1)
			if n := len(e.Overrides()); n != 0 {
				t.Errorf("%d are in force after the end", n)
			}
			load(t, e, login(before))
			if k := key(t, e, ann); k.Override != nil || k.Limits[0].Holds != "1/h, burst 10" {
				t.Errorf("%+v", k)
			}
		})
	}
}

// TestOverrideKeepsWhatIsLeftThroughReloads: a reload that names limits anew never holds the key to those of the policy, not even
// for a moment.
func TestOverrideKeepsWhatIsLeftThroughReloads(t *testing.T) {
	clock := manualclock.New(0)
	e := engine(t, login(twoLimits("a", "b", perHour(10), perHour(20))), manual(clock))
	mustOverride(t, e, policy.Override{
		Policy: "login", Key: ann, For: 300 * time.Hour, Limits: []policy.Limit{{Limit: perHour(100)}, {Limit: perHour(200)}},
	})
	clock.Advance(200 * time.Hour) // until both are full
	wantTakes(t, e, ann, 30, 30)
	for _, c := range []struct {
		to   *policy.Set
		want string
	}{
		{login(twoLimits("c", "d", perHour(10), perHour(20))), "c 70; d 170; "},
		{login(twoLimits("d", "c", perHour(10), perHour(20))), "d 170; c 70; "},
	} {
		load(t, e, c.to)
		var got strings.Builder
		for _, l := range key(t, e, ann).Limits {
			fmt.Fprintf(&got, "%s %d; ", l.Limit, l.Decision.Remaining)
		}
		if got.String() != c.want {
			t.Errorf("left: %s want %s", got.String(), c.want)
		}
	}
}

// TestOverrideOfStoredLimitsHoldsInThisProcess, for a store and for the owner of a cluster, and takes nothing if it is Unlimited.
func TestOverrideOfStoredLimitsHoldsInThisProcess(t *testing.T) {
	for name, kind := range map[string]func(...policy.Policy) []policy.Policy{"shared": shared, "durable": durably} {
		t.Run(name, func(t *testing.T) {
			clock := manualclock.New(1)
			o := newOwner(t, clock)
			set := &policy.Set{Policies: kind(login().Policies...), Rules: login().Rules}
			here, there := ownedBy(t, o, o.watched, clock, set), ownedBy(t, o, o.watched, clock, set)
			wantTakes(t, here, ann, 3, 2)
			mustOverride(t, here, policy.Override{
				Policy: "login", Key: ann, Limits: one(weir.TokenBucket(weir.PerSecond(1), 5)), For: time.Minute,
			})
			clock.Advance(3 * time.Second)
			if k := key(t, here, ann); k.Limits[0].Holds != "1/s, burst 5" || k.Limits[0].Decision.Limit != 5 {
				t.Errorf("%+v", k)
			}
			r := request(ann)
			x := here.Explain(&r)
			if l := x.Limits[0]; l.Holds != "1/s, burst 5" || !l.Override {
				t.Errorf("%+v", l)
			}
			wantTakes(t, here, ann, 9, 3)
			wantTakes(t, there, ann, 9, 0)
			wantTakes(t, here, ann, 1, 0) // the limit of the last request holds
			charges, ok := here.StoredCharges("login", ann)
			if !ok || charges[0].Limit.Permits() != 5 {
				t.Errorf("%+v", charges)
			}
			clock.Advance(2 * time.Second)
			var v policy.Verdict
			if !takeKey(t.Context(), here, "login", ann, 1, &v) || !v.Allowed || v.Decision().Limit != 5 {
				t.Errorf("TakeKey: %+v", v.Decision())
			}
			here.DebitAll(t.Context(), []*policy.Request{&r}, &v)
			if !v.Allowed || v.Decision().Limit != 5 {
				t.Errorf("DebitAll: %+v", v.Decision())
			}
			clock.Advance(time.Minute)
			wantTakes(t, here, ann, 9, 2) // of the 5 that are back it may have 2
			asked := o.asked.Load()
			mustOverride(t, here, policy.Override{Policy: "login", Key: ann, Unlimited: true, For: time.Minute})
			wantTakes(t, here, ann, 9, 9)
			if x = here.Explain(&r); x.Limits[0].Holds != "unlimited" || !x.Allowed {
				t.Errorf("%+v", x.Limits[0])
			}
			if n := o.asked.Load(); n != asked {
				t.Errorf("the store was asked %d times for a key that is unlimited", n-asked)
			}
			wantTakes(t, there, ann, 9, 0)
			here.Restore("login", ann)
			wantTakes(t, here, ann, 9, 0)
			bad := policy.Override{
				Policy: "login", Key: ann, For: time.Minute,
				Limits: one(weir.AtOnce(5)),
			}
			if err := here.Override(&bad); err == nil {
				t.Error("no error for another algorithm")
			}
		})
	}
}

// TestOverrideServesThoseWhoWaitForTheOwner: they begin anew under what holds now.
func TestOverrideServesThoseWhoWaitForTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwner(t, nil)
		e := ownedBy(t, o, nil, nil, &policy.Set{
			Policies: durably(login(func(p *policy.Policy) { p.QueueLimit, p.MaxWait = 9, time.Hour }).Policies...), Rules: login().Rules,
		})
		wantTakes(t, e, ann, 2, 2)
		for i, x := range []policy.Override{
			{Unlimited: true}, {Limits: one(weir.TokenBucket(weir.PerSecond(1), 2))},
		} {
			done := make(chan time.Duration)
			began := time.Now()
			go func() {
				var v policy.Verdict
				r := request(ann)
				if err := verdictOf(e.Wait(context.Background(), &r, &v), &v); err != nil || !v.Allowed {
					t.Error(err, v.Decision())
				}
				v.Release()
				done <- time.Since(began)
			}()
			synctest.Wait()
			time.Sleep(30 * time.Second)
			x.Policy, x.Key, x.For = "login", ann, 10*time.Second
			mustOverride(t, e, x)
			if d := <-done; d < 30*time.Second || d > 31*time.Second {
				t.Errorf("%d: it has waited for %v", i, d)
			}
			time.Sleep(20 * time.Second)
			takes(e, ann, 9)
		}
		if n := o.waiting.Load(); n != 0 {
			t.Errorf("%d permits are waited for", n)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestOverridesContention has requests of all kinds, overrides, their ends and reloads at a time. No permit is lost or minted: what
// was charged is what both limits say is gone.
func TestOverridesContention(t *testing.T) {
	const permits = 6000
	sets := []*policy.Set{
		login(twoLimits("a", "b", perHour(permits), perHour(2*permits))), login(twoLimits("c", "b", perHour(permits), perHour(2*permits))),
	}
	e := engine(t, sets[0], func(o *policy.EngineOptions) { o.Clock = nil })
	var charged, lifted, refused atomic.Int64
	done := make(chan struct{})
	var operators, clients sync.WaitGroup
	operate := func(f func(i int)) {
		operators.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
					f(i)
				}
			}
		})
	}
	operate(func(i int) {
		o := policy.Override{Policy: "login", Key: ann, For: time.Hour, Unlimited: i%3 == 0}
		if !o.Unlimited {
			o.Limits = []policy.Limit{{Limit: perHour(int64(permits + i%7))}, {Limit: perHour(2*permits + 1)}}
		}
		if err := e.Override(&o); err != nil {
			t.Error(err)
		}
		if i%4 == 0 {
			e.Restore("login", ann)
		}
	})
	operate(func(i int) { load(t, e, sets[(i+1)%2]) })
	operate(func(int) {
		e.Overrides()
		if _, err := e.Top(context.Background(), "login", 3); err != nil {
			t.Error(err)
		}
		e.Report()
	})
	for g := range 6 {
		clients.Go(func() {
			var v policy.Verdict
			for refused.Load() < 100 || lifted.Load() < 100 {
				r, r2 := request(ann), request(ann)
				n := int64(1)
				switch g % 3 {
				case 0:
					e.Take(&r, &v)
				case 1:
					n = 2
					e.TakeAll(context.Background(), []*policy.Request{&r, &r2}, &v)
				case 2:
					takeKey(context.Background(), e, "login", ann, 1, &v)
				}
				switch {
				case !v.Allowed:
					refused.Add(1)
				case len(v.Parts) == 0:
					lifted.Add(n)
				case len(v.Parts) != 2*int(n):
					t.Errorf("%d parts", len(v.Parts))
				default:
					charged.Add(n)
				}
				v.Release()
			}
		})
	}
	clients.Wait()
	close(done)
	operators.Wait()
	e.Restore("login", ann)
	// A request that is asked limit by limit and is refused in the end holds permits for a moment, in which all others may have
	// been refused for the last time.
	for v := new(policy.Verdict); takeKey(context.Background(), e, "login", ann, 1, v) && v.Allowed; v.Release() {
		charged.Add(1)
	}
	k := key(t, e, ann)
	a, b := k.Limits[0].Decision.Remaining, k.Limits[1].Decision.Remaining
	if n := charged.Load(); n < permits || n > permits+1 || a > 1 || b < 2*permits-n || b > 2*permits-n+1 {
		t.Errorf("%d permits were charged of %d: %d and %d are left", n, permits, a, b)
	}
	if granted := e.Report().Policies[0].Allowed; granted != uint64(charged.Load()+lifted.Load()) {
		t.Errorf("the report has %d, charged were %d, let pass %d", granted, charged.Load(), lifted.Load())
	}
}

// TestOverridesAllocateNothing where they are looked up.
func TestOverridesAllocateNothing(t *testing.T) {
	if race.Enabled {
		return // which allocates itself
	}
	huge := weir.TokenBucket(weir.PerSecond(1e6), 1e12)
	set := login(func(p *policy.Policy) { p.Limits = one(huge) })
	set.Policies = append(set.Policies, shared(policy.Policy{Name: "shared", Limits: one(huge), Key: policy.ClientIP()})...)
	set.Rules[0].Limits = uses("login", "shared")
	e := engine(t, set, func(o *policy.EngineOptions) {
		o.Clock, o.Store = nil, store.Home(granting{})
	})
	for name, o := range map[string]policy.Override{
		"none": {}, "limits": {Limits: one(weir.TokenBucket(weir.PerSecond(2e6), 1e12))}, "unlimited": {Unlimited: true},
	} {
		for i := range set.Policies {
			if o.Policy, o.Key, o.For = set.Policies[i].Name, ann, time.Hour; name != "none" {
				mustOverride(t, e, o)
			}
		}
		var v policy.Verdict
		r := request(ann)
		if n := testing.AllocsPerRun(1000, func() {
			e.Take(&r, &v)
			v.Release()
		}); n > 0 || !v.Allowed {
			t.Errorf("%s: %v allocations for a request", name, n)
		}
		for i := range set.Policies {
			e.Restore(set.Policies[i].Name, ann)
		}
	}
}

// granting is a store that grants everything.
type granting struct{ store.Home }

func (granting) Do(_ context.Context, ask store.Ask, _ []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	for i := range decisions {
		if ask.Mode == store.ModeTake {
			decisions[i] = weir.Decision{Allowed: true, Limit: 9, Remaining: 8}
		}
	}
	return store.Hold{}, nil
}
