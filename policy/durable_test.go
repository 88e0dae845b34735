package policy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// owner is a store with one queue for all of its keys, as the owner of a cluster has one for each.
type owner struct {
	*watched

	turn    chan struct{}
	waiting atomic.Int64 // permits
}

func newOwner(t testing.TB, clock weir.Clock) *owner {
	t.Helper()
	return &owner{watched: memory(t, clock), turn: make(chan struct{}, 1)}
}

func (o *owner) Do(ctx context.Context, ask store.Ask, charges []store.Charge, decisions []weir.Decision) (store.Hold, error) {
	if ask.Wait == 0 {
		return o.watched.Do(ctx, ask, charges, decisions)
	}
	refused := func(why weir.Reason) (store.Hold, error) {
		for i := range decisions {
			decisions[i] = weir.Decision{Reason: why, Policy: charges[i].Policy}
		}
		return store.Hold{}, nil
	}
	timer := time.NewTimer(ask.Wait)
	defer timer.Stop()
	n := charges[0].N
	if all := o.waiting.Add(n); all > charges[0].Queue && charges[0].Queue > 0 {
		o.waiting.Add(-n)
		return refused(weir.ReasonQueueFull)
	}
	defer o.waiting.Add(-n)
	select {
	case o.turn <- struct{}{}:
	case <-timer.C:
		return refused(weir.ReasonDeadline)
	case <-ctx.Done():
		return refused(weir.ReasonCanceled)
	}
	defer func() { <-o.turn }()
	ask.Wait = 0
	for {
		h, err := o.watched.Do(ctx, ask, charges, decisions)
		at := store.Binding(decisions)
		if err != nil || decisions[at].Allowed || decisions[at].Reason != weir.ReasonLimited || charges[at].Queue == 0 {
			return h, err
		}
		select {
		case <-time.After(decisions[at].RetryAfter):
		case <-timer.C:
			return refused(weir.ReasonDeadline)
		case <-ctx.Done():
			return refused(weir.ReasonCanceled)
		}
	}
}

// ownedBy returns an engine over an owner and, if it is not nil, a store.
func ownedBy(t testing.TB, o, s store.Home, clock weir.Clock, set *policy.Set) *policy.Engine {
	t.Helper()
	return engine(t, set, func(x *policy.EngineOptions) { x.Durable, x.Store, x.Clock = o, s, clock })
}

// durably makes policies durable.
func durably(all ...policy.Policy) []policy.Policy {
	for i := range all {
		all[i].Durability = policy.DurabilityCluster
	}
	return all
}

