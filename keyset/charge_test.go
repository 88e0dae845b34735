package keyset_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/inside"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
)

// keyedOf is a limiter by name whose keys can be under plans.
func keyedOf(t testing.TB, limit weir.Limit, o weir.KeyedOptions) *weir.Keyed[string] {
	t.Helper()
	k, err := anyKeyed(limit, o, func(string) weir.Limit { return weir.Limit{} })
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// anyKeyed is a limiter of any limit, as rules have it.
func anyKeyed(limit weir.Limit, o weir.KeyedOptions, limitOf func(string) weir.Limit) (*weir.Keyed[string], error) {
	//nolint:forcetypeassert // package weir has set it
	return inside.Keyed.(func(weir.Limit, weir.KeyedOptions, func(string) weir.Limit) (*weir.Keyed[string], error))(limit, o, limitOf)
}

// TestSlotsAreChargedWithOthers: permits that must be released are one of the charges of a request.
func TestSlotsAreChargedWithOthers(t *testing.T) {
	slots, err := weir.NewKeyedConcurrency[string](1, weir.KeyedOptions{Name: "slots"})
	if err != nil {
		t.Fatal(err)
	}
	quota := hourly(t, "quota", 5)
	charges := []keyset.Charge{{Limiter: slots, Key: "k", N: 1}, {Limiter: quota, Key: "k", N: 1}}
	first, binding := keyset.TryAcquireAll(nil, charges...)
	if !first[binding].Allowed() {
		t.Fatal(first[binding].Err())
	}
	second, binding := keyset.TryAcquireAll(nil, charges...)
	if d := second[binding].Decision(); d.Allowed || d.Policy != "slots" || quota.Peek("k", 1).Remaining != 4 {
		t.Errorf("%+v, %d left of the other", d, quota.Peek("k", 1).Remaining)
	}
	for _, l := range first {
		l.Release()
	}
	if third, binding := keyset.TryAcquireAll(nil, charges...); !third[binding].Allowed() {
		t.Error(third[binding].Err())
	}
	var none *weir.KeyedConcurrency[string]
	all, _ := keyset.TryAcquireAll(nil, keyset.Charge{Limiter: none, Key: "k", N: 1})
	if d := all[0].Decision(); d.Allowed || d.Reason != weir.ReasonInvalid {
		t.Errorf("a nil limiter: %+v", d)
	}
}

func hourly(t testing.TB, name string, n int64) *weir.Keyed[string] {
	t.Helper()
	return keyedOf(t, weir.TokenBucket(every(time.Hour), n), weir.KeyedOptions{Name: name, Clock: manualclock.New(1)})
}

func leftOf(k *weir.Keyed[string], key string) int64 { return k.Peek(key, 0).Remaining }

func every(d time.Duration) weir.Rate { return weir.Rate{Permits: 1, Period: d} }

func TestChargesAreAllOrNothing(t *testing.T) {
	a, b := hourly(t, "a", 5), hourly(t, "b", 2)
	charges := []keyset.Charge{{Limiter: a, Key: "x", N: 1}, {Limiter: b, Key: "y", N: 1}}
	for i := range 4 {
		leases, binding := keyset.TryAcquireAll(nil, charges...)
		if len(leases) != 2 || binding != 1 || leases[binding].Allowed() != (i < 2) {
			t.Errorf("request %d: binding %d of %+v", i, binding, leases)
		}
		if d := leases[1].Decision(); d.Policy != "b" || !d.Allowed && (d.Reason != weir.ReasonLimited || d.RetryAfter != time.Hour) {
			t.Errorf("request %d: %+v", i, d)
		}
		if d := leases[0].Decision(); !d.Allowed || i >= 2 && leases[0].Permits() != 0 {
			t.Errorf("request %d: the other limit says %+v, %d permits", i, d, leases[0].Permits())
		}
	}
	if r := leftOf(a, "x"); r != 3 {
		t.Errorf("a has %d permits left, want 3: only the two grants", r)
	}
	if s := a.Stats(); s.Allowed != 2 || s.Refused != 0 {
		t.Errorf("a counts %+v", s)
	}
	if s := b.Stats(); s.Allowed != 2 || s.Refused != 2 {
		t.Errorf("b counts %+v", s)
	}
	if top := keyset.Of(b).Top(1); len(top) != 1 || top[0].Key != "y" || top[0].Refused != 2 {
		t.Errorf("the key that was refused is known as %+v", top)
	}
}

// TestChargesOfARefusalTellWhatIsLeft wherever the limit that refuses stands.
func TestChargesOfARefusalTellWhatIsLeft(t *testing.T) {
	a, b, c := hourly(t, "a", 5), hourly(t, "b", 2), hourly(t, "c", 7)
	charges := []keyset.Charge{{Limiter: a, N: 3}, {Limiter: b, N: 3}, {Limiter: c, N: 3}}
	for range 3 {
		leases, _ := keyset.TryAcquireAll(nil, charges...)
		for i, want := range []int64{5, 2, 7} {
			if d := leases[i].Decision(); d.Remaining != want || d.Allowed != (i != 1) {
				t.Errorf("%+v, want %d left", d, want)
			}
		}
		if peeked, _ := keyset.PeekAll(nil, charges...); peeked[1].Remaining != 2 {
			t.Errorf("%+v", peeked)
		}
	}
}

// TestChargesNameTheLimitThatBinds: the one with the longest RetryAfter among those that refuse.
func TestChargesNameTheLimitThatBinds(t *testing.T) {
	clock := manualclock.New(1)
	limiter := func(name string, each time.Duration) *weir.Keyed[string] {
		return keyedOf(t, weir.TokenBucket(every(each), 1), weir.KeyedOptions{Name: name, Clock: clock})
	}
	second, hour, minute := limiter("second", time.Second), limiter("hour", time.Hour), limiter("minute", time.Minute)
	charges := []keyset.Charge{{Limiter: second, N: 1}, {Limiter: hour, N: 1}, {Limiter: minute, N: 1}}
	if leases, b := keyset.TryAcquireAll(nil, charges...); !leases[b].Allowed() {
		t.Fatal(leases)
	}
	for _, c := range []struct {
		after time.Duration
		want  string
		retry time.Duration
	}{{0, "hour", time.Hour}, {30 * time.Minute, "hour", 30 * time.Minute}, {30 * time.Minute, "", 0}, {time.Second, "hour", time.Hour - time.Second}} {
		clock.Advance(c.after)
		leases, b := keyset.TryAcquireAll(nil, charges...)
		if d := leases[b].Decision(); c.want == "" != d.Allowed || !d.Allowed && (d.Policy != c.want || d.RetryAfter != c.retry) {
			t.Errorf("after %v: %+v", c.after, d)
		}
	}
	charges[2].N = 2
	leases, b := keyset.TryAcquireAll(nil, charges...)
	if d := leases[b].Decision(); d.Policy != "minute" || d.Reason != weir.ReasonNever || d.RetryAfter != weir.Never {
		t.Errorf("more than the limit ever holds: %+v", d)
	}
	peeked, b := keyset.PeekAll(nil, charges...)
	if len(peeked) != 3 || b != 2 || peeked[2].Reason != weir.ReasonNever {
		t.Errorf("peek: %d of %+v", b, peeked)
	}
}

func TestChargesOfOneKeyTwice(t *testing.T) {
	k, other := hourly(t, "k", 3), hourly(t, "other", 100)
	twice := []keyset.Charge{{Limiter: other, Key: "o", N: 1}, {Limiter: k, Key: "a", N: 1}, {Limiter: k, Key: "a", N: 1}}
	if l, b := keyset.TryAcquireAll(nil, twice...); !l[b].Allowed() || leftOf(k, "a") != 1 {
		t.Fatalf("%+v, %d left", l, leftOf(k, "a"))
	}
	l, b := keyset.TryAcquireAll(nil, twice...)
	if l[b].Allowed() || b != 1 || leftOf(k, "a") != 1 || leftOf(other, "o") != 99 {
		t.Errorf("binding %d of %+v; %d and %d left, want 1 and 99", b, l, leftOf(k, "a"), leftOf(other, "o"))
	}
}

func TestChargesThatCannotBeWorkedOn(t *testing.T) {
	k := hourly(t, "k", 3)
	other := hourly(t, "other", 3)
	plan, err := keyset.Of(other).Plan(weir.TokenBucket(weir.PerSecond(1), 0))
	if err != nil {
		t.Fatal(err)
	}
	for name, charges := range map[string][]keyset.Charge{
		"negative":      {{Limiter: k, N: 1}, {Limiter: k, N: -1}},
		"no limiter":    {{Limiter: k, N: 1}, {N: 1}},
		"too many":      make([]keyset.Charge, keyset.MostCharges+1),
		"plan of other": {{Limiter: k, N: 1, Plan: plan}},
	} {
		leases, b := keyset.TryAcquireAll(nil, charges...)
		if len(leases) != len(charges) || leases[b].Allowed() || leases[b].Decision().Reason != weir.ReasonInvalid {
			t.Errorf("%s: %d of %+v", name, b, leases)
		}
		if d, b := keyset.PeekAll(nil, charges...); len(d) != len(charges) || d[b].Reason != weir.ReasonInvalid {
			t.Errorf("%s: peek answers %d of %+v", name, b, d)
		}
	}
	if leftOf(k, "") != 3 {
		t.Errorf("%d left", leftOf(k, ""))
	}
	if leases, b := keyset.TryAcquireAll(nil); len(leases) != 0 || b != -1 {
		t.Errorf("no charges: %d of %+v", b, leases)
	}
	if _, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(1), 0), weir.KeyedOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := keyset.AcquireAll(t.Context(), nil, keyset.Charge{Limiter: k, N: -1}); err == nil || !strings.HasSuffix(err.Error(), "must be 0 or more") {
		t.Errorf("negative: %v", err)
	}
}

