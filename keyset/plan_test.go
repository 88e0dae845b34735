package keyset_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
)

func TestPlanCalls(t *testing.T) {
	clock := manualclock.New(1)
	k := keyedOf(t, weir.TokenBucket(weir.PerSecond(1), 0), weir.KeyedOptions{Name: "calls", Clock: clock})
	p := planOf(t, k, perHour(5))
	key := []byte("a")
	want := func(what string, got, want weir.Decision) {
		t.Helper()
		if want.Limit, want.Policy = 5, "calls"; got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	want("a refund of a key that is not known", p.RefundBytes(key, 9), weir.Decision{Allowed: true, Remaining: 5})
	want("a probe of it", p.PeekBytes(key, 0), weir.Decision{Allowed: true, Remaining: 5})
	want("too many of it", p.TakeBytes(key, 6), weir.Decision{Reason: weir.ReasonNever, Remaining: 5, RetryAfter: weir.Never})
	if s := k.Stats(); s.Keys != 0 {
		t.Errorf("%d keys have a state, though nothing was taken", s.Keys)
	}
	want("the first", p.TakeBytes(key, 4), weir.Decision{Allowed: true, Remaining: 1, ResetAfter: 4 * time.Hour})
	want("too early", p.TakeBytes(key, 3), weir.Decision{
		Reason: weir.ReasonLimited, Remaining: 1, RetryAfter: 2 * time.Hour, ResetAfter: 4 * time.Hour,
	})
	want("a look", p.PeekBytes(key, 1), weir.Decision{Allowed: true, Remaining: 1, ResetAfter: 4 * time.Hour})
	want("a refund", p.RefundBytes(key, 2), weir.Decision{Allowed: true, Remaining: 3, ResetAfter: 2 * time.Hour})
	want("nothing back", p.RefundBytes(key, 0), weir.Decision{Allowed: true, Remaining: 3, ResetAfter: 2 * time.Hour})
	want("less than nothing back", p.RefundBytes(key, -9), weir.Decision{Allowed: true, Remaining: 3, ResetAfter: 2 * time.Hour})
	clock.Advance(time.Hour / 2)
	want("more than all back", p.RefundBytes(key, 1e18), weir.Decision{Allowed: true, Remaining: 5})
	want("all", p.TakeBytes(key, 5), weir.Decision{Allowed: true, ResetAfter: 5 * time.Hour})
	want("a probe", p.TakeBytes(key, 0), weir.Decision{
		Reason: weir.ReasonLimited, RetryAfter: time.Hour, ResetAfter: 5 * time.Hour,
	})
	key[0] = 'b'
	want("another key", p.PeekBytes(key, 1), weir.Decision{Allowed: true, Remaining: 5})
	if top := keyset.Of(k).Top(1); len(top) != 1 || top[0].Key != "a" {
		t.Errorf("the name of a key has changed with the bytes of the caller: %+v", top)
	}
	if s := k.Stats(); s.Allowed != 2 || s.Refused != 2 || s.Keys != 1 {
		t.Errorf("%+v", s)
	}
}

func TestPlanCallsThatAreRefused(t *testing.T) {
	numbers, err := weir.NewKeyedFunc(weir.TokenBucket(weir.PerSecond(1), 0), weir.KeyedOptions{}, func(int) weir.Limit { return weir.Limit{} })
	if err != nil {
		t.Fatal(err)
	}
	ofNumbers, err := keyset.Of(numbers).Plan(weir.Limit{})
	if err != nil {
		t.Fatal(err)
	}
	leased := keyedOf(t, weir.AtOnce(3), weir.KeyedOptions{})
	k := hourly(t, "", 3)
	closed := hourly(t, "", 3)
	ofClosed := planOf(t, closed, perHour(3))
	ofClosed.TakeBytes([]byte("a"), 1)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what   string
		plan   *keyset.Plan
		n      int64
		reason weir.Reason
		refund weir.Reason
	}{
		{"keys that are no strings", ofNumbers, 1, weir.ReasonInvalid, weir.ReasonInvalid},
		{"concurrency", planOf(t, leased, weir.Limit{}), 1, weir.ReasonInvalid, weir.ReasonInvalid},
		{"a negative number", planOf(t, k, perHour(5)), -1, weir.ReasonInvalid, weir.ReasonNone},
		{"a closed limiter", ofClosed, 1, weir.ReasonClosed, weir.ReasonClosed},
	} {
		take, peek, refund := c.plan.TakeBytes([]byte("a"), c.n), c.plan.PeekBytes([]byte("a"), c.n), c.plan.RefundBytes([]byte("a"), c.n)
		if take.Allowed || take.Reason != c.reason || take.RetryAfter != weir.Never {
			t.Errorf("%s: take %+v", c.what, take)
		}
		if peek.Allowed || peek.Reason != c.reason {
			t.Errorf("%s: peek %+v", c.what, peek)
		}
		if refund.Reason != c.refund || refund.Allowed != (c.refund == weir.ReasonNone) {
			t.Errorf("%s: refund %+v", c.what, refund)
		}
	}
}

