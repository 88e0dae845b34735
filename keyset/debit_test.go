package keyset_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/keyset"
	"github.com/weirhq/weir/manualclock"
)

func debit(t testing.TB, charges ...keyset.Charge) []weir.Decision {
	t.Helper()
	ds, b := keyset.DebitAll(nil, charges...)
	if len(ds) != len(charges) || b < 0 || b >= len(ds) {
		t.Fatalf("binding %d of %d decisions on %d charges", b, len(ds), len(charges))
	}
	return ds
}

func TestDebitsAreOwed(t *testing.T) {
	clock := manualclock.New(1)
	a := keyedOf(t, weir.TokenBucket(every(time.Second), 5), weir.KeyedOptions{Name: "a", Clock: clock})
	b := keyedOf(t, weir.TokenBucket(every(time.Second), 5), weir.KeyedOptions{Name: "b", MaxDebt: 2, Clock: clock})
	a.Take("x", 5)
	ds, binding := keyset.DebitAll([]weir.Decision{{Policy: "before"}}, keyset.Charge{Limiter: a, Key: "x", N: 3}, keyset.Charge{Limiter: b, Key: "y", N: 9})
	if len(ds) != 3 || ds[0].Policy != "before" || binding != 0 {
		t.Fatalf("%d of %+v", binding, ds)
	}
	if d := ds[1]; d.Allowed || d.Reason != weir.ReasonLimited || d.Remaining != 0 || d.RetryAfter != 4*time.Second || d.Policy != "a" {
		t.Errorf("3 permits of an empty bucket: %+v", d)
	}
	if d := ds[2]; d.Allowed || d.RetryAfter != 3*time.Second || d.ResetAfter != 7*time.Second || d.Limit != 5 {
		t.Errorf("9 permits of 5 and a debt of 2: %+v", d)
	}
	if s, u := a.Stats(), b.Stats(); s.Forgiven != 0 || u.Forgiven != 2 || s.Allowed != 2 || u.Allowed != 1 || s.Refused+u.Refused != 0 {
		t.Errorf("%+v, %+v", s, u)
	}
	clock.Advance(4*time.Second - 1)
	if a.Allow("x") {
		t.Error("a permit is granted before the debt is regained")
	}
	clock.Advance(1)
	if !a.Allow("x") || a.Allow("x") {
		t.Error("not the one permit is granted once the debt is regained")
	}
}

func TestDebitsThatCannotBe(t *testing.T) {
	k := hourly(t, "k", 3)
	pool := keyedOf(t, weir.AtOnce(3), weir.KeyedOptions{Name: "pool"})
	for name, charges := range map[string][]keyset.Charge{
		"negative":    {{Limiter: k, N: 1}, {Limiter: k, N: -1}},
		"concurrency": {{Limiter: k, N: 1}, {Limiter: pool, N: 1}},
		"no limiter":  {{Limiter: k, N: 1}, {N: 1}},
	} {
		ds, b := keyset.DebitAll(nil, charges...)
		if b != 0 || len(ds) != 2 || ds[0].Reason != weir.ReasonInvalid || ds[1].Reason != weir.ReasonInvalid {
			t.Errorf("%s: %d of %+v", name, b, ds)
		}
	}
	if left := leftOf(k, ""); left != 3 {
		t.Errorf("%d left, want 3: nothing is charged", left)
	}
	if ds := debit(t, keyset.Charge{Limiter: pool, N: 0}); !ds[0].Allowed || ds[0].Remaining != 3 {
		t.Errorf("0 permits of a pool: %+v", ds)
	}
	if ds, b := keyset.DebitAll(nil); len(ds) != 0 || b != -1 {
		t.Errorf("no charges: %d of %+v", b, ds)
	}
	k.Close()
	if ds := debit(t, keyset.Charge{Limiter: k, N: 2}); ds[0].Reason != weir.ReasonClosed || ds[0].Remaining != 1 {
		t.Errorf("after Close: %+v", ds)
	}
}

