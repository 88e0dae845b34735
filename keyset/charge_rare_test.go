package keyset_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
)

func planOf(t testing.TB, k *weir.Keyed[string], l weir.Limit) *keyset.Plan {
	t.Helper()
	p, err := keyset.Of(k).Plan(l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestChargesOfOneKeyUnderTwoPlans: a request that is refused gives back what it took under the one plan, although the other one
// has the state by then.
func TestChargesOfOneKeyUnderTwoPlans(t *testing.T) {
	quick := weir.TokenBucket(every(time.Second), 100)
	slow := weir.TokenBucket(every(time.Hour), 100)
	for _, c := range []struct {
		name          string
		first, second weir.Limit
	}{{"quick then slow", quick, slow}, {"slow then quick", slow, quick}} {
		for _, known := range []bool{false, true} {
			k, empty := hourly(t, "k", 100), hourly(t, "empty", 1)
			empty.Take("", 1)
			first, second := planOf(t, k, c.first), planOf(t, k, c.second)
			want := int64(100)
			if known {
				keyset.TryAcquireAll(nil, keyset.Charge{Limiter: k, Key: "a", N: 60, Plan: first})
				want = 40
			}
			l, b := keyset.TryAcquireAll(nil,
				keyset.Charge{Limiter: k, Key: "a", N: 10, Plan: first},
				keyset.Charge{Limiter: k, Key: "a", N: 10, Plan: second},
				keyset.Charge{Limiter: empty, N: 1})
			if l[b].Allowed() {
				t.Fatal("granted")
			}
			d, _ := keyset.PeekAll(nil, keyset.Charge{Limiter: k, Key: "a", Plan: second})
			if d[0].Remaining != want {
				t.Errorf("%s, known %v: %d left, want %d", c.name, known, d[0].Remaining, want)
			}
		}
	}
}

// runningClock shows another time whenever it is read.
type runningClock struct {
	weir.Clock

	at atomic.Int64
}

func (c *runningClock) Now() int64 { return c.at.Add(int64(time.Second)) }

// TestChargesHaveOneTimeForALimiter: a key of a request is not forgotten for another one of the same request.
func TestChargesHaveOneTimeForALimiter(t *testing.T) {
	k := keyedOf(t, weir.TokenBucket(every(time.Millisecond), 1), weir.KeyedOptions{MaxKeys: 1, Clock: &runningClock{Clock: manualclock.New(1)}})
	empty := hourly(t, "empty", 1)
	empty.Take("", 1)
	l, b := keyset.TryAcquireAll(nil,
		keyset.Charge{Limiter: k, Key: "a", N: 1}, keyset.Charge{Limiter: k, Key: "b", N: 1}, keyset.Charge{Limiter: empty, N: 1})
	if l[b].Allowed() {
		t.Errorf("%+v", l)
	}
}

func perHour(n int64) weir.Limit { return weir.TokenBucket(every(time.Hour), n) }

// TestRetryAfterOnceTheBoundIsLower: a new key that finds no room is told when there may be some.
func TestRetryAfterOnceTheBoundIsLower(t *testing.T) {
	k := hourly(t, "k", 10)
	for i := range 5000 {
		k.Take(fmt.Sprint(i), 1)
	}
	b := keyset.Of(k).Bounds()
	b.MaxKeys = 1000
	if err := keyset.Of(k).SetBounds(b); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		d := k.Take(fmt.Sprint("new", i), 1)
		if d.Reason != weir.ReasonTableFull || d.RetryAfter <= 0 || d.RetryAfter > time.Hour {
			t.Fatalf("request %d: %+v", i, d)
		}
	}
}

// TestAcquireAllInAnyOrder: two requests that wait for the same permits, named in another order, do not wait for each other.
func TestAcquireAllInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		concurrency := func(name string) *weir.Keyed[string] {
			return keyedOf(t, weir.AtOnce(1), weir.KeyedOptions{Name: name, QueueLimit: 10})
		}
		a, b := concurrency("a"), concurrency("b")
		for _, keys := range [][2]keyset.Charge{
			{{Limiter: a, N: 1}, {Limiter: b, N: 1}},
			{{Limiter: a, Key: "x", N: 1}, {Limiter: a, Key: "y", N: 1}},
		} {
			held, _ := keyset.TryAcquireAll(nil, keys[:]...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			errs := make(chan error)
			for _, charges := range [][]keyset.Charge{{keys[0], keys[1]}, {keys[1], keys[0]}} {
				go func() {
					l, _, err := keyset.AcquireAll(ctx, nil, charges...)
					for i := range l {
						if err == nil && l[i].Decision().Policy != charges[i].Limiter.Peek("probe", 2).Policy {
							err = fmt.Errorf("lease %d is of %s", i, l[i].Decision().Policy)
						}
						l[i].Release()
					}
					errs <- err
				}()
			}
			synctest.Wait()
			// Each request takes first what it names first, if that is how they wait.
			held[0].Release()
			held[1].Release()
			for range 2 {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			cancel()
		}
	})
}

