package policy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// besideSet has a policy in each mode that refuses nothing, and a candidate beside a limit of 100: each with 10 permits an hour,
// and 10 at once.
func besideSet() *policy.Set {
	ten := []policy.Limit{{Limit: perHour(10)}, {Name: "use", Limit: weir.AtOnce(10)}}
	return &policy.Set{
		Policies: []policy.Policy{
			{Name: "tag", Limits: ten, Mode: policy.ModeTag, Key: policy.MethodText()},
			{Name: "shadow", Limits: ten, Mode: policy.ModeShadow, Key: policy.MethodText()},
			{Name: "candidate", Limits: one(perHour(100)), Candidate: ten, Key: policy.MethodText()},
		},
		Rules: []policy.Rule{
			{Name: "all", Limits: uses("tag", "shadow", "candidate")},
			{Name: "spent", Match: policy.Match{Paths: []string{"/spent"}}, Afterwards: true},
		},
	}
}

// wantBeside compares what the limits that refuse nothing have left of a method, and how many permits of theirs are in use.
func wantBeside(t *testing.T, e *policy.Engine, what, method string, left, used int64) {
	t.Helper()
	seen := 0
	for _, l := range e.Explain(&policy.Request{Method: method}).Limits {
		want := left
		if l.Limit == "use" {
			want = 10 - used
		}
		if l.Role == "enforce" {
			continue
		}
		if seen++; l.Before != want {
			t.Errorf("%s: %s %s has %d left, want %d", what, l.Role, l.Limit, l.Before, want)
		}
	}
	if seen != 6 {
		t.Errorf("%s: %d limits", what, seen)
	}
}

// TestDebitsUseUpSoftLimits: what was spent is charged to limits that refuse nothing as to others, into debt, and tags nothing.
func TestDebitsUseUpSoftLimits(t *testing.T) {
	clock := manualclock.New(1)
	e := engine(t, besideSet(), manual(clock))
	get, put := &policy.Request{Method: "GET", Cost: 7}, &policy.Request{Method: "PUT", Cost: 4}
	v := debitAll(t, e, get, &policy.Request{Method: "GET", Cost: 6}, put)
	if !v.Allowed || v.Over(0) != nil || v.Over(1) != nil || v.Over(2) != nil {
		t.Fatalf("%+v", v)
	}
	v.Release()
	wantBeside(t, e, "a debit", "GET", 0, 0)
	wantBeside(t, e, "a debit", "PUT", 6, 0)
	for _, p := range e.Report().Policies {
		if d := p.Difference; p.Allowed != 3 || p.Refused != 0 || d.Requests != 3 || d.NewlyRefused != 0 || d.NewlyAdmitted != 0 {
			t.Errorf("%+v, %+v", p, d)
		}
	}
	clock.Advance(3 * time.Hour) // in which the debt of 3 is regained
	wantBeside(t, e, "a debt", "GET", 0, 0)
	if v := take(e, policy.Request{Method: "GET"}); !slices.Equal(v.Over(0), []string{"tag"}) {
		t.Errorf("over %q", v.Over(0))
	}
	clock.Advance(time.Hour)
	wantBeside(t, e, "after the debt", "GET", 1, 0)
}