// TestDurableAndOthersAreAllOrNothing: whichever of the three kinds refuses, the others are as they were.
func TestDurableAndOthersAreAllOrNothing(t *testing.T) {
	clock := manualclock.New(1)
	o, s := newOwner(t, clock), memory(t, clock)
	policies := append(durably(
		policy.Policy{Name: "durable", Limits: one(perHour(4)), Key: policy.MethodText(), Parent: "total"},
		policy.Policy{Name: "total", Limits: []policy.Limit{
			{Limit: perHour(100)}, {Name: "use", Limit: weir.AtOnce(20)},
		}},
	), shared(policy.Policy{Name: "shared", Limits: one(perHour(5)), Key: policy.HostText()})...)
	policies = append(policies, policy.Policy{Name: "local", Limits: one(perHour(6)), Key: policy.RouteText()})
	e := ownedBy(t, o, s, clock, &policy.Set{
		Policies: policies, Rules: []policy.Rule{{Name: "all", Limits: uses("durable", "shared", "local")}},
	})
	v := new(policy.Verdict)
	used := int64(0)
	for name, ask := range map[string]func(r *policy.Request) error{
		"take":         func(r *policy.Request) error { e.Take(r, v); return nil },
		"reserve":      func(r *policy.Request) error { e.Reserve(r, v); return nil },
		"wait":         func(r *policy.Request) error { return verdictOf(e.Wait(t.Context(), r, v), v) },
		"wait reserve": func(r *policy.Request) error { return verdictOf(e.WaitReserve(t.Context(), r, v), v) },
	} {
		host := strings.ReplaceAll(name, " ", "")
		request := func(cost int64) *policy.Request {
			return &policy.Request{Method: strings.ToUpper(name), Host: host, Route: name, Cost: cost}
		}
		if err := ask(request(2)); err != nil || !v.Allowed || len(v.Parts) != 5 {
			t.Fatalf("%s: %v, %+v", name, err, v)
		}
		v.Release()
		used += 2
		// 2 are left of the owner, 3 of the store, and 4 of this process.
		for cost, binding := range map[int64]string{3: "durable", 4: "durable", 5: "local", 6: "local"} {
			if err := ask(request(cost)); err != nil || v.Allowed || v.Decision().Policy != binding {
				t.Errorf("%s of %d: %v, %+v", name, cost, err, v)
			}
			for i := range v.Parts {
				if p := &v.Parts[i]; p.Unasked && (!p.Decision.Allowed || p.Decision.Remaining != 0) {
					t.Errorf("%s of %d: %+v", name, cost, p)
				}
			}
			v.Release()
		}
		// And where the store refuses: the owner has permits of another key.
		other := request(2)
		other.Method = strings.ToUpper(name) + "2"
		if err := ask(other); err != nil || !v.Allowed {
			t.Errorf("%s: %v, %+v", name, err, v)
		}
		v.Release()
		used += 2
		other.Method = strings.ToUpper(name) + "3"
		if err := ask(other); err != nil || v.Allowed || v.Decision().Policy != "shared" {
			t.Errorf("%s: %v, %+v", name, err, v)
		}
		v.Cancel()
		wantStored(t, e, "durable", "", strings.ToUpper(name), 2)
		wantStored(t, e, "durable", "", strings.ToUpper(name)+"2", 2)
		wantStored(t, e, "durable", "", strings.ToUpper(name)+"3", 4)
		wantStored(t, e, "shared", "", host, 1)
		wantLeft(t, e, "local", name, 2)
		wantStored(t, e, "total", "1h", "", 100-used)
		wantStored(t, e, "total", "use", "", 20)
	}
	for _, name := range []string{"durable", "shared"} {
		if err := e.Reset(t.Context(), name, "take"); err != nil {
			t.Error(err)
		}
	}
	wantStored(t, e, "durable", "", "take", 4)
	wantStored(t, e, "shared", "", "take", 5)
	r := e.Report().Policies
	if r[0].Durability != policy.DurabilityCluster || r[2].Durability != policy.DurabilityMemory || r[0].Unavailable+r[0].Unsettled != 0 {
		t.Errorf("%+v", r)
	}
	x := e.Explain(&policy.Request{Method: "X", Host: "x", Route: "x"})
	if l := x.Limits[0]; l.Durability != policy.DurabilityCluster || l.Before != 4 || l.After != 3 || l.Consistency != policy.ConsistencyLocal {
		t.Errorf("%+v", l)
	}
	if e.Limiter("durable", "") != nil {
		t.Error("a limit that is durable has a limiter of this process")
	}
	if _, ok := e.Charges(nil, "durable", "k", 1); ok {
		t.Error("a limit that is durable has charges of this process")
	}
	if !takeKey(t.Context(), e, "durable", "k", 4, v) || !v.Allowed || !peekKey(t.Context(), e, "durable", "k", 1, v) || v.Allowed {
		t.Errorf("%+v", v)
	}
}