func TestChargesProbe(t *testing.T) {
	a, b := hourly(t, "a", 1), hourly(t, "b", 1)
	charges := []keyset.Charge{{Limiter: a, N: 0}, {Limiter: b, N: 1}}
	if l, i := keyset.TryAcquireAll(nil, charges...); !l[i].Allowed() || leftOf(a, "") != 1 || leftOf(b, "") != 0 {
		t.Fatalf("%+v", l)
	}
	a.Take("", 1)
	b.Reset("")
	if l, i := keyset.TryAcquireAll(nil, charges...); l[i].Allowed() || i != 0 || leftOf(b, "") != 1 {
		t.Errorf("no permit is available where one is probed for: %d of %+v", i, l)
	}
}

func TestChargesOnFullTables(t *testing.T) {
	for _, when := range []bool{false, true} {
		t.Run(strconv.FormatBool(when), func(t *testing.T) {
			a := hourly(t, "a", 5)
			full := keyedOf(t, weir.TokenBucket(every(time.Hour), 5), weir.KeyedOptions{
				Name: "full", MaxKeys: 1, AdmitWhenFull: when, Clock: manualclock.New(1),
			})
			full.Take("first", 5)
			leases, b := keyset.TryAcquireAll(nil, keyset.Charge{Limiter: a, Key: "x", N: 1}, keyset.Charge{Limiter: full, Key: "second", N: 1})
			if allowed := leases[b].Allowed(); allowed != when {
				t.Errorf("%d of %+v", b, leases)
			}
			if when {
				if s := full.Stats(); s.Untracked != 1 || leftOf(a, "x") != 4 {
					t.Errorf("%+v, %d left", s, leftOf(a, "x"))
				}
			} else if d := leases[b].Decision(); d.Reason != weir.ReasonTableFull || d.Policy != "full" || leftOf(a, "x") != 5 {
				t.Errorf("%+v, %d left", d, leftOf(a, "x"))
			}
		})
	}
}

