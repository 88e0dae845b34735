package policy_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// login is a set with one policy for which one rule matches.
func login(changes ...func(*policy.Policy)) *policy.Set {
	p := policy.Policy{Name: "login", Limits: one(perHour(2)), Key: policy.ClientIP()}
	for _, change := range changes {
		change(&p)
	}
	return &policy.Set{Policies: []policy.Policy{p}, Rules: []policy.Rule{{Name: "all", Limits: uses("login")}}}
}

func request(client string) policy.Request {
	return policy.Request{Method: "GET", Client: netip.MustParseAddr(client)}
}

func mustOverride(t testing.TB, e *policy.Engine, o policy.Override) {
	t.Helper()
	if err := e.Override(&o); err != nil {
		t.Fatal(err)
	}
	if o.Since.IsZero() {
		t.Error("Since was not set")
	}
}

func manual(clock *manualclock.Clock) func(*policy.EngineOptions) {
	return func(o *policy.EngineOptions) { o.Clock = clock }
}

const ann, ben = "192.0.2.1", "192.0.2.2"

// takes is how many of n requests of a client are granted.
func takes(e *policy.Engine, client string, n int) (granted int) {
	var v policy.Verdict
	for range n {
		r := request(client)
		if e.Take(&r, &v); v.Allowed {
			granted++
		}
		v.Release()
	}
	return granted
}

func wantTakes(t testing.TB, e *policy.Engine, client string, n, want int) {
	t.Helper()
	if got := takes(e, client, n); got != want {
		t.Errorf("%d of %d requests of %s were granted, want %d", got, n, client, want)
	}
}

func TestOverrideHoldsForOneKeyForAWhile(t *testing.T) {
	clock := manualclock.New(0)
	e := engine(t, login(), manual(clock))
	wantTakes(t, e, ann, 5, 2)
	wantTakes(t, e, ben, 5, 2)
	o := policy.Override{
		Policy: "login", Key: ann, Limits: one(weir.TokenBucket(weir.PerSecond(1), 3)),
		For: time.Minute, By: "carl", Reason: "she called",
	}
	mustOverride(t, e, o)
	wantTakes(t, e, ann, 5, 0) // what she has left is kept
	clock.Advance(2 * time.Second)
	wantTakes(t, e, ann, 5, 2)
	clock.Advance(10 * time.Second)
	wantTakes(t, e, ann, 5, 3)
	wantTakes(t, e, ben, 5, 0)
	all := e.Overrides()
	if len(all) != 1 || all[0].Policy != "login" || all[0].Key != ann || all[0].For != 48*time.Second || all[0].By != "carl" ||
		all[0].Reason != "she called" || all[0].Limits[0].Name != "1h" || all[0].Limits[0].Permits() != 3 {
		t.Errorf("in force: %+v", all)
	}
	if n := e.Report().Policies[0].Overridden; n != 1 {
		t.Errorf("the report has %d of them", n)
	}
	clock.Advance(48*time.Second - 1)
	if len(e.Overrides()) != 1 {
		t.Error("it has ended too early")
	}
	clock.Advance(1)
	if len(e.Overrides()) != 0 || e.Report().Policies[0].Overridden != 0 || e.Restore("login", ann) {
		t.Error("it has not ended")
	}
	wantTakes(t, e, ann, 5, 2) // 3 of the override were back, of which she may have 2
	clock.Advance(10 * time.Second)
	wantTakes(t, e, ann, 5, 0)
}

func TestOverrideIsReplacedAndRestored(t *testing.T) {
	clock := manualclock.New(0)
	e := engine(t, login(), manual(clock))
	o := policy.Override{Policy: "login", Key: ann, Limits: one(weir.TokenBucket(weir.PerSecond(1), 1)), For: time.Minute}
	mustOverride(t, e, o)
	wantTakes(t, e, ann, 5, 1)
	o.Limits = one(weir.TokenBucket(weir.PerSecond(10), 5))
	o.For = time.Hour
	mustOverride(t, e, o)
	clock.Advance(2 * time.Minute) // the first one would have ended
	wantTakes(t, e, ann, 9, 5)
	o.Limits, o.Unlimited = nil, true
	mustOverride(t, e, o)
	wantTakes(t, e, ann, 100, 100)
	if e.Restore("login", ben) || e.Restore("other", ann) || !e.Restore("login", ann) || e.Restore("login", ann) {
		t.Error("Restore tells who was overridden wrongly")
	}
	wantTakes(t, e, ann, 5, 0) // nothing was taken, and nothing came back but at 1/h
	if all := e.Overrides(); len(all) != 0 {
		t.Errorf("in force: %+v", all)
	}
}

