package keyset_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
)

// TestChargesOfOneKeyAreTheirSum: charges of one key are decided by their sum, by each call, also where the limit of the key is
// overridden: the wait that a refusal names is enough, what can never be there is never, and a look says what a call would do.
func TestChargesOfOneKeyAreTheirSum(t *testing.T) {
	for _, overridden := range []bool{false, true} {
		clock := manualclock.New(1)
		k := keyedOf(t, weir.TokenBucket(weir.PerSecond(1), 2), weir.KeyedOptions{Name: "k", Clock: clock})
		m := keyedOf(t, weir.TokenBucket(every(time.Hour), 1), weir.KeyedOptions{Name: "m", Clock: clock})
		if overridden {
			if err := keyset.Of(k).Override("a", weir.TokenBucket(weir.PerSecond(1), 2), time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		twice := func(n int64) []keyset.Charge {
			return []keyset.Charge{{Limiter: k, Key: "a", N: n}, {Limiter: m, Key: "m", N: 1}, {Limiter: k, Key: "a", N: n}}
		}
		ask := func(what string, n int64, want weir.Decision) {
			t.Helper()
			looked, _ := keyset.PeekAll(nil, twice(n)...)
			leases, binding := keyset.TryAcquireAll(nil, twice(n)...)
			d := leases[binding].Decision()
			if d.Allowed != want.Allowed || d.Reason != want.Reason || d.RetryAfter != want.RetryAfter || d.Remaining != want.Remaining {
				t.Errorf("overridden %v, %s: %+v, want %+v", overridden, what, d, want)
			}
			if got := looked[binding]; got.Allowed != d.Allowed || got.RetryAfter != d.RetryAfter || got.Reason != d.Reason {
				t.Errorf("overridden %v, %s: a look says %+v, the call %+v", overridden, what, got, d)
			}
			if leases[0].Decision() != leases[2].Decision() {
				t.Errorf("overridden %v, %s: %+v and %+v are of one key", overridden, what, leases[0], leases[2])
			}
		}
		ask("four of two", 2, weir.Decision{Reason: weir.ReasonNever, RetryAfter: weir.Never, Remaining: 2})
		k.Take("a", 2)
		ask("two, of which none is there", 1, weir.Decision{Reason: weir.ReasonLimited, RetryAfter: 2 * time.Second})
		clock.Advance(2 * time.Second)
		ask("two, when they are there", 1, weir.Decision{Allowed: true})
		clock.Advance(2 * time.Second)
		ask("two that another limit refuses", 1, weir.Decision{Reason: weir.ReasonLimited, RetryAfter: time.Hour - 2*time.Second})
		if left := leftOf(k, "a"); left != 2 {
			t.Errorf("overridden %v: %d left of what was not taken", overridden, left)
		}
	}
}

// TestChargesOfOneKeyDoNotWaitForEachOther: a call that waits for several charges of one key waits for their sum, and keeps
// nothing from others until it has that.
func TestChargesOfOneKeyDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keyedOf(t, weir.AtOnce(2), weir.KeyedOptions{QueueLimit: 10})
		charges := func(n int64) []keyset.Charge {
			return []keyset.Charge{{Limiter: k, Key: "a", N: 1}, {Limiter: k, Key: "a", N: n}}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		if l, b, err := keyset.AcquireAll(ctx, nil, charges(2)...); err == nil || l[b].Decision().Reason != weir.ReasonNever {
			t.Errorf("three of two: %+v, %v", l, err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it waited for %v", took)
		}
		held := k.TryAcquire("a", 1)
		go func() {
			l, _, err := keyset.AcquireAll(ctx, nil, charges(1)...)
			if err != nil || l[0].Permits() != 1 || l[1].Permits() != 1 {
				t.Errorf("two of two: %+v, %v", l, err)
			}
			l[0].Release()
			l[0].Release()
			l[1].Release()
		}()
		synctest.Wait()
		held.Release()
		synctest.Wait()
		if d := k.Peek("a", 2); !d.Allowed {
			t.Errorf("after all were released: %+v", d)
		}
	})
}

// TestSharesOfOneKeyAreSettledApart: each of several charges of one key has a lease of its own permits.
func TestSharesOfOneKeyAreSettledApart(t *testing.T) {
	k := hourly(t, "k", 10)
	leases, b := keyset.TryReserveAll(nil, keyset.Charge{Limiter: k, Key: "a", N: 3}, keyset.Charge{Limiter: k, Key: "a", N: 4},
		keyset.Charge{Limiter: k, Key: "a", N: 0})
	if !leases[b].Allowed() || leftOf(k, "a") != 3 {
		t.Fatalf("%+v, %d left", leases, leftOf(k, "a"))
	}
	leases[0].Commit(1)
	leases[1].Cancel()
	leases[2].Commit(2)
	if left := leftOf(k, "a"); left != 7 {
		t.Errorf("%d left of 10, after 1 and 2", left)
	}
}

// TestBoundsOfConcurrencyHaveNoDebt: permits that come back on release are never owed.
func TestBoundsOfConcurrencyHaveNoDebt(t *testing.T) {
	k, err := weir.NewKeyedConcurrency[string](1, weir.KeyedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = keyset.OfConcurrency(k).SetBounds(keyset.Bounds{MaxDebt: 7})
	if wrong, ok := errors.AsType[*weir.OptionError](err); !ok || wrong.Option != "Bounds.MaxDebt" {
		t.Error(err)
	}
}

// TestPlanOfNoLimiterIsRefusedAlone: the other calls of a batch are decided.
func TestPlanOfNoLimiterIsRefusedAlone(t *testing.T) {
	plan, err := keyset.Of(hourly(t, "k", 1)).Plan(weir.TokenBucket(every(time.Hour), 1))
	if err != nil {
		t.Fatal(err)
	}
	var b keyset.Batch
	var none, some weir.Decision
	b.Add(new(keyset.Plan), []byte("a"), 1, &none)
	b.Add(plan, []byte("a"), 1, &some)
	if b.Take(); none.Reason != weir.ReasonInvalid || none.RetryAfter != weir.Never || !some.Allowed {
		t.Errorf("%+v and %+v", none, some)
	}
}