// TestDurableReservationsCostWhatTheyCost, of the owner, of the store and of this process.
func TestDurableReservationsCostWhatTheyCost(t *testing.T) {
	clock := manualclock.New(1)
	e := ownedBy(t, newOwner(t, clock), memory(t, clock), clock, &policy.Set{
		Policies: append(append(shared(policy.Policy{Name: "shared", Limits: one(perHour(100))}),
			durably(policy.Policy{Name: "durable", Limits: one(perHour(100))})...), policy.Policy{Name: "local", Limits: one(perHour(100))}),
		Rules: []policy.Rule{{Name: "all", Limits: uses("shared", "local", "durable")}},
	})
	want := func(shared, durable, local int64) {
		t.Helper()
		wantStored(t, e, "shared", "", "", shared)
		wantStored(t, e, "durable", "", "", durable)
		wantLeft(t, e, "local", "", local)
	}
	v := new(policy.Verdict)
	reserve := func() {
		t.Helper()
		if e.Reserve(&policy.Request{Cost: 10}, v); !v.Allowed {
			t.Fatalf("%+v", v)
		}
	}
	reserve()
	want(90, 90, 90)
	v.Commit(func(p *policy.Part) int64 {
		return map[string]int64{"shared": 3, "durable": 15, "local": 4}[p.Policy.Name]
	})
	want(97, 85, 96)
	reserve()
	v.Cancel()
	want(97, 85, 96)
	reserve()
	v.Release()
	want(87, 75, 86)
	if r := e.Report(); r.Policies[0].Unsettled+r.Policies[0].Expired+r.Policies[1].Unsettled+r.Policies[1].Expired != 0 {
		t.Errorf("%+v", r)
	}
}

// inOrder is a policy of one permit a minute, with a queue.
func inOrder(queue int64, most time.Duration) policy.Policy {
	return durably(policy.Policy{
		Name: "p", Limits: one(weir.TokenBucket(weir.PerMinute(1), 1)), QueueLimit: queue, MaxWait: most,
	})[0]
}

// TestDurableWaitsInOneQueue has callers of two engines wait for permits of one owner: they get them in the order in which they have
// come, each after its time; others are told at once, or when their time is up, why not.
func TestDurableWaitsInOneQueue(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) store.Home{
		"a store with a queue": func(t *testing.T) store.Home { return newOwner(t, nil) },
		"the owner of a cluster": func(t *testing.T) store.Home {
			return newNode(t, newCluster(t), nil)
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { waitsInOneQueue(t, open(t)) }) })
	}
}