func TestUnlimitedCountsAndTakesNothing(t *testing.T) {
	e := engine(t, login())
	wantTakes(t, e, ann, 1, 1)
	mustOverride(t, e, policy.Override{Policy: "login", Key: ann, Unlimited: true, For: time.Hour})
	wantTakes(t, e, ann, 10, 10)
	r := request(ann)
	r.Cost = 1000
	v := take(e, r)
	if !v.Allowed || v.Binding != -1 || len(v.Parts) != 0 || v.Exempt || !v.Decision().Allowed {
		t.Errorf("%+v", v)
	}
	if p := e.Report().Policies[0]; p.Allowed != 12 || p.Refused != 0 || e.Report().Unlimited != 0 {
		t.Errorf("%+v", p)
	}
	if !takeKey(context.Background(), e, "login", ann, 1e9, v) || !v.Allowed || len(v.Parts) != 0 {
		t.Errorf("TakeKey: %+v", v)
	}
	if !peekKey(context.Background(), e, "login", ann, 1e9, v) || !v.Allowed {
		t.Errorf("PeekKey: %+v", v)
	}
	e.DebitAll(context.Background(), []*policy.Request{&r}, v)
	if !v.Allowed || len(v.Parts) != 0 {
		t.Errorf("DebitAll: %+v", v)
	}
	other := request(ben)
	e.TakeAll(context.Background(), []*policy.Request{&r, &r, &other}, v)
	if !v.Allowed || len(v.Parts) != 1 || v.Parts[0].Request != 2 {
		t.Errorf("TakeAll: %+v", v.Parts)
	}
	if d, limited := v.Answer(0); !d.Allowed || limited {
		t.Errorf("the answer to the first: %+v", d)
	}
	e.Restore("login", ann)
	wantTakes(t, e, ann, 5, 1)
	if p := e.Report().Policies[0]; p.Allowed != 18 {
		t.Errorf("%+v", p)
	}
}

// TestLockoutOutlivesAnOverride: a key that is locked out stays so, whatever its limit is, until Unlock.
func TestLockoutOutlivesAnOverride(t *testing.T) {
	for _, unlimited := range []bool{false, true} {
		clock := manualclock.New(0)
		e := engine(t, login(func(p *policy.Policy) {
			p.Lockout = &policy.Lockout{Refusals: 2, Within: time.Minute, For: time.Hour}
		}), manual(clock))
		wantTakes(t, e, ann, 4, 2)
		o := policy.Override{Policy: "login", Key: ann, Unlimited: unlimited, For: 2 * time.Hour}
		if !unlimited {
			o.Limits = one(weir.TokenBucket(weir.PerSecond(1), 3))
		}
		mustOverride(t, e, o)
		clock.Advance(time.Minute)
		v := take(e, request(ann))
		if v.Allowed || v.Decision().Reason != weir.ReasonHardLockout || v.Decision().RetryAfter != 59*time.Minute ||
			v.Binding != 0 || string(v.Parts[0].Key) != ann || v.Parts[0].Policy.Name != "login" || v.Parts[0].Rule.Name != "all" {
			t.Errorf("unlimited=%v: %+v %+v", unlimited, v.Decision(), v.Parts)
		}
		r := request(ann)
		if e.Peek(&r, v); v.Allowed || v.Decision().Reason != weir.ReasonHardLockout {
			t.Errorf("unlimited=%v: a probe: %+v", unlimited, v.Decision())
		}
		if x := e.Explain(&r); x.Allowed || x.Reason != weir.ReasonHardLockout || x.Binding != 0 {
			t.Errorf("unlimited=%v: the explanation: %+v", unlimited, x)
		}
		if !e.Unlock("login", ann) {
			t.Error("she was not locked out")
		}
		wantTakes(t, e, ann, 3, 3)
	}
}

