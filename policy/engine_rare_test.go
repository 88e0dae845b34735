package policy_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/policy"
)

// keyedBy is a Text that a function answers.
type keyedBy func(r *policy.Request) (string, error)

func (f keyedBy) AppendTo(b []byte, r *policy.Request) ([]byte, error) {
	s, err := f(r)
	return append(b, s...), err
}
func (keyedBy) String() string { return "keyedBy" }

// whenever is a Condition that a function answers.
type whenever func() bool

func (f whenever) Holds(*policy.Request) (bool, error) { return f(), nil }
func (whenever) String() string                        { return "whenever" }

// TestEngineChargesParents: a check by name charges the parents as well, if they have no key.
func TestEngineChargesParents(t *testing.T) {
	e := engine(t, &policy.Set{Policies: []policy.Policy{
		{Name: "key", Limits: one(perHour(4)), Key: policy.HeaderText("X-Key"), Parent: "team"},
		{Name: "team", Limits: one(perHour(6)), Key: policy.HeaderText("X-Team"), Parent: "all"},
		{Name: "all", Limits: one(perHour(5))},
	}})
	granted := 0
	for _, key := range []string{"a", "a", "b", "b", "c", "c"} {
		charges, _ := e.Charges(nil, "key", key, 1)
		if l, b := keyset.TryAcquireAll(nil, charges...); l[b].Allowed() {
			granted++
		}
	}
	if granted != 5 {
		t.Errorf("%d granted, want the 5 of all", granted)
	}
}

// TestEngineParentCostsWhatItsChildCosts, unless it has a cost of its own: or children could exceed it.
func TestEngineParentCostsWhatItsChildCosts(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{
			{Name: "small", Limits: one(perHour(100)), Parent: "all"},
			{Name: "tokens", Limits: one(perHour(100)), Parent: "all"},
			{Name: "all", Limits: one(perHour(100)), Parent: "requests"},
			{Name: "requests", Limits: one(perHour(100)), Cost: policy.FixedNumber(1)},
		},
		Rules: []policy.Rule{{Name: "all", Limits: []policy.Use{
			{Policy: "small"}, {Policy: "tokens", Cost: policy.FixedNumber(40)},
		}}},
	})
	for range 3 {
		take(e, policy.Request{})
	}
	wantLeft(t, e, "all", "", 20)
	wantLeft(t, e, "requests", "", 98)
}

// TestChangesOfNamesWithDots: what becomes of a state is told whatever the names are.
func TestChangesOfNamesWithDots(t *testing.T) {
	set := func(first, second weir.Limit) *policy.Set {
		return &policy.Set{Policies: []policy.Policy{
			{Name: "api.v1", Limits: []policy.Limit{{Name: "1.5s", Limit: first}}},
			{Name: "api", Limits: []policy.Limit{{Name: "a.b.c", Limit: second}}},
		}}
	}
	window := weir.FixedWindow(weir.PerHour(1))
	e := engine(t, set(perHour(1), perHour(1)))
	got := map[string]string{}
	for _, c := range load(t, e, set(perHour(2), window)) {
		got[c.Path] = c.State
	}
	if len(got) != 2 || got["policies.api.v1.limits.1.5s"] != "kept" || got["policies.api.limits.a.b.c"] != "begins anew" {
		t.Errorf("%v", got)
	}
	got = map[string]string{}
	for _, c := range load(t, e, &policy.Set{}) {
		got[c.Path] = c.State
	}
	if got["policies.api.v1"] != "forgotten" || got["policies.api.v1.limits.1.5s"] != "forgotten" {
		t.Errorf("%v", got)
	}
}

func lockoutSet(maxKeys int, key policy.Text) *policy.Set {
	return &policy.Set{
		Policies: []policy.Policy{{
			Name: "p", Limits: one(perHour(1)), Key: key, MaxKeys: maxKeys, AdmitWhenFull: true,
			Lockout: &policy.Lockout{Refusals: 2, Within: time.Minute, For: time.Hour},
		}},
		Rules: []policy.Rule{{Name: "all", Limits: uses("p")}},
	}
}

// TestReloadBoundsLockouts: no more keys are locked out than MaxKeys that the set in force says.
func TestReloadBoundsLockouts(t *testing.T) {
	e := engine(t, lockoutSet(10, policy.MethodText()))
	load(t, e, lockoutSet(1000, policy.MethodText()))
	for i := range 100 {
		for range 3 {
			take(e, policy.Request{Method: fmt.Sprint("M", i)})
		}
	}
	if n := e.Report().Policies[0].Locked; n != 100 {
		t.Errorf("%d keys are locked out, want 100", n)
	}
}

