package policy_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/overload"
	"github.com/weirhq/weir/policy"
)

// waited is how a request ended, and when.
type waited struct {
	at     time.Duration
	reason weir.Reason
}

// reloadWhileWaiting lets so many requests wait under one set, and loads another one after a time. It returns when each was
// decided on, in the order in which they came.
func reloadWhileWaiting(t *testing.T, n int, before, after *policy.Set, when time.Duration) (all []waited) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, before, func(o *policy.EngineOptions) { o.Clock = nil })
		began := time.Now()
		all = make([]waited, n)
		done := make(chan struct{})
		for i := range n {
			go func() {
				defer func() { done <- struct{}{} }()
				r := request(ann)
				var v policy.Verdict
				if err := verdictOf(e.Wait(context.Background(), &r, &v), &v); err != nil {
					t.Error(err)
				}
				all[i] = waited{time.Since(began), v.Decision().Reason}
				v.Release()
			}()
			synctest.Wait()
		}
		time.Sleep(when)
		load(t, e, after)
		for range n {
			<-done
		}
		for _, p := range e.Report().Policies {
			if p.Queued != 0 {
				t.Errorf("%d permits are waited for", p.Queued)
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return all
}

// TestReloadReachesThoseWhoWait loads other parameters while 50 requests wait for a key. Each is allowed at the time that an
// exact reference says: permits came at the old rate until then, and come at the new one from then on.
func TestReloadReachesThoseWhoWait(t *testing.T) {
	const (
		n    = 50
		when = 2050 * time.Millisecond
	)
	queued := func(p *policy.Policy) { p.QueueLimit, p.MaxWait = 1000, time.Hour }
	rate := func(permits int64, period time.Duration) weir.Limit {
		return weir.TokenBucket(weir.Rate{Permits: permits, Period: period}, 1)
	}
	limits := func(l weir.Limit) func(*policy.Policy) { return func(p *policy.Policy) { p.Limits = one(l) } }
	keys := func(key string, l weir.Limit) func(*policy.Policy) {
		return func(p *policy.Policy) { p.Keys = map[string][]policy.Limit{key: one(l)} }
	}
	tiers := func(name string, l weir.Limit) func(*policy.Policy) {
		return func(p *policy.Policy) {
			p.TierBy, p.Tiers = policy.MethodText(), map[string][]policy.Limit{name: one(l)}
		}
	}
	old, slow, fast := rate(10, time.Second), rate(2, time.Second), rate(50, time.Second)
	method := request(ann).Method
	for name, c := range map[string]struct {
		from, to      weir.Limit
		before, after []func(*policy.Policy)
	}{
		"lowered":             {old, slow, []func(*policy.Policy){limits(old)}, []func(*policy.Policy){limits(slow)}},
		"raised":              {old, fast, []func(*policy.Policy){limits(old)}, []func(*policy.Policy){limits(fast)}},
		"the same":            {old, old, []func(*policy.Policy){limits(old)}, []func(*policy.Policy){limits(old)}},
		"raised from nothing": {rate(1, time.Minute), fast, []func(*policy.Policy){limits(rate(1, time.Minute))}, []func(*policy.Policy){limits(fast)}},
		"renamed": {old, slow, []func(*policy.Policy){limits(old)}, []func(*policy.Policy){func(p *policy.Policy) {
			p.Limits = []policy.Limit{{Name: "other", Limit: slow}}
		}}},
		"of the key, lowered": {old, slow, []func(*policy.Policy){limits(fast), keys(ann, old)}, []func(*policy.Policy){limits(fast), keys(ann, slow)}},
		"of the key, raised":  {old, fast, []func(*policy.Policy){limits(old), keys(ann, old)}, []func(*policy.Policy){limits(old), keys(ann, fast)}},
		"of the key, new":     {old, slow, []func(*policy.Policy){limits(old)}, []func(*policy.Policy){limits(old), keys(ann, slow)}},
		"of the key, gone":    {old, slow, []func(*policy.Policy){limits(slow), keys(ann, old)}, []func(*policy.Policy){limits(slow)}},
		"of another key":      {old, old, []func(*policy.Policy){limits(old), keys(ben, old)}, []func(*policy.Policy){limits(old), keys(ben, slow)}},
		"of the tier":         {old, slow, []func(*policy.Policy){limits(old), tiers(method, old)}, []func(*policy.Policy){limits(old), tiers(method, slow)}},
		"of another tier":     {old, old, []func(*policy.Policy){limits(old), tiers("other", old)}, []func(*policy.Policy){limits(old), tiers("other", slow)}},
		"beside a tier":       {old, slow, []func(*policy.Policy){limits(old), tiers("other", old)}, []func(*policy.Policy){limits(slow), tiers("other", old)}},
		"a shorter queue": {old, slow, []func(*policy.Policy){limits(old)}, []func(*policy.Policy){limits(slow), func(p *policy.Policy) {
			p.QueueLimit = 1
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := reloadWhileWaiting(t, n, login(append([]func(*policy.Policy){queued}, c.before...)...),
				login(append([]func(*policy.Policy){queued}, c.after...)...), when)
			want := referenceGrants(n, c.from.Rate(), c.to.Rate(), when)
			for i := range got {
				if got[i].reason != weir.ReasonNone || (got[i].at-want[i]).Abs() > time.Microsecond {
					t.Fatalf("request %d: %v at %v, want it allowed at %v", i, got[i].reason, got[i].at, want[i])
				}
			}
		})
	}
}

// referenceGrants returns when each of n requests is allowed by a bucket of one permit which changes its rate at a time.
// A permit is a whole of from.Period * to.Period, so that both rates are whole numbers of parts for each nanosecond.
func referenceGrants(n int, from, to weir.Rate, when time.Duration) (all []time.Duration) {
	whole := int64(from.Period) / 1000 * (int64(to.Period) / 1000)
	fast := func(r, other weir.Rate) int64 { return r.Permits * int64(other.Period) / 1000 } // parts for each us
	at, have := int64(0), whole
	for len(all) < n {
		for have < whole {
			pace, until := fast(from, to), int64(when)
			if at >= until {
				pace, until = fast(to, from), 1<<62
			}
			need := (whole - have + pace - 1) / pace * 1000
			if at+need > until {
				have += (until - at) / 1000 * pace
				at = until
				continue
			}
			have, at = have+need/1000*pace, at+need
		}
		have -= whole
		all = append(all, time.Duration(at))
	}
	return all
}

// TestReloadReachesThoseWhoWaitForOthers: a larger window serves those who wait at once, and so does the end of a policy.
func TestReloadReachesThoseWhoWaitForOthers(t *testing.T) {
	minute := algo.Calendar{Unit: algo.CalendarMinute}
	bucket := weir.TokenBucket(weir.Rate{Permits: 1, Period: 5 * time.Minute}, 2)
	for name, c := range map[string]struct {
		before, after weir.Limit
		want          int // are allowed as soon as the limit is raised
	}{
		"fixed window":    {weir.FixedWindow(weir.Rate{Permits: 2, Period: 10 * time.Minute}), weir.FixedWindow(weir.Rate{Permits: 7, Period: 10 * time.Minute}), 7},
		"sliding window":  {weir.SlidingWindow(weir.Rate{Permits: 2, Period: 10 * time.Minute}, 0), weir.SlidingWindow(weir.Rate{Permits: 7, Period: 10 * time.Minute}, 0), 7},
		"sliding counter": {weir.SlidingCounter(weir.Rate{Permits: 2, Period: 10 * time.Minute}), weir.SlidingCounter(weir.Rate{Permits: 7, Period: 10 * time.Minute}), 7},
		"calendar window": {weir.CalendarWindow(2, minute), weir.CalendarWindow(7, minute), 7},
		"mode off":        {bucket, weir.Limit{}, 10},
		"no policy":       {bucket, weir.TokenBucket(weir.Rate{}, -1), 10},
		"algorithm":       {bucket, weir.FixedWindow(weir.Rate{Permits: 5, Period: 10 * time.Minute}), 7},
	} {
		t.Run(name, func(t *testing.T) {
			queued := func(p *policy.Policy) { p.QueueLimit, p.MaxWait = 1000, time.Hour }
			before := login(queued, func(p *policy.Policy) { p.Limits = one(c.before) })
			after := login(queued, func(p *policy.Policy) { p.Limits = one(c.after) })
			switch {
			case c.after.Permits() < 0:
				after = &policy.Set{}
			case c.after == weir.Limit{}:
				after = login(queued, func(p *policy.Policy) { p.Limits, p.Mode = one(c.before), policy.ModeOff })
			}
			const when = 30 * time.Second
			got := reloadWhileWaiting(t, 10, before, after, when)
			first, then, late := 0, 0, 0
			for _, w := range got {
				switch {
				case w.reason == weir.ReasonNone && w.at == 0:
					first++
				case w.reason == weir.ReasonNone && w.at == when:
					then++
				case w.reason == weir.ReasonDeadline || w.reason == weir.ReasonNone && w.at > when:
					late++
				default:
					t.Errorf("%+v", w)
				}
			}
			if first != 2 || first+then != c.want || first+then+late != 10 {
				t.Errorf("%d at once, %d as the limit was raised, %d later, want %d in all: %v", first, then, late, c.want, got)
			}
		})
	}
}

// TestReloadReachesThoseWhoWaitForLeases raises and lowers how many permits can be out at a time.
func TestReloadReachesThoseWhoWaitForLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := func(n int64) *policy.Set {
			return login(func(p *policy.Policy) {
				p.QueueLimit, p.MaxWait, p.Limits = 1000, time.Hour, one(weir.AtOnce(n))
			})
		}
		e := engine(t, set(2), func(o *policy.EngineOptions) { o.Clock = nil })
		out := make(chan *policy.Verdict, 100)
		for range 20 {
			go func() {
				r, v := request(ann), new(policy.Verdict)
				if err := e.Wait(context.Background(), &r, v); err != nil || !v.Allowed {
					t.Error(err, v.Decision())
				}
				out <- v
			}()
		}
		check := func(want int) {
			t.Helper()
			if synctest.Wait(); len(out) != want {
				t.Fatalf("%d are out, want %d", len(out), want)
			}
		}
		check(2)
		load(t, e, set(5))
		check(5)
		load(t, e, set(3))
		for range 2 { // 5 are out, and 3 may be
			(<-out).Release()
		}
		check(3)
		(<-out).Release()
		check(3)
		load(t, e, set(100))
		check(17)
		for range len(out) {
			(<-out).Release()
		}
	})
}