// TestChargesWhereAKeyIsOverridden: the state is in a gate then.
func TestChargesWhereAKeyIsOverridden(t *testing.T) {
	clock := manualclock.New(1)
	limiter := func(name string) *weir.Keyed[string] {
		return keyedOf(t, weir.TokenBucket(every(time.Hour), 2), weir.KeyedOptions{Name: name, Clock: clock})
	}
	a, b, c := limiter("a"), limiter("b"), limiter("c")
	if err := keyset.Of(b).Override("k", weir.TokenBucket(every(time.Hour), 4), time.Minute); err != nil {
		t.Fatal(err)
	}
	charges := []keyset.Charge{{Limiter: a, Key: "k", N: 1}, {Limiter: b, Key: "k", N: 2}, {Limiter: c, Key: "k", N: 1}}
	c.Take("k", 1)
	for i := range 3 {
		leases, at := keyset.TryAcquireAll(nil, charges...)
		if leases[at].Allowed() != (i == 0) {
			t.Errorf("request %d: %d of %+v", i, at, leases)
		}
		if i > 0 && (at != 1 && at != 2) {
			t.Errorf("request %d: %d binds", i, at)
		}
	}
	if leftOf(a, "k") != 1 || leftOf(b, "k") != 0 || leftOf(c, "k") != 0 {
		t.Errorf("%d, %d and %d left, want 1, 0 and 0", leftOf(a, "k"), leftOf(b, "k"), leftOf(c, "k"))
	}
}

