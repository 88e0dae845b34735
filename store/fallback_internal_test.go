package store

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
)

func TestDividedLimit(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		l    weir.Limit
		by   int64
		want weir.Limit
	}{
		{weir.TokenBucket(weir.PerSecond(10), 20), 5, weir.TokenBucket(weir.PerSecond(2), 4)},
		{weir.TokenBucket(weir.PerSecond(10), 0), 3, weir.TokenBucket(weir.Per(10, 3*time.Second), 3)},
		{weir.TokenBucket(weir.PerSecond(1), 2), 3, weir.TokenBucket(weir.Per(1, 3*time.Second), 1)},
		{weir.TokenBucket(weir.Per(100, 3000*day), 10), 3, weir.TokenBucket(weir.Per(33, 3000*day), 3)},
		{weir.FixedWindow(weir.PerMinute(100)), 3, weir.FixedWindow(weir.PerMinute(33))},
		{weir.SlidingWindow(weir.PerMinute(2), 0), 3, weir.SlidingWindow(weir.PerMinute(1), 0)},
		{weir.AtOnce(7), 3, weir.AtOnce(2)},
		{weir.CalendarWindow(7, algo.Calendar{}), 3, weir.CalendarWindow(2, algo.Calendar{})},
	} {
		if got := dividedLimit(c.l, c.by); got != c.want {
			t.Errorf("%v by %d: %v, want %v", c.l, c.by, got, c.want)
		}
	}
}

func newLocalFallback(t *testing.T, maxKeys int) *fallback {
	t.Helper()
	f, err := newFallback(FallbackOptions{MaxKeys: maxKeys}, func() int { return 2 })
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fallback) mustDecide(t *testing.T, ask Ask, charges ...Charge) (Hold, []weir.Decision) {
	t.Helper()
	ds := make([]weir.Decision, len(charges))
	r, err := f.decide(ask, charges, ds, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return r, ds
}

// TestFallbackLacking wants what is lacking to be what was taken and has not come back, debts included, for every algorithm.
func TestFallbackLacking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, l := range []weir.Limit{
			weir.TokenBucket(weir.PerMinute(100), 0),
			weir.FixedWindow(weir.PerMinute(100)),
			weir.SlidingWindow(weir.PerMinute(100), 0),
			weir.SlidingCounter(weir.PerMinute(100)),
			weir.CalendarWindow(100, algo.Calendar{Unit: algo.CalendarHour}),
		} {
			f := newLocalFallback(t, 100)
			c := Charge{Policy: "p", Key: "k", Limit: l, Fail: FailLocal, N: 7}
			key := c.recordKey()
			want := func(n int64) {
				t.Helper()
				if got := f.memory.lacking(key); got != n {
					t.Errorf("%v: %d are lacking, want %d", l, got, n)
				}
			}
			want(0)
			f.mustDecide(t, Ask{}, c)
			want(7)
			c.N = 43
			f.mustDecide(t, Ask{}, c)
			want(50)
			c.N = 20
			ds := make([]weir.Decision, 1)
			if ok, err := f.debit([]Charge{c}, ds); !ok || err != nil || ds[0].Allowed {
				t.Errorf("%v, %v, %+v", ok, err, ds)
			}
			want(70)
			if owed := f.owed(key, f.debts[key]); owed != 70 {
				t.Errorf("%v: %d are owed", l, owed)
			}
			time.Sleep(2 * time.Hour)
			if want(0); f.owing.Load() != 1 || f.owed(key, f.debts[key]) != 0 {
				t.Errorf("owing %d", f.owing.Load())
			}
			if f.prune(10); f.owing.Load() != 0 || len(f.debts) != 0 {
				t.Errorf("owing %d", f.owing.Load())
			}
		}
	})
}

// TestFallbackReservedIsTold has a reservation outlive what the store was told of it: it does not come back, and what it costs more
// is owed.
func TestFallbackReservedIsTold(t *testing.T) {
	c := Charge{Policy: "p", Key: "k", Limit: weir.TokenBucket(weir.Per(100, 1000*time.Hour), 0), Fail: FailLocal, N: 20}
	for actual, want := range map[int64]int64{-1: 0, 0: 0, 5: 0, 20: 0, 29: 9} {
		f := newLocalFallback(t, 100)
		r, _ := f.mustDecide(t, Ask{Hold: time.Minute}, c)
		claims, mine := f.claimSome()
		if len(claims) != 1 || claims[0].charge.N != 20 || claims[0].charge.Limit != c.Limit {
			t.Fatalf("%+v", claims)
		}
		f.told(claims, nil)
		close(mine.done)
		if f.owing.Load() != 0 {
			t.Fatalf("owing %d", f.owing.Load())
		}
		var cost []int64
		if actual >= 0 {
			cost = []int64{actual}
		}
		if ok, err := f.settle(t.Context(), r, cost); !ok || err != nil {
			t.Errorf("%v, %v", ok, err)
		}
		owed := int64(0)
		if d := f.debts[c.recordKey()]; d != nil {
			owed = f.owed(c.recordKey(), d)
		}
		if owed != want {
			t.Errorf("cost %d: %d are owed, want %d", actual, owed, want)
		}
		if ok, err := f.settle(t.Context(), r, cost); !ok || err != ErrNotReserved { //nolint:errorlint // exactly that
			t.Errorf("%v, %v", ok, err)
		}
	}
}