// hopClock is a Clock that shows what it is told.
type hopClock struct {
	weir.Clock

	at int64
}

func (c *hopClock) Now() int64 { return c.at }

// TestEngineLockoutBeforeZero: a clock may begin anywhere.
func TestEngineLockoutBeforeZero(t *testing.T) {
	e := engine(t, lockoutSet(0, nil), func(o *policy.EngineOptions) { o.Clock = &hopClock{at: -int64(time.Hour)} })
	for i, want := range []weir.Reason{weir.ReasonNone, weir.ReasonLimited, weir.ReasonHardLockout} {
		if d := take(e, policy.Request{}).Decision(); d.Reason != want {
			t.Errorf("request %d: %+v, want %v", i, d, want)
		}
		if n := e.Report().Policies[0].Locked; (n == 1) != (want == weir.ReasonHardLockout) {
			t.Errorf("request %d: %d keys are locked out", i, n)
		}
	}
}

// TestEngineLockoutWhenTheClockGoesBack: it lasts no longer.
func TestEngineLockoutWhenTheClockGoesBack(t *testing.T) {
	clock := &hopClock{at: int64(1000 * time.Hour)}
	e := engine(t, lockoutSet(0, nil), func(o *policy.EngineOptions) { o.Clock = clock })
	for range 3 {
		take(e, policy.Request{})
	}
	clock.at -= int64(500 * time.Hour)
	if d := take(e, policy.Request{}).Decision(); d.Reason != weir.ReasonHardLockout || d.RetryAfter > time.Hour {
		t.Errorf("%+v", d)
	}
	clock.at += int64(time.Hour)
	if d := take(e, policy.Request{}).Decision(); d.Reason == weir.ReasonHardLockout {
		t.Errorf("%+v", d)
	}
}

// TestEngineLockoutOfThoseWhoWait: a refusal counts as well if the caller was ready to wait.
func TestEngineLockoutOfThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, maxWait := range []time.Duration{time.Second, 0} {
			set := lockoutSet(0, nil)
			set.Policies[0].QueueLimit, set.Policies[0].MaxWait = 1, maxWait
			if maxWait == 0 {
				set.Policies[0].Limits = one(weir.AtOnce(1)) // for how long a request waits is not known
			}
			e := engine(t, set, func(o *policy.EngineOptions) { o.Clock = nil })
			v := new(policy.Verdict)
			for i, want := range []weir.Reason{weir.ReasonNone, weir.ReasonDeadline, weir.ReasonHardLockout, weir.ReasonHardLockout} {
				if err := verdictOf(e.Wait(t.Context(), &policy.Request{}, v), v); err != nil || v.Decision().Reason != want {
					t.Errorf("request %d: %+v, %v, want %v", i, v.Decision(), err, want)
				}
			}
		}
	})
}

// TestEngineWaitOfACanceledCaller: it gets an error, also where no call would have to wait, and where permits are there.
func TestEngineWaitOfACanceledCaller(t *testing.T) {
	for _, queue := range []int64{0, 10} {
		e := engine(t, &policy.Set{
			Policies: []policy.Policy{{Name: "p", Limits: one(perHour(10)), QueueLimit: queue}},
			Rules:    []policy.Rule{{Name: "all", Limits: uses("p")}},
		})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		v := new(policy.Verdict)
		if err := verdictOf(e.Wait(ctx, &policy.Request{}, v), v); !errors.Is(err, context.Canceled) || v.Allowed {
			t.Errorf("queue %d: %+v, %v", queue, v.Decision(), err)
		}
		if d := v.Decision(); d.Allowed || d.Reason != weir.ReasonCanceled {
			t.Errorf("queue %d: %+v", queue, d)
		}
		wantLeft(t, e, "p", "", 10)
		if r := e.Report(); r.Canceled != 1 || r.Refused != 0 {
			t.Errorf("queue %d: %+v", queue, r)
		}
	}
}

// TestEngineRefusedRequestHoldsNothing of a candidate either, which would have allowed it.
func TestEngineRefusedRequestHoldsNothing(t *testing.T) {
	inUse := func(n int64) []policy.Limit { return one(weir.AtOnce(n)) }
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{Name: "p", Limits: inUse(1), Candidate: inUse(2)}},
		Rules:    []policy.Rule{{Name: "all", Limits: uses("p")}},
	})
	first := take(e, policy.Request{})
	for range 3 {
		take(e, policy.Request{}) // is refused, and so never served
	}
	if d := e.Report().Policies[0].Difference; d.NewlyAdmitted != 3 {
		t.Errorf("%+v", d)
	}
	first.Release()
}