func waitsInOneQueue(t *testing.T, o store.Home) {
	t.Helper()
	set := &policy.Set{
		Policies: []policy.Policy{inOrder(4, time.Hour), {Name: "use", Limits: one(weir.AtOnce(6))}},
		Rules:    []policy.Rule{{Name: "all", Limits: uses("p", "use")}},
	}
	engines := []*policy.Engine{ownedBy(t, o, nil, nil, set), ownedBy(t, o, nil, nil, set)}
	var lock sync.Mutex
	var got []string
	began := time.Now()
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			var v policy.Verdict
			err := verdictOf(engines[i%2].Wait(t.Context(), &policy.Request{}, &v), &v)
			lock.Lock()
			got = append(got, fmt.Sprintf("%d %v after %v, %v", i, v.Decision().Reason, time.Since(began), err))
			lock.Unlock()
			v.Release()
		})
		synctest.Wait()
	}
	var v policy.Verdict
	if engines[0].Take(&policy.Request{}, &v); v.Allowed || time.Since(began) != 0 {
		t.Errorf("it has waited: %+v", v)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := engines[0].Wait(ctx, &policy.Request{}, &v); !errors.Is(err, context.Canceled) || v.Allowed {
		t.Errorf("%v, %+v", err, v)
	}
	all.Wait()
	want := []string{
		"0 none after 0s, <nil>", "5 queue-full after 0s, <nil>", "1 none after 1m0s, <nil>", "2 none after 2m0s, <nil>",
		"3 none after 3m0s, <nil>", "4 none after 4m0s, <nil>",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	wantLeft(t, engines[0], "use", "", 6)
}

// TestDurableWaitsAtMost as long as the shortest MaxWait, as its caller, or as the engine.
func TestDurableWaitsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwner(t, nil)
		long, short := inOrder(100, time.Hour), inOrder(100, 20*time.Second)
		long.Name, short.Limits = "long", one(weir.TokenBucket(weir.PerHour(1), 5))
		set := &policy.Set{
			Policies: []policy.Policy{long, short, {
				Name: "use", Limits: one(weir.AtOnce(1)), QueueLimit: 5, MaxWait: time.Minute,
			}},
			Rules: []policy.Rule{
				{Name: "long", Match: policy.Match{Paths: []string{"/long"}}, Limits: uses("long")},
				{Name: "both", Match: policy.Match{Paths: []string{"/both"}}, Limits: uses("long", "p")},
				{Name: "use", Match: policy.Match{Paths: []string{"/use"}}, Limits: uses("long", "use")},
			},
		}
		e := ownedBy(t, o, nil, nil, set)
		wait := func(ctx context.Context, path string) (*policy.Verdict, time.Duration, error) {
			v := new(policy.Verdict)
			began := time.Now()
			err := verdictOf(e.Wait(ctx, &policy.Request{Path: path}, v), v)
			return v, time.Since(began), err
		}
		held, _, _ := wait(t.Context(), "/use")
		if !held.Allowed {
			t.Fatalf("%+v", held)
		}
		if v, took, err := wait(t.Context(), "/both"); v.Allowed || took != 20*time.Second || err != nil || v.Decision().Reason != weir.ReasonDeadline {
			t.Errorf("%v after %v: %+v", err, took, v)
		}
		wantStored(t, e, "p", "", "", 5)
		// 30 s go to the queue of this process, so that 30 s are left for that of the owner, which has a permit in 40 s.
		time.AfterFunc(30*time.Second, held.Release)
		if v, took, err := wait(t.Context(), "/use"); !v.Allowed || took != 40*time.Second || err != nil {
			t.Errorf("%v after %v: %+v", err, took, v)
		} else {
			v.Release()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if v, took, err := wait(ctx, "/long"); v.Allowed || took != 5*time.Second || err != nil {
			t.Errorf("%v after %v: %+v", err, took, v)
		}
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(7*time.Second, cancel)
		if v, took, err := wait(ctx, "/long"); v.Allowed || took != 7*time.Second || !errors.Is(err, context.Canceled) ||
			v.Decision().Reason != weir.ReasonCanceled {
			t.Errorf("%v after %v: %+v", err, took, v)
		}
		time.AfterFunc(3*time.Second, func() { _ = e.Close() })
		if v, took, err := wait(t.Context(), "/long"); v.Allowed || took != 3*time.Second || err != nil || v.Decision().Reason != weir.ReasonClosed {
			t.Errorf("%v after %v: %+v", err, took, v)
		}
		if n := e.Report().Canceled; n != 1 {
			t.Errorf("%d were canceled", n)
		}
	})
}

