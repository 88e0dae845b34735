package policy_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// watched is a store that counts what it is asked, and fails if it is told to.
type watched struct {
	store.Home

	asked    atomic.Int64
	fail     func() error // to be asked; nil: it works
	failEnds error        // to settle
}

func (w *watched) failure() error {
	w.asked.Add(1)
	if w.fail == nil {
		return nil
	}
	return w.fail()
}

func (w *watched) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if ask.Mode != store.ModeRefund && ask.Mode != store.ModeLend && ask.Mode != store.ModeReset && ask.States == nil {
		if err := w.failure(); err != nil {
			return store.Hold{}, err
		}
	}
	return w.Home.Do(ctx, ask, charges, decisions)
}

func (w *watched) Settle(ctx context.Context, h store.Hold, actual []int64) error {
	if w.failEnds != nil {
		return w.failEnds
	}
	return w.Home.Settle(ctx, h, actual)
}

// memory is a store in memory whose calls are counted.
func memory(t testing.TB, clock weir.Clock) *watched {
	t.Helper()
	m, err := store.NewMemory(store.MemoryOptions{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	return &watched{Home: m}
}

// over returns an engine over a store.
func over(t testing.TB, s store.Home, clock weir.Clock, set *policy.Set) *policy.Engine {
	t.Helper()
	return engine(t, set, func(o *policy.EngineOptions) { o.Store, o.Clock = s, clock })
}

// shared makes policies shared.
func shared(all ...policy.Policy) []policy.Policy {
	for i := range all {
		all[i].Consistency = policy.ConsistencyCoherent
	}
	return all
}

// wantStored compares what the store has left of a key.
func wantStored(t testing.TB, e *policy.Engine, name, limit, key string, want int64) {
	t.Helper()
	s, err := e.Inspect(t.Context(), name, limit, key)
	if err != nil || s.Decision.Remaining != want {
		t.Errorf("%s %s has %d permits of %q left, want %d: %v", name, limit, s.Decision.Remaining, key, want, err)
	}
}

// TestSharedEnginesAreOneLimiter, in every way to ask for permits of every algorithm.
func TestSharedEnginesAreOneLimiter(t *testing.T) {
	enginesAreOneLimiter(t, shared, func(t *testing.T, clock weir.Clock) func(*policy.Set) *policy.Engine {
		s := memory(t, clock)
		return func(set *policy.Set) *policy.Engine { return over(t, s, clock, set) }
	})
}

// TestDurableEnginesAreOneLimiter is the same for what an owner keeps, beside a store.
func TestDurableEnginesAreOneLimiter(t *testing.T) {
	enginesAreOneLimiter(t, durably, func(t *testing.T, clock weir.Clock) func(*policy.Set) *policy.Engine {
		o, s := newOwner(t, clock), memory(t, clock)
		return func(set *policy.Set) *policy.Engine { return ownedBy(t, o, s, clock, set) }
	})
}

func enginesAreOneLimiter(
	t *testing.T, kept func(...policy.Policy) []policy.Policy, open func(*testing.T, weir.Clock) func(*policy.Set) *policy.Engine,
) {
	t.Helper()
	const n = 6
	hour := weir.Rate{Permits: n, Period: time.Hour}
	request := policy.Request{Method: "GET"}
	ways := map[string]func(ctx context.Context, e *policy.Engine, v *policy.Verdict) error{
		"take":    func(_ context.Context, e *policy.Engine, v *policy.Verdict) error { e.Take(&request, v); return nil },
		"reserve": func(_ context.Context, e *policy.Engine, v *policy.Verdict) error { e.Reserve(&request, v); return nil },
		"wait": func(ctx context.Context, e *policy.Engine, v *policy.Verdict) error {
			return verdictOf(e.Wait(ctx, &request, v), v)
		},
		"wait reserve": func(ctx context.Context, e *policy.Engine, v *policy.Verdict) error {
			return verdictOf(e.WaitReserve(ctx, &request, v), v)
		},
		"take key": func(ctx context.Context, e *policy.Engine, v *policy.Verdict) error {
			takeKey(ctx, e, "p", "GET", 1, v)
			return nil
		},
		"reserve key": func(ctx context.Context, e *policy.Engine, v *policy.Verdict) error {
			reserveKey(ctx, e, "p", "GET", 1, v)
			return nil
		},
	}
	for _, l := range []weir.Limit{
		perHour(n),
		weir.FixedWindow(hour),
		weir.SlidingWindow(hour, 0),
		weir.SlidingCounter(hour),
		weir.AtOnce(n),
		weir.CalendarWindow(n, algo.Calendar{Unit: algo.CalendarMonth}),
	} {
		for name, ask := range ways {
			t.Run(l.Algorithm().String()+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { // in which no window of an owner, who goes by the time, ends
					clock := manualclock.New(int64(time.Hour))
					set := &policy.Set{
						Policies: kept(policy.Policy{Name: "p", Limits: one(l), Key: policy.MethodText()}),
						Rules:    []policy.Rule{{Name: "all", Limits: uses("p")}},
					}
					with := open(t, clock)
					engines := []*policy.Engine{with(set), with(set)}
					var held []*policy.Verdict
					for i := range n + 4 {
						v := new(policy.Verdict)
						e := engines[i%2]
						if err := ask(t.Context(), e, v); err != nil {
							t.Fatal(err)
						}
						d := v.Decision()
						if v.Allowed != (i < n) || d.Policy != "p" || d.Limit != n || len(v.Parts) != 1 || string(v.Parts[0].Key) != "GET" {
							t.Fatalf("%d: %+v", i, v)
						}
						if v.Allowed && d.Remaining != int64(n-1-i) || !v.Allowed && d.Reason != weir.ReasonLimited {
							t.Errorf("%d: %+v", i, d)
						}
						for _, peek := range []bool{true, false} {
							var p policy.Verdict
							if e.Peek(&request, &p); !peek {
								peekKey(t.Context(), e, "p", "GET", 1, &p)
							}
							if p.Allowed != (i < n-1) || p.Decision().Remaining != max(int64(n-1-i), 0) {
								t.Errorf("%d: peek: %+v", i, p.Decision())
							}
						}
						x := e.Explain(&request)
						if x.Allowed != (i < n-1) || x.Limits[0].Before != max(int64(n-1-i), 0) || x.Binding != 0 ||
							x.Limits[0].Consistency != set.Policies[0].Consistency || x.Limits[0].Durability != set.Policies[0].Durability || x.Limits[0].Holds != l.String() {
							t.Errorf("%d: explained: %+v", i, x)
						}
						held = append(held, v)
					}
					held[0].Cancel()
					back := int64(0)
					if l.Algorithm() == weir.AlgorithmConcurrency || strings.Contains(name, "reserve") {
						back = 1
					}
					wantStored(t, engines[1], "p", "", "GET", back)
					for _, v := range held {
						v.Release()
					}
					if l.Algorithm() == weir.AlgorithmConcurrency {
						back = n
					}
					wantStored(t, engines[0], "p", "", "GET", back)
					wantStored(t, engines[0], "p", "", "PUT", n)
					report := engines[0].Report()
					if p := report.Policies[0]; p.Allowed != n/2 || p.Refused != 2 || p.Keys != 0 || p.Expired+p.Unsettled+p.Unavailable != 0 ||
						p.Consistency != set.Policies[0].Consistency || p.Durability != set.Policies[0].Durability {
						t.Errorf("%+v", p)
					}
					if err := engines[0].Reset(t.Context(), "p", "GET"); err != nil {
						t.Error(err)
					}
					wantStored(t, engines[1], "p", "", "GET", n)
				})
			})
		}
	}
}