// TestChargesOfAnOverriddenKeyTwice: they take their sum, as of any other key.
func TestChargesOfAnOverriddenKeyTwice(t *testing.T) {
	clock := manualclock.New(1)
	a := keyedOf(t, weir.TokenBucket(every(time.Hour), 2), weir.KeyedOptions{Name: "a", Clock: clock})
	b := keyedOf(t, weir.TokenBucket(every(time.Hour), 9), weir.KeyedOptions{Name: "b", Clock: clock})
	if err := keyset.Of(a).Override("k", weir.TokenBucket(every(time.Hour), 3), time.Minute); err != nil {
		t.Fatal(err)
	}
	charges := []keyset.Charge{{Limiter: b, Key: "k", N: 1}, {Limiter: a, Key: "k", N: 1}, {Limiter: a, Key: "k", N: 1}}
	for i := range 2 {
		if l, at := keyset.TryAcquireAll(nil, charges...); l[at].Allowed() != (i == 0) || i == 1 && at == 0 {
			t.Errorf("request %d: %d of %+v", i, at, l)
		}
	}
	if leftOf(a, "k") != 0 || leftOf(b, "k") != 8 {
		t.Errorf("%d and %d left, want 0 and 8", leftOf(a, "k"), leftOf(b, "k"))
	}
}

func TestChargesAreSettledApart(t *testing.T) {
	requests, tokens := hourly(t, "requests", 10), hourly(t, "tokens", 1000)
	leases, b := keyset.TryReserveAll(nil, keyset.Charge{Limiter: requests, Key: "k", N: 1}, keyset.Charge{Limiter: tokens, Key: "k", N: 600})
	if !leases[b].Allowed() || leftOf(tokens, "k") != 400 {
		t.Fatal(leases)
	}
	leases[0].Commit(1)
	leases[1].Commit(150)
	if leftOf(requests, "k") != 9 || leftOf(tokens, "k") != 850 {
		t.Errorf("%d and %d left, want 9 and 850", leftOf(requests, "k"), leftOf(tokens, "k"))
	}
	leases, _ = keyset.TryReserveAll(leases[:0], keyset.Charge{Limiter: requests, Key: "k", N: 1}, keyset.Charge{Limiter: tokens, Key: "k", N: 600})
	for _, l := range leases {
		l.Cancel()
	}
	if leftOf(requests, "k") != 9 || leftOf(tokens, "k") != 850 {
		t.Errorf("%d and %d left after a cancellation, want 9 and 850", leftOf(requests, "k"), leftOf(tokens, "k"))
	}
}

func TestChargesHoldConcurrencyUntilReleased(t *testing.T) {
	inUse := keyedOf(t, weir.AtOnce(1), weir.KeyedOptions{Name: "in-use"})
	rate := hourly(t, "rate", 10)
	charges := []keyset.Charge{{Limiter: inUse, Key: "k", N: 1}, {Limiter: rate, Key: "k", N: 1}}
	first, b := keyset.TryAcquireAll(nil, charges...)
	if !first[b].Allowed() {
		t.Fatal(first)
	}
	if l, b := keyset.TryAcquireAll(nil, charges...); l[b].Allowed() || b != 0 || leftOf(rate, "k") != 9 {
		t.Errorf("%d of %+v, %d left", b, l, leftOf(rate, "k"))
	}
	for _, l := range first {
		l.Release()
	}
	if l, b := keyset.TryAcquireAll(nil, charges...); !l[b].Allowed() {
		t.Errorf("%d of %+v", b, l)
	}
}

func TestChargesAfterClose(t *testing.T) {
	a, b := hourly(t, "a", 1), hourly(t, "b", 1)
	_ = b.Close()
	l, i := keyset.TryAcquireAll(nil, keyset.Charge{Limiter: a, N: 1}, keyset.Charge{Limiter: b, N: 1})
	if d := l[i].Decision(); d.Allowed || d.Reason != weir.ReasonClosed || d.Policy != "b" || leftOf(a, "") != 1 {
		t.Errorf("%+v", d)
	}
}

func TestAcquireAllWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := func(name string, each time.Duration) *weir.Keyed[string] {
			return keyedOf(t, weir.TokenBucket(every(each), 1), weir.KeyedOptions{Name: name, QueueLimit: 10})
		}
		a, b := limiter("a", time.Second), limiter("b", 10*time.Second)
		charges := []keyset.Charge{{Limiter: a, Key: "k", N: 1}, {Limiter: b, Key: "k", N: 1}}
		start := time.Now()
		for i := range 3 {
			l, at, err := keyset.AcquireAll(t.Context(), nil, charges...)
			if err != nil || !l[at].Allowed() {
				t.Fatal(l, err)
			}
			if want := time.Duration(i) * 10 * time.Second; time.Since(start) != want {
				t.Errorf("request %d was granted after %v, want %v", i, time.Since(start), want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		time.Sleep(2 * time.Second)
		l, at, err := keyset.AcquireAll(ctx, nil, charges...)
		if !errors.Is(err, weir.ErrRefused) || l[at].Allowed() || at != 1 || l[at].Decision().Reason != weir.ReasonDeadline {
			t.Errorf("%d of %+v, %v", at, l, err)
		}
		if d := a.Peek("k", 1); !d.Allowed {
			t.Errorf("a is charged for a request that b refused: %+v", d)
		}
		cancel()
		if _, _, err := keyset.AcquireAll(ctx, nil, charges...); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
	})
}

// TestAcquireAllWithoutQueue: a call does not wait for a limit without a queue, and nothing is held meanwhile.
func TestAcquireAllWithoutQueue(t *testing.T) {
	a, b := hourly(t, "a", 2), hourly(t, "b", 1)
	charges := []keyset.Charge{{Limiter: a, N: 1}, {Limiter: b, N: 1}}
	for i := range 2 {
		l, at, err := keyset.AcquireAll(t.Context(), nil, charges...)
		if i == 1 && !errors.Is(err, weir.ErrNoQueue) || l[at].Allowed() != (i == 0) || (err == nil) != (i == 0) {
			t.Errorf("request %d: %d of %+v, %v", i, at, l, err)
		}
	}
	if s := b.Stats(); s.Refused != 1 || leftOf(a, "") != 1 {
		t.Errorf("%+v, %d left", s, leftOf(a, ""))
	}
}

// TestAcquireAllSaysThatThereIsNoQueueAsAcquireDoes: the decision of a limit without a queue is what it decides alone, also where
// its key stands in two charges, and beside a limit that can never allow the request.
func TestAcquireAllSaysThatThereIsNoQueueAsAcquireDoes(t *testing.T) {
	a, b := hourly(t, "a", 2), hourly(t, "b", 1)
	a.Take("", 1)
	b.Take("", 1)
	alone, err := b.Acquire(t.Context(), "", 1)
	want := err.Error()
	if alone.Decision().Reason != weir.ReasonQueueFull {
		t.Fatalf("alone: %v", want)
	}
	l, at, err := keyset.AcquireAll(t.Context(), nil, keyset.Charge{Limiter: a, N: 1}, keyset.Charge{Limiter: b, N: 1})
	if err == nil || err.Error() != want || at != 1 || l[0].Decision().Reason != weir.ReasonNone ||
		l[1].Decision().Reason != weir.ReasonQueueFull {
		t.Errorf("%d of %+v, %v, want %s", at, l, err, want)
	}
	twice := []keyset.Charge{{Limiter: a, N: 1}, {Limiter: a, N: 1}}
	if l, at, err = keyset.AcquireAll(t.Context(), nil, twice...); !errors.Is(err, weir.ErrNoQueue) ||
		l[at].Decision().Reason != weir.ReasonQueueFull {
		t.Errorf("the same key: %+v, %v", l, err)
	}
	never := []keyset.Charge{{Limiter: b, N: 1}, {Limiter: a, N: 3}}
	if l, at, err = keyset.AcquireAll(t.Context(), nil, never...); at != 1 || errors.Is(err, weir.ErrNoQueue) ||
		l[0].Decision().Reason != weir.ReasonQueueFull || l[1].Decision().Reason != weir.ReasonNever {
		t.Errorf("never: %d of %+v, %v", at, l, err)
	}
}

func TestPlansChangeLimitsAndKeepStates(t *testing.T) {
	k := hourly(t, "k", 100)
	k.Take("a", 40)
	plan := func(burst int64) *keyset.Plan {
		p, err := keyset.Of(k).Plan(weir.TokenBucket(every(time.Hour), burst))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct{ burst, want int64 }{{80, 59}, {50, 49}, {100, 48}} {
		l, b := keyset.TryAcquireAll(nil, keyset.Charge{Limiter: k, Key: "a", N: 1, Plan: plan(c.burst)})
		if d := l[b].Decision(); !d.Allowed || d.Limit != c.burst || d.Remaining != c.want {
			t.Errorf("burst %d: %+v, want %d left", c.burst, d, c.want)
		}
	}
	if _, err := keyset.Of(k).Plan(weir.FixedWindow(weir.PerSecond(1))); err == nil {
		t.Error("a plan of another algorithm")
	}
	plain, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(1), 0), weir.KeyedOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = keyset.Of(plain).Plan(weir.Limit{}); err == nil {
		t.Error("a plan of a limiter without plans")
	}
	base, err := keyset.Of(k).Plan(weir.Limit{})
	if err != nil || base.Limit() != weir.TokenBucket(every(time.Hour), 100) {
		t.Errorf("%v, %v", base.Limit(), err)
	}
}