// TestDurableWithoutOwner: Fail decides, and it is counted and logged.
func TestDurableWithoutOwner(t *testing.T) {
	for _, kind := range []string{"alone", "with a store"} {
		clock := manualclock.New(1)
		o, s := newOwner(t, clock), memory(t, clock)
		var log bytes.Buffer
		closed := inOrder(10, time.Minute)
		open := inOrder(10, time.Minute)
		open.Name, open.Fail = "open", policy.FailOpen
		set := &policy.Set{
			Policies: append(shared(policy.Policy{Name: "shared", Limits: one(perHour(10))}), closed, open),
			Rules: []policy.Rule{
				{Name: "closed", Match: policy.Match{Paths: []string{"/closed"}}, Limits: uses("p")},
				{Name: "open", Match: policy.Match{Paths: []string{"/open"}}, Limits: uses("open")},
			},
		}
		if kind != "alone" {
			set.Rules = append(set.Rules, policy.Rule{Name: "shared", Limits: uses("shared")})
		}
		e := engine(t, set, func(x *policy.EngineOptions) {
			x.Durable, x.Store, x.Clock, x.Logger = o, s, clock, slog.New(slog.NewTextHandler(&log, nil))
		})
		o.fail = func() error { return store.ErrUnavailable }
		for i, ask := range []func(r *policy.Request, v *policy.Verdict) error{
			func(r *policy.Request, v *policy.Verdict) error { e.Take(r, v); return nil },
			func(r *policy.Request, v *policy.Verdict) error { e.Reserve(r, v); return nil },
			func(r *policy.Request, v *policy.Verdict) error { return verdictOf(e.Wait(t.Context(), r, v), v) },
		} {
			var v policy.Verdict
			if err := ask(&policy.Request{Path: "/closed"}, &v); err != nil || v.Allowed || v.Decision().Reason != weir.ReasonUnavailable ||
				v.Decision().RetryAfter != time.Second || v.Decision().Policy != "p" {
				t.Errorf("%s, %d: %v, %+v", kind, i, err, v)
			}
			v.Release()
			if err := ask(&policy.Request{Path: "/open"}, &v); err != nil || !v.Allowed || v.Parts[0].Decision.Policy != "open" {
				t.Errorf("%s, %d: %v, %+v", kind, i, err, v)
			}
			v.Release()
			e.Peek(&policy.Request{Path: "/open"}, &v)
			r := e.Report().Policies
			if n := uint64(i + 1); r[1].Unavailable != n || r[1].Refused != n || r[2].Unavailable != n || r[2].Allowed != n || r[0].Unavailable != 0 {
				t.Errorf("%s, %d: %+v", kind, i, r)
			}
		}
		if kind != "alone" {
			wantStored(t, e, "shared", "", "", 7)
		}
		for _, name := range []string{"policy=p ", "policy=open "} {
			if strings.Count(log.String(), name) != 1 {
				t.Errorf("%s: %q", name, log.String())
			}
		}
	}
}

// TestDurableShadow counts in the cluster, never waits, and refuses nothing.
func TestDurableShadow(t *testing.T) {
	clock := manualclock.New(1)
	p := inOrder(10, time.Hour)
	p.Mode = policy.ModeShadow
	o := newOwner(t, clock)
	e := ownedBy(t, o, nil, clock, &policy.Set{Policies: []policy.Policy{p}, Rules: []policy.Rule{{Name: "all", Limits: uses("p")}}})
	for range 3 {
		var v policy.Verdict
		if err := verdictOf(e.Wait(t.Context(), &policy.Request{}, &v), &v); err != nil || !v.Allowed {
			t.Errorf("%v, %+v", err, v)
		}
		v.Release()
	}
	if r := e.Report().Policies[0]; r.Allowed != 1 || r.Refused != 2 || r.Difference == nil || r.Difference.NewlyRefused != 2 {
		t.Errorf("%+v", r)
	}
	wantStored(t, e, "p", "", "", 0)
}