// TestSharedReservationsCostWhatTheyCost: less is given back, more is charged, in the store and in this process.
func TestSharedReservationsCostWhatTheyCost(t *testing.T) {
	clock := manualclock.New(1)
	s := memory(t, clock)
	local := policy.Policy{Name: "local", Limits: one(perHour(100))}
	e := over(t, s, clock, &policy.Set{
		Policies: append(shared(
			policy.Policy{Name: "a", Limits: []policy.Limit{
				{Limit: perHour(100)}, {Name: "use", Limit: weir.AtOnce(50)},
			}},
			policy.Policy{Name: "b", Limits: one(perHour(200))},
		), local),
		Rules: []policy.Rule{{Name: "all", Limits: uses("a", "local", "b")}},
	})
	want := func(a, use, local, b int64) {
		t.Helper()
		wantStored(t, e, "a", "1h", "", a)
		wantStored(t, e, "a", "use", "", use)
		wantStored(t, e, "b", "", "", b)
		wantLeft(t, e, "local", "", local)
	}
	v := new(policy.Verdict)
	reserve := func() {
		t.Helper()
		if e.Reserve(&policy.Request{Cost: 10}, v); !v.Allowed || len(v.Parts) != 4 {
			t.Fatalf("%+v", v)
		}
	}
	reserve()
	want(90, 40, 90, 190)
	var told []string
	v.Commit(func(p *policy.Part) int64 {
		told = append(told, fmt.Sprintf("%s/%d %d", p.Policy.Name, p.Limit, p.Cost))
		return map[string]int64{"a": 3, "b": 15, "local": 4}[p.Policy.Name]
	})
	if got := strings.Join(told, ", "); got != "a/0 10, a/1 10, local/0 10, b/0 10" {
		t.Error(got)
	}
	want(97, 50, 96, 185)
	reserve()
	v.Commit(func(*policy.Part) int64 { return -1 })
	want(87, 50, 86, 175)
	reserve()
	v.Release()
	want(77, 50, 76, 165)
	reserve()
	v.Cancel()
	v.Release()
	v.Cancel()
	v.Commit(func(*policy.Part) int64 { t.Error("a settled verdict is told again"); return 0 })
	want(77, 50, 76, 165)
	if e.Take(&policy.Request{Cost: 10}, v); !v.Allowed {
		t.Fatalf("%+v", v)
	}
	want(67, 40, 66, 155)
	v.Cancel() // what was taken and not reserved stays taken
	want(67, 50, 66, 155)
	if e.Take(&policy.Request{Cost: 10}, v); !v.Allowed {
		t.Fatalf("%+v", v)
	}
	v.Commit(func(*policy.Part) int64 { return 1 })
	want(57, 50, 56, 145)
	if p := e.Report().Policies; p[0].Expired+p[0].Unsettled+p[1].Expired+p[1].Unsettled != 0 {
		t.Errorf("%+v", p)
	}
}