func TestOverrideBeatsTiersKeysAndWhatRequestsBring(t *testing.T) {
	small, large := one(perHour(1)), one(perHour(50))
	for name, change := range map[string]func(*policy.Policy){
		"tiers": func(p *policy.Policy) {
			p.TierBy, p.Tiers = policy.HeaderText("Plan"), map[string][]policy.Limit{"small": small}
		},
		"keys":  func(p *policy.Policy) { p.Keys = map[string][]policy.Limit{ann: small} },
		"bring": func(p *policy.Policy) { p.LimitBy = fixed{perHour(1)} },
		"wrong": func(p *policy.Policy) { p.LimitBy = fixed{weir.AtOnce(1)} },
	} {
		t.Run(name, func(t *testing.T) {
			e := engine(t, login(change, func(p *policy.Policy) { p.Candidate = small }))
			r := request(ann)
			r.Header = http.Header{"Plan": {"small"}}
			mustOverride(t, e, policy.Override{Policy: "login", Key: ann, Limits: large, For: time.Hour})
			var v policy.Verdict
			e.Take(&r, &v)
			if e.Take(&r, &v); v.Decision().Limit != 50 || len(e.Report().Policies[0].Difference.RefusedKeys) != 0 {
				t.Errorf("%+v, the candidate was asked about %d", v.Decision(), e.Report().Policies[0].Difference.Requests)
			}
			x := e.Explain(&r)
			if l := x.Limits[0]; l.Holds != "1/h, burst 50" || !l.Override || l.Tier != "" || l.Decision.Limit != 50 {
				t.Errorf("explained: %+v", l)
			}
			mustOverride(t, e, policy.Override{Policy: "login", Key: ann, Unlimited: true, For: time.Hour})
			for range 10 {
				if e.Take(&r, &v); !v.Allowed {
					t.Fatalf("%+v", v.Decision())
				}
			}
			x = e.Explain(&r)
			if l := x.Limits[0]; l.Holds != "unlimited" || !l.Override || !l.Decision.Allowed || l.Would != "anything" || !x.Allowed {
				t.Errorf("explained: %+v", l)
			}
			e.Restore("login", ann)
			if e.Take(&r, &v); v.Decision().Limit == 50 {
				t.Errorf("%+v", v.Decision())
			}
		})
	}
}

type fixed struct{ l weir.Limit }

func (f fixed) Limit(*policy.Request) (weir.Limit, bool, error) { return f.l, true, nil }
func (f fixed) String() string                                  { return "fixed" }