// TestReloadBesideAnOverride: the override goes on, and the new limit applies when it has ended.
func TestReloadBesideAnOverride(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := func(l weir.Limit) *policy.Set {
			return login(func(p *policy.Policy) { p.QueueLimit, p.MaxWait, p.Limits = 1000, time.Hour, one(l) })
		}
		e := engine(t, set(weir.TokenBucket(weir.Rate{Permits: 1, Period: 10 * time.Minute}, 1)), func(o *policy.EngineOptions) { o.Clock = nil })
		wantTakes(t, e, ann, 1, 1)
		began := time.Now()
		at := make(chan time.Duration, 10)
		for range 4 {
			go func() {
				r, v := request(ann), new(policy.Verdict)
				if err := e.Wait(context.Background(), &r, v); err != nil || !v.Allowed {
					t.Error(err, v.Decision())
				}
				at <- time.Since(began)
			}()
		}
		synctest.Wait()
		mustOverride(t, e, policy.Override{
			Policy: "login", Key: ann, For: 10 * time.Second, Limits: one(weir.TokenBucket(weir.Rate{Permits: 1, Period: 8 * time.Second}, 1)),
		})
		load(t, e, set(weir.TokenBucket(weir.Rate{Permits: 1, Period: 4 * time.Second}, 1)))
		var got []time.Duration
		for range 4 {
			got = append(got, <-at)
		}
		// A quarter of a permit had come when the override ended.
		if want := "[8s 13s 17s 21s]"; fmt.Sprint(got) != want {
			t.Errorf("allowed at %v, want %s", got, want)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestReloadReachesThoseWhoWaitForTheOwner of a cluster: they ask it anew, under the new limit. One that has not changed leaves
// them where they are.
func TestReloadReachesThoseWhoWaitForTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := func(l weir.Limit, priority overload.Priority) *policy.Set {
			return login(func(p *policy.Policy) {
				p.Durability, p.QueueLimit, p.MaxWait, p.Limits, p.Priority = policy.DurabilityCluster, 100, time.Hour, one(l), priority
			})
		}
		slow := weir.TokenBucket(weir.Rate{Permits: 1, Period: 10 * time.Minute}, 1)
		fast := weir.TokenBucket(weir.Rate{Permits: 1, Period: time.Minute}, 1)
		o := newOwner(t, nil)
		e := ownedBy(t, o, nil, nil, set(slow, overload.PriorityNormal))
		wantTakes(t, e, ann, 1, 1)
		began := time.Now()
		at := make(chan time.Duration, 10)
		for range 3 {
			go func() {
				r, v := request(ann), new(policy.Verdict)
				if err := e.Wait(context.Background(), &r, v); err != nil || !v.Allowed {
					t.Error(err, v.Decision())
				}
				at <- time.Since(began)
			}()
		}
		synctest.Wait()
		time.Sleep(time.Second)
		load(t, e, set(slow, overload.PriorityCritical))
		time.Sleep(29 * time.Second)
		load(t, e, set(fast, overload.PriorityNormal))
		for i := range 3 {
			// A twentieth of a permit had come.
			if got, want := <-at, 30*time.Second+time.Duration(i)*time.Minute+57*time.Second; (got - want).Abs() > time.Second {
				t.Errorf("request %d was allowed after %v, want %v", i, got, want)
			}
		}
		if n := o.waiting.Load(); n != 0 {
			t.Errorf("%d permits are waited for", n)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestReloadsContention loads sets while requests wait, come and go. No request is lost, and no permit is minted.
func TestReloadsContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rates := []int64{1, 100, 10, 1000}
		set := func(i int) *policy.Set {
			return login(func(p *policy.Policy) {
				p.QueueLimit, p.MaxWait = 10_000, time.Hour
				p.Limits = one(weir.TokenBucket(weir.PerSecond(rates[i%len(rates)]), 1))
			})
		}
		e := engine(t, set(0), func(o *policy.EngineOptions) { o.Clock = nil })
		var allowed atomic.Int64
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				for range 200 {
					r, v := request(ann), new(policy.Verdict)
					if err := e.Wait(context.Background(), &r, v); err != nil || !v.Allowed {
						t.Error(err, v.Decision())
					}
					v.Release()
					allowed.Add(1)
				}
			})
		}
		most := int64(1)
		for i := range 400 {
			time.Sleep(50 * time.Millisecond)
			most += rates[i%len(rates)] / 20
			if rates[i%len(rates)] < 20 {
				most++
			}
			synctest.Wait()
			if n := allowed.Load(); n > most {
				t.Fatalf("%d were allowed after %d reloads, at most %d may be", n, i, most)
			}
			load(t, e, set(i+1))
		}
		clients.Wait()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}