// TestPlansThatReplaceOthers: a key that is not used regains permits at the old rate until its limit was replaced.
func TestPlansThatReplaceOthers(t *testing.T) {
	clock := manualclock.New(1)
	k := keyedOf(t, weir.TokenBucket(weir.PerSecond(10), 100), weir.KeyedOptions{Clock: clock})
	plan := func(l weir.Limit) *keyset.Plan {
		p, err := keyset.Of(k).Plan(l)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	fast, slow := plan(weir.Limit{}), plan(weir.TokenBucket(every(time.Hour), 100))
	faster := plan(weir.TokenBucket(weir.PerSecond(50), 100))
	take := func(p *keyset.Plan, n, want int64) {
		t.Helper()
		l, _ := keyset.TryAcquireAll(nil, keyset.Charge{Limiter: k, Key: "k", N: n, Plan: p})
		if d := l[0].Decision(); !d.Allowed || d.Remaining != want {
			t.Errorf("%+v, want %d left", d, want)
		}
	}
	take(fast, 100, 0)
	clock.Advance(time.Second)
	slow.Replaces(fast)
	clock.Advance(5 * time.Second)
	take(slow, 4, 6) // ten came back at the old rate, and none since
	clock.Advance(time.Second)
	faster.Replaces(slow)
	clock.Advance(time.Second)
	slow.Replaces(faster)
	clock.Advance(time.Second)
	faster.Replaces(slow) // what came of the first time is not known any more: slow has been replaced later
	clock.Advance(time.Second)
	take(faster, 1, 55)
	take(fast, 5, 50) // chosen for this key: it changes now
	slow.Replaces(slow)
	clock.Advance(time.Second)
	take(fast, 10, 50)
}

// TestChargesAreOneStep: one of two limits is never seen charged without the other.
func TestChargesAreOneStep(t *testing.T) {
	const permits = 20_000
	a, b := hourly(t, "a", permits), hourly(t, "b", permits)
	var all sync.WaitGroup
	done := make(chan struct{})
	for g := range 6 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(g)))
			charges := []keyset.Charge{{Limiter: a, Key: "k", N: 1}, {Limiter: b, Key: "k", N: 1}}
			var leases []weir.Lease
			for range permits / 6 {
				n := 1 + random.Int64N(3)
				charges[0].N, charges[1].N = n, n
				random.Shuffle(2, func(i, j int) { charges[i], charges[j] = charges[j], charges[i] })
				var binding int
				if random.IntN(4) == 0 {
					leases, binding = keyset.TryReserveAll(leases[:0], charges...)
					if leases[binding].Allowed() {
						leases[0].Release()
						leases[1].Release()
					}
				} else {
					leases, _ = keyset.TryAcquireAll(leases[:0], charges...)
				}
				if leases[0].Allowed() != leases[1].Allowed() {
					t.Error("one limit has granted what the other refuses")
				}
			}
		})
	}
	go func() {
		all.Wait()
		close(done)
	}()
	var decisions []weir.Decision
	for looks := 0; ; looks++ {
		decisions, _ = keyset.PeekAll(decisions[:0], keyset.Charge{Limiter: b, Key: "k", N: 0}, keyset.Charge{Limiter: a, Key: "k", N: 0})
		if decisions[0].Remaining != decisions[1].Remaining {
			t.Fatalf("look %d: %d left of one, %d of the other", looks, decisions[0].Remaining, decisions[1].Remaining)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// TestChargesWithGatesAreOneStep is TestChargesAreOneStep while a limit is overridden again and again, and while others wait.
func TestChargesWithGatesAreOneStep(t *testing.T) {
	const permits = 5000
	limiter := func(name string) *weir.Keyed[string] {
		return keyedOf(t, weir.TokenBucket(every(time.Hour), permits), weir.KeyedOptions{Name: name, QueueLimit: 4 * permits})
	}
	a, b := limiter("a"), limiter("b")
	a.Take("k", 2) // so that those who wait for all permits never get them
	b.Take("k", 2)
	var all sync.WaitGroup
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var waiters sync.WaitGroup
	for range 2 {
		waiters.Go(func() {
			for ctx.Err() == nil {
				short, stop := context.WithTimeout(ctx, 100*time.Microsecond)
				_, _ = b.Acquire(short, "k", permits)
				stop()
			}
		})
	}
	for g := range 4 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(g)))
			charges := []keyset.Charge{{Limiter: a, Key: "k", N: 1}, {Limiter: b, Key: "k", N: 1}}
			var leases []weir.Lease
			for i := range permits {
				switch i % 50 {
				case 0:
					if err := keyset.Of(b).Override("k", weir.TokenBucket(every(time.Hour), permits+1), time.Hour); err != nil {
						t.Error(err)
					}
				case 25:
					keyset.Of(b).Restore("k")
				}
				random.Shuffle(2, func(i, j int) { charges[i], charges[j] = charges[j], charges[i] })
				leases, _ = keyset.TryAcquireAll(leases[:0], charges...)
			}
		})
	}
	go func() {
		all.Wait()
		close(done)
	}()
	probe := []keyset.Charge{{Limiter: b, Key: "k", N: 0}, {Limiter: a, Key: "k", N: 0}}
	var leases []weir.Lease
	for looks := 0; ; looks++ {
		leases, _ = keyset.TryAcquireAll(leases[:0], probe...)
		if one, other := leases[0].Decision().Remaining, leases[1].Decision().Remaining; one != other {
			t.Fatalf("look %d: %d left of one, %d of the other", looks, one, other)
		}
		select {
		case <-done:
			cancel()
			waiters.Wait()
			if s, u := a.Stats(), b.Stats(); s.Allowed != u.Allowed {
				t.Errorf("%d granted by one, %d by the other", s.Allowed, u.Allowed)
			}
			return
		default:
		}
	}
}