// TestDebitsOnFullTables: the cost of a key that finds no room is forgiven, that of others is not.
func TestDebitsOnFullTables(t *testing.T) {
	for _, when := range []bool{false, true} {
		t.Run(strconv.FormatBool(when), func(t *testing.T) {
			clock := manualclock.New(1)
			full := keyedOf(t, weir.TokenBucket(every(time.Hour), 5), weir.KeyedOptions{MaxKeys: 1, AdmitWhenFull: when, Clock: clock})
			full.Take("first", 5)
			a := hourly(t, "a", 5)
			charges := []keyset.Charge{{Limiter: a, Key: "x", N: 2}, {Limiter: full, Key: "second", N: 7}, {Limiter: full, Key: "first", N: 1}}
			ds := debit(t, charges...)
			if ds[0].Remaining != 3 || leftOf(a, "x") != 3 || ds[2].RetryAfter != 2*time.Hour {
				t.Errorf("the others: %+v", ds)
			}
			if d := ds[1]; d.Allowed != when || !d.Allowed && d.Reason != weir.ReasonTableFull {
				t.Errorf("the key without room: %+v", d)
			}
			if s := full.Stats(); s.Forgiven != 7 || s.Allowed != 2 || s.Keys != 1 {
				t.Errorf("%+v", s)
			}
			clock.Advance(10 * time.Hour) // then the first is forgotten for the second
			if ds := debit(t, charges[1]); ds[0].RetryAfter != 3*time.Hour {
				t.Errorf("once there is room: %+v", ds)
			}
		})
	}
}

// TestDebitsForgiveUpToTheLargestNumber however large they are.
func TestDebitsForgiveUpToTheLargestNumber(t *testing.T) {
	k := hourly(t, "k", 5)
	for range 2 {
		if ds := debit(t, keyset.Charge{Limiter: k, N: math.MaxInt64}); ds[0].RetryAfter != 6*time.Hour {
			t.Errorf("%+v", ds)
		}
	}
	if s := k.Stats(); s.Forgiven != math.MaxInt64 {
		t.Errorf("%d forgiven", s.Forgiven)
	}
}

// TestDebitsMakeOthersWait: a call that waits for a key is served when the debt is regained as well, to the nanosecond.
func TestDebitsMakeOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keyedOf(t, weir.TokenBucket(every(time.Second), 5), weir.KeyedOptions{QueueLimit: 5})
		a := keyedOf(t, weir.TokenBucket(every(time.Second), 5), weir.KeyedOptions{})
		k.Take("x", 5)
		begin := time.Now()
		served := make(chan time.Duration)
		go func() {
			if l, err := k.Acquire(t.Context(), "x", 1); err != nil || !l.Allowed() {
				t.Errorf("%+v, %v", l, err)
			}
			served <- time.Since(begin)
		}()
		synctest.Wait()
		// Twice in one call, where gates cannot be locked together.
		ds := debit(t, keyset.Charge{Limiter: k, Key: "x", N: 1}, keyset.Charge{Limiter: a, Key: "x", N: 7}, keyset.Charge{Limiter: k, Key: "x", N: 2})
		for i, want := range []time.Duration{4 * time.Second, 3 * time.Second, 4 * time.Second} {
			if ds[i].Allowed || ds[i].RetryAfter != want {
				t.Errorf("charge %d: %+v, want %v", i, ds[i], want)
			}
		}
		ds = debit(t, keyset.Charge{Limiter: a, Key: "x", N: 1}, keyset.Charge{Limiter: k, Key: "x", N: 1})
		if ds[0].RetryAfter != 4*time.Second || ds[1].RetryAfter != 5*time.Second {
			t.Errorf("%+v", ds)
		}
		debit(t, keyset.Charge{Limiter: k, Key: "x", N: 100})
		if got := <-served; got != 6*time.Second {
			t.Errorf("served after %v, want 6s: 1 s for the permit, 5 s for the largest debt", got)
		}
		if s := k.Stats(); s.Forgiven != 99 || s.Allowed != 1+4+1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestDebitsOfOneKeyUnderTwoPlans: the last one holds.
func TestDebitsOfOneKeyUnderTwoPlans(t *testing.T) {
	k := keyedOf(t, weir.TokenBucket(every(time.Second), 1), weir.KeyedOptions{Clock: manualclock.New(1)})
	ten, twenty := planOf(t, k, perHour(10)), planOf(t, k, perHour(20))
	ds := debit(t, keyset.Charge{Limiter: k, Key: "x", N: 4, Plan: ten}, keyset.Charge{Limiter: k, Key: "x", N: 3, Plan: twenty})
	for _, d := range ds {
		if d.Limit != 20 || d.Remaining != 3 {
			t.Errorf("%+v, want 10 - 4 - 3 of 20 left", d)
		}
	}
}