// TestReservationsOfSoftLimitsAreSettled: limits that refuse nothing are charged what a request has cost in the end, however it
// was reserved and however it ends.
func TestReservationsOfSoftLimitsAreSettled(t *testing.T) {
	costs := func(n int64) func(*policy.Verdict) {
		return func(v *policy.Verdict) { v.Commit(func(*policy.Part) int64 { return n }) }
	}
	for way, reserve := range map[string]func(e *policy.Engine, r *policy.Request, v *policy.Verdict){
		"reserve": func(e *policy.Engine, r *policy.Request, v *policy.Verdict) { e.Reserve(r, v) },
		"wait": func(e *policy.Engine, r *policy.Request, v *policy.Verdict) {
			if err := e.WaitReserve(t.Context(), r, v); err != nil {
				t.Error(err)
			}
		},
		"all": func(e *policy.Engine, r *policy.Request, v *policy.Verdict) {
			e.ReserveAll(t.Context(), []*policy.Request{r}, v)
		},
	} {
		for name, c := range map[string]struct {
			end   func(v *policy.Verdict)
			left  int64
			hours int // until the first permit, if none is left
		}{
			"less":     {costs(2), 8, 0},
			"nothing":  {costs(0), 10, 0},
			"as asked": {costs(-1), 4, 0},
			"more":     {costs(13), 0, 4},
			"cancel":   {(*policy.Verdict).Cancel, 10, 0},
			"release":  {(*policy.Verdict).Release, 4, 0},
		} {
			what := way + ", " + name
			clock := manualclock.New(1)
			e := engine(t, besideSet(), manual(clock))
			var v policy.Verdict
			reserve(e, &policy.Request{Method: "GET", Cost: 6}, &v)
			wantBeside(t, e, what+": reserved", "GET", 4, 6)
			c.end(&v)
			v.Cancel() // the first end counts
			v.Commit(func(*policy.Part) int64 { return 1000 })
			wantBeside(t, e, what, "GET", c.left, 0)
			if c.hours > 0 {
				clock.Advance(time.Duration(c.hours-1) * time.Hour)
				wantBeside(t, e, what+": in debt", "GET", 0, 0)
				clock.Advance(time.Hour)
				wantBeside(t, e, what+": out of debt", "GET", 1, 0)
			}
		}
	}
}

// TestCommitDescribesSoftLimits: the cost is asked for each limit, key and request, also where several share a key, and for the
// limits of a candidate that there is one more of than in force.
func TestCommitDescribesSoftLimits(t *testing.T) {
	e := engine(t, besideSet())
	asked := map[string]int64{}
	var v policy.Verdict
	get, put := &policy.Request{Method: "GET", Cost: 3}, &policy.Request{Method: "PUT", Cost: 1}
	e.ReserveAll(t.Context(), []*policy.Request{get, put, get}, &v)
	wantBeside(t, e, "reserved", "GET", 4, 6)
	v.Commit(func(p *policy.Part) int64 {
		if p.Policy.Limits[p.Limit].Limit != p.Applied() || p.Rule.Name != "all" || !p.Decision.Allowed {
			t.Errorf("%+v", p)
		}
		asked[fmt.Sprintf("%d: %s %s of %d at %s", p.Request, p.Decision.Policy, p.Key, p.Cost, p.Applied())]++
		return int64(p.Request) // 0 and 2 of the one key
	})
	wantBeside(t, e, "committed", "GET", 8, 0)
	wantBeside(t, e, "committed", "PUT", 9, 0)
	for i, r := range []*policy.Request{get, put, get} {
		for _, limit := range []string{
			"tag/1h %s of %d at 1/h, burst 10", "tag/use %s of %d at 10 at once", "shadow/1h %s of %d at 1/h, burst 10",
			"shadow/use %s of %d at 10 at once", "candidate %s of %d at 1/h, burst 100",
			"candidate/1h %s of %d at 1/h, burst 10", "candidate/use %s of %d at 10 at once",
		} {
			key := fmt.Sprintf("%d: "+limit, i, r.Method, r.Cost)
			if asked[key] != 1 {
				t.Errorf("%s: asked %d times", key, asked[key])
			}
			delete(asked, key)
		}
	}
	if len(asked) > 0 {
		t.Errorf("%v", asked)
	}
}