// TestChargesContention: many keys of several limiters, asked in all orders, never allow more than each allows, and never
// wait for one another forever.
func TestChargesContention(t *testing.T) {
	const limiters, keys, permits = 4, 3, 2000
	var all []*weir.Keyed[string]
	for i := range limiters {
		all = append(all, hourly(t, strconv.Itoa(i), permits))
	}
	var granted [limiters][keys]int64
	var mu sync.Mutex
	var group sync.WaitGroup
	for g := range 64 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(g)))
			var own [limiters][keys]int64
			var leases []weir.Lease
			for range 1000 {
				var charges []keyset.Charge
				var at [][2]int
				for range 1 + random.IntN(4) {
					l, k := random.IntN(limiters), random.IntN(keys)
					at = append(at, [2]int{l, k})
					charges = append(charges, keyset.Charge{Limiter: all[l], Key: strconv.Itoa(k), N: 1})
				}
				var b int
				leases, b = keyset.TryAcquireAll(leases[:0], charges...)
				if leases[b].Allowed() {
					for _, i := range at {
						own[i[0]][i[1]]++
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for l := range own {
				for k := range own[l] {
					granted[l][k] += own[l][k]
				}
			}
		})
	}
	group.Wait()
	for l := range granted {
		for k, n := range granted[l] {
			if left := leftOf(all[l], strconv.Itoa(k)); n+left != permits {
				t.Errorf("limiter %d, key %d: %d granted and %d left of %d", l, k, n, left, permits)
			}
		}
	}
}

func TestChargesAllocateNothing(t *testing.T) {
	var charges []keyset.Charge
	for i := range 3 {
		k := keyedOf(t, weir.TokenBucket(weir.PerSecond(1), 3), weir.KeyedOptions{Name: fmt.Sprint(i)})
		plan, err := keyset.Of(k).Plan(weir.TokenBucket(weir.PerSecond(2), 50))
		if err != nil {
			t.Fatal(err)
		}
		charges = append(charges, keyset.Charge{Limiter: k, Key: "key", N: 1, Plan: plan})
	}
	var leases []weir.Lease
	leases, _ = keyset.TryAcquireAll(leases, charges...)
	if n := testing.AllocsPerRun(100, func() { leases, _ = keyset.TryAcquireAll(leases[:0], charges...) }); n > 0 && !race.Enabled {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCharges(b *testing.B) {
	for _, n := range []int{1, 3, 8} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			var charges []keyset.Charge
			for i := range n {
				k := keyedOf(b, weir.TokenBucket(weir.PerSecond(1_000_000), 1_000_000_000), weir.KeyedOptions{Name: strconv.Itoa(i)})
				charges = append(charges, keyset.Charge{Limiter: k, Key: "192.0.2.1", N: 1})
			}
			var leases []weir.Lease
			for b.Loop() {
				leases, _ = keyset.TryAcquireAll(leases[:0], charges...)
			}
		})
	}
}