// TestFallbackClaims wants a debt to be told by one caller at a time, and to stay if it could not be told.
func TestFallbackClaims(t *testing.T) {
	f := newLocalFallback(t, 100)
	l := weir.TokenBucket(weir.Per(100, 1000*time.Hour), 0)
	a := Charge{Policy: "p", Key: "a", Limit: l, Fail: FailLocal, N: 3}
	b := Charge{Policy: "p", Key: "b", Limit: l, Fail: FailLocal, N: 4}
	f.mustDecide(t, Ask{}, a, b)
	claims, mine, other := f.claim([]Charge{a, {Policy: "p", Key: "c"}})
	if len(claims) != 1 || claims[0].charge.N != 3 || other != nil {
		t.Fatalf("%+v, %v", claims, other)
	}
	if _, _, other = f.claim([]Charge{b, a}); other != mine {
		t.Errorf("%v", other)
	}
	if rest, _ := f.claimSome(); len(rest) != 1 || rest[0].key.key != "b" {
		t.Errorf("%+v", rest)
	}
	f.mustDecide(t, Ask{}, a) // meanwhile
	f.told(claims, ErrUnavailable)
	if claims, _, _ = f.claim([]Charge{a}); len(claims) != 1 || claims[0].charge.N != 6 {
		t.Fatalf("%+v", claims)
	}
	f.mustDecide(t, Ask{}, a) // meanwhile
	f.told(claims, nil)
	if claims, _, _ = f.claim([]Charge{a}); len(claims) != 1 || claims[0].charge.N != 3 || f.memory.lacking(claims[0].key) != 9 {
		t.Fatalf("%+v", claims)
	}
	f.told(claims, &weir.OptionError{Option: "the store does not know such limits"})
	if claims, _, _ = f.claim([]Charge{a}); len(claims) != 0 || f.owing.Load() != 1 {
		t.Errorf("%+v, owing %d", claims, f.owing.Load())
	}
}

// TestFallbackUndoForgivesItsOwn undoes a request when its permits, or some of them, have come back: what others owe is still told.
func TestFallbackUndoForgivesItsOwn(t *testing.T) {
	for after, want := range map[time.Duration]int64{0: 30, 200 * time.Millisecond: 30, 2 * time.Second: 30} {
		synctest.Test(t, func(t *testing.T) {
			f := newLocalFallback(t, 100)
			c := Charge{Policy: "p", Key: "k", Limit: weir.TokenBucket(weir.PerSecond(100), 0), Fail: FailLocal, N: 20}
			since := f.memory.time()
			f.mustDecide(t, Ask{}, c)
			time.Sleep(after) // 50 in a second have come back
			f.prune(10)
			other := c
			other.N = want
			if _, ds := f.mustDecide(t, Ask{}, other); !ds[0].Allowed {
				t.Fatalf("%+v", ds)
			}
			f.undo([]Charge{c}, since)
			if claims, _ := f.claimSome(); len(claims) != 1 || claims[0].charge.N != want {
				t.Errorf("after %v: %+v, want %d", after, claims, want)
			}
		})
	}
}

// TestFallbackIsBounded has an outage with ever new keys: neither the keys nor the debts are more than there may be.
func TestFallbackIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 1000
		f := newLocalFallback(t, most)
		for i := range 20 * most {
			f.mustDecide(t, Ask{}, Charge{
				Policy: "p", Key: fmt.Sprint(i), Limit: weir.TokenBucket(weir.PerSecond(1000), 0), Fail: FailLocal, N: 1,
			})
			if i%100 == 0 {
				time.Sleep(time.Millisecond)
			}
			if len(f.debts) > most+most/4+64 || f.memory.Len() > most || int(f.owing.Load()) != len(f.debts) {
				t.Fatalf("%d debts, %d owing, %d keys", len(f.debts), f.owing.Load(), f.memory.Len())
			}
		}
	})
}

// TestFallbackDividesAsReplicasChange wants the limit to follow the count of replicas, with what is taken taken.
func TestFallbackDividesAsReplicasChange(t *testing.T) {
	live := 1
	f, err := newFallback(FallbackOptions{}, func() int { return live })
	if err != nil {
		t.Fatal(err)
	}
	c := Charge{Policy: "p", Key: "k", Limit: weir.FixedWindow(weir.Per(120, 1000*time.Hour)), Fail: FailLocal, N: 30}
	for _, step := range []struct {
		live             int
		allowed          bool
		limit, remaining int64
	}{{1, true, 120, 90}, {2, true, 60, 0}, {2, false, 60, 0}, {4, false, 30, 0}, {1, true, 120, 30}, {0, true, 120, 0}} {
		live = step.live
		_, ds := f.mustDecide(t, Ask{}, c)
		if d := ds[0]; d.Allowed != step.allowed || d.Limit != step.limit || d.Remaining != step.remaining {
			t.Errorf("%+v: %+v", step, d)
		}
	}
}

func BenchmarkFallbackLocal(b *testing.B) {
	f, err := newFallback(FallbackOptions{}, func() int { return 3 })
	if err != nil {
		b.Fatal(err)
	}
	charges := []Charge{{Policy: "p", Key: "k", Limit: weir.TokenBucket(weir.PerSecond(1e9), 0), Fail: FailLocal, N: 1}}
	ds := make([]weir.Decision, 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.decide(Ask{}, charges, ds, time.Second); err != nil {
			b.Fatal(err)
		}
	}
}