func TestOverrideRefusesWhatCannotBe(t *testing.T) {
	e := engine(t, login())
	good := func() policy.Override {
		return policy.Override{Policy: "login", Key: ann, Limits: one(perHour(9)), For: time.Second}
	}
	for name, c := range map[string]struct {
		change func(*policy.Override)
		says   string
	}{
		"policy":   {func(o *policy.Override) { o.Policy = "logon" }, `policy is "logon"`},
		"key":      {func(o *policy.Override) { o.Key = strings.Repeat("k", 8193) }, "Override.Key is 8193 bytes"},
		"short":    {func(o *policy.Override) { o.For = time.Second - 1 }, "from 1s to 87840h"},
		"long":     {func(o *policy.Override) { o.For = 3660*24*time.Hour + 1 }, "from 1s to 87840h"},
		"by":       {func(o *policy.Override) { o.By = strings.Repeat("b", 257) }, "Override.By is 257 bytes: must be at most 256 bytes"},
		"reason":   {func(o *policy.Override) { o.Reason = strings.Repeat("r", 1025) }, "Override.Reason is 1025 bytes"},
		"lines":    {func(o *policy.Override) { o.Reason = "a\nb" }, `Override.Reason is "a\nb": must be printable`},
		"utf8":     {func(o *policy.Override) { o.By = "\xff" }, "Override.By"},
		"both":     {func(o *policy.Override) { o.Unlimited = true }, "none, as it is Unlimited"},
		"neither":  {func(o *policy.Override) { o.Limits = nil }, "Override.Limits is 0 of them: must be 1"},
		"many":     {func(o *policy.Override) { o.Limits = append(o.Limits, o.Limits[0]) }, "Override.Limits is 2 of them: must be 1"},
		"name":     {func(o *policy.Override) { o.Limits[0].Name = "1m" }, `Override.Limits[0].Name is "1m": must be "1h"`},
		"rate":     {func(o *policy.Override) { o.Limits[0].Limit = weir.TokenBucket(weir.PerHour(-1), 1) }, "Override.Limits[0]: "},
		"kind":     {func(o *policy.Override) { o.Limits = one(weir.AtOnce(1)) }, "token-bucket"},
		"segments": {func(o *policy.Override) { o.Limits = one(weir.SlidingWindow(weir.PerHour(1), 65)) }, "Segments"},
	} {
		o := good()
		c.change(&o)
		err := e.Override(&o)
		var misuse *weir.OptionError
		if !errors.As(err, &misuse) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all := e.Overrides(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	o := good()
	if err := e.Override(&o); err != nil {
		t.Error(err)
	}
	_ = e.Close()
	if err := e.Override(&o); !errors.Is(err, policy.ErrEngineClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestOverrideThatFindsNoRoomChangesNothing has a policy of two limits, of which the second one has no room.
func TestOverrideThatFindsNoRoomChangesNothing(t *testing.T) {
	e := engine(t, login(func(p *policy.Policy) {
		p.MaxKeys = 1
		p.Limits = []policy.Limit{{Limit: perHour(5), Name: "a"}, {Limit: perHour(5), Name: "b"}}
	}))
	if k := e.Limiter("login", "b"); !k.Allow(ben) {
		t.Fatal("refused")
	}
	o := policy.Override{
		Policy: "login", Key: ann, For: time.Hour, Limits: []policy.Limit{{Limit: perHour(7)}, {Limit: perHour(7)}},
	}
	if err := e.Override(&o); !errors.Is(err, keyset.ErrTableFull) {
		t.Fatalf("%v", err)
	}
	if n := e.Limiter("login", "a").Stats().Overridden; n != 0 || len(e.Overrides()) != 0 {
		t.Errorf("%d keys of the first limit are overridden", n)
	}
	mustOverride(t, e, policy.Override{Policy: "login", Key: ann, For: time.Hour, Unlimited: true})
	wantTakes(t, e, ann, 10, 10)
}

// TestOverrideServesThoseWhoWait: a limit that holds from now on holds for those who wait already.
func TestOverrideServesThoseWhoWait(t *testing.T) {
	for _, unlimited := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := engine(t, login(func(p *policy.Policy) {
				p.QueueLimit, p.MaxWait = 100, time.Hour
				p.Limits = one(weir.TokenBucket(weir.Rate{Permits: 1, Period: 10 * time.Minute}, 2))
			}),
				func(o *policy.EngineOptions) { o.Clock = nil })
			wantTakes(t, e, ann, 2, 2)
			type answer struct {
				client  string
				allowed bool
				after   time.Duration
				parts   int
			}
			answers := make(chan answer)
			began := time.Now()
			for _, client := range []string{ann, ann, ann, ben, ben, ben} {
				go func() {
					var v policy.Verdict
					r := request(client)
					if err := verdictOf(e.Wait(context.Background(), &r, &v), &v); err != nil {
						t.Error(err)
					}
					answers <- answer{client, v.Allowed, time.Since(began), len(v.Parts)}
				}()
			}
			for range 2 {
				if a := <-answers; a.client != ben || !a.allowed || a.after != 0 {
					t.Errorf("%+v", a)
				}
			}
			time.Sleep(time.Minute)
			o := policy.Override{Policy: "login", Key: ann, Unlimited: unlimited, For: 10 * time.Second}
			if !unlimited {
				o.Limits = one(weir.TokenBucket(weir.PerSecond(1), 1))
			}
			mustOverride(t, e, o)
			for i := range 3 {
				a := <-answers
				want, parts := time.Minute, 0
				if !unlimited {
					want, parts = time.Minute+time.Duration(i+1)*time.Second, 1
				}
				// A tenth of a permit was back already.
				if a.client != ann || !a.allowed || a.after > want || a.after < want-time.Second/10 || a.parts != parts {
					t.Errorf("unlimited=%v: %+v, want it after %v", unlimited, a, want)
				}
			}
			if a := <-answers; a.client != ben || !a.allowed || a.after != 10*time.Minute {
				t.Errorf("%+v", a)
			}
			if n := e.Report().Policies[0].Queued; n != 0 {
				t.Errorf("%d permits are waited for", n)
			}
		})
	}
}

// TestOverrideEndsInTime is by the clock of the process.
func TestOverrideEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, login(), func(o *policy.EngineOptions) { o.Clock = nil })
		mustOverride(t, e, policy.Override{Policy: "login", Key: ann, Unlimited: true, For: time.Minute})
		time.Sleep(time.Minute - 1)
		wantTakes(t, e, ann, 9, 9)
		time.Sleep(1)
		wantTakes(t, e, ann, 9, 2)
		synctest.Wait()
		if n := e.Report().Policies[0].Overridden; n != 0 {
			t.Errorf("%d are left", n)
		}
		mustOverride(t, e, policy.Override{Policy: "login", Key: ann, Unlimited: true, For: time.Minute})
		if err := e.Close(); err != nil { // stops the timer, or the bubble would not end
			t.Error(err)
		}
	})
}