// TestSharedReservationThatExpired gives everything back by itself, and its end is counted.
func TestSharedReservationThatExpired(t *testing.T) {
	clock := manualclock.New(1)
	s := memory(t, clock)
	e := over(t, s, clock, &policy.Set{
		Policies: shared(
			policy.Policy{Name: "p", Limits: one(weir.AtOnce(2)), Hold: 10 * time.Second},
			policy.Policy{Name: "q", Limits: one(perHour(10)), Hold: 20 * time.Second},
		),
		Rules: []policy.Rule{{Name: "all", Limits: uses("p", "q")}},
	})
	v, other := take(e, policy.Request{}), take(e, policy.Request{})
	clock.Advance(19 * time.Second) // the longest counts
	wantStored(t, e, "p", "", "", 0)
	other.Release()
	if other.Expired() {
		t.Error("what was released in time has expired")
	}
	clock.Advance(2 * time.Second)
	wantStored(t, e, "p", "", "", 2)
	wantStored(t, e, "q", "", "", 9)
	v.Release()
	v.Release()
	if !v.Expired() {
		t.Error("nothing tells that it has expired")
	}
	wantStored(t, e, "p", "", "", 2)
	for _, p := range e.Report().Policies {
		if p.Expired != 1 || p.Unsettled != 0 || p.Allowed != 2 {
			t.Errorf("%+v", p)
		}
	}
	again := take(e, policy.Request{})
	s.failEnds = store.ErrUnavailable
	again.Release()
	for _, p := range e.Report().Policies {
		if p.Expired != 1 || p.Unsettled != 1 {
			t.Errorf("%+v", p)
		}
	}
}