// TestPlanCallsChangeTheLimit: what is available stays so up to the new limit, and is never scaled.
func TestPlanCallsChangeTheLimit(t *testing.T) {
	k := hourly(t, "", 100)
	a := []byte("a")
	for i, c := range []struct{ burst, take, left int64 }{
		{100, 30, 70}, {1000, 5, 65}, {50, 0, 50}, {100, 10, 40}, {7, 1, 6}, {1000, 0, 6},
	} {
		p := planOf(t, k, perHour(c.burst))
		if d := p.TakeBytes(a, c.take); !d.Allowed || d.Remaining != c.left || d.Limit != c.burst {
			t.Errorf("%d: %+v, want %+v", i, d, c)
		}
		if d := p.RefundBytes(a, 0); d.Remaining != c.left {
			t.Errorf("%d: a look finds %+v", i, d)
		}
	}
	if d := planOf(t, k, perHour(10)).RefundBytes(a, 1e15); d.Remaining != 10 || d.ResetAfter != 0 {
		t.Errorf("a refund beyond the limit: %+v", d)
	}
	if d := planOf(t, k, perHour(100)).PeekBytes(a, 1); d.Remaining != 10 {
		t.Errorf("the refund was bounded by another limit than that of its plan: %+v", d)
	}
}

// TestPlanCallsServeWaiters: a call that waits for a key is not overtaken, and gets what is given back.
func TestPlanCallsServeWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := weir.NewKeyedFunc(weir.TokenBucket(every(time.Hour), 5), weir.KeyedOptions{QueueLimit: 10},
			func(string) weir.Limit { return weir.Limit{} })
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		p, a := planOf(t, k, weir.Limit{}), []byte("a")
		p.TakeBytes(a, 4)
		got := make(chan weir.Lease, 1)
		go func() {
			l, _ := k.Acquire(context.Background(), "a", 3)
			got <- l
		}()
		synctest.Wait()
		if d := p.TakeBytes(a, 1); d.Allowed || d.RetryAfter != 3*time.Hour {
			t.Errorf("a newcomer: %+v", d)
		}
		if d := p.PeekBytes(a, 1); d.Allowed || d.RetryAfter != 3*time.Hour || d.Remaining != 1 {
			t.Errorf("a look: %+v", d)
		}
		if d := p.RefundBytes(a, 1); d.Remaining != 2 {
			t.Errorf("a refund that is not enough: %+v", d)
		}
		if d := p.RefundBytes(a, 2); d.Remaining != 1 {
			t.Errorf("a refund: %+v, want what remains once the other one was served", d)
		}
		if l := <-got; !l.Allowed() {
			t.Errorf("who waited got %+v", l.Decision())
		}
	})
}

// TestPlanCallsDuringAnOverride: the override decides, and the plan is what the key goes back to.
func TestPlanCallsDuringAnOverride(t *testing.T) {
	clock := manualclock.New(1)
	k := keyedOf(t, weir.TokenBucket(every(time.Hour), 5), weir.KeyedOptions{Clock: clock})
	p, a := planOf(t, k, perHour(50)), []byte("a")
	p.TakeBytes(a, 20)
	if err := keyset.Of(k).Override("a", perHour(10), time.Minute); err != nil {
		t.Fatal(err)
	}
	other := planOf(t, k, perHour(40))
	if d := other.TakeBytes(a, 4); d.Limit != 10 || d.Remaining != 6 {
		t.Errorf("%+v", d)
	}
	if d := other.RefundBytes(a, 1000); d.Limit != 10 || d.Remaining != 10 {
		t.Errorf("a refund: %+v", d)
	}
	if d := other.TakeBytes(a, 11); d.Reason != weir.ReasonNever {
		t.Errorf("more than the override: %+v", d)
	}
	clock.Advance(time.Minute)
	if d := other.PeekBytes(a, 1); d.Limit != 40 || d.Remaining != 10 {
		t.Errorf("afterwards: %+v", d)
	}
}

// TestPlanCallsRenewThePlan: a plan that no key had gives its place to others, and gets it back when there is one.
func TestPlanCallsRenewThePlan(t *testing.T) {
	clock := manualclock.New(1)
	k := keyedOf(t, weir.TokenBucket(every(time.Hour), 100), weir.KeyedOptions{Clock: clock})
	p := planOf(t, k, perHour(7))
	for i := range int64(3000) { // more than there are between two sweeps
		planOf(t, k, perHour(1000+i))
	}
	known := []byte("known")
	k.Take("known", 10)
	if d := p.TakeBytes(known, 2); !d.Allowed || d.Limit != 7 || d.Remaining != 5 {
		t.Errorf("%+v", d)
	}
	if d := p.RefundBytes(known, 1); d.Limit != 7 || d.Remaining != 6 {
		t.Errorf("%+v", d)
	}
}

