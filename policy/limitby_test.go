package policy_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	parts "github.com/weirhq/weir/internal/limits"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
)

// limitBy is a limit that a function answers.
type limitBy func(r *policy.Request) (weir.Limit, bool, error)

func (f limitBy) Limit(r *policy.Request) (weir.Limit, bool, error) { return f(r) }
func (limitBy) String() string                                      { return "limitBy" }

// bringing returns a source of the limits that stand for the hosts of requests.
func bringing(limits map[string]weir.Limit) limitBy {
	return func(r *policy.Request) (l weir.Limit, ok bool, err error) {
		if r.Host == "error" {
			return l, false, errCannot
		}
		l, ok = limits[r.Host]
		return l, ok, nil
	}
}

// inThisProcess leaves policies as they are.
func inThisProcess(all ...policy.Policy) []policy.Policy { return all }

// kinds are engines over a set whose policies are local, shared or durable.
func kinds(t *testing.T, clock weir.Clock, set func(func(all ...policy.Policy) []policy.Policy) *policy.Set) map[string]*policy.Engine {
	t.Helper()
	return map[string]*policy.Engine{
		"local":   engine(t, set(inThisProcess), func(o *policy.EngineOptions) { o.Clock = clock }),
		"shared":  over(t, memory(t, clock), clock, set(shared)),
		"durable": ownedBy(t, newOwner(t, clock), nil, clock, set(durably)),
		"owner":   ownedBy(t, newNode(t, newCluster(t), nil), nil, nil, set(durably)),
	}
}

// TestLimitBy: a limit that a request brings holds at once and for the state that there is, before that of its key or of the
// policy. What cannot be used is refused, whatever Fail is.
func TestLimitBy(t *testing.T) {
	clock := manualclock.New(1)
	source := bringing(map[string]weir.Limit{
		"four": perHour(4), "ten": perHour(10), "zero": {}, "negative": weir.TokenBucket(weir.Rate{Permits: -1, Period: time.Hour}, 0),
		"use": weir.AtOnce(4), "window": weir.FixedWindow(weir.PerHour(3)),
	})
	set := func(kind func(all ...policy.Policy) []policy.Policy) *policy.Set {
		own := policy.Policy{
			Name: "p", Limits: one(perHour(6)), Key: policy.MethodText(), LimitBy: source, Fail: policy.FailOpen,
			Keys: map[string][]policy.Limit{"OWN": one(perHour(8))},
		}
		return &policy.Set{Policies: kind(own), Rules: []policy.Rule{{Name: "all", Limits: uses("p")}}}
	}
	for name, e := range kinds(t, clock, set) {
		for i, c := range []struct {
			host, method string
			most, left   int64 // 0: refused for the reason
			why          weir.Reason
		}{
			{"", "A", 6, 5, weir.ReasonNone},
			{"four", "A", 4, 3, weir.ReasonNone},
			{"ten", "A", 10, 2, weir.ReasonNone},
			{"zero", "A", 0, 0, weir.ReasonInvalid},
			{"negative", "A", 0, 0, weir.ReasonInvalid},
			{"use", "A", 0, 0, weir.ReasonInvalid},
			{"window", "A", 0, 0, weir.ReasonInvalid},
			{"window", "A", 0, 0, weir.ReasonInvalid},
			{"", "A", 6, 1, weir.ReasonNone},
			{"", "OWN", 8, 7, weir.ReasonNone},
			{"four", "OWN", 4, 3, weir.ReasonNone},
			{"", "OWN", 8, 2, weir.ReasonNone},
			{"ten", "B", 10, 9, weir.ReasonNone},
			{"", "B", 6, 5, weir.ReasonNone},
		} {
			v := take(e, policy.Request{Method: c.method, Host: c.host})
			d := v.Decision()
			if v.Allowed != (c.most > 0) || d.Limit != c.most || d.Remaining != c.left || d.Reason != c.why || d.Policy != "p" {
				t.Errorf("%s: %d: %+v, want %+v", name, i, d, c)
			}
			if c.most == 0 && (d.RetryAfter != weir.Never || v.Binding != -1) {
				t.Errorf("%s: %d: %+v", name, i, d)
			}
			v.Release()
		}
		if v := take(e, policy.Request{Method: "A", Host: "error"}); !v.Allowed || len(v.Parts) != 0 {
			t.Errorf("%s: %+v", name, v.Decision())
		}
		if r := e.Report().Policies[0]; r.Failed != 6 || r.Allowed != 9 {
			t.Errorf("%s: %+v", name, r)
		}
		x := e.Explain(&policy.Request{Method: "B", Host: "ten"})
		bad := e.Explain(&policy.Request{Method: "B", Host: "use"})
		if x.Limits[0].Holds != perHour(10).String() || bad.Reason != weir.ReasonInvalid || bad.Limits[0].Failure == "" {
			t.Errorf("%s: %+v, %+v", name, x, bad)
		}
	}
}