func TestSetBounds(t *testing.T) {
	clock := manualclock.New(1)
	k := keyedOf(t, weir.TokenBucket(every(time.Hour), 1), weir.KeyedOptions{MaxKeys: 2, Clock: clock})
	for _, key := range []string{"a", "b"} {
		k.Take(key, 1)
	}
	if d := k.Take("c", 1); d.Reason != weir.ReasonTableFull {
		t.Fatalf("%+v", d)
	}
	b := keyset.Of(k).Bounds()
	b.MaxKeys = 3
	if err := keyset.Of(k).SetBounds(b); err != nil {
		t.Fatal(err)
	}
	if d := k.Take("c", 1); !d.Allowed {
		t.Errorf("%+v", d)
	}
	b.MaxKeys, b.AdmitWhenFull = 1, true
	if err := keyset.Of(k).SetBounds(b); err != nil {
		t.Fatal(err)
	}
	if d := k.Take("d", 1); !d.Allowed {
		t.Errorf("%+v", d)
	}
	if s := k.Stats(); s.Untracked != 1 || s.MaxKeys != 1 || s.Keys != 3 {
		t.Errorf("%+v", s)
	}
	if d := k.Take("a", 1); d.Allowed {
		t.Errorf("a key in use was forgotten: %+v", d)
	}
	for _, wrong := range []keyset.Bounds{{MaxKeys: -1}, {QueueLimit: -1}, {MaxDebt: -7}} {
		if err := keyset.Of(k).SetBounds(wrong); err == nil {
			t.Errorf("%+v is accepted", wrong)
		}
	}
}

func TestSetBoundsOfAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keyedOf(t, weir.TokenBucket(weir.PerSecond(1), 1), weir.KeyedOptions{})
		k.Take("a", 1)
		if l, _ := k.Acquire(t.Context(), "a", 1); l.Decision().Reason != weir.ReasonQueueFull {
			t.Fatalf("%+v", l.Decision())
		}
		if err := keyset.Of(k).SetBounds(keyset.Bounds{QueueLimit: 1}); err != nil {
			t.Fatal(err)
		}
		waited := make(chan weir.Lease)
		go func() {
			l, _ := k.Acquire(t.Context(), "a", 1)
			waited <- l
		}()
		synctest.Wait()
		if l, _ := k.Acquire(t.Context(), "a", 1); l.Decision().Reason != weir.ReasonQueueFull {
			t.Errorf("%+v", l.Decision())
		}
		if err := keyset.Of(k).SetBounds(keyset.Bounds{QueueLimit: 2}); err != nil {
			t.Fatal(err)
		}
		if l, _ := k.Acquire(t.Context(), "a", 1); !l.Allowed() {
			t.Errorf("%+v", l.Decision())
		}
		if l := <-waited; !l.Allowed() {
			t.Errorf("%+v", l.Decision())
		}
	})
}

// TestMisusedChargesSayWhatIsWrong in the error of a call that may wait, and blame no limit in that of a lease.
func TestMisusedChargesSayWhatIsWrong(t *testing.T) {
	k, other := hourly(t, "k", 1), hourly(t, "other", 1)
	for want, charges := range map[string][]keyset.Charge{
		"charge 2 has no Limiter": {{Limiter: k}, {}},
		"negative number":         {{Limiter: k, N: -1}},
		"65 charges":              slices.Repeat([]keyset.Charge{{Limiter: k}}, 65),
	} {
		_, _, err := keyset.AcquireAll(t.Context(), nil, charges...)
		if !errors.Is(err, weir.ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, charges := range [][]keyset.Charge{{{Limiter: k}, {}}, slices.Repeat([]keyset.Charge{{Limiter: k}}, 65)} {
		leases, binding := keyset.TryAcquireAll(nil, charges...)
		if err := leases[binding].Err(); !errors.Is(err, weir.ErrRefused) || !strings.Contains(err.Error(), "a charge of the request") {
			t.Errorf("the error of a lease, which knows less: %v", err)
		}
	}
	if other.Stats().Allowed != 0 {
		t.Error("charged")
	}
}