// TestReloadKeepsCountsOfRulesMeanwhile: a request that is being decided while the set is replaced counts.
func TestReloadKeepsCountsOfRulesMeanwhile(t *testing.T) {
	asked, reloaded := make(chan struct{}), make(chan struct{})
	set := func(match policy.Match) *policy.Set {
		return &policy.Set{
			Policies: []policy.Policy{{Name: "p", Limits: one(perHour(10))}},
			Rules: []policy.Rule{{Name: "r", Match: match, Limits: uses("p"), When: whenever(func() bool {
				asked <- struct{}{}
				<-reloaded
				return true
			})}},
		}
	}
	e := engine(t, set(policy.Match{Methods: []string{"GET"}}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		take(e, policy.Request{Method: "GET"})
	}()
	<-asked
	load(t, e, set(policy.Match{}))
	close(reloaded)
	<-done
	if n := e.Report().Rules[0].Matched; n != 1 {
		t.Errorf("the rule has matched %d times", n)
	}
}

// TestEngineKeyThatCannotBeToldIsNoKey: it is not that of another rule, which is nothing.
func TestEngineKeyThatCannotBeToldIsNoKey(t *testing.T) {
	unknown := keyedBy(func(*policy.Request) (string, error) { return "", errors.New("unknown") })
	for _, swap := range []bool{false, true} {
		u := []policy.Use{{Policy: "p", Key: unknown}, {Policy: "p"}}
		if swap {
			u[0], u[1] = u[1], u[0]
		}
		e := engine(t, &policy.Set{
			Policies: []policy.Policy{{Name: "p", Limits: one(perHour(10)), Fail: policy.FailOpen}},
			Rules:    []policy.Rule{{Name: "all", Limits: u}},
		})
		take(e, policy.Request{})
		wantLeft(t, e, "p", "", 9)
		if n := e.Report().Policies[0].Failed; n != 1 {
			t.Errorf("%d failed", n)
		}
	}
}

// TestEngineHasASetOfItsOwn: a later change of a set that was loaded changes nothing.
func TestEngineHasASetOfItsOwn(t *testing.T) {
	set := lockoutSet(0, nil)
	set.Policies = append(set.Policies, policy.Policy{Name: "q", Limits: one(perHour(10))})
	set.Rules[0].Match.Methods = []string{"GET"}
	e := engine(t, set)
	set.Policies[0].Limits[0].Limit = limits.WithPermits(set.Policies[0].Limits[0].Limit, 100)
	set.Policies[0].Lockout.Refusals = 1
	set.Rules[0].Limits[0] = policy.Use{Policy: "q", Cost: policy.FixedNumber(5)}
	set.Rules[0].Match.Methods[0] = "PUT"
	for i, want := range []weir.Reason{weir.ReasonNone, weir.ReasonLimited, weir.ReasonHardLockout} {
		if d := take(e, policy.Request{Method: "GET"}).Decision(); d.Reason != want {
			t.Errorf("request %d: %+v, want %v", i, d, want)
		}
	}
	if m := e.Set().Rules[0]; m.Match.Methods[0] != "GET" || m.Limits[0].Policy != "p" {
		t.Errorf("%+v", m)
	}
}

// TestReloadEndsTheWaitForALimitThatIsGone: without it the request is allowed.
func TestReloadEndsTheWaitForALimitThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, &policy.Set{
			Policies: []policy.Policy{{
				Name: "p", Limits: one(weir.AtOnce(1)), QueueLimit: 10, MaxWait: time.Hour,
			}},
			Rules: []policy.Rule{{Name: "all", Limits: uses("p")}},
		}, func(o *policy.EngineOptions) { o.Clock = nil })
		take(e, policy.Request{})
		start, v, done := time.Now(), new(policy.Verdict), make(chan error)
		go func() { done <- verdictOf(e.Wait(t.Context(), &policy.Request{}, v), v) }()
		synctest.Wait()
		load(t, e, &policy.Set{})
		err := <-done
		if d := v.Decision(); err != nil || !v.Allowed || len(v.Parts) != 0 || time.Since(start) != 0 {
			t.Errorf("after %v: %+v, %v", time.Since(start), d, err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}