// TestChargesCountOnce: a request that is asked limit by limit, as two charges are for one key that is overridden, counts like
// any other.
func TestChargesCountOnce(t *testing.T) {
	for _, wait := range []bool{false, true} {
		k, other := hourly(t, "k", 10), hourly(t, "other", 10)
		if err := keyset.Of(k).Override("a", perHour(3), time.Hour); err != nil {
			t.Fatal(err)
		}
		charges := []keyset.Charge{
			{Limiter: other, N: 1}, {Limiter: k, Key: "a", N: 2}, {Limiter: k, Key: "a", N: 2},
		}
		if wait {
			if l, b, err := keyset.AcquireAll(t.Context(), nil, charges...); !errors.Is(err, weir.ErrRefused) || l[b].Allowed() {
				t.Fatal(l, err)
			}
		} else if l, b := keyset.TryAcquireAll(nil, charges...); l[b].Allowed() {
			t.Fatal(l)
		}
		if s := other.Stats(); s.Allowed != 0 || s.Refused != 0 {
			t.Errorf("wait %v: other %+v", wait, s)
		}
		if s := k.Stats(); s.Allowed != 0 || s.Refused != 1 {
			t.Errorf("wait %v: %+v", wait, s)
		}
	}
}

// TestPlansWhileAKeyIsOverridden: a key goes back to the plan that it had, or that those had who came meanwhile.
func TestPlansWhileAKeyIsOverridden(t *testing.T) {
	for _, before := range []bool{true, false} {
		clock := manualclock.New(1)
		k := keyedOf(t, weir.TokenBucket(every(time.Second), 100), weir.KeyedOptions{Clock: clock})
		charge := keyset.Charge{Limiter: k, Key: "a", N: 90, Plan: planOf(t, k, perHour(100))}
		take := func() {
			if l, b := keyset.TryAcquireAll(nil, charge); !l[b].Allowed() {
				t.Fatal(l)
			}
		}
		if before {
			take()
		}
		for range 2 {
			if err := keyset.Of(k).Override("a", perHour(200), time.Minute); err != nil {
				t.Fatal(err)
			}
			if !before {
				take()
				before = true
			}
		}
		clock.Advance(time.Minute) // the override ends
		clock.Advance(time.Minute) // 60 permits under the limit of the options, 0 under the plan
		if d, _ := keyset.PeekAll(nil, charge); d[0].Remaining != 10 || d[0].Limit != 100 {
			t.Errorf("%+v", d[0])
		}
	}
}

// TestRefusedChargesLeaveNoKey: a key that no request was granted for is like one that was never seen, under any plan, and takes
// no room.
func TestRefusedChargesLeaveNoKey(t *testing.T) {
	k, empty := hourly(t, "k", 100), hourly(t, "empty", 1)
	empty.Take("", 1)
	keyset.TryAcquireAll(nil,
		keyset.Charge{Limiter: k, Key: "a", N: 1, Plan: planOf(t, k, perHour(3))},
		keyset.Charge{Limiter: k, Key: "a", N: 1, Plan: planOf(t, k, perHour(5))},
		keyset.Charge{Limiter: empty, N: 1})
	if s := k.Stats(); s.Keys != 0 || leftOf(k, "a") != 100 {
		t.Errorf("%+v, %d left", s, leftOf(k, "a"))
	}
}

// TestLimitersOfAFewPlansAreSmall: an engine has thousands of them.
func TestLimitersOfAFewPlansAreSmall(t *testing.T) {
	const limiters = 100
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var all []*weir.Keyed[string]
	before := heap()
	for range limiters {
		k := hourly(t, "k", 10)
		planOf(t, k, perHour(5))
		all = append(all, k)
	}
	if each := (int64(heap()) - int64(before)) / limiters; each > 256<<10 {
		t.Errorf("%d bytes each", each)
	}
	runtime.KeepAlive(all)
}