// TestPlanCallsContention has goroutines take and give back the permits of one key under two plans. All of them are accounted
// for, and a goroutine that gives some back sees them: no other took them in between.
func TestPlanCallsContention(t *testing.T) {
	const burst = 50
	k := hourly(t, "", burst)
	plans := []*keyset.Plan{planOf(t, k, perHour(burst)), planOf(t, k, weir.TokenBucket(every(2*time.Hour), burst))}
	key := []byte("key")
	var wg sync.WaitGroup
	var mu sync.Mutex
	out := int64(0)
	for i := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 2))
			mine := int64(0)
			for range 3000 {
				p, n := plans[random.IntN(2)], 1+random.Int64N(4)
				if random.IntN(2) == 0 {
					if p.TakeBytes(key, n).Allowed {
						mine += n
					}
				} else if n = min(n, mine); n > 0 {
					mine -= n
					if d := p.RefundBytes(key, n); !d.Allowed || d.Remaining < n || d.Remaining > burst {
						t.Errorf("after a refund of %d: %+v", n, d)
					}
				}
			}
			mu.Lock()
			out += mine
			mu.Unlock()
		})
	}
	wg.Wait()
	if d := plans[0].PeekBytes(key, 1); d.Remaining != burst-out {
		t.Errorf("%d permits are left of %d, of which %d are out", d.Remaining, burst, out)
	}
}

// TestPlanCallsDoNotAllocate: not even where the plan of a key changes with each call.
func TestPlanCallsDoNotAllocate(t *testing.T) {
	if race.Enabled {
		return // its instrumentation allocates
	}
	k := keyedOf(t, weir.TokenBucket(weir.PerSecond(1), 0), weir.KeyedOptions{})
	a, b, key := planOf(t, k, perHour(1000)), planOf(t, k, perHour(2000)), []byte("a key that is longer than what fits into registers")
	a.TakeBytes(key, 1)
	for what, call := range map[string]func(){
		"take":   func() { a.TakeBytes(key, 1) },
		"refuse": func() { a.TakeBytes(key, 1e6) },
		"peek":   func() { a.PeekBytes(key, 1) },
		"refund": func() { a.RefundBytes(key, 1) },
		"change": func() { a.TakeBytes(key, 1); b.TakeBytes(key, 1) },
	} {
		if n := testing.AllocsPerRun(200, call); n != 0 {
			t.Errorf("%s allocates %v times", what, n)
		}
	}
}

// BenchmarkPlanCalls compares a key that brings its limit with one of a limiter for all, with one key and with a million.
func BenchmarkPlanCalls(b *testing.B) {
	for _, keys := range []int{1, 1_000_000} {
		names := make([][]byte, 0, keys)
		texts := make([]string, 0, keys)
		for i := range keys {
			texts = append(texts, fmt.Sprintf("user:%08d", i))
			names = append(names, []byte(texts[i]))
		}
		limit := weir.TokenBucket(weir.PerSecond(1000), 1e6)
		for _, run := range []struct {
			name string
			call func() func(i int)
		}{
			{"plan", func() func(int) {
				p := planOf(b, keyedOf(b, weir.TokenBucket(weir.PerSecond(1), 0), weir.KeyedOptions{}), limit)
				return func(i int) { p.TakeBytes(names[i], 1) }
			}},
			{"plan refund", func() func(int) {
				p := planOf(b, keyedOf(b, weir.TokenBucket(weir.PerSecond(1), 0), weir.KeyedOptions{}), limit)
				for _, name := range names {
					p.TakeBytes(name, 1)
				}
				return func(i int) { p.RefundBytes(names[i], 1) }
			}},
			{"limitOf", func() func(int) {
				k, err := weir.NewKeyedFunc(weir.TokenBucket(weir.PerSecond(1), 0), weir.KeyedOptions{}, func(string) weir.Limit { return limit })
				if err != nil {
					b.Fatal(err)
				}
				return func(i int) { k.Take(texts[i], 1) }
			}},
			{"keyed", func() func(int) {
				k, err := weir.NewKeyed[string](limit, weir.KeyedOptions{})
				if err != nil {
					b.Fatal(err)
				}
				return func(i int) { k.Take(texts[i], 1) }
			}},
		} {
			b.Run(fmt.Sprintf("%s/%d", run.name, keys), func(b *testing.B) {
				call := run.call()
				for i := range keys {
					call(i)
				}
				order := rand.New(rand.NewPCG(1, 1)).Perm(keys)
				b.ReportAllocs()
				b.ResetTimer()
				at := 0
				for range b.N {
					call(order[at])
					if at++; at == keys {
						at = 0
					}
				}
			})
		}
	}
}