// TestSharedTiersKeysParentsAndCosts hold in a store as they do in this process.
func TestSharedTiersKeysParentsAndCosts(t *testing.T) {
	clock := manualclock.New(1)
	s := memory(t, clock)
	set := &policy.Set{
		Policies: shared(
			policy.Policy{
				Name: "child", Key: policy.MethodText(), Limits: one(perHour(10)), Parent: "parent", TierBy: policy.AttributeText("tier"),
				Tiers: map[string][]policy.Limit{"gold": one(perHour(20))}, Keys: map[string][]policy.Limit{"PUT": one(perHour(3))},
			},
			policy.Policy{Name: "parent", Limits: one(perHour(18))},
		),
		Rules: []policy.Rule{{Name: "all", Limits: []policy.Use{{Policy: "child", Cost: policy.FixedNumber(2)}}}},
	}
	e, other := over(t, s, clock, set), over(t, s, clock, set)
	v := new(policy.Verdict)
	for i, c := range []struct {
		method, tier  string
		allowed       bool
		limit, left   int64
		parent        int64
		retry         string
		tierExplained string
	}{
		{"GET", "", true, 10, 8, 16, "", ""},
		{"GET", "gold", true, 20, 6, 14, "", "gold"},
		{"PUT", "gold", true, 3, 1, 12, "", ""},
		{"PUT", "", false, 3, 1, 12, "1h0m0s", ""},
		{"GET", "other", true, 10, 4, 10, "", ""},
		{"DELETE", "gold", true, 20, 18, 8, "", "gold"},
	} {
		r := &policy.Request{Method: c.method, Attributes: map[string]string{"tier": c.tier}}
		x := e.Explain(r)
		if x.Allowed != c.allowed || x.Limits[0].Tier != c.tierExplained || x.Limits[0].Decision.Limit != c.limit || x.Limits[1].Cost != 2 {
			t.Errorf("%d: explained %+v", i, x)
		}
		other.Take(r, v)
		d := v.Parts[0].Decision
		if v.Allowed != c.allowed || d.Limit != c.limit || d.Remaining != c.left || v.Parts[1].Decision.Remaining != c.parent {
			t.Errorf("%d: %+v", i, v)
		}
		if c.retry != "" && (d.RetryAfter.String() != c.retry || v.Binding != 0) {
			t.Errorf("%d: %+v", i, d)
		}
	}
	for _, c := range []struct {
		key         string
		limit, left int64
	}{{"PUT", 3, 1}, {"GET", 10, 4}, {"POST", 10, 10}} {
		var got policy.Verdict
		if !peekKey(t.Context(), e, "child", c.key, 0, &got) || len(got.Parts) != 2 || got.Parts[0].Decision.Limit != c.limit ||
			got.Parts[0].Decision.Remaining != c.left || got.Parts[1].Decision.Remaining != 8 {
			t.Errorf("%q: %+v", c.key, got)
		}
		wantStored(t, e, "child", "", c.key, c.left)
	}
}

