package keyset_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/race"
	"github.com/weirhq/weir/keyset"
)

// ownPlan is the plan of a new limiter's own limit.
func ownPlan(t *testing.T, limit weir.Limit) *keyset.Plan {
	t.Helper()
	k := keyedOf(t, limit, weir.KeyedOptions{})
	t.Cleanup(func() { _ = k.Close() })
	return planOf(t, k, weir.Limit{})
}

// TestStepsWriteDecisionsInPlace: a Step can be used again, takes all or nothing, and writes each decision where it was told to.
func TestStepsWriteDecisionsInPlace(t *testing.T) {
	two, one := ownPlan(t, weir.TokenBucket(every(time.Hour), 2)), ownPlan(t, weir.TokenBucket(every(time.Hour), 1))
	key := []byte("ann")
	var s keyset.Step
	var a, b weir.Decision
	step := func() *keyset.Step {
		a, b = weir.Decision{}, weir.Decision{}
		s.Add(two, key, 1, &a)
		s.Add(one, key, 1, &b)
		return &s
	}
	if at := step().Take(); at != 1 || !a.Allowed || !b.Allowed || a.Remaining != 1 || b.Remaining != 0 {
		t.Fatalf("%d binds: %+v, %+v", at, a, b)
	}
	if at := step().Take(); at != 1 || !a.Allowed || a.Remaining != 1 || b.Reason != weir.ReasonLimited {
		t.Fatalf("%d binds: %+v, %+v", at, a, b)
	}
	if at := step().Peek(); at != 1 || a.Remaining != 1 || b.Allowed {
		t.Fatalf("%d binds: %+v, %+v", at, a, b)
	}
	leases, at := step().TryAll(nil, true)
	if at != 1 || leases[0].Decision() != a || leases[1].Decision() != b || leases[1].Permits() != 0 {
		t.Fatalf("%d binds: %+v, %+v", at, leases[0].Decision(), leases[1].Decision())
	}
	if at := step().Debit(); at != 1 || a.Remaining != 0 || b.Allowed {
		t.Fatalf("%d binds: %+v, %+v", at, a, b)
	}
	if n := testing.AllocsPerRun(100, func() { step().Take() }); n > 0 && !race.Enabled {
		t.Errorf("%v allocations", n)
	}
}

// TestStepsTakeNothingThatMustComeBack: a step without leases could never release the permits of a limit of concurrency.
func TestStepsTakeNothingThatMustComeBack(t *testing.T) {
	slots := ownPlan(t, weir.AtOnce(1))
	var s keyset.Step
	var d weir.Decision
	s.Add(slots, []byte("ann"), 1, &d)
	if at := s.Take(); at != 0 || d.Reason != weir.ReasonInvalid {
		t.Fatalf("%d binds: %+v", at, d)
	}
	s.Add(slots, []byte("ann"), 1, &d)
	leases, _ := s.TryAll(nil, false)
	if !d.Allowed {
		t.Fatalf("%+v", d)
	}
	leases[0].Release()
}

// TestChargesNeedNoLimiterBesideAPlan: the plan says which it is.
func TestChargesNeedNoLimiterBesideAPlan(t *testing.T) {
	one := ownPlan(t, weir.TokenBucket(every(time.Hour), 1))
	for _, want := range []bool{true, false} {
		if leases, _ := keyset.TryAcquireAll(nil, keyset.Charge{Key: "ann", N: 1, Plan: one}); leases[0].Allowed() != want {
			t.Errorf("%+v, want %v", leases[0].Decision(), want)
		}
	}
}

// TestAPanicLeavesNoChargesBehind: a Step is used again by other callers.
func TestAPanicLeavesNoChargesBehind(t *testing.T) {
	one := ownPlan(t, weir.TokenBucket(every(time.Hour), 1))
	var s keyset.Step
	var d weir.Decision
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic without a context")
			}
		}()
		s.Add(one, []byte("ann"), 1, nil)
		_, _, _ = s.WaitAll(nil, nil, false) //nolint:staticcheck // this is what is tested
	}()
	if s.Add(one, []byte("ann"), 1, &d); s.Peek() != 0 || !d.Allowed {
		t.Errorf("%+v", d)
	}
}