// TestDurableReloads: where limits are kept elsewhere from now on, they are as stored there; otherwise they go on, whatever else changes.
func TestDurableReloads(t *testing.T) {
	of := func(d policy.Durability, c policy.Consistency, n int64) policy.Policy {
		return policy.Policy{Name: "p", Limits: one(perHour(n)), Durability: d, Consistency: c}
	}
	const memoryOnly, cluster, local, coherent = policy.DurabilityMemory, policy.DurabilityCluster, policy.ConsistencyLocal, policy.ConsistencyCoherent
	for _, c := range []struct {
		from, to policy.Policy
		left     int64
		state    []string
	}{
		{of(memoryOnly, local, 10), of(cluster, local, 10), 10, []string{"policies.p.durability:  -> cluster (as stored)"}},
		{of(cluster, local, 10), of(memoryOnly, local, 10), 10, []string{"policies.p.durability: cluster ->  (begins anew)"}},
		{of(memoryOnly, coherent, 10), of(cluster, local, 10), 10, []string{
			"policies.p.consistency: coherent ->  (as stored)", "policies.p.durability:  -> cluster (as stored)",
		}},
		{of(cluster, local, 10), of(memoryOnly, coherent, 20), 20, []string{
			"policies.p.consistency:  -> coherent (as stored)", "policies.p.durability: cluster ->  (as stored)",
			"policies.p.limits.1h: 1/h, burst 10 -> 1/h, burst 20 (as stored)",
		}},
		{of(cluster, local, 10), of(cluster, local, 5), 5, []string{"policies.p.limits.1h: 1/h, burst 10 -> 1/h, burst 5 (kept)"}},
		{of(cluster, local, 10), of(cluster, local, 20), 6, []string{"policies.p.limits.1h: 1/h, burst 10 -> 1/h, burst 20 (kept)"}},
	} {
		clock := manualclock.New(1)
		rules := []policy.Rule{{Name: "all", Limits: uses("p")}}
		e := ownedBy(t, newOwner(t, clock), memory(t, clock), clock, &policy.Set{Policies: []policy.Policy{c.from}, Rules: rules})
		if v := take(e, policy.Request{Cost: 4}); !v.Allowed {
			t.Fatalf("%+v", v)
		}
		var got []string
		for _, c := range load(t, e, &policy.Set{Policies: []policy.Policy{c.to}, Rules: rules}) {
			got = append(got, fmt.Sprintf("%s: %s -> %s (%s)", c.Path, c.Old, c.New, c.State))
		}
		var v policy.Verdict
		if e.Peek(&policy.Request{}, &v); !slices.Equal(got, c.state) || v.Parts[0].Decision.Remaining != c.left {
			t.Errorf("%q, %d are left; want %q, %d", got, v.Parts[0].Decision.Remaining, c.state, c.left)
		}
		if n := e.Report().Policies[0].Allowed; n != 1 {
			t.Errorf("%d were granted", n)
		}
	}
}

// TestWhatIsStoredComesBack: a limit that was moved into memory, or removed, goes on from what is stored when it comes back, and the
// changes say so.
func TestWhatIsStoredComesBack(t *testing.T) {
	clock := manualclock.New(1)
	rules := []policy.Rule{{Name: "all", Limits: uses("p")}}
	p := policy.Policy{Name: "p", Limits: one(perHour(10)), Durability: policy.DurabilityCluster}
	inMemory := p
	inMemory.Durability = policy.DurabilityMemory
	stored := &policy.Set{Policies: []policy.Policy{p}, Rules: rules}
	e := ownedBy(t, newOwner(t, clock), nil, clock, stored)
	if v := take(e, policy.Request{Cost: 4}); !v.Allowed {
		t.Fatalf("%+v", v)
	}
	for _, step := range []struct {
		set  *policy.Set
		want string
	}{
		{&policy.Set{Policies: []policy.Policy{inMemory}, Rules: rules}, "policies.p.durability: begins anew"},
		{stored, "policies.p.durability: as stored"},
		{&policy.Set{}, "policies.p.limits.1h: stays stored"},
		{stored, "policies.p.limits.1h: "},
	} {
		var got []string
		for _, c := range load(t, e, step.set) {
			got = append(got, c.Path+": "+c.State)
		}
		if !slices.Contains(got, step.want) || slices.Contains(got, "policies.p: forgotten") {
			t.Errorf("%q, want %q", got, step.want)
		}
		var v policy.Verdict
		if e.Peek(&policy.Request{}, &v); step.set == stored && v.Parts[0].Decision.Remaining != 6 {
			t.Errorf("%+v", v.Parts)
		}
	}
}