func reportOf(t *testing.T, e *policy.Engine) string {
	t.Helper()
	text, err := json.Marshal(e.Report())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestPeekTellsWhatIsOver: a look tells which policies would tag the request, takes nothing, and counts nothing.
func TestPeekTellsWhatIsOver(t *testing.T) {
	e := engine(t, besideSet())
	over := func(requests ...*policy.Request) (all [][]string) {
		var v policy.Verdict
		e.PeekAll(t.Context(), requests, &v)
		for i := range requests {
			all = append(all, v.Over(i))
		}
		return all
	}
	probe := func(method string, cost int64) []string {
		var v policy.Verdict
		e.Peek(named(t.Context(), "tag", method, cost), &v)
		return v.Over(0)
	}
	get := func(cost int64) *policy.Request { return &policy.Request{Method: "GET", Cost: cost} }
	for i, c := range []struct {
		debit, cost int64
		over        bool
	}{{0, 10, false}, {0, 11, true}, {0, 0, false}, {9, 1, false}, {0, 2, true}, {0, 0, false}, {1, 0, true}, {0, 1, true}} {
		if c.debit > 0 {
			debitAll(t, e, get(c.debit))
		}
		before := reportOf(t, e)
		if got := probe("GET", c.cost); (got != nil) != c.over {
			t.Errorf("look %d: over %q", i, got)
		}
		if after := reportOf(t, e); after != before {
			t.Errorf("look %d counts:\n%s\n%s", i, before, after)
		}
	}
	e = engine(t, besideSet())
	for what, c := range map[string]struct {
		requests []*policy.Request
		over     string
	}{
		"joined":     {[]*policy.Request{get(5), {Method: "PUT", Cost: 5}, get(6)}, "[[tag] [] [tag]]"},
		"within":     {[]*policy.Request{get(5), get(5)}, "[[] []]"},
		"refused":    {[]*policy.Request{get(101)}, "[[]]"},
		"impossible": {[]*policy.Request{get(11)}, "[[tag]]"},
	} {
		if got := fmt.Sprint(over(c.requests...)); got != c.over {
			t.Errorf("%s: over %s, want %s", what, got, c.over)
		}
	}
	wantBeside(t, e, "looks", "GET", 10, 0)
}

// TestLiftedSoftLimitsTakeNothing: an override that lets a key pass holds for limits that refuse nothing, whatever asks them.
func TestLiftedSoftLimitsTakeNothing(t *testing.T) {
	clock := manualclock.New(1)
	e := engine(t, besideSet(), manual(clock))
	for _, name := range []string{"tag", "shadow", "candidate"} {
		mustOverride(t, e, policy.Override{Policy: name, Key: "GET", Unlimited: true, For: time.Hour})
	}
	r := &policy.Request{Method: "GET", Path: "/spent", Cost: 50}
	var v policy.Verdict
	e.Peek(r, &v)
	if !v.Allowed || v.Over(0) != nil {
		t.Errorf("a look is over %q", v.Over(0))
	}
	e.Reserve(r, &v)
	v.Commit(func(p *policy.Part) int64 { t.Errorf("asked for %+v", p); return 50 })
	debitAll(t, e, r)
	if e.Take(r, &v); v.Over(0) != nil {
		t.Errorf("over %q", v.Over(0))
	}
	clock.Advance(time.Hour)
	wantBeside(t, e, "after the override", "GET", 10, 0)
	if p := e.Report().Policies[0]; p.Allowed != 3 || p.Refused != 0 {
		t.Errorf("%+v", p)
	}
	mustOverride(t, e, policy.Override{Policy: "tag", Key: "GET", Limits: []policy.Limit{
		{Name: "1h", Limit: perHour(30)}, {Name: "use", Limit: weir.AtOnce(30)},
	}, For: time.Hour})
	e.Reserve(&policy.Request{Method: "GET", Cost: 10}, &v)
	v.Commit(func(p *policy.Part) int64 {
		if p.Policy.Name == "tag" && p.Applied().Permits() != 30 {
			t.Errorf("applied %v", p.Applied())
		}
		return -1
	})
}

// TestSoftLimitsAreOwedAfterwards: a request that tells what was spent uses up limits that refuse nothing, also where they would
// refuse it, or another limit does: as it uses up those that refuse.
func TestSoftLimitsAreOwedAfterwards(t *testing.T) {
	for kind, made := range map[string]func(all ...policy.Policy) []policy.Policy{
		"local": func(all ...policy.Policy) []policy.Policy { return all }, "shared": shared, "durable": durably,
	} {
		for _, hard := range []int64{100, 3} {
			clock := manualclock.New(1)
			set := besideSet()
			set.Policies[2].Limits = one(perHour(hard))
			made(set.Policies[:2]...)
			e := ownedBy(t, newOwner(t, clock), memory(t, clock), clock, set)
			what := fmt.Sprintf("%s, hard %d", kind, hard)
			for i, left := range []int64{4, 0, 0} {
				var v policy.Verdict
				e.Take(&policy.Request{Method: "GET", Path: "/spent", Cost: 6}, &v)
				if over := v.Over(0) != nil; v.Allowed != (hard == 100) || over != (i > 0 && v.Allowed) {
					t.Errorf("%s, request %d: allowed %v, over %q", what, i, v.Allowed, v.Over(0))
				}
				v.Release()
				wantBeside(t, e, what, "GET", left, 0)
			}
			clock.Advance(8 * time.Hour) // 18 were spent
			wantBeside(t, e, what+", in debt", "GET", 0, 0)
			clock.Advance(time.Hour)
			wantBeside(t, e, what+", out of debt", "GET", 1, 0)
		}
	}
}

// TestSoftLimitsAreOwedByEach of several requests that share a key: what they have got together is not owed again.
func TestSoftLimitsAreOwedByEach(t *testing.T) {
	clock := manualclock.New(1)
	e := engine(t, besideSet(), manual(clock))
	spent := &policy.Request{Method: "GET", Path: "/spent", Cost: 3}
	takeAll(t, e, spent, spent).Release()
	wantBeside(t, e, "within", "GET", 4, 0)
	if v := takeAll(t, e, spent, spent); !v.Allowed || v.Over(0) == nil || v.Over(1) == nil {
		t.Errorf("over %q and %q", v.Over(0), v.Over(1))
	}
	clock.Advance(2 * time.Hour) // 2 are owed
	wantBeside(t, e, "in debt", "GET", 0, 0)
	clock.Advance(time.Hour)
	wantBeside(t, e, "out of debt", "GET", 1, 0)
}

// TestSharedSoftLimits: of what a store or an owner keeps, debits are charged as well, and the estimate of a reservation stays.
func TestSharedSoftLimits(t *testing.T) {
	for kind, made := range map[string]func(all ...policy.Policy) []policy.Policy{"shared": shared, "durable": durably} {
		clock := manualclock.New(1)
		set := besideSet()
		set.Policies = set.Policies[:2]
		set.Rules[0].Limits = uses("tag", "shadow")
		set.Policies[0].Limits, set.Policies[1].Limits = one(perHour(10)), one(perHour(10))
		made(set.Policies...)
		e := ownedBy(t, newOwner(t, clock), memory(t, clock), clock, set)
		wantLefts := func(want int64) {
			t.Helper()
			wantStored(t, e, "tag", "", "GET", want)
			wantStored(t, e, "shadow", "", "GET", want)
		}
		r := &policy.Request{Method: "GET", Cost: 3}
		var v policy.Verdict
		e.Reserve(r, &v)
		v.Commit(func(*policy.Part) int64 { return 1 })
		e.Reserve(r, &v)
		v.Cancel()
		wantLefts(4)
		if e.Peek(&policy.Request{Method: "GET", Cost: 5}, &v); !slices.Equal(v.Over(0), []string{"tag"}) {
			t.Errorf("%s: over %q", kind, v.Over(0))
		}
		wantLefts(4)
		if v := debitAll(t, e, &policy.Request{Method: "GET", Cost: 5}, r); !v.Allowed || v.Over(0) != nil {
			t.Errorf("%s: %+v", kind, v)
		}
		clock.Advance(4 * time.Hour) // 4 are owed
		wantLefts(0)
		clock.Advance(time.Hour)
		wantLefts(1)
		if p := e.Report().Policies[0]; p.Allowed != 4 || p.Refused != 0 {
			t.Errorf("%s: %+v", kind, p)
		}
	}
}

// TestSoftLimitsAllocateNothing once the memory of the verdict is there.
func TestSoftLimitsAllocateNothing(t *testing.T) {
	e := engine(t, besideSet())
	r := &policy.Request{Method: "GET"}
	both := []*policy.Request{r, r}
	var v policy.Verdict
	nothing := func(*policy.Part) int64 { return 0 }
	if n := testing.AllocsPerRun(1000, func() {
		e.Reserve(r, &v)
		v.Commit(nothing)
		e.Peek(r, &v)
		e.DebitAll(t.Context(), both, &v)
	}); n >= 1 {
		t.Errorf("%v allocations", n)
	}
}
