package policy_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

func load(t testing.TB, e *policy.Engine, set *policy.Set) []policy.Change {
	t.Helper()
	changes, err := e.Load(set)
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

func setOf(l weir.Limit) *policy.Set {
	return &policy.Set{
		Policies: []policy.Policy{{Name: "p", Limits: one(l)}},
		Rules:    []policy.Rule{{Name: "all", Limits: uses("p")}},
	}
}

// TestReloadMintsNothing: what is available stays so, up to the new limit, and is never multiplied.
func TestReloadMintsNothing(t *testing.T) {
	e := engine(t, setOf(perHour(100)))
	for range 40 {
		take(e, policy.Request{})
	}
	for _, c := range []struct{ burst, want int64 }{{80, 60}, {1000, 60}, {50, 50}, {100, 50}} {
		load(t, e, setOf(perHour(c.burst)))
		wantLeft(t, e, "p", "", c.want)
	}
	// Another rate and another name of the window: the state goes on.
	load(t, e, setOf(weir.TokenBucket(weir.Rate{Permits: 24, Period: 24 * time.Hour}, 100)))
	wantLeft(t, e, "p", "", 50)
}

// TestReloadOfARateHoldsFromNowOn: the new rate holds from the reload on, also for keys that are not used.
func TestReloadOfARateHoldsFromNowOn(t *testing.T) {
	clock := manualclock.New(1)
	e := engine(t, setOf(weir.TokenBucket(weir.PerSecond(10), 100)), func(o *policy.EngineOptions) { o.Clock = clock })
	for range 100 {
		take(e, policy.Request{})
	}
	clock.Advance(2 * time.Second)
	load(t, e, setOf(perHour(100)))
	clock.Advance(8 * time.Second)
	wantLeft(t, e, "p", "", 20)
	load(t, e, setOf(weir.TokenBucket(weir.PerSecond(30), 100)))
	clock.Advance(time.Second)
	wantLeft(t, e, "p", "", 50)
}

func TestReloadOfAnotherAlgorithmBeginsAnew(t *testing.T) {
	e := engine(t, setOf(perHour(10)))
	take(e, policy.Request{})
	changes := load(t, e, setOf(weir.FixedWindow(weir.Rate{Permits: 10, Period: time.Hour})))
	wantLeft(t, e, "p", "", 10)
	want := []policy.Change{{
		Path: "policies.p.limits.1h", Old: "1/h, burst 10", New: "fixed-window 10/h", State: "begins anew",
	}}
	if !slices.Equal(changes, want) {
		t.Errorf("%+v, want %+v", changes, want)
	}
}

func TestReloadTellsWhatHasChanged(t *testing.T) {
	old := &policy.Set{
		Policies: []policy.Policy{
			{Name: "p", Limits: one(perHour(10)), Key: policy.ClientIP()},
			{Name: "gone", Limits: one(perHour(10))},
		},
		Rules: []policy.Rule{
			{Name: "a", Match: policy.Match{Methods: []string{"GET"}}, Limits: uses("p")},
			{Name: "b", Limits: uses("gone")},
		},
	}
	now := &policy.Set{
		Policies: []policy.Policy{
			{Name: "p", Limits: one(perHour(20)), Key: policy.ClientIP(), Mode: policy.ModeShadow},
			{Name: "new", Limits: one(perHour(1))},
		},
		Rules: []policy.Rule{
			{Name: "a", Match: policy.Match{Methods: []string{"GET", "PUT"}}, Limits: uses("p", "new"), Final: true},
		},
	}
	var got []string
	for _, c := range load(t, engine(t, old), now) {
		got = append(got, fmt.Sprintf("%s: %s -> %s (%s)", c.Path, c.Old, c.New, c.State))
	}
	want := []string{
		"policies.gone: policy ->  (forgotten)",
		"policies.gone.limits.1h: 1/h, burst 10 ->  (forgotten)",
		"policies.new:  -> policy ()",
		"policies.new.limits.1h:  -> 1/h, burst 1 ()",
		"policies.p.limits.1h: 1/h, burst 10 -> 1/h, burst 20 (kept)",
		"policies.p.mode:  -> shadow ()",
		"rules.a.final:  -> true ()",
		"rules.a.limits: p -> p; new ()",
		"rules.a.match.method: GET -> GET, PUT ()",
		"rules.b: rule 2 ->  ()",
		"rules.b.limits: gone ->  ()",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if changes := load(t, engine(t, old), old); len(changes) != 0 {
		t.Errorf("the same set: %+v", changes)
	}
}

func TestReloadOfAnInvalidSetKeepsTheOldOne(t *testing.T) {
	e := engine(t, setOf(perHour(10)))
	take(e, policy.Request{})
	before := e.Report()
	if before.Version != 1 || before.LastError != "" {
		t.Errorf("%+v", before)
	}
	wrong := setOf(weir.Limit{})
	if _, err := e.Load(wrong); err == nil {
		t.Fatal("no error")
	}
	if r := e.Report(); r.Version != 1 || r.LastError == "" || r.LastAttempt.Before(before.LastAttempt) {
		t.Errorf("%+v", r)
	}
	wantLeft(t, e, "p", "", 9)
	load(t, e, setOf(perHour(10)))
	if r := e.Report(); r.Version != 2 || r.LastError != "" || r.Policies[0].Allowed != 1 || r.Rules[0].Matched != 1 {
		t.Errorf("%+v", r)
	}
}

func TestReloadKeepsLockoutsAndDifferences(t *testing.T) {
	set := func(lockout *policy.Lockout, candidate []policy.Limit) *policy.Set {
		return &policy.Set{
			Policies: []policy.Policy{{Name: "p", Limits: one(perHour(1)), Lockout: lockout, Candidate: candidate}},
			Rules:    []policy.Rule{{Name: "all", Limits: uses("p")}},
		}
	}
	lockout := &policy.Lockout{Refusals: 1, Within: time.Second, For: time.Minute}
	e := engine(t, set(lockout, one(perHour(5))))
	take(e, policy.Request{})
	take(e, policy.Request{})
	load(t, e, set(&policy.Lockout{Refusals: 1, Within: time.Second, For: time.Hour}, one(perHour(5))))
	if d := take(e, policy.Request{}).Decision(); d.Reason != weir.ReasonHardLockout {
		t.Errorf("%+v", d)
	}
	if d := e.Report().Policies[0].Difference; d == nil || d.Requests != 2 || d.NewlyAdmitted != 1 {
		t.Errorf("%+v", d)
	}
	load(t, e, set(nil, nil))
	if d := take(e, policy.Request{}).Decision(); d.Reason != weir.ReasonLimited {
		t.Errorf("%+v", d)
	}
	if d := e.Report().Policies[0].Difference; d != nil {
		t.Errorf("%+v", d)
	}
}

func TestReloadChangesBounds(t *testing.T) {
	set := func(maxKeys int, full bool) *policy.Set {
		return &policy.Set{
			Policies: []policy.Policy{{Name: "p", Limits: one(perHour(1)), Key: policy.MethodText(), MaxKeys: maxKeys, AdmitWhenFull: full}},
			Rules:    []policy.Rule{{Name: "all", Limits: uses("p")}},
		}
	}
	e := engine(t, set(1, false))
	want := func(method string, reason weir.Reason) {
		t.Helper()
		if d := take(e, policy.Request{Method: method}).Decision(); d.Reason != reason {
			t.Errorf("%s: %+v", method, d)
		}
	}
	want("A", weir.ReasonNone)
	want("B", weir.ReasonTableFull)
	load(t, e, set(2, false))
	want("B", weir.ReasonNone)
	want("A", weir.ReasonLimited)
	want("C", weir.ReasonTableFull)
	load(t, e, set(2, true))
	want("C", weir.ReasonNone)
	load(t, e, set(0, false))
	want("D", weir.ReasonNone)
	if l := e.Limiter("p", ""); l == nil || keyset.Of(l).Bounds().MaxKeys != 1_000_000 || e.Limiter("p", "1h") != l || e.Limiter("q", "") != nil {
		t.Errorf("%+v", keyset.Of(l).Bounds())
	}
}

// TestReloadUnderLoadContention replaces the set a thousand times while eight clients are served: no request fails, no
// permit is lost or minted, and memory does not grow.
func TestReloadUnderLoadContention(t *testing.T) {
	const clients, permits, reloads = 8, 30_000, 1000
	set := func(i int) *policy.Set {
		s := &policy.Set{
			Policies: []policy.Policy{
				// The budget whose total is checked: no permit of it comes back, and its limit is raised and lowered above what
				// is there.
				{Name: "budget", Limits: one(weir.TokenBucket(weir.Rate{Permits: 1, Period: time.Hour}, permits+int64(i%7))), MaxWait: 0},
				{Name: "window", Limits: []policy.Limit{{Name: "w", Limit: weir.FixedWindow(weir.Rate{Permits: permits + int64(i%5), Period: 1000 * time.Hour})}}},
				{Name: "free", Limits: one(weir.TokenBucket(weir.Rate{Permits: 1000 + int64(i%100), Period: time.Microsecond * 100}, 1e9)), Key: policy.MethodText()},
			},
			Rules: []policy.Rule{
				{Name: "all", Limits: uses("free", "budget")},
				{Name: "window", Limits: uses("window")},
			},
		}
		if i%3 == 0 {
			slices.Reverse(s.Rules)
		}
		if i%4 == 0 {
			s.Policies = append(s.Policies, policy.Policy{Name: "extra", Limits: one(perHour(10)), Mode: policy.ModeShadow})
			s.Rules = append(s.Rules, policy.Rule{Name: "extra", Limits: uses("extra")})
		}
		return s
	}
	e := engine(t, set(0), func(o *policy.EngineOptions) { o.Clock = manualclock.New(1) })
	var granted, asked atomic.Int64
	var done atomic.Bool
	var all sync.WaitGroup
	if !take(e, policy.Request{}).Allowed { // the key has its state from now on
		t.Fatal("the first request is refused")
	}
	granted.Add(1)
	asked.Add(1)
	for c := range clients {
		all.Go(func() {
			v := new(policy.Verdict)
			r := policy.Request{Method: string(rune('A' + c))}
			for !done.Load() {
				e.Take(&r, v)
				asked.Add(1)
				if len(v.Parts) != 3 {
					t.Errorf("%d limits hold", len(v.Parts))
					return
				}
				switch d := v.Decision(); {
				case v.Allowed:
					granted.Add(1)
				case d.Reason != weir.ReasonLimited || d.Policy != "budget" && d.Policy != "window":
					t.Errorf("%+v", d)
					return
				}
				v.Release()
				runtime.Gosched()
			}
		})
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var before uint64
	for i := range reloads {
		load(t, e, set(i))
		if i == reloads/10 {
			before = heap()
		}
		if i%10 == 0 {
			runtime.Gosched()
		}
	}
	after := heap()
	for e.Report().Refused == 0 { // all is taken
		runtime.Gosched()
	}
	done.Store(true)
	all.Wait()
	load(t, e, set(0))
	left := left(t, e, "budget", "")
	if got := granted.Load(); got+left != permits {
		t.Errorf("%d granted and %d left of %d", got, left, permits)
	}
	if r := e.Report(); r.Version != reloads+2 || r.Requests != uint64(asked.Load()) {
		t.Errorf("version %d, %d of %d requests", r.Version, r.Requests, asked.Load())
	}
	if after > before+before/2+4<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
}

// reference reports whether a request is granted, and what it costs: how much of each budget.
func reference(set *policy.Set, budgets, used map[string]int64, method string) (bool, map[string]int64) {
	matches := func(r *policy.Rule) bool { return len(r.Match.Methods) == 0 || r.Match.Methods[0] == method }
	charges := map[string]int64{}
	final, allowed := false, true
	for i := range set.Rules {
		rule := &set.Rules[i]
		if !matches(rule) {
			continue
		}
		if rule.Exempt {
			return true, nil
		}
		if final {
			continue
		}
		final = rule.Final
		for _, use := range rule.Limits {
			for name := use.Policy; name != ""; {
				at := slices.IndexFunc(set.Policies, func(p policy.Policy) bool { return p.Name == name })
				p := &set.Policies[at]
				key := ""
				if p.Key != nil {
					key = method
				}
				cost, _ := p.Cost.Int(nil)
				for _, l := range p.Limits {
					budget := fmt.Sprint(name, "/", l.Name)
					charges[budget+" "+key] = cost
					if used[budget+" "+key]+cost > budgets[budget] {
						allowed = false
					}
				}
				name = p.Parent
			}
		}
	}
	return allowed, charges
}

// TestLoadAnotherCandidateBeginsAnew: a candidate is told of as if it had replaced the limits, so one whose limit changes has
// neither what the one before has taken nor its differences. One that stays goes on.
func TestLoadAnotherCandidateBeginsAnew(t *testing.T) {
	set := func(mode policy.Mode, candidate ...policy.Limit) *policy.Set {
		return &policy.Set{
			Policies: []policy.Policy{{Name: "p", Limits: one(perHour(20)), Candidate: candidate, Mode: mode}},
			Rules:    []policy.Rule{{Name: "all", Limits: uses("p")}},
		}
	}
	candidate := func(permits int64) *policy.Set { return set(policy.ModeEnforce, one(perHour(permits))...) }
	e := engine(t, candidate(2), func(o *policy.EngineOptions) { o.Clock = manualclock.New(0) })
	check := func(requests, refused uint64, left int64) {
		t.Helper()
		d := e.Report().Policies[0].Difference
		if d.Requests != requests || d.NewlyRefused != refused || len(d.RefusedKeys) != int(min(refused, 1)) {
			t.Errorf("%+v, want %d of %d", d, refused, requests)
		}
		if x := e.Explain(&policy.Request{}).Limits; x[len(x)-1].Before != left {
			t.Errorf("%d left of %s, want %d", x[len(x)-1].Before, x[len(x)-1].Holds, left)
		}
	}
	for range 5 {
		take(e, policy.Request{})
	}
	check(5, 3, 0)
	load(t, e, candidate(2))
	check(5, 3, 0)
	if changes := load(t, e, candidate(4)); len(changes) != 1 || changes[0].State != "begins anew" {
		t.Errorf("%+v", changes)
	}
	check(0, 0, 4)
	for range 5 {
		take(e, policy.Request{})
	}
	check(5, 1, 0)
	load(t, e, set(policy.ModeShadow))
	check(0, 0, 10)
}

// TestLoadAShorterLockoutEndsThoseThatHaveBegun: new parameters apply at once. A lockout that has ended by that is over: one refusal
// more does not begin it again.
func TestLoadAShorterLockoutEndsThoseThatHaveBegun(t *testing.T) {
	clock := manualclock.New(0)
	set := func(lockedFor time.Duration) *policy.Set {
		return &policy.Set{
			Policies: []policy.Policy{{
				Name: "p", Limits: one(perHour(1)), Lockout: &policy.Lockout{Refusals: 2, Within: 10 * time.Minute, For: lockedFor},
			}},
			Rules: []policy.Rule{{Name: "all", Limits: uses("p")}},
		}
	}
	e := engine(t, set(24*time.Hour), func(o *policy.EngineOptions) { o.Clock = clock })
	check := func(want weir.Reason, locked time.Duration) {
		t.Helper()
		k, err := e.Key(t.Context(), "p", "")
		keys, lockedErr := e.Locked("p", 10)
		n := int(min(locked, 1))
		if err != nil || lockedErr != nil || k.LockedFor != locked || len(keys) != n || e.Report().Policies[0].Locked != int64(n) {
			t.Errorf("locked out for %v, and keys %v: want %v: %v, %v", k.LockedFor, keys, locked, err, lockedErr)
		}
		if d := take(e, policy.Request{}).Decision(); d.Reason != want {
			t.Errorf("%+v, want %v", d, want)
		}
	}
	for range 3 {
		take(e, policy.Request{})
	}
	clock.Advance(time.Minute)
	check(weir.ReasonHardLockout, 24*time.Hour-time.Minute)
	load(t, e, set(3*time.Minute))
	check(weir.ReasonHardLockout, 2*time.Minute)
	clock.Advance(2 * time.Minute)
	check(weir.ReasonLimited, 0)
	check(weir.ReasonHardLockout, 0) // which begins
	load(t, e, set(24*time.Hour))
	check(weir.ReasonHardLockout, 3*time.Minute)
	load(t, e, set(time.Minute))
	clock.Advance(time.Minute)
	if e.Unlock("p", "") {
		t.Error("a lockout that is over was ended")
	}
}