// TestLimitByOfSeveral: requests that are decided on as one have the limit that the first of them brings for a key, and those without
// a key in common have each their own.
func TestLimitByOfSeveral(t *testing.T) {
	set := func(kind func(all ...policy.Policy) []policy.Policy) *policy.Set {
		return &policy.Set{
			Policies: kind(policy.Policy{
				Name: "p", Limits: one(perHour(6)), Key: policy.MethodText(),
				LimitBy: bringing(map[string]weir.Limit{"two": perHour(2), "three": perHour(3), "bad": {}}),
			}),
			Rules: []policy.Rule{{Name: "all", Limits: uses("p")}},
		}
	}
	for name, e := range kinds(t, manualclock.New(1), set) {
		ask := func(keys ...string) (all []*policy.Request) {
			for i := 0; i < len(keys); i += 2 {
				all = append(all, &policy.Request{Method: keys[i], Host: keys[i+1]})
			}
			return all
		}
		for i, c := range []struct {
			asks  []*policy.Request
			most  []int64
			grant bool
		}{
			{ask("A", "three", "A", "two", "B", "two"), []int64{3, 3, 2}, true},
			{ask("B", "three", "A", "two", "B", ""), []int64{3, 2, 3}, false},
			{ask("C", "two", "D", "three", "E", ""), []int64{2, 3, 6}, true},
			{ask("C", "two", "D", "bad"), []int64{2, 0}, false},
		} {
			v := takeAll(t, e, c.asks...)
			if v.Allowed != c.grant {
				t.Errorf("%s: %d: %+v", name, i, v.Decision())
			}
			for j, most := range c.most {
				if d, limited := v.Answer(j); !limited || d.Limit != most || most == 0 && d.Reason != weir.ReasonInvalid {
					t.Errorf("%s: %d: request %d: %+v", name, i, j, d)
				}
			}
			v.Release()
		}
	}
}

// TestLimitByAndCandidate: the candidate is asked about a key that is held to the limit of the policy, and about no other.
func TestLimitByAndCandidate(t *testing.T) {
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{
			Name: "p", Limits: one(perHour(6)), Key: policy.MethodText(), Candidate: one(perHour(5)),
			LimitBy: bringing(map[string]weir.Limit{"nine": perHour(9)}),
		}},
		Rules: []policy.Rule{{Name: "all", Limits: uses("p")}},
	})
	brings, usual := policy.Request{Method: "A", Host: "nine"}, policy.Request{Method: "A"}
	for _, c := range []struct {
		asks []*policy.Request
		want uint64
	}{
		{[]*policy.Request{&brings}, 0},
		{[]*policy.Request{&brings, &usual}, 0}, // under the limit of the first
		{[]*policy.Request{&usual, &brings}, 2},
	} {
		if v := takeAll(t, e, c.asks...); !v.Allowed || e.Report().Policies[0].Difference.Requests != c.want {
			t.Errorf("%+v, %+v", v.Decision(), e.Report().Policies[0].Difference)
		}
	}
}

// TestLimitByTableFull: a limiter can tell 65,534 other limits of its keys apart. One more is refused, while those that are known, and
// what the policy itself says, hold on.
func TestLimitByTableFull(t *testing.T) {
	if race.Enabled {
		return // one goroutine that makes so many limits is slow, and has no other to race with
	}
	source := limitBy(func(r *policy.Request) (weir.Limit, bool, error) {
		return weir.TokenBucket(weir.PerSecond(1), r.Cost), r.Cost > 1, nil
	})
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{
			Name: "p", Limits: one(weir.TokenBucket(weir.PerSecond(1), 1)), Key: policy.MethodText(), LimitBy: source, Fail: policy.FailOpen,
			Cost: policy.FixedNumber(1),
		}},
		Rules: []policy.Rule{{Name: "all", Limits: uses("p")}},
	})
	v := new(policy.Verdict)
	full := false
	for i := range int64(66_000) {
		e.Take(&policy.Request{Method: fmt.Sprint(i), Cost: 2 + i}, v)
		if full = !v.Allowed; full {
			break
		}
	}
	if d := v.Decision(); !full || d.Reason != weir.ReasonTableFull || d.Policy != "p" || d.RetryAfter <= 0 {
		t.Errorf("%+v", d)
	}
	if v := take(e, policy.Request{Method: "0", Cost: 2}); !v.Allowed {
		t.Errorf("%+v", v.Decision())
	}
	if v := take(e, policy.Request{Method: "other"}); !v.Allowed {
		t.Errorf("%+v", v.Decision())
	}
}