func TestDebitsAllocateNothing(t *testing.T) {
	var charges []keyset.Charge
	for i := range 3 {
		k := keyedOf(t, weir.TokenBucket(weir.PerSecond(1), 3), weir.KeyedOptions{Name: fmt.Sprint(i)})
		charges = append(charges, keyset.Charge{Limiter: k, Key: "key", N: 2, Plan: planOf(t, k, perHour(50))})
	}
	ds := debit(t, charges...)
	if n := testing.AllocsPerRun(100, func() { ds, _ = keyset.DebitAll(ds[:0], charges...) }); n > 0 && !race.Enabled {
		t.Errorf("%v allocations", n)
	}
}

// TestDebitsAreOneStep: no other request sees one of two limits debited that are always debited together.
func TestDebitsAreOneStep(t *testing.T) {
	for _, gates := range []bool{false, true} {
		t.Run(fmt.Sprintf("gates %v", gates), func(t *testing.T) {
			const permits = 20_000
			a, b := hourly(t, "a", permits), hourly(t, "b", permits)
			var all sync.WaitGroup
			done := make(chan struct{})
			for g := range 4 {
				all.Go(func() {
					random := rand.New(rand.NewPCG(1, uint64(g)))
					charges := []keyset.Charge{{Limiter: a, Key: "k", N: 1}, {Limiter: b, Key: "k", N: 1}}
					var ds []weir.Decision
					for i := range permits / 8 {
						n := 1 + random.Int64N(3)
						charges[0].N, charges[1].N = n, n
						random.Shuffle(2, func(i, j int) { charges[i], charges[j] = charges[j], charges[i] })
						if ds, _ = keyset.DebitAll(ds[:0], charges...); ds[0].Remaining != ds[1].Remaining {
							t.Error("what remains differs")
						}
						if gates && i%50 == 0 {
							_ = keyset.Of(b).Override("k", weir.TokenBucket(every(time.Hour), permits), time.Hour)
						} else if gates && i%50 == 25 {
							keyset.Of(b).Restore("k")
						}
					}
				})
			}
			go func() {
				all.Wait()
				close(done)
			}()
			probe := []keyset.Charge{{Limiter: b, Key: "k"}, {Limiter: a, Key: "k"}}
			var leases []weir.Lease
			for looks := 0; ; looks++ {
				leases, _ = keyset.TryAcquireAll(leases[:0], probe...)
				if one, other := leases[0].Decision().Remaining, leases[1].Decision().Remaining; one != other {
					t.Fatalf("look %d: %d left of one, %d of the other", looks, one, other)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
}

// TestDebitsContention: nothing that is debited or taken gets lost, whatever calls come at the same time, in whatever order of
// limits.
func TestDebitsContention(t *testing.T) {
	const limiters, keys, permits, debt = 3, 3, 1000, 1000
	var all []*weir.Keyed[string]
	for i := range limiters {
		all = append(all, keyedOf(t, weir.TokenBucket(every(time.Hour), permits), weir.KeyedOptions{
			Name: strconv.Itoa(i), MaxDebt: debt, Clock: manualclock.New(1),
		}))
	}
	var spent [limiters]int64
	var lock sync.Mutex
	var work sync.WaitGroup
	for g := range 6 {
		work.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(g)))
			var own [limiters]int64
			var leases []weir.Lease
			for i := range 1000 {
				var charges []keyset.Charge
				for range 1 + random.IntN(4) {
					charges = append(charges, keyset.Charge{
						Limiter: all[random.IntN(limiters)], Key: strconv.Itoa(random.IntN(keys)), N: random.Int64N(4),
					})
				}
				took := i%2 == 0
				if took {
					var b int
					leases, b = keyset.TryAcquireAll(leases[:0], charges...)
					took = leases[b].Allowed()
				} else {
					keyset.DebitAll(nil, charges...)
					took = true
				}
				for _, c := range charges {
					for l := range all {
						if took && all[l] == c.Limiter {
							own[l] += c.N
						}
					}
				}
				switch k, key := all[random.IntN(limiters)], strconv.Itoa(random.IntN(keys)); random.IntN(20) {
				case 0:
					_ = keyset.Of(k).Override(key, weir.TokenBucket(every(time.Hour), permits), time.Hour)
				case 1:
					keyset.Of(k).Restore(key)
				}
			}
			lock.Lock()
			defer lock.Unlock()
			for l := range own {
				spent[l] += own[l]
			}
		})
	}
	work.Wait()
	for l, k := range all {
		var gone int64
		for key := range keys {
			gone += int64(k.Peek(strconv.Itoa(key), 0).ResetAfter / time.Hour)
		}
		if forgiven := k.Stats().Forgiven; gone+forgiven != spent[l] {
			t.Errorf("limiter %d: %d gone and %d forgiven of %d", l, gone, forgiven, spent[l])
		}
	}
}
