package policy_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/manualclock"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// TestSharedAllOrNothingContention: two engines with limits of their own over one store, which fails now and then, are asked in
// every way at a time and reloaded meanwhile. Every permit that is gone afterwards was granted, once, and none is held.
func TestSharedAllOrNothingContention(t *testing.T) {
	const goroutines, requests, most, inUse = 8, 400, 1500, 5
	clock := manualclock.New(1)
	s := memory(t, clock)
	s.fail = func() error {
		if rand.IntN(50) == 0 {
			return store.ErrUnavailable // before it took effect
		}
		return nil
	}
	set := func(i int) *policy.Set {
		return &policy.Set{
			Policies: append(
				shared(
					policy.Policy{Name: "total", Limits: one(perHour(most))},
					policy.Policy{Name: "key", Limits: one(perHour(most / 4)), Key: policy.MethodText(), Parent: "use"},
					policy.Policy{Name: "use", Limits: one(weir.AtOnce(inUse)), Hold: 24 * time.Hour},
					policy.Policy{Name: fmt.Sprint("other", i), Limits: one(perHour(10)), Mode: policy.ModeShadow},
				),
				policy.Policy{Name: "local", Limits: one(perHour(most / 3)), Key: policy.HostText()},
				policy.Policy{
					Name: "busy", Limits: one(weir.AtOnce(4)),
					QueueLimit: 10, MaxWait: time.Millisecond,
				},
			),
			Rules: []policy.Rule{{Name: "all", Limits: uses("local", "total", "key", fmt.Sprint("other", i), "busy")}},
		}
	}
	engines := []*policy.Engine{over(t, s, clock, set(0)), over(t, s, clock, set(0))}
	var spent [2]struct{ local, total atomic.Int64 }
	var held, loads, failed atomic.Int64
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 3))
			e, of := engines[g%2], &spent[g%2]
			v := new(policy.Verdict)
			for range requests {
				request := policy.Request{Method: fmt.Sprint("M", r.IntN(4)), Host: fmt.Sprint("h", r.IntN(2)), Cost: 1 + r.Int64N(3)}
				reserved := false
				switch r.IntN(12) {
				case 0:
					if _, err := e.Load(set(int(loads.Add(1)) % 3)); err != nil {
						t.Error(err)
					}
					continue
				case 1:
					e.Explain(&request)
					e.Report()
					continue
				case 2:
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(300))*time.Microsecond)
					if err := verdictOf(e.WaitReserve(ctx, &request, v), v); err != nil && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					cancel()
					reserved = true
				case 3, 4, 5:
					e.Reserve(&request, v)
					reserved = true
				case 6:
					_ = e.Wait(t.Context(), &request, v)
				default:
					e.Take(&request, v)
				}
				if !v.Allowed {
					v.Release()
					continue
				}
				if n := held.Add(request.Cost); n > inUse {
					t.Errorf("%d permits are in use", n)
				}
				held.Add(-request.Cost)
				cost := request.Cost
				settle(r.IntN(3), v, &cost, reserved)
				of.local.Add(cost)
				of.total.Add(cost)
				if v.Allowed && r.IntN(4) == 0 {
					v.Release() // again
				}
			}
			failed.Add(1)
		})
	}
	all.Wait()
	if failed.Load() != goroutines {
		t.Fatal("some goroutine has ended early")
	}
	s.fail = nil
	for i, e := range engines {
		left := int64(0)
		for _, host := range []string{"h0", "h1"} {
			left += localLeft(t, e, "local", host)
		}
		if got := 2*(most/3) - left; got != spent[i].local.Load() {
			t.Errorf("engine %d: %d local permits are gone, %d were granted", i, got, spent[i].local.Load())
		}
		wantLeft(t, e, "busy", "", 4)
	}
	total := spent[0].total.Load() + spent[1].total.Load()
	wantStored(t, engines[0], "total", "", "", most-total)
	wantStored(t, engines[1], "use", "", "", inUse)
	keys := int64(0)
	for i := range 4 {
		state, err := engines[0].Inspect(t.Context(), "key", "", fmt.Sprint("M", i))
		if err != nil || state.Reservations != 0 {
			t.Errorf("%+v, %v", state, err)
		}
		keys += most/4 - state.Decision.Remaining
	}
	if keys != total {
		t.Errorf("%d permits of keys are gone, %d were granted", keys, total)
	}
	if total == 0 || total > most {
		t.Errorf("%d permits were granted", total)
	}
}

func localLeft(t testing.TB, e *policy.Engine, name, key string) int64 {
	t.Helper()
	s, err := e.Inspect(t.Context(), name, "", key)
	if err != nil {
		t.Fatal(err)
	}
	return s.Decision.Remaining
}

// settle ends a request in one of three ways, and tells what it has cost.
func settle(how int, v *policy.Verdict, cost *int64, reserved bool) {
	switch how {
	case 0:
		v.Cancel()
		if reserved {
			*cost = 0
		}
	case 1:
		v.Commit(func(*policy.Part) int64 { return *cost - 1 })
		if reserved {
			*cost--
		}
	default:
		v.Release()
	}
}