// TestLimitByIsChecked: what goes with it, and what a reload says of it.
func TestLimitByIsChecked(t *testing.T) {
	source := bringing(map[string]weir.Limit{"ten": perHour(10)})
	set := func(p policy.Policy) *policy.Set {
		p.Name, p.LimitBy, p.Key = "p", source, policy.MethodText()
		return &policy.Set{Policies: []policy.Policy{p}, Rules: []policy.Rule{{Name: "all", Limits: uses("p")}}}
	}
	for want, p := range map[string]policy.Policy{
		`weir: policy "p": Limits is 2 of them: must be 1, as LimitBy returns one limit`: {
			Limits: []policy.Limit{{Limit: perHour(3)}, {Name: "other", Limit: perHour(4)}},
		},
		`weir: policy "p": TierBy is request.host: must be nil, as LimitBy chooses the limit`: {
			Limits: one(perHour(3)), TierBy: policy.HostText(), Tiers: map[string][]policy.Limit{"gold": one(perHour(4))},
		},
	} {
		var option *weir.OptionError
		if err := set(p).Check(); !errors.As(err, &option) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	e := engine(t, set(policy.Policy{Limits: one(perHour(3))}))
	ten := policy.Request{Method: "A", Host: "ten", Cost: 4}
	if v := take(e, ten); !v.Allowed || v.Decision().Remaining != 6 {
		t.Errorf("%+v", v.Decision())
	}
	next := set(policy.Policy{Limits: one(perHour(5))})
	load(t, e, next)
	if v := take(e, ten); !v.Allowed || v.Decision().Remaining != 2 {
		t.Errorf("%+v after a reload", v.Decision())
	}
	without := set(policy.Policy{Limits: one(perHour(5))})
	without.Policies[0].LimitBy = nil
	changes := load(t, e, without)
	if len(changes) != 1 || changes[0].Path != "policies.p.limit_by" || changes[0].Old != "limitBy" || changes[0].New != "" {
		t.Errorf("%+v", changes)
	}
	ten.Cost = 1
	if v := take(e, ten); !v.Allowed || v.Decision().Remaining != 1 || v.Decision().Limit != 5 {
		t.Errorf("%+v without it", v.Decision())
	}
	windows := set(policy.Policy{Limits: one(weir.FixedWindow(weir.PerHour(9)))})
	load(t, e, windows)
	if v := take(e, ten); v.Allowed || v.Decision().Reason != weir.ReasonInvalid {
		t.Errorf("%+v under another algorithm", v.Decision())
	}
}

// TestLimitByAllocatesNothing, also where there are more limits than are remembered in one half; and it forgets those that are not
// brought again.
func TestLimitByAllocatesNothing(t *testing.T) {
	source := limitBy(func(r *policy.Request) (weir.Limit, bool, error) {
		return weir.TokenBucket(weir.PerSecond(1000), r.Cost), true, nil
	})
	e := engine(t, &policy.Set{
		Policies: []policy.Policy{{
			Name: "p", Limits: one(weir.TokenBucket(weir.PerSecond(1), 0)), LimitBy: source, Key: policy.MethodText(), Cost: policy.FixedNumber(0),
		}},
		Rules: []policy.Rule{{Name: "all", Limits: uses("p")}},
	})
	v := new(policy.Verdict)
	r := policy.Request{Method: "A"}
	for i := range int64(5000) {
		r.Cost = 1 + i%3000
		if e.Take(&r, v); !v.Allowed || v.Decision().Limit != r.Cost {
			t.Fatalf("%d: %+v", i, v.Decision())
		}
	}
	if race.Enabled {
		return // it allocates itself
	}
	n := testing.AllocsPerRun(200, func() {
		e.Take(&r, v)
		v.Release()
	})
	if n != 0 || !v.Allowed {
		t.Errorf("%v allocations", n)
	}
}

// TestLimitByContention: requests bring limits of all sorts, also such that cannot be used, while the set is replaced. What is granted
// of a key is never more than the largest of them.
func TestLimitByContention(t *testing.T) {
	const goroutines, rounds, most = 8, 500, 300
	source := limitBy(func(r *policy.Request) (weir.Limit, bool, error) {
		switch {
		case r.Cost > 100:
			l, _ := parts.Of(weir.Algorithm(r.Cost%5), weir.Rate{}, r.Cost, 0, algo.Calendar{})
			return l, true, nil
		case r.Cost > 50:
			return weir.Limit{}, false, nil
		}
		return perHour(most - r.Cost), true, nil
	})
	set := func(i int64) *policy.Set {
		return &policy.Set{
			Policies: []policy.Policy{{
				Name: "p", Limits: one(perHour(most - i%3)), Key: policy.MethodText(), LimitBy: source, Cost: policy.FixedNumber(1),
			}},
			Rules: []policy.Rule{{Name: "all", Limits: uses("p")}},
		}
	}
	e := engine(t, set(0))
	var granted [2]atomic.Int64
	var loads atomic.Int64
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 6))
			v := new(policy.Verdict)
			for range rounds {
				if r.IntN(50) == 0 {
					load(t, e, set(loads.Add(1)))
				}
				key := r.IntN(2)
				var requests []*policy.Request
				for range 1 + r.IntN(2) {
					requests = append(requests, &policy.Request{Method: []string{"A", "B"}[key], Cost: 1 + r.Int64N(110)})
				}
				e.TakeAll(t.Context(), requests, v)
				for i, q := range requests {
					if d, _ := v.Answer(i); q.Cost > 100 && d.Reason != weir.ReasonInvalid {
						t.Errorf("%+v for a limit that cannot be used", d)
					}
				}
				if v.Allowed {
					granted[key].Add(int64(len(requests)))
				}
				v.Release()
			}
		})
	}
	all.Wait()
	for i := range granted {
		if n := granted[i].Load(); n > most || n < most-60 {
			t.Errorf("%d were granted", n)
		}
	}
}