// TestDurableNeedsAnOwner, unless the engine is alone; then the limits are those of this process, with their queue.
func TestDurableNeedsAnOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := &policy.Set{Policies: []policy.Policy{inOrder(1, time.Hour)}, Rules: []policy.Rule{{Name: "all", Limits: uses("p")}}}
		const want = `policy "p": Durability is cluster: must be memory, as the engine has no Durable`
		if _, err := policy.NewEngine(set, policy.EngineOptions{Store: memory(t, nil)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		e := engine(t, set, func(o *policy.EngineOptions) { o.Alone, o.Clock = true, nil })
		began := time.Now()
		for range 3 {
			if err := e.Wait(t.Context(), &policy.Request{}, new(policy.Verdict)); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took != 2*time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// TestDurableAllOrNothingContention: two engines with limits of their own, over one owner and one store, both of which fail now and then,
// are asked in every way at a time. Every permit that is gone afterwards was granted, once, but for those that a failure has burned.
func TestDurableAllOrNothingContention(t *testing.T) {
	for _, failing := range []bool{false, true} {
		const goroutines, requests, most = 8, 300, 900
		clock := manualclock.New(1)
		o, s := newOwner(t, clock), memory(t, clock)
		if failing {
			fail := func() error {
				if rand.IntN(40) == 0 {
					return store.ErrUnavailable // before it took effect
				}
				return nil
			}
			o.fail, s.fail = fail, fail
		}
		set := &policy.Set{
			Policies: append(append(
				shared(policy.Policy{Name: "shared", Limits: one(perHour(most)), Key: policy.HostText()}),
				durably(
					policy.Policy{Name: "durable", Limits: one(perHour(most / 2)), Key: policy.MethodText(), QueueLimit: 3, MaxWait: time.Millisecond},
					policy.Policy{Name: "total", Limits: one(perHour(most * 2))},
				)...), policy.Policy{Name: "local", Limits: one(perHour(most / 2)), Key: policy.HostText()}),
			Rules: []policy.Rule{{Name: "all", Limits: uses("shared", "local", "durable", "total")}},
		}
		engines := []*policy.Engine{ownedBy(t, o, s, clock, set), ownedBy(t, o, s, clock, set)}
		var spent [2]atomic.Int64
		var all sync.WaitGroup
		for g := range goroutines {
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 5))
				spent[g%2].Add(askAtRandom(t, engines[g%2], r, requests))
			})
		}
		all.Wait()
		total := spent[0].Load() + spent[1].Load()
		goneOf := func(name string, keys ...string) (gone int64) {
			for _, key := range keys {
				st, err := engines[0].Inspect(t.Context(), name, "", key)
				if err != nil {
					t.Fatal(err)
				}
				gone += st.Decision.Limit - st.Decision.Remaining
				if st.Decision.Remaining < 0 || st.Reserved != 0 && !failing {
					t.Errorf("%s %s: %+v", name, key, st)
				}
			}
			return gone
		}
		for name, gone := range map[string]int64{
			"shared": goneOf("shared", "h0", "h1"), "durable": goneOf("durable", "M0", "M1", "M2", "M3"), "total": goneOf("total", ""),
		} {
			if gone < total || !failing && gone != total {
				t.Errorf("%d are gone of %s, %d were granted", gone, name, total)
			}
		}
		local := int64(0)
		for _, e := range engines {
			for _, key := range []string{"h0", "h1"} {
				local += most/2 - left(t, e, "local", key)
			}
		}
		if local != total || total == 0 {
			t.Errorf("%d are gone of this process, %d were granted", local, total)
		}
	}
}

// askAtRandom asks for so many requests in every way there is to ask and to settle, and returns what those that were granted cost.
func askAtRandom(t *testing.T, e *policy.Engine, r *rand.Rand, requests int) (spent int64) {
	t.Helper()
	v := new(policy.Verdict)
	for range requests {
		request := policy.Request{Method: fmt.Sprint("M", r.IntN(4)), Host: fmt.Sprint("h", r.IntN(2)), Cost: 1 + r.Int64N(3)}
		reserved := false
		switch r.IntN(4) {
		case 0:
			e.Reserve(&request, v)
			reserved = true
		case 1:
			_ = e.Wait(t.Context(), &request, v)
		default:
			e.Take(&request, v)
		}
		if !v.Allowed {
			v.Release()
			continue
		}
		cost := request.Cost
		settle(r.IntN(3), v, &cost, reserved)
		spent += cost
	}
	return spent
}