// TestSharedShadowAndOff: a policy in shadow counts in the store and refuses nothing, one that is off is not asked.
func TestSharedShadowAndOff(t *testing.T) {
	clock := manualclock.New(1)
	s := memory(t, clock)
	set := &policy.Set{
		Policies: shared(
			policy.Policy{Name: "shadow", Limits: one(perHour(2)), Mode: policy.ModeShadow},
			policy.Policy{
				Name: "use", Limits: one(weir.AtOnce(1)), Mode: policy.ModeShadow,
			},
			policy.Policy{Name: "off", Limits: one(perHour(1)), Mode: policy.ModeOff},
		),
		Rules: []policy.Rule{{Name: "all", Limits: uses("shadow", "use", "off")}},
	}
	e, other := over(t, s, clock, set), over(t, s, clock, set)
	first := take(e, policy.Request{})
	for range 3 {
		if v := take(other, policy.Request{}); !v.Allowed || len(v.Parts) != 0 {
			t.Errorf("%+v", v)
		}
	}
	x := e.Explain(&policy.Request{})
	if len(x.Limits) != 2 || x.Limits[0].Role != "shadow" || x.Limits[0].Decision.Allowed || x.Limits[1].Before != 0 || !x.Allowed {
		t.Errorf("%+v", x)
	}
	r := other.Report().Policies
	if d := r[0].Difference; r[0].Allowed != 1 || r[0].Refused != 2 || d == nil || d.Requests != 3 || d.NewlyRefused != 2 {
		t.Errorf("%+v", r[0])
	}
	if d := r[1].Difference; r[1].Refused != 3 || d == nil || d.NewlyRefused != 3 {
		t.Errorf("%+v", r[1])
	}
	wantStored(t, e, "use", "", "", 0)
	first.Release()
	wantStored(t, e, "use", "", "", 1)
	wantStored(t, e, "off", "", "", 1)
	s.fail = func() error { return store.ErrUnavailable }
	s.asked.Store(0)
	if v := take(e, policy.Request{}); !v.Allowed || s.asked.Load() != 1 {
		t.Errorf("the store failed %d times: %+v", s.asked.Load(), v)
	}
	if r := e.Report().Policies; r[0].Unavailable != 1 || r[1].Unavailable != 0 || r[0].Refused != 0 {
		t.Errorf("%+v", r)
	}
}

// TestSharedLockoutIsOfTheProcess, and a key that is locked out does not ask the store.
func TestSharedLockoutIsOfTheProcess(t *testing.T) {
	clock := manualclock.New(1)
	s := memory(t, clock)
	set := &policy.Set{
		Policies: shared(policy.Policy{
			Name: "p", Limits: one(perHour(1)), Lockout: &policy.Lockout{Refusals: 2, Within: time.Minute, For: time.Hour},
		}),
		Rules: []policy.Rule{{Name: "all", Limits: uses("p")}},
	}
	e, other := over(t, s, clock, set), over(t, s, clock, set)
	for i, want := range []weir.Reason{weir.ReasonNone, weir.ReasonLimited, weir.ReasonHardLockout} {
		if v := take(e, policy.Request{}); v.Decision().Reason != want {
			t.Errorf("%d: %+v", i, v.Decision())
		}
	}
	s.asked.Store(0)
	v := take(e, policy.Request{})
	if d := v.Decision(); d.Reason != weir.ReasonHardLockout || d.Limit != 1 || s.asked.Load() != 0 || !v.Parts[0].Unasked {
		t.Errorf("asked %d times: %+v", s.asked.Load(), v)
	}
	if d := e.Explain(&policy.Request{}).Limits[0].Decision; d.Reason != weir.ReasonHardLockout || d.Remaining != 0 {
		t.Errorf("%+v", d)
	}
	if v := take(other, policy.Request{}); v.Decision().Reason != weir.ReasonLimited {
		t.Errorf("%+v", v.Decision())
	}
	if !e.Unlock("p", "") {
		t.Error("it is not locked out")
	}
}

// TestSharedCandidateIsOfTheProcess: it is counted beside the limits in the store.
func TestSharedCandidateIsOfTheProcess(t *testing.T) {
	clock := manualclock.New(1)
	e := over(t, memory(t, clock), clock, &policy.Set{
		Policies: shared(policy.Policy{Name: "p", Limits: one(perHour(3)), Candidate: one(perHour(2))}),
		Rules:    []policy.Rule{{Name: "all", Limits: uses("p")}},
	})
	for range 4 {
		take(e, policy.Request{})
	}
	if d := e.Report().Policies[0].Difference; d == nil || d.Requests != 4 || d.NewlyRefused != 1 || d.NewlyAdmitted != 0 {
		t.Errorf("%+v", d)
	}
}
